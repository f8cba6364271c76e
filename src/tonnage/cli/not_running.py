"""What does not run, said before all else: which, since when, why, where that is written, and what would help."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.text import Text

from tonnage.cli.look import INDENT, Console, Look, hang, place
from tonnage.health.blocker import NO_EFFECT
from tonnage.simulation.report import formats
from tonnage.simulation.result import NotRunning, Result

SHOWN = 8


def of(result: Result) -> Sequence[NotRunning]:
    """What does not run in it; empty where all is well."""
    return () if isinstance(result.not_running, msgspec.UnsetType) else result.not_running


def show(results: Sequence[Result], console: Console) -> None:
    """Prints what does not run in each of the runs, once where it is the same in several."""
    look = Look.of(console)
    found: dict[tuple[str, str, str], tuple[NotRunning, list[str]]] = {}
    for result in results:
        for one in of(result):
            key = (str(one.object), one.rule, one.cause)
            found.setdefault(key, (one, []))[1].append(result.policy)
    for one, named in list(found.values())[:SHOWN]:
        policies = list(dict.fromkeys(named))
        show_one(one, console, f" under {', '.join(policies)}" if len(results) > len(policies) else "")
    if len(found) > SHOWN:
        console.print(look.text(f"{len(found) - SHOWN} more do not run: see the report or -o json", "bold red"))
    if found:
        console.print()


def show_one(one: NotRunning, console: Console, under: str = "") -> None:
    """Prints one of them."""
    look = Look.of(console)
    hang(console, Text(""), look.text(title(one) + under, "bold red"))
    for line in details(one):
        hang(console, Text(" " * INDENT), Text(line))
    if str(one.where):
        console.print(look.text(" " * INDENT + place(one.where), "dim"), soft_wrap=True)


def title(one: NotRunning) -> str:
    """Which, and since when."""
    if one.stage == NO_EFFECT:
        return f"No effect: {one.object} ({one.rule})"
    if not one.wanted:
        return f"Not running: {one.object} ({one.rule})"
    some = f"{one.pods} of {one.wanted} pods" if one.pods < one.wanted else "no pod Ready"
    restarts = f", {one.restarts} restarts" if one.restarts else ""
    return f"Not running: {one.object}, {some} since {formats.clock(one.since_s)}{restarts} ({one.rule})"


def details(one: NotRunning) -> list[str]:
    """Why, what kubectl shows of it, and what would help."""
    lines = [one.cause]
    if one.event and one.cause not in one.event:
        lines.append(f"kubectl: {one.event}")
    return [*lines, *([f"help: {one.help}"] if one.help else [])]
