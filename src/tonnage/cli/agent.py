"""`tonnage agent`: what the GPU Operator's operands do on a GPU node, on its cards or on simulated ones."""

from __future__ import annotations

import click

from tonnage.cli import (
    agent_doctor,
    agent_dra,
    agent_health,
    agent_inject,
    agent_labels,
    agent_metrics,
    agent_mig,
    agent_plugin,
)


@click.group()
def agent() -> None:
    """The agent of a GPU node: labels, CDI, the device plugin, the DRA driver, metrics, health.

    Each part runs on the cards of this machine, through NVML, or with --simulated on those of a machine that is not
    there: an EC2 instance type, or cards like 2xh100,l4.
    """


for _command in (
    agent_doctor.doctor,
    agent_labels.labels,
    agent_labels.cdi,
    agent_plugin.device_plugin_,
    agent_dra.dra,
    agent_metrics.metrics,
    agent_mig.mig,
    agent_health.health,
    agent_inject.inject,
):
    agent.add_command(_command)
