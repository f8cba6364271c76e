"""Every rule over a set of objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tonnage.health.blocker import Blocker, in_order
from tonnage.health.rules import cuda, engines, memory, references, start_budget
from tonnage.health.setting import Setting

Rule = Callable[[Setting], Iterator[Blocker]]

RULES: tuple[Rule, ...] = (
    references.environment,
    engines.engines,
    memory.gpu_memory,
    memory.shared_cards,
    memory.shared_memory,
    memory.host_memory,
    cuda.images,
    cuda.formats,
    start_budget.start_budget,
)


def diagnose(setting: Setting) -> tuple[Blocker, ...]:
    """What never runs, the worst and the earliest in a pod's life first."""
    return in_order(found for rule in RULES for found in rule(setting))
