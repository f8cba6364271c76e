"""What `tonnage why` prints for people: at most 80 columns."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tonnage.cli import lines
from tonnage.cli.look import Console, Look, place
from tonnage.health.told import NEVER, PART, WAITS, Told
from tonnage.scheduling.why.changes import Edit, Leave
from tonnage.scheduling.why.gang import GangEdit
from tonnage.scheduling.why.moves import Moves
from tonnage.scheduling.why.receipt import FITS, HELD, RUNS, GangReceipt, LevelRoom, Out, PodReceipt, Receipt

_SHOWN = 8
"""Nodes of a gang that are named."""


class WhyReport(msgspec.Struct, frozen=True):
    """What `tonnage why -o json` prints."""

    schema: str
    receipt: PodReceipt | GangReceipt | None
    told: Told | None = None


def show(receipt: Receipt | None, told: Told | None = None) -> None:
    """Print what is told, then the receipt of the place."""
    console = Console(sys.stdout)
    console.width = lines.width()
    _Printer(console).show(receipt, told)


class _Printer:
    def __init__(self, console: Console) -> None:
        self.console, self.look = console, Look.of(console)

    def show(self, receipt: Receipt | None, told: Told | None) -> None:
        if told is not None:
            self._told(told)
            if receipt is None or told.state not in (NEVER, WAITS, PART):
                return
            self.console.print()
        if isinstance(receipt, PodReceipt):
            self._pod(receipt)
        elif receipt is not None:
            self._gang(receipt)

    def _told(self, told: Told) -> None:
        style = "bold green" if told.well else "bold red"
        self._first(f"{told.about} {told.line}", style)
        if told.help:
            self._line(f"help: {told.help}")
        if str(told.where):
            self.console.print(self.look.text(place(told.where), "dim"), soft_wrap=True)
        for detail in told.details:
            self._line(detail, "dim", 2)

    def _line(self, text: str, style: str = "", indent: int = 0) -> None:
        self.console.print(Padding(self.look.text(text, style), (0, 0, 0, indent), expand=False))

    def _first(self, text: str, style: str) -> None:
        """The answer: one line, however long, for who reads it in a pipe."""
        self.console.print(self.look.text(text, style), soft_wrap=not self.console.is_terminal)

    def _title(self, text: str) -> None:
        self.console.print()
        self._line(text, "bold")

    # ---- pods ----

    def _pod(self, receipt: PodReceipt) -> None:
        match receipt.state:
            case state if state == RUNS:
                self._line(f"{receipt.pod} runs on {receipt.node}", "bold green")
            case state if state == FITS:
                self._line(f"{receipt.pod} would be bound to {receipt.node} now", "bold green")
            case state if state == HELD:
                self._line(f"{receipt.pod} is not scheduled: {receipt.verdict}", "bold yellow")
                return
            case _:
                self._first(f"{receipt.pod} is pending: {receipt.verdict}", "bold red")
        self._before(receipt.ahead, receipt.evicted, (receipt.nominated,) if receipt.nominated else ())
        self._scores(receipt)
        self._out(receipt.out, f"Infeasible nodes, of {receipt.nodes}")
        if receipt.fit and receipt.state not in (RUNS, FITS):
            self._line(f"{receipt.fit} feasible nodes")
        self._pod_changes(receipt)
        self._moves(receipt.moves)

    def _before(self, ahead: int, evicted: Sequence[str], nominated: Sequence[str]) -> None:
        if ahead:
            self._line(f"Counted as placed, as they are scheduled before it: {_pods(ahead)}")
        if nominated:
            self._line(f"Room is being made for it on {', '.join(nominated)}")
        if evicted:
            self._line(f"Evicted for it: {', '.join(evicted)}")

    def _scores(self, receipt: PodReceipt) -> None:
        if receipt.best is None:
            return
        self._title(f"Why this node, by policy {receipt.policy}, of {receipt.fit} feasible nodes")
        other = receipt.runner_up
        table = self.look.table()
        table.add_column("Points")
        table.add_column(receipt.best.node, justify="right", overflow="fold")
        if other is not None:
            table.add_column(other.node, justify="right", overflow="fold")
        second = dict(other.parts) if other is not None else {}
        for name, points in receipt.best.parts:
            cells = [f"{points:.2f}"] + ([f"{second.get(name, 0.0):.2f}"] if other is not None else [])
            table.add_row(name, *cells)
        self.console.print(table)
        if receipt.state == RUNS:
            self._line("as the policy sees it today, without the pod")

    def _out(self, out: Sequence[Out], title: str) -> None:
        if not out:
            return
        self._title(title)
        table = self.look.table()
        table.add_column("Nodes", justify="right")
        table.add_column("Why", overflow="fold")
        table.add_column("Such as", overflow="fold")
        for one in out:
            table.add_row(str(one.nodes), Text(one.reason), Text(", ".join(one.examples)))
        self.console.print(table)
        for detail in (detail for one in out for detail in one.details):
            self._line(detail, "dim", 2)

    def _pod_changes(self, receipt: PodReceipt) -> None:
        if receipt.state in (RUNS, FITS) or receipt.fit:
            return
        if not receipt.changes:
            kinds = "request less, drop a constraint, free a node, change a MIG layout, add a node"
            self._title(f"No change of these kinds makes it fit: {kinds}")
            return
        for number, option in enumerate(receipt.changes):
            self._title("The smallest change that makes it fit" if number == 0 else f"Or, {option.about}")
            self._edits(option.change.edits, f"then it fits on {option.change.node}")
            if not option.proved:
                self._line("a smaller one may exist: the search was cut short", "dim", 2)

    def _edits(self, edits: Sequence[Edit | GangEdit], then: str) -> None:
        leaving = [edit for edit in edits if isinstance(edit, Leave)]
        texts = [edit.text() for edit in edits if not isinstance(edit, Leave)]
        if leaving:
            names = ", ".join(f"{edit.namespace}/{edit.name}" for edit in leaving)
            devices = sum(edit.held for edit in leaving) / 1000
            frees = f" (frees {devices:g} GPU{'s' if devices != 1 else ''})" if devices else ""
            texts.append(f"on node {leaving[0].node}, {_pods(len(leaving))} would have to be evicted{frees}: {names}")
        for text in texts:
            self._line(f"- {text}", indent=2)
        self._line(then, "dim", 2)

    def _moves(self, found: Moves | None) -> None:
        if found is None:
            return
        if found.none:
            self._title("Moves of other pods do not make it fit")
            self._line(found.none, "dim", 2)
            return
        into = f"{', '.join(found.into[:_SHOWN])}{' and others' if len(found.into) > _SHOWN else ''}"
        self._title(f"Moves that make room for it on {into}" + ("" if found.allowed else ", if they were allowed"))
        for one in found.moves:
            self._line(f"- {one.pod} from {one.origin} to {one.target}", indent=2)
            if one.forbidden:
                self._line(f"but {one.forbidden}", "yellow", 4)
        lost = ""
        if found.work_lost_device_s:
            cost = f", worth ${found.micro_usd / 1e6:.2f}" if found.micro_usd else ""
            lost = f"; {found.work_lost_device_s / 3600:.1f} hours of device time are lost{cost}"
        self._line(f"each is a restart{lost}", "dim", 2)

    # ---- gangs ----

    def _gang(self, receipt: GangReceipt) -> None:
        source = f" ({receipt.source})" if receipt.source else ""
        match receipt.state:
            case state if state == RUNS:
                self._line(f"Gang {receipt.gang}{source} runs", "bold green")
            case state if state == FITS:
                self._line(f"Gang {receipt.gang}{source} would be bound now", "bold green")
            case _:
                self._first(f"Gang {receipt.gang}{source} is pending: {receipt.verdict}", "bold red")
        self._line(f"{receipt.bound} pods bound, {receipt.pending} pending, minimum {receipt.minimum}")
        self._before(receipt.ahead, receipt.evicted, receipt.nominated)
        self._stands(receipt)
        self._room(receipt.room)
        if receipt.member:
            self._out(receipt.out, f"Infeasible nodes for one of its pods, {receipt.member}")
        if receipt.state in (RUNS, FITS, HELD):
            return
        for number, option in enumerate(receipt.changes):
            self._title("The smallest change that makes it fit" if number == 0 else f"Or, {option.about}")
            self._edits(option.change.edits, "then its minimum fits")
            if not option.proved:
                self._line("a smaller one may exist: the search was cut short", "dim", 2)
        if not receipt.changes:
            self._title("No change of level or minimum, and no further room, makes it fit")
        self._moves(receipt.moves)

    def _stands(self, receipt: GangReceipt) -> None:
        if not receipt.on:
            return
        where = f", in {receipt.level} {receipt.domain}" if receipt.level else ""
        nodes = [f"{node} ({pods})" for node, pods in receipt.on[:_SHOWN]]
        more = f" and {len(receipt.on) - _SHOWN} more" if len(receipt.on) > _SHOWN else ""
        self._line(f"On {len(receipt.on)} nodes{where}: {', '.join(nodes)}{more}")
        facts = dict(receipt.communication)
        if facts.get("allreduce_ms_per_gib") is not None:
            islands = facts["nvlink_islands"]
            among = f"{islands} groups of GPUs" if islands != 1 else "one group of GPUs"
            self._line(
                f"Predicted all-reduce: {facts['allreduce_ms_per_gib']} ms per GiB, {facts['slowest_link']}, {among}"
            )

    def _room(self, rooms: Sequence[LevelRoom]) -> None:
        if not rooms:
            return
        self._title("Pods of the gang that fit in one domain")
        several = len({room.group for room in rooms}) > 1
        table: Table = self.look.table()
        if several:
            table.add_column("Group", overflow="fold")
        table.add_column("Level", overflow="fold")
        table.add_column("Needs", justify="right")
        table.add_column("Holds", justify="right")
        table.add_column("Most room", overflow="fold")
        for room in rooms:
            level = f"{room.level} (required)" if room.required else room.level
            group = [Text(room.group)] if several else []
            table.add_row(*group, Text(level), str(room.needs), str(room.holds), Text(room.best.rpartition("/")[2]))
        self.console.print(table)


def _pods(count: int) -> str:
    return f"{count} pod{'s' if count != 1 else ''}"
