"""Every rule over a set of objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tonnage.health.blocker import Blocker, in_order
from tonnage.health.rules import admission, ports, probes, references, services, volumes, waiting
from tonnage.health.setting import Setting

Rule = Callable[[Setting], Iterator[Blocker]]

RULES: tuple[Rule, ...] = (
    references.environment,
    references.volumes,
    probes.probes,
    services.services,
    admission.refused,
    admission.some_over_quota,
    waiting.gates,
    waiting.scheduler_name,
    waiting.device_claims,
    volumes.claims,
    ports.ports,
)


def diagnose(setting: Setting) -> tuple[Blocker, ...]:
    """What never runs, the worst and the earliest in a pod's life first."""
    return in_order(found for rule in RULES for found in rule(setting))
