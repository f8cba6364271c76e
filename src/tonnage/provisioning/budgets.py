"""Disruption budgets of a NodePool: how many nodes may be disrupted at one moment.

Source: kubernetes-sigs/karpenter pkg/apis/v1/nodepool.go and pkg/controllers/disruption/helpers.go.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cronsim import CronSim, CronSimError
from msgspec import Struct

from tonnage.objects import karpenter
from tonnage.objects.validate.nodepools import NODES
from tonnage.units import NS_PER_S

EMPTY = "Empty"
_DURATION = re.compile(r"(?:([0-9]+)h)?(?:([0-9]+)m)?(?:0s)?")
_CRON_FIELD = re.compile(r"[0-9a-zA-Z*?,/-]+")
_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class Allowance(Struct, frozen=True):
    """How many nodes the budgets allow to be disrupted (``None``: no active budget limits it), and which
    budget says so.
    """

    nodes: int | None
    because: str


class BadBudget(ValueError):
    """A budget that cannot be read; the pool then allows no disruption at all."""


def allowance(budgets: Sequence[karpenter.Budget], nodes: int, now_ns: int, reason: str = EMPTY) -> Allowance:
    """The smallest number that the active budgets for ``reason`` allow.

    ``nodes`` counts the pool's initialised nodes; a percentage of it is rounded up. ``now_ns`` is since the
    Unix epoch; schedules are in UTC. A budget without reasons counts for every reason. One budget that
    cannot be read, even one for other reasons, brings the allowance to 0.
    """
    smallest = Allowance(None, "no active budget")
    for budget in budgets:
        try:
            allowed = _allowed(budget, nodes) if is_active(budget, now_ns) else None
        except BadBudget as error:
            return Allowance(0, str(error))
        if allowed is None or (budget.reasons and reason not in budget.reasons):
            continue
        if smallest.nodes is None or allowed < smallest.nodes:
            smallest = Allowance(allowed, _describe(budget))
    return smallest


def is_active(budget: karpenter.Budget, now_ns: int) -> bool:
    """Whether the budget's window is open: its schedule hit within the last ``duration`` (or it has no
    schedule).

    Raises :class:`BadBudget` when schedule or duration cannot be read, or one is given without the other.
    """
    if budget.schedule is None and budget.duration is None:
        return True
    if budget.schedule is None or budget.duration is None:
        raise BadBudget(f"budget {_describe(budget)}: schedule and duration need each other")
    match = _DURATION.fullmatch(budget.duration)
    if match is None or not (match[1] or match[2]):
        raise BadBudget(f"budget duration {budget.duration!r}: hours and minutes only, such as 8h30m")
    length = timedelta(hours=int(match[1] or 0), minutes=int(match[2] or 0))
    now = datetime.fromtimestamp(now_ns // NS_PER_S, tz=UTC)
    return _next_hit(budget.schedule, now - length) <= now


def _allowed(budget: karpenter.Budget, nodes: int) -> int:
    written = str(budget.nodes)
    if NODES.fullmatch(written) is None:
        raise BadBudget(f"budget nodes {written!r}: a number or a percentage from 0% to 100%")
    if written.endswith("%"):
        return -(-nodes * int(written[:-1]) // 100)
    return int(written)


def _next_hit(schedule: str, after: datetime) -> datetime:
    written = _DESCRIPTORS.get(schedule.strip(), schedule).split()
    if len(written) != 5 or not all(_CRON_FIELD.fullmatch(field) for field in written):
        raise BadBudget(f"budget schedule {schedule!r}: five cron fields, or a name such as @daily")
    try:
        return next(CronSim(" ".join(written), after))
    except (CronSimError, StopIteration):
        raise BadBudget(f"budget schedule {schedule!r} never comes or cannot be read") from None


def _describe(budget: karpenter.Budget) -> str:
    text = f"nodes: {budget.nodes}"
    if budget.reasons:
        text += f" for {', '.join(budget.reasons)}"
    if budget.schedule is not None:
        text += f" at {budget.schedule} for {budget.duration}"
    return text
