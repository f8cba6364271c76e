"""Live progress of a simulation, on a terminal only.

The simulation's loop asks :meth:`Progress.due` (one comparison, one clock reading) and builds a
:class:`ProgressState` only when the answer is yes. rich is imported when there is a terminal to draw on.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

INTERVAL_S = 0.1
"""Wall time between two drawings: ten a second look continuous and cost nothing."""

_NAME_WIDTH = 32


@dataclass(frozen=True, slots=True)
class ServiceProgress:
    """One service now: replicas that serve and that are wanted, requests that wait."""

    name: str
    ready: int
    wanted: int
    waiting: int


@dataclass(frozen=True, slots=True)
class ProgressState:
    """The run now. Times are seconds of the simulation, ``spend_micro_usd`` is the bill so far."""

    label: str
    now_s: float
    duration_s: float
    services: tuple[ServiceProgress, ...]
    nodes_ready: int
    nodes_starting: int
    spend_micro_usd: int
    failing: tuple[str, ...] = ()
    """What does not run: the workload, and why."""


class Progress:
    """Draws the latest state at most ten times a second; does nothing when ``quiet`` or without a terminal.

    ``stream`` is standard error unless given; ``clock`` gives seconds of wall time.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._enabled = not quiet and self._stream.isatty()
        self._clock = clock
        self._next = float("-inf")
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._enabled:
            from rich.live import Live

            from tonnage.cli.look import Console

            self._live = Live(console=Console(self._stream), auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def due(self) -> bool:
        """Whether an update would be drawn now."""
        return self._live is not None and self._clock() >= self._next

    def update(self, *states: ProgressState, note: str = "") -> None:
        """Draws the states of what runs now, and a line below them, when that is due; else drops them."""
        if self._live is None or self._clock() < self._next:
            return
        self._live.update(_drawing(states, note), refresh=True)
        self._next = self._clock() + INTERVAL_S


def _drawing(states: Sequence[ProgressState], note: str) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    return Group(*map(_run, states), Text(note, "dim")) if note else Group(*map(_run, states))


def _run(state: ProgressState) -> RenderableType:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    from tonnage.simulation.report import formats

    share = min(1.0, state.now_s / state.duration_s) if state.duration_s > 0 else 1.0
    top = Table.grid(padding=(0, 2, 0, 0))
    top.add_row(
        Text(_short(state.label), "bold"),
        ProgressBar(total=1.0, completed=share, width=24),
        f"{formats.clock(state.now_s)} of {formats.clock(state.duration_s)}",
    )
    services = Table.grid(padding=(0, 2, 0, 0))
    services.add_column()
    services.add_column(justify="right")
    services.add_column(justify="right")
    for service in state.services:
        services.add_row(
            f"  {_short(service.name)}",
            Text(f"{service.ready}/{service.wanted} ready", "" if service.ready >= service.wanted else "yellow"),
            Text(f"{formats.count(service.waiting)} waiting", "yellow" if service.waiting else "dim"),
        )
    starting = f" and {state.nodes_starting} starting" if state.nodes_starting else ""
    fleet = f"  {state.nodes_ready} nodes ready{starting}, {formats.dollars(state.spend_micro_usd)} so far"
    broken = [Text(f"  not running: {text}", "bold red", no_wrap=True, overflow="ellipsis") for text in state.failing]
    return Group(top, *broken, services, Text(fleet))


def _short(name: str) -> str:
    """The end of a long name, which tells more than its beginning."""
    return name if len(name) <= _NAME_WIDTH else f"…{name[1 - _NAME_WIDTH :]}"
