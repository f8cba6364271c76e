"""`tonnage mig plan`: layouts for a fleet that serve most of what is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tonnage.cli import answers, messages
from tonnage.cli.cluster import given as input_files
from tonnage.cli.cluster import read_live
from tonnage.cli.meter import meter
from tonnage.cli.options import OUTPUT
from tonnage.cli.piped import FILE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tonnage.fleet.geometry import Geometry
    from tonnage.partitioning.fleet_plan import CardPlan, Demand, FleetPlan
    from tonnage.partitioning.layouts import Layout

QUIET = click.option("-q", "--quiet", is_flag=True, help="No progress.")


@click.command()
@click.argument("paths", metavar="[FILES]...", nargs=-1, type=FILE)
@read_live()
@click.option("--gpus", multiple=True, metavar="GPU=N", help="Cards: h100=8,a30=4 or h100:3g.40gb@4*,1g.10gb@0=2.")
@click.option("--demand", "demands", multiple=True, metavar="PROFILE=N", help="1g.10gb=20,3g.40gb=4 or 18Gi/2=3.")
@OUTPUT
@QUIET
def plan(
    paths: tuple[Path, ...],
    context: str,
    kubeconfig: str,
    namespace: str,
    gpus: tuple[str, ...],
    demands: tuple[str, ...],
    output: str,
    quiet: bool,
) -> None:
    """Layouts for a fleet that serve most demand, with the fewest instances destroyed and none that is in use.

    FILES are manifests (nodes are the fleet, pods on them hold instances, other pods that ask for nvidia.com/mig-* are
    demands), or demands as CSV or as YAML with a list `demands`. Exit code 1 when a demand is not served.

    \b
    tonnage mig plan --gpus h100=8 --demand 1g.10gb=20,3g.40gb=4
    tonnage mig plan --context prod
    """
    from tonnage.cli import mig_demands
    from tonnage.partitioning import fleet_plan

    given = mig_demands.read(input_files(paths, context, kubeconfig, namespace, none=True), gpus, demands)
    messages.warnings(given.problems)
    with meter(2 * len(given.cards), "plan", quiet=quiet) as done:
        found = fleet_plan.plan(given.cards, given.demands, done=done)
    if output != "table":
        answers.show(msgspec.json.encode(_answer(found, given.demands, given.notes)), output)
    else:
        from tonnage.cli import mig_plan_tables

        mig_plan_tables.plan(found, given.demands, given.notes)
    if found.unserved:
        raise click.exceptions.Exit(1)


def _answer(found: FleetPlan, demands: Sequence[Demand], notes: Sequence[str]) -> dict[str, Any]:
    return {
        "schema": "tonnage.dev/mig-plan/v1",
        "demands": [
            {"name": one.name, "count": one.count, "served": served}
            for one, served in zip(demands, found.served, strict=True)
        ],
        "unserved": [
            {"demand": demands[one.demand].name, "count": one.count, "why": one.why} for one in found.unserved
        ],
        "destroyed": found.destroyed,
        "created": found.created,
        "cut": found.cut,
        "used": found.used,
        "usd_per_hour": found.micro_usd_per_hour / 1e6 if found.micro_usd_per_hour else None,
        "gap": found.gap,
        "cards": [_card(one, demands) for one in found.cards],
        "notes": list(notes),
    }


def _card(one: CardPlan, demands: Sequence[Demand]) -> dict[str, Any]:
    on = one.card.on
    return {
        "card": one.card.name,
        "node": one.card.node or None,
        "gpu": on.gpu,
        "before": _layout(on, one.card.running, one.card.busy),
        "after": _layout(on, one.change.after, one.card.busy),
        "steps": [
            {"action": step.action, "profile": step.placement.profile, "start": step.placement.start}
            for step in one.change.steps
        ],
        "serves": [
            {"profile": place.profile, "start": place.start, "demand": demands[number].name}
            for place, number in one.serves
        ],
    }


def _layout(on: Geometry, layout: Layout, busy: Layout) -> list[dict[str, Any]]:
    from tonnage.partitioning.slotmap import length

    return [
        {"profile": one.profile, "start": one.start, "size": length(on, one.profile), "busy": one in busy}
        for one in layout
    ]
