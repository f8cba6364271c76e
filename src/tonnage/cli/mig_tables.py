"""What `tonnage mig` prints for people: at most 80 columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tonnage.cli import terminal
from tonnage.fleet.geometry import Geometry
from tonnage.partitioning.defrag import Defrag
from tonnage.partitioning.layouts import Kind, Layout, Placement, kind_of
from tonnage.partitioning.relayout import Change, Stuck, text
from tonnage.partitioning.slotmap import draw

_WIDTH = 80


def layouts(on: Geometry, names: Sequence[str], found: Mapping[Kind, Layout], around: Layout) -> None:
    """One row a layout: how many of each profile."""
    beside = f" beside {text(on, (one.profile for one in around))}" if around else ""
    terminal.echo(f"{on.gpu}: {len(found)} layouts{beside} to which nothing can be added")
    rows = sorted((tuple(dict(kind).get(name, 0) for name in names) for kind in found), reverse=True)
    if len("  ".join(names)) > _WIDTH:
        for row in rows:
            terminal.echo(text(on, (name for name, count in zip(names, row, strict=True) for _ in range(count))))
        return
    terminal.echo("  ".join(names))
    for row in rows:
        cells = (str(count or "·").rjust(len(name)) for name, count in zip(names, row, strict=True))
        terminal.echo("  ".join(cells))


def fit(
    on: Geometry,
    layout: Layout,
    busy: Collection[Placement],
    profile: str,
    found: Placement | None,
    against: Mapping[int, Layout],
) -> None:
    """Yes with the place, or no with who is in the way of each."""
    if found is not None:
        terminal.echo(f"yes: {found.profile} at memory slice {found.start}")
        _draw(on, tuple(sorted([*layout, found])), busy)
        return
    terminal.echo(f"no: {profile} has no place beside {text(on, (one.profile for one in layout))}")
    _draw(on, layout, busy)
    _in_use(busy)
    for start, who in against.items():
        there = ", ".join(f"{one.profile} at {one.start}" + (" (in use)" if one in busy else "") for one in who)
        terminal.echo(f"  at {start}: {there or 'the media engines are taken'}")


def change(on: Geometry, running: Layout, busy: Collection[Placement], found: Change | Stuck) -> None:
    """Both layouts drawn, and the steps between them."""
    _draw(on, running, busy)
    if isinstance(found, Stuck):
        terminal.echo(f"no: {found.why}")
        _in_use(found.busy)
        return
    for number, step in enumerate(found.steps, 1):
        terminal.echo(f"  {number}. {step.action} {step.placement.profile} at memory slice {step.placement.start}")
    if not found.steps:
        terminal.echo("  nothing to do")
    _draw(on, found.after, busy)
    kept = text(on, (one.profile for one in found.kept)) or "nothing"
    terminal.echo(f"{len(found.destroyed)} destroyed, {len(found.created)} created; kept: {kept}")


def defrag(on: Geometry, running: Layout, busy: Collection[Placement], profile: str, found: Defrag | None) -> None:
    """The moves, and the layout after them."""
    _draw(on, running, busy)
    if found is None:
        held = kind_of(on, (one.profile for one in running))
        terminal.echo(
            f"no: no layout of this card holds {profile} and {text(on, (n for n, c in held for _ in range(c)))}"
        )
        return
    for left, move in zip(range(len(found.moves), 0, -1), found.moves, strict=True):
        if left == found.at_once:
            terminal.echo(f"  destroy the next {left}, then recreate them: each goes where another is")
        user = "its user must restart" if move.restarts else "idle"
        terminal.echo(
            f"  move {move.before.profile} from memory slice {move.before.start} to {move.after.start} ({user})"
        )
    if not found.moves:
        terminal.echo("  nothing has to move")
    terminal.echo(f"  then {found.placement.profile} fits at memory slice {found.placement.start}")
    _draw(
        on, found.after, [move.after for move in found.moves if move.restarts] + [b for b in busy if b in found.after]
    )


def _in_use(busy: Collection[Placement]) -> None:
    if busy:
        terminal.echo(f"  in use: {', '.join(f'{one.profile} at {one.start}' for one in sorted(busy))}")


def _draw(on: Geometry, layout: Layout, busy: Collection[Placement]) -> None:
    for line in draw(on, layout, busy):
        terminal.echo(line)
