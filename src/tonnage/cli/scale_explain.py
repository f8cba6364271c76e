"""`tonnage scale explain`: what HPAs, KEDA and the slo policy would have done at each step of a history, and why."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tonnage.cli import answers, files, lines, prometheus_options
from tonnage.cli.options import OUTPUT, is_typed
from tonnage.cli.piped import FILE
from tonnage.cli.simulate import SEED
from tonnage.errors import InputError
from tonnage.units import NS_PER_S, seconds

if TYPE_CHECKING:
    from tonnage.cli.look import Console, Look
    from tonnage.control.shadow import ScalerStep

SCHEMA = "tonnage.dev/scale-explain/v1"
_TIMES = ("prometheus", "prometheus_token_file", "prometheus_ca_file", "start", "end", "last")


class ExplainedStep(msgspec.Struct, frozen=True):
    """A step as JSON has it. ``t_s``: seconds from the start."""

    t_s: float
    by: str
    object: str
    target: str
    replicas: int
    ready: int
    wanted: int
    verdict: str
    evidence: dict[str, Any]
    alternatives: tuple[dict[str, Any], ...]


class Explanation(msgspec.Struct, frozen=True):
    """All steps. ``start``: as people write it; ``left_out``: what looks at nothing, and why."""

    schema: str
    history: str
    start: str
    steps: tuple[ExplainedStep, ...]
    left_out: tuple[str, ...] = ()


def _times(command: Any) -> Any:
    """The server's options that mean something here."""
    for option in reversed(prometheus_options.SERVER[:6]):
        command = option(command)
    return command


def _refuse_too_many(replicas: int) -> None:
    """Raises InputError for more replicas than a cluster has pods."""
    from tonnage.simulation.extent import PODS

    if replicas > PODS:
        hint = f"expected up to {PODS:,}: no cluster has more pods"
        raise InputError.at(f"{replicas:,} replicas", field="--replicas", hint=hint)


