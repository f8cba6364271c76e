"""`tonnage why`: why a pod or a gang waits, or stands where it does, and the smallest change that makes it fit."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tonnage.cli import files, messages
from tonnage.cli.options import OUTPUT
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.fleet.rows import PodSpec
    from tonnage.fleet.snapshot import Snapshot
    from tonnage.scheduling.place import Settings
    from tonnage.simulation.cluster import SimulatedCluster

_PATH = click.Path(path_type=Path)
SCHEMA = "tonnage.dev/why/v1"
NEAR = 5


@click.command()
@click.argument("pod", metavar="POD")
@click.argument("paths", metavar="SCENARIO|FILES...", nargs=-1, required=True, type=_PATH)
@click.option("--at", metavar="TIME", help="Of a scenario: the time, like 90m or 3h30m. [default: its end]")
@click.option("--policy", metavar="NAME", help="Of a scenario: one of its policies. [default: as the scenario says]")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True, help="Of a scenario.")
@click.option("--placement", metavar="NAME", help="Placement policy. [default: the scenario's, else tonnage]")
@OUTPUT
def why(
    pod: str,
    paths: tuple[Path, ...],
    at: str | None,
    policy: str | None,
    seed: int,
    placement: str | None,
    output: str,
) -> None:
    """Why POD (a name, namespace/name, or a gang's key) waits or stands where it does.

    SCENARIO is a scenario's file or folder: its cluster at a time of a run. FILES hold a cluster's objects, as `kubectl
    get nodes,pods,... -A -o yaml` prints them: nodes, pods, pod groups, topologies, priority classes, disruption
    budgets; workloads written by hand stand for their pods.

    Exit code 0 when it runs or would be placed now, 1 when it waits, 2 when the input cannot be read or has no such
    pod.
    """
    from tonnage.simulation.scenario import is_scenario

    found = [files.existing(path) for path in paths]
    if is_scenario(found):
        snapshot, settings = _of_scenario(found[0], at, policy, seed)
    else:
        for name, value in (("--at", at), ("--policy", policy)):
            if value is not None:
                raise InputError.at("is of a scenario, and these are manifests", field=name, hint="leave it out")
        snapshot, settings = _of_files(found)
    settings = _placed_by(settings, placement)
    from tonnage.scheduling.why import receipt as whys

    receipt = whys.why(snapshot, _key(pod, snapshot), settings)
    from tonnage.cli import why_tables

    if output == "json":
        import msgspec

        report = why_tables.WhyReport(SCHEMA, receipt)
        click.echo(msgspec.json.format(msgspec.json.encode(report), indent=2))
    else:
        why_tables.show(receipt)
    if receipt.state in (whys.WAITS, whys.HELD):
        raise click.exceptions.Exit(1)


def _of_files(paths: Sequence[Path]) -> tuple[Snapshot, Settings]:
    from tonnage.cluster import still
    from tonnage.health.schedulers import running
    from tonnage.objects import load
    from tonnage.scheduling import place

    manifest = load.read(paths)
    messages.warnings(manifest.problems)
    snapshot = still.snapshot_of(manifest.objects)
    names = running(manifest.objects)
    return snapshot, place.Settings(scheduler_names=tuple(sorted({*place.DEFAULTS.scheduler_names, *names})))


class _ReachedError(Exception):
    """The run is as far as was asked for."""


def _of_scenario(path: Path, at: str | None, policy: str | None, seed: int) -> tuple[Snapshot, Settings]:
    from tonnage.simulation import run, scenario

    loaded = scenario.load(path)
    until = _time(at, loaded.duration_ns)
    chosen = policy or loaded.default_policy
    last: list[SimulatedCluster] = []

    def watch(cluster: SimulatedCluster, _: int) -> None:
        last[:] = [cluster]
        following = cluster.queue.next_ns()
        if following is None or following > until:
            raise _ReachedError

    made = run.set_up(loaded, chosen, run.Options(seed=seed, observer=watch))
    try:
        run.play(made)
    except _ReachedError:
        made.cluster.advance_to(until)
    return made.cluster.snapshot(), made.placing()


def _time(written: str | None, end_ns: int) -> int:
    if written is None:
        return end_ns
    from tonnage.simulation.scenario import duration_ns

    try:
        at = duration_ns(written)
    except ValueError as error:
        raise InputError.at(f'"{written}" is no time', field="--at", hint="like 90s, 45m or 3h30m") from error
    if not 0 <= at <= end_ns:
        raise InputError.at(f"{written} is after the scenario's end", field="--at", hint="choose an earlier time")
    return at


def _placed_by(settings: Settings, placement: str | None) -> Settings:
    from dataclasses import replace

    from tonnage.scheduling import place

    if placement is None:
        return settings
    if placement not in place.POLICIES:
        near = difflib.get_close_matches(placement, place.POLICIES, 1)
        hint = f"did you mean {near[0]}?" if near else f"expected {', '.join(place.POLICIES)}"
        raise InputError.at(f'"{placement}" is no placement policy', field="--placement", hint=hint)
    return replace(settings, policy=placement)


def _key(name: str, snapshot: Snapshot) -> str:
    """The pod or gang meant. Raises InputError for none, and for several."""
    pods = [f"{namespace}/{pod}" for namespace, pod in snapshot.fleet.pod_by_key]
    known = [*pods, *snapshot.gangs]
    if name in known:
        return name
    found = sorted({key for key in known if key.endswith(f"/{name}")})
    if len(found) == 1:
        return found[0]
    if found:
        hint = f"say which: {', '.join(found[:NEAR])}"
        raise InputError.at(f'"{name}" is the name of {len(found)} pods or gangs', field="POD", hint=hint)
    near = difflib.get_close_matches(name, known, NEAR, 0.5)
    near += [key for key in known if name.rpartition("/")[2] in key and key not in near][: NEAR - len(near)]
    if not near:
        ends = {key.partition("/")[2]: key for key in known}
        near = [ends[end] for end in difflib.get_close_matches(name, ends, NEAR, 0.4)]
    waiting = sorted({spec.gang or f"{spec.namespace}/{spec.name}" for spec in _waiting(snapshot)})
    hint = f"did you mean {', '.join(near[:NEAR])}?" if near else f"of {len(pods)} pods there wait: {_some(waiting)}"
    raise InputError.at(f'"{name}": no such pod or gang', field="POD", hint=hint)


def _waiting(snapshot: Snapshot) -> list[PodSpec]:
    return [snapshot.fleet.pod(row).spec for row in snapshot.fleet.pending]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NEAR} more" if len(names) > NEAR else ""
    return ", ".join(names[:NEAR]) + more if names else "none"
