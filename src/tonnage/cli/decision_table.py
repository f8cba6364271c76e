"""What the controllers would do now, as one table: a row a decision, what is there beside what would be."""

from __future__ import annotations

from typing import NamedTuple

from tonnage.cli import messages
from tonnage.decisions import (
    Bind,
    Decision,
    Disrupt,
    Evict,
    Keep,
    Launch,
    Outcome,
    Ref,
    Refused,
    Relayout,
    Return,
    Scale,
    Stale,
    Wait,
    layout_text,
)


class DecisionRow(NamedTuple):
    """One decision: to which object what is done, who decides, and what changes about it. Empty: not said of it."""

    object: str
    namespace: str
    controller: str
    action: str
    now: str
    then: str
    why: str


class DecisionTable:
    """Gathers decisions, and shows them together."""

    def __init__(self) -> None:
        self.rows, self.decisions = list[DecisionRow](), list[Decision]()

    def decided(self, controller: str, loop: str, decision: Decision, outcome: Outcome) -> None:
        """A row of it."""
        self.decisions.append(decision)
        self.rows.append(row(controller, decision, outcome))

    def failed(self, loop: str, error: Exception) -> None:
        """A fault, in one line."""
        messages.error(f"{loop}: {type(error).__name__}: {error}")

    def ticked(self, loop: str, seconds: float, taken: int) -> None:
        """Nobody asks how long one look takes."""

    def show(self, quiet: bool) -> None:
        """Print the table, and how much it comes to on standard error unless ``quiet``."""
        from tonnage.cli.look import Look
        from tonnage.cli.output import console

        if self.rows:
            to = console()
            table = Look.of(to).table()
            for name in DecisionRow._fields:
                table.add_column(name.upper(), overflow="fold")
            for one in self.rows:
                table.add_row(*one)
            to.print(table)
        messages.note(summed(self.decisions), quiet)


def row(controller: str, decision: Decision, outcome: Outcome) -> DecisionRow:
    """One decision as it stands in the table. What became of it is said where it is not that nothing is written."""
    from tonnage.live.effects import Observing

    action, now, then = _change(decision)
    became = outcome.why if isinstance(outcome, Refused) else outcome.changed if isinstance(outcome, Stale) else ""
    if outcome == Observing.WHY:
        became = ""
    why = decision.reason.text() + (f" ({became})" if became else "")
    target = decision.target
    return DecisionRow(_named(target), target.namespace, controller, action, now, then, why)


def _named(ref: Ref) -> str:
    """As kubectl names objects of several kinds."""
    return f"{ref.kind.lower()}/{ref.name}"


def _change(decision: Decision) -> tuple[str, str, str]:
    """What is done, what is there now and what would be."""
    match decision:
        case Bind():
            return "bind", "", _named(decision.node)
        case Scale():
            return "scale", str(decision.current), str(decision.replicas)
        case Launch():
            price = _dollars(decision.price_micro_usd_per_hour)
            return "launch", "", f"{decision.instance_type} {decision.capacity_type} {price}/h"
        case Disrupt():
            return "disrupt", "", "drained and terminated"
        case Keep():
            return "keep", "", "takes pods again"
        case Return():
            return "terminate", "", "terminated"
        case Evict():
            return ("move" if decision.to else "evict"), "", f"node/{decision.to}" if decision.to else "evicted"
        case Relayout():
            gpu = f"GPU {decision.device}: "
            return "relayout", gpu + layout_text(decision.before), gpu + layout_text(decision.after)
        case Wait():
            return "wait", "", f"node/{decision.nominated}" if decision.nominated else ""


def summed(decisions: list[Decision]) -> str:
    """What the decisions come to, in a line."""
    if not decisions:
        return "nothing to decide"
    counts: dict[str, int] = {}
    for one in decisions:
        action = _change(one)[0]
        counts[action] = counts.get(action, 0) + 1
    told = ", ".join(f"{action} {count}" for action, count in counts.items())
    hourly = sum(one.price_micro_usd_per_hour for one in decisions if isinstance(one, Launch))
    return f"decided: {told}" + (f"; what is launched costs {_dollars(hourly)} an hour" if hourly else "")


def _dollars(micro_usd: int) -> str:
    from tonnage.simulation.report import formats

    return formats.dollars(micro_usd)
