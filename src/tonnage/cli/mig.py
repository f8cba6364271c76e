"""`tonnage mig`: what a GPU can be partitioned into, what fits beside what runs, and how to get from one layout to
another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from tonnage.cli import answers, mig_discover, mig_files, mig_plan, terminal
from tonnage.cli.options import OUTPUT, at_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tonnage.fleet.geometry import Geometry
    from tonnage.partitioning.layouts import Layout, Placement

_GPU = click.option("--gpu", default="", metavar="NAME", help="The GPU, where the layout does not name it.")
_ALL = click.option("--all-profiles", is_flag=True, help="Also profiles with media extensions and graphics.")


class _Drawn(click.Group):
    """Draws, with the error, what can be of a layout that cannot."""

    def invoke(self, ctx: click.Context) -> Any:
        from tonnage.partitioning.notation import Impossible

        try:
            return super().invoke(ctx)
        except Impossible as error:
            for line in error.map:
                terminal.echo(line, err=True)
            raise


@click.group(cls=_Drawn)
def mig() -> None:
    """MIG layouts: what exists, what fits, how to get there without touching what is in use.

    A layout is written like h100:3g.40gb@4,1g.10gb@0* (each profile at its first memory slice, * for in use), or
    2x1g.10gb,3g.40gb where places do not matter; none is an empty card.
    """


for _command in (mig_plan.plan, mig_discover.discover, mig_files.check, mig_files.render, mig_files.node):
    mig.add_command(_command)


@mig.command()
@click.argument("gpu", metavar="GPU")
@click.option("--from", "running", default="", metavar="LAYOUT", help="Only those that keep every instance of it.")
@_ALL
@OUTPUT
def layouts(gpu: str, running: str, all_profiles: bool, output: str) -> None:
    """Every layout of GPU to which nothing can be added.

    \b
    tonnage mig layouts h100
    """
    from tonnage.partitioning import notation
    from tonnage.partitioning.layouts import card, feasible, maximal, profile_names

    with at_option("GPU"):
        on = card(gpu)
    names = profile_names(on, plain=not all_profiles)
    around = notation.layout(running, on.gpu, "--from").layout
    found = maximal(feasible(on, names, around))
    if output != "table":
        _print({"gpu": on.gpu, "layouts": [_layout(on, layout) for layout in found.values()]}, output)
    else:
        from tonnage.cli import mig_tables

        mig_tables.layouts(on, names, found, around)


@mig.command()
@click.argument("layout", metavar="LAYOUT")
@click.argument("profile", metavar="PROFILE")
@_GPU
@OUTPUT
def fits(layout: str, profile: str, gpu: str, output: str) -> None:
    """Whether an instance of PROFILE can be made beside LAYOUT, and where. Exit code 1 when it cannot.

    \b
    tonnage mig fits h100:3g.40gb@4 3g.40gb
    """
    from tonnage.partitioning import notation
    from tonnage.partitioning.fit import blockers
    from tonnage.partitioning.fit import fits as find

    typed = notation.layout(layout, gpu)
    with at_option("PROFILE"):
        found = find(typed.on, typed.layout, profile)
    against = {} if found else blockers(typed.on, typed.layout, profile)
    if output != "table":
        answer = {
            "gpu": typed.on.gpu,
            "fits": found is not None,
            "placement": None if found is None else _placement(typed.on, found),
            "blockers": [
                {"start": start, "instances": [_placement(typed.on, one) for one in who]}
                for start, who in against.items()
            ],
            "busy": [_placement(typed.on, one) for one in typed.busy],
        }
        _print(answer, output)
    else:
        from tonnage.cli import mig_tables

        mig_tables.fit(typed.on, typed.layout, typed.busy, profile, found, against)
    if found is None:
        raise click.exceptions.Exit(1)


@mig.command()
@click.argument("running", metavar="FROM")
@click.argument("wanted", metavar="TO")
@_GPU
@OUTPUT
def relayout(running: str, wanted: str, gpu: str, output: str) -> None:
    """The steps from one layout to another: fewest instances destroyed, none in use. Exit code 1 if stuck.

    \b
    tonnage mig relayout h100:3g.40gb@0,3g.40gb@4 h100:7x1g.10gb
    """
    from tonnage.partitioning import notation
    from tonnage.partitioning.relayout import Stuck
    from tonnage.partitioning.relayout import relayout as change_to

    named, colon, _ = wanted.partition(":")
    before = notation.layout(running, gpu or (named if colon and ":" not in running else ""), "FROM")
    after = notation.layout(wanted, before.on.gpu, "TO")
    change = change_to(before.on, before.layout, after.wanted, before.busy)
    stuck = isinstance(change, Stuck)
    if output != "table":
        _print({"gpu": before.on.gpu, **_change(before.on, change)}, output)
    else:
        from tonnage.cli import mig_tables

        mig_tables.change(before.on, before.layout, before.busy, change)
    if stuck:
        raise click.exceptions.Exit(1)


@mig.command()
@click.argument("layout", metavar="LAYOUT")
@click.argument("profile", metavar="PROFILE")
@_GPU
@OUTPUT
def defrag(layout: str, profile: str, gpu: str, output: str) -> None:
    """Moves that make room for PROFILE, with who must restart. Exit code 1 when there are none.

    \b
    tonnage mig defrag h100:1g.10gb@1,1g.10gb@4 3g.40gb
    """
    from tonnage.partitioning import notation
    from tonnage.partitioning.defrag import defrag as make_room

    typed = notation.layout(layout, gpu)
    with at_option("PROFILE"):
        found = make_room(typed.on, typed.layout, profile, typed.busy)
    if output != "table":
        on = typed.on
        moves = [] if found is None else found.moves
        answer = {
            "gpu": on.gpu,
            "fits": found is not None,
            "placement": None if found is None else _placement(on, found.placement),
            "moves": [
                {"from": _placement(on, m.before), "to": _placement(on, m.after), "restarts": m.restarts} for m in moves
            ],
            "at_once": 0 if found is None else found.at_once,
            "after": None if found is None else _layout(on, found.after),
        }
        _print(answer, output)
    else:
        from tonnage.cli import mig_tables

        mig_tables.defrag(typed.on, typed.layout, typed.busy, profile, found)
    if found is None:
        raise click.exceptions.Exit(1)


def _placement(on: Geometry, one: Placement) -> dict[str, Any]:
    from tonnage.partitioning.slotmap import length

    return {"profile": one.profile, "start": one.start, "size": length(on, one.profile)}


def _layout(on: Geometry, layout: Layout) -> dict[str, Any]:
    from tonnage.partitioning.layouts import kind_of

    return {
        "profiles": dict(kind_of(on, (one.profile for one in layout))),
        "placements": [_placement(on, one) for one in layout],
    }


def _change(on: Geometry, change: Any) -> dict[str, Any]:
    from tonnage.partitioning.relayout import Stuck

    if isinstance(change, Stuck):
        return {"possible": False, "why": change.why, "busy": [_placement(on, one) for one in change.busy]}
    return {
        "possible": True,
        "destroyed": len(change.destroyed),
        "kept": [_placement(on, one) for one in change.kept],
        "steps": [{"action": step.action, **_placement(on, step.placement)} for step in change.steps],
        "after": _layout(on, change.after),
    }


def _print(value: Mapping[str, Any], form: str) -> None:
    answers.show(msgspec.json.encode(value), form)
