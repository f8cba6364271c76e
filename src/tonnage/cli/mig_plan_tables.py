"""What `tonnage mig plan` prints for people: at most 80 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tonnage.cli import terminal
from tonnage.cli.lines import say
from tonnage.partitioning import notation
from tonnage.partitioning.fleet_plan import CardPlan, Demand, FleetPlan

_SHOWN = 20
"""Rows of unserved demands; the rest is counted."""
_PROVED = 1e-6
"""A smaller gap is the solver's tolerance."""


def plan(found: FleetPlan, demands: Sequence[Demand], notes: Sequence[str]) -> None:
    """Cards that change and do so alike, what is not served and why, and the price."""
    models = Counter(one.card.on.gpu for one in found.cards)
    fleet = ", ".join(f"{count} x {gpu}" for gpu, count in sorted(models.items()))
    busy = sum(bool(one.card.busy) for one in found.cards)
    wanted = sum(one.count for one in demands)
    say(f"{fleet}; {busy} with instances in use")
    say(f"served: {sum(found.served)} of {wanted}")
    alike: dict[tuple[object, ...], list[CardPlan]] = {}
    for one in found.cards:
        if one.change.steps:
            alike.setdefault((one.card.on.gpu, one.card.running, one.card.busy, one.change.after), []).append(one)
    for members in alike.values():
        _cards(members)
    terminal.echo()
    for row in found.unserved[:_SHOWN]:
        demand = demands[row.demand]
        say(f"not served: {row.count} of {demand.count} x {demand.name}: {row.why}", "  ")
    if len(found.unserved) > _SHOWN:
        say(f"{len(found.unserved) - _SHOWN} more demands are not served in full (-o json has them)")
    for note in notes:
        say(f"note: {note}", "  ")
    say(_price(found))


def _cards(members: Sequence[CardPlan]) -> None:
    one = members[0]
    names = [member.card.name for member in members]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    change = one.change
    terminal.echo()
    say(
        f"{len(members)} x {one.card.on.gpu}: {len(change.destroyed)} destroyed, {len(change.created)} created: {shown}"
    )
    say(f"from {_spaced(notation.text(one.card.running, one.card.busy))}", "       ", "  ")
    say(f"to   {_spaced(notation.text(change.after, one.card.busy))}", "       ", "  ")


def _spaced(layout: str) -> str:
    return layout.replace(",", ", ")


def _price(found: FleetPlan) -> str:
    money = f", ${found.micro_usd_per_hour / 1e6:.2f} an hour" if found.micro_usd_per_hour else ""
    gap = "no plan is better" if found.gap < _PROVED else f"the best plan is at most {100 * found.gap:.1g} % better"
    return (
        f"destroyed: {found.destroyed}; created: {found.created}; GPUs partitioned for the first time: {found.cut}; "
        f"cards in use: {found.used}{money}; {gap}"
    )
