"""`tonnage scale tune`: the threshold, window and minimum of a ScaledObject that meet an SLO at the least cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tonnage.cli import answers, files, terminal
from tonnage.cli.meter import meter
from tonnage.cli.options import OUTPUT, Finite
from tonnage.cli.piped import FILE, SCENARIO
from tonnage.cli.simulate import SEED
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.objects.keda import ScaledObject
    from tonnage.simulation.scenario import Scenario
    from tonnage.simulation.tuning import ScalerScore, TunedScaler

SCHEMA = "tonnage.dev/scale-tune/v1"


@click.command()
@click.argument("scaled_object", metavar="SCALEDOBJECT")
@click.argument("scenario", type=SCENARIO)
@click.option(
    "--trace", type=FILE, metavar="FILE", help="A request log that is played instead of the scenario's traffic."
)
@click.option(
    "--policy", metavar="NAME", help="Of the scenario. [default: the first whose manifests have SCALEDOBJECT]"
)
@click.option(
    "--share",
    type=Finite(0, 1),
    default=0.99,
    show_default=True,
    metavar="SHARE",
    help="Of the requests outside the grace that are to be within the scenario's SLO.",
)
@click.option(
    "--window",
    "windows",
    type=click.IntRange(0, 3600),
    multiple=True,
    metavar="SECONDS",
    help="Scale-down windows to try; repeatable. [default: 120, 300 and what is written]",
)
@click.option(
    "--minimum",
    "minima",
    type=click.IntRange(0),
    multiple=True,
    metavar="N",
    help="minReplicaCounts to try; repeatable. [default: 1, 2, 4 and what is written]",
)
@SEED
@OUTPUT
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def tune(
    scaled_object: str,
    scenario: Path,
    trace: Path | None,
    policy: str | None,
    share: float,
    windows: tuple[int, ...],
    minima: tuple[int, ...],
    seed: int,
    output: str,
    quiet: bool,
) -> None:
    """The cheapest threshold, scale-down window and minReplicaCount of SCALEDOBJECT with which SCENARIO meets its SLO.

    It is searched on the first half of the trace and scored on the second; without a trace with this seed and the next.
    The search is fixed: for each window and minimum, thresholds between 0.35 and twice the written one by bisection.

    Exit code 1 when no setting attains the share on what is searched.

    \b
    tonnage scale tune model-a-scaler examples/traffic-surge --trace requests.jsonl.gz
    """  # fmt: skip
    from tonnage.simulation import scenario as scenarios
    from tonnage.simulation import tuning
    from tonnage.traffic.traces import load_trace

    loaded = scenarios.load(files.existing(scenario))
    chosen, source = _found(loaded, scaled_object, policy)
    tuning.written_setting(source)  # refused before anything is played
    grid = tuning.SearchGrid(windows, minima)
    if not grid.lines(tuning.written_setting(source), source.spec.max_replica_count):
        hint = f"maxReplicaCount is {source.spec.max_replica_count}"
        raise InputError.at("every minimum is above the maximum", field="--minimum", hint=hint)
    parts = tuning.halves(load_trace(trace)) if trace is not None else None
    with meter(tuning.most_runs(grid, source), "tune", quiet=quiet) as done:
        found = tuning.Tuning(loaded, chosen, source, share, parts, seed, done).find(grid)
    if output != "table":
        made = {"schema": SCHEMA, "policy": chosen, **msgspec.to_builtins(found), "runs": found.runs}
        answers.show(msgspec.json.format(msgspec.json.encode(made, order="deterministic")), output)
    else:
        names = ("the first half", "the second half") if parts is not None else (f"seed {seed}", f"seed {seed + 1}")
        _print(found, names, loaded.spec.name, chosen)
    if found.best is None:
        raise click.exceptions.Exit(1)


def _found(loaded: Scenario, name: str, policy: str | None) -> tuple[str, ScaledObject]:
    """The policy, and its ScaledObject of this name."""
    from tonnage.objects import load
    from tonnage.scaling.policies import BY_MANIFESTS
    from tonnage.simulation import tuning

    names = [policy] if policy is not None else list(loaded.spec.policies)
    by_manifests = [one for one in names if loaded.policy(one).scaling == BY_MANIFESTS]
    if not by_manifests:
        message = f"{' and '.join(names)}: replicas are not set by the manifests"
        raise InputError.at(message, field="--policy", hint="give a policy with scaling: manifests")
    refused = None
    for one in by_manifests:
        manifest = load.read(loaded.files or [loaded.folder / loaded.policy(one).manifests])
        try:
            return one, tuning.scaled_object(manifest.objects, name)
        except InputError as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _print(found: TunedScaler, names: tuple[str, str], scenario: str, policy: str) -> None:
    from tonnage.cli.look import Console, Look

    console = Console()
    look = Look.of(console)
    title = f"{found.scaled_object} for {found.service}, {scenario} under {policy}: {found.runs} runs"
    console.print(look.text(title, "bold"))
    table = look.table()
    table.add_column("")
    for name in ("threshold", "window", "min", "played with", "SLO met", "GPU-hours", "cost"):
        table.add_column(name, justify="right")
    rows = [("written", found.written, names[0]), ("", found.held_out_written, names[1])]
    if found.best is not None and found.held_out_best is not None:
        rows += [("tuned", found.best, names[0]), ("", found.held_out_best, names[1])]
    for name, score, on in rows:
        setting = score.setting
        shown = (f"{setting.threshold:g}", f"{setting.window_s} s", str(setting.minimum)) if name else ("", "", "")
        cells = (_share(score.share), f"{score.allocated_gpu_hours:.2f}", f"${score.micro_usd / 1e6:.2f}")
        table.add_row(name, *shown, on, *cells)
    console.print(table)
    console.print(look.text("SLO met outside grace; GPU-hours held by pods; cost of all nodes", "dim"))
    if found.best is None:
        best = max(found.tried, key=lambda one: one.share or 0.0)
        console.print(
            f"no setting attains {found.wanted:.4g} with {names[0]}; threshold {best.setting.threshold:g}, window "
            f"{best.setting.window_s} s, min {best.setting.minimum} comes nearest with {_share(best.share)}"
        )
        return
    if found.held_out_best is not None and (found.held_out_best.share or 0.0) < found.wanted:
        console.print(
            f"with {names[1]} it does not attain {found.wanted:.4g}: give a longer trace, or a higher --share"
        )
    if found.best.setting == found.written.setting:
        console.print("what is written is the best of what was tried")
        return
    terminal.echo("\n" + patch(found.best), nl=False)


def patch(best: ScalerScore) -> str:
    """What to write into the ScaledObject."""
    setting = best.setting
    return (
        "spec:\n"
        f"  minReplicaCount: {setting.minimum}\n"
        "  advanced:\n    horizontalPodAutoscalerConfig:\n      behavior:\n"
        f"        scaleDown: {{stabilizationWindowSeconds: {setting.window_s}}}\n"
        "  triggers:\n"
        f'    - metadata: {{threshold: "{setting.threshold:g}"}} # the rest as it is\n'
    )


def _share(share: float | None) -> str:
    return "no data" if share is None else f"{share:.2%}"