@click.command()
@click.argument("paths", metavar="FILES...", nargs=-1, required=True, type=FILE)
@click.option(
    "--samples",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="What was measured: OpenMetrics, scrapes with times, or Prometheus' JSON answer to a range; repeatable.",
)
@click.option(
    "--replicas",
    type=click.IntRange(0),
    default=None,
    metavar="N",
    help="Follow what each decides, from N replicas on. [default: the replicas that kube-state-metrics counted]",
)
@click.option(
    "--ready-after",
    metavar="DURATION",
    default="0s",
    show_default=True,
    help="With --replicas: how long a replica takes to be Ready.",
)
@click.option("--policy", metavar="NAME", help="Of a scenario: who sets the replicas. [default: as the scenario says]")
@click.option(
    "--only",
    metavar="NAME",
    multiple=True,
    help="An autoscaler or its target by name, or one of hpa, keda and slo; repeatable. [default: all]",
)
@click.option("--every-step", is_flag=True, help="Steps that say what the one before said, too.")
@SEED
@_times
@OUTPUT
def explain(
    paths: tuple[Path, ...],
    samples: tuple[Path, ...],
    replicas: int | None,
    ready_after: str,
    policy: str | None,
    only: tuple[str, ...],
    every_step: bool,
    seed: int,
    output: str,
    **given: Any,
) -> None:
    """What the HPAs and ScaledObjects in FILES, and the slo policy, would have done at each step, and why.

    The history is a file of samples, a Prometheus server, or a run: FILES is then a scenario, one of whose policies
    sets the replicas while all are evaluated. The slo policy is evaluated for Deployments with the annotation
    tonnage.dev/autoscale, and in a scenario for every workload with bounds. Resource metrics of pods are not in a
    history: HPAs that need them say so.

    \b
    tonnage scale explain scaledobject.yaml --samples metrics.txt
    tonnage scale explain manifests/ --prometheus http://localhost:9090 --last 6h --replicas 4 --ready-after 3m
    tonnage scale explain examples/traffic-surge --policy corrected --only slo
    """  # fmt: skip
    found = [files.existing(path) for path in paths]
    if samples and given["prometheus"]:
        raise click.UsageError("Give --samples or --prometheus, not both.")
    if is_typed("ready_after") and replicas is None:
        raise click.UsageError("--ready-after goes with --replicas: else the Ready replicas are in the history.")
    if samples or given["prometheus"]:
        if is_typed("seed"):
            raise click.UsageError("--seed is of a run, and the history is given.")
        from tonnage.cli import scale_history

        if replicas is not None:
            _refuse_too_many(replicas)
        found = _manifests(found, policy)
        history = scale_history.HistorySource(
            samples, {name: given[name] for name in _TIMES}, replicas, _ready_after_ns(ready_after)
        )
        origin_ns, steps, left_out, name = scale_history.looked_at(found, history)
        start = datetime.fromtimestamp(origin_ns // NS_PER_S, UTC).isoformat().replace("+00:00", "Z")
    else:
        for name in ("replicas", *_TIMES):
            if is_typed(name):
                raise click.UsageError(f"--{name.replace('_', '-')} goes with --samples or --prometheus.")
        origin_ns, start = 0, ""
        steps, left_out, name = _of_scenario(found, policy, seed)
    chosen = _chosen(steps, only)
    if output != "table":
        shown = chosen if every_step else _news(chosen)
        told = Explanation(SCHEMA, name, start, tuple(_as_json(one, origin_ns) for one in shown), left_out)
        answers.show(msgspec.json.format(msgspec.json.encode(told, order="deterministic")), output)
        return
    _print(chosen, every_step, origin_ns, f"{name}{f', from {start}' if start else ''}", left_out)


def _manifests(paths: list[Path], policy: str | None) -> list[Path]:
    """The files themselves; of a scenario the manifests of the policy, for the history is given."""
    from tonnage.simulation import scenario

    if not scenario.is_scenario(paths):
        if policy is not None:
            raise click.UsageError("--policy is one of a scenario's, and FILES is none.")
        return paths
    loaded = scenario.load(paths[0])
    return list(loaded.files) or [loaded.folder / loaded.policy(policy or loaded.default_policy).manifests]


def _ready_after_ns(text: str) -> int:
    from tonnage.documents import duration_ns

    try:
        return 0 if text in ("0", "0s") else duration_ns(text)
    except ValueError:
        raise InputError.at(f'"{text}" is not a duration', field="--ready-after", hint="expected e.g. 90s") from None


def _of_scenario(
    paths: list[Path], policy: str | None, seed: int
) -> tuple[tuple[ScalerStep, ...], tuple[str, ...], str]:
    from tonnage.simulation import run, scenario
    from tonnage.simulation.shadows import shadowed

    if not scenario.is_scenario(paths):
        hint = "give --samples FILE, --prometheus URL, or a scenario, whose run is then the history"
        raise InputError.at("there is no history of metrics", file=str(paths[0]), hint=hint)
    loaded = scenario.load(paths[0])
    chosen = policy or loaded.default_policy
    _, steps, left_out = shadowed(loaded, chosen, run.RunOptions(seed=seed))
    return steps, left_out, f"{loaded.spec.name} under {chosen}, seed {seed}"


def _chosen(steps: tuple[ScalerStep, ...], only: tuple[str, ...]) -> list[ScalerStep]:
    known = {name for one in steps for name in (one.by, one.object.name, one.target.name)}
    for name in only:
        if name not in known:
            hint = (
                f"there are {', '.join(sorted(known))}"
                if known
                else "none was evaluated: is there an autoscaler in FILES?"
            )
            raise InputError.at(f'"{name}" names no autoscaler', field="--only", hint=hint)
    return [one for one in steps if not only or {one.by, one.object.name, one.target.name} & set(only)]


def _news(steps: list[ScalerStep]) -> list[ScalerStep]:
    """Those that say something else than the one before of the same autoscaler: another count, or another verdict. That
    a count is there which was just asked for is no news."""
    before: dict[tuple[str, str], ScalerStep] = {}
    found = []
    for one in steps:
        last = before.get((one.by, str(one.object)))
        before[one.by, str(one.object)] = one
        if last is None:
            found.append(one)
            continue
        came = last.wanted != last.replicas and one.replicas == one.wanted == last.wanted
        if not came and (one.wanted, one.reason.verdict) != (last.wanted, last.reason.verdict):
            found.append(one)
    return found


def _as_json(step: ScalerStep, origin_ns: int) -> ExplainedStep:
    reason = step.reason
    return ExplainedStep(
        seconds(step.at_ns - origin_ns),
        step.by,
        str(step.object),
        str(step.target),
        step.replicas,
        step.ready,
        step.wanted,
        reason.verdict,
        dict(reason.evidence),
        tuple({"name": one.name, "why": one.why, "score": one.score} for one in reason.alternatives),
    )


def _print(steps: list[ScalerStep], every_step: bool, origin_ns: int, title: str, left_out: tuple[str, ...]) -> None:
    from tonnage.cli.look import Console, Look

    console = Console()
    look = Look.of(console)
    console.print(look.text(title, "bold"))
    by_object: dict[tuple[str, str], list[ScalerStep]] = {}
    for one in steps:
        by_object.setdefault((one.by, str(one.object)), []).append(one)
    for (by, name), own in sorted(by_object.items(), key=lambda pair: (str(pair[1][0].target), pair[0])):
        console.print()
        _table(console, look, by, name, own, every_step, origin_ns)
    if not steps:
        console.print("no autoscaler in FILES has a target that is in the history")
    for why in left_out:
        lines.say(f"left out: {why}", "  ")


def _table(
    console: Console, look: Look, by: str, name: str, steps: list[ScalerStep], every_step: bool, origin_ns: int
) -> None:
    target = steps[0].target
    title = f"{by}: {target}" if str(target) == name else f"{by}: {name} for {target}"
    console.print(look.text(title, "bold"))
    shown = steps if every_step else _news(steps)
    changes = sum(one.wanted != one.replicas for one in steps)
    console.print(look.text(f"{len(steps)} steps, {changes} ask for a different count", "dim"))
    table = look.table()
    table.add_column("at", justify="right", no_wrap=True)
    table.add_column("ready", justify="right", no_wrap=True)
    table.add_column("replicas", justify="right", no_wrap=True)
    table.add_column("why", overflow="fold")
    for one in shown:
        asked = f"{one.replicas} -> {one.wanted}" if one.wanted != one.replicas else str(one.replicas)
        table.add_row(_clock(one.at_ns - origin_ns), str(one.ready), asked, _why(one))
    console.print(table)


def _why(step: ScalerStep) -> str:
    """The verdict, and of what was weighed that which was measured and asked for."""
    kept = [
        f"{name} {_short(value)}"
        for name, value in step.reason.evidence
        if value is not None and name not in _COUNTED and not name.endswith((" ratio", " target %"))
    ]
    return f"{step.reason.verdict} ({', '.join(kept)})" if kept else step.reason.verdict


_COUNTED = ("current replicas", "recommendation", "stabilised", "allowed", "limited by", "minimum", "maximum",
            "in_flight", "others_pending", "on_fixed_nodes", "on_launched_nodes", "horizon_s",
            "arrivals_per_s")  # fmt: skip
"""What the other columns and the verdict say, or JSON alone."""


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _clock(ns: int) -> str:
    total = ns // NS_PER_S
    return f"{total // 3600}:{total // 60 % 60:02}:{total % 60:02}"
