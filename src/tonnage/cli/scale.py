"""`tonnage scale`: what autoscalers do with a history of metrics, and thresholds for a trace."""

from __future__ import annotations

import click

from tonnage.cli.scale_explain import explain
from tonnage.cli.scale_tune import tune


@click.group()
def scale() -> None:
    """Autoscalers: what HPAs, KEDA and the slo policy do at each step and why; the best thresholds for a trace."""


scale.add_command(explain)
scale.add_command(tune)
