"""`tonnage route`: routing policies on a request log, offline."""

from __future__ import annotations

import sys
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tonnage.cli import answers, files, lines, terminal
from tonnage.cli.engine_options import EngineChoice, engine_options, extrapolated, load_log
from tonnage.cli.meter import meter
from tonnage.cli.options import OUTPUT, Finite
from tonnage.cli.piped import FILE
from tonnage.errors import InputError
from tonnage.units import NS_PER_MS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tonnage.inference.replay import Log, Replay, ReplayWorkers
    from tonnage.inference.replay.tuning import Tuned
    from tonnage.inference.routing.seconds import TonnageSettings

_PATH = click.Path(path_type=Path)
_DEFAULT = ("round-robin", "least-loaded", "dynamo", "tonnage")
_LAG = click.option(
    "--event-lag", type=Finite(0), default=0.0, metavar="MS", help="Age of the router's knowledge of caches."
)
_KNOWN = click.option("--known-outputs", is_flag=True, help="Tell the router how long each answer will be.")
_SEED = click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of random choices and ties."
)
_QUIET = click.option("-q", "--quiet", is_flag=True, help="No progress.")


@click.group()
def route() -> None:
    """Which engine a request goes to: routing policies on a request log (Mooncake or Azure format, plain or .gz)."""


@route.command()
@click.argument("trace", type=FILE)
@engine_options
@click.option("--policy", "policies", multiple=True, metavar="NAME", help=f"[default: {', '.join(_DEFAULT)}]")
@_LAG
@_KNOWN
@click.option("--settings", type=FILE, metavar="FILE.yaml", help="Weights of `tonnage`, from `tonnage route tune`.")
@click.option("--explain", type=click.IntRange(0), multiple=True, metavar="N", help="Why request N went where it went.")
@_SEED
@OUTPUT
@_QUIET
def replay(
    trace: Path,
    policies: tuple[str, ...],
    event_lag: float,
    known_outputs: bool,
    settings: Path | None,
    explain: tuple[int, ...],
    seed: int,
    output: str,
    quiet: bool,
    **engines: Any,
) -> None:
    """Play TRACE on engines behind each policy: reuse, times to first token, times per output token, balance.

    Policies: round-robin, random, least-loaded, power-of-two, dynamo, llm-d, sglang, tonnage. Requests arrive as
    logged. Without --model the engine is that of Dynamo's offline replay (16,384 blocks of 64 tokens, 8,192 tokens
    per step, its polynomial step time), so results can be compared with it. --step-times is a CSV file with the columns
    kind, tokens, cached, sequences, context, ms.

    \b
    tonnage route replay requests.jsonl.gz --workers 4
    tonnage route replay requests.jsonl.gz --policy tonnage --settings weights.yaml --explain 17
    """
    from tonnage.inference.replay import replay as play

    choice = EngineChoice(**engines)
    cluster = _cluster(choice)
    log = load_log(trace, cluster.config.block_size)
    for number in explain:
        if number >= len(log):
            raise InputError.at(
                f"--explain {number}, but {trace} has requests 0 to {len(log) - 1}",
                field="--explain",
                hint="count from 0, in order of arrival",
            )
    chosen = [_policy(name, cluster, _settings(settings)) for name in dict.fromkeys(policies or _DEFAULT)]
    results = []
    with meter(len(log) * len(chosen), "replay", quiet=quiet) as done:
        for policy in chosen:
            results.append(
                play(
                    log,
                    cluster,
                    policy,
                    event_lag_ns=round(event_lag * NS_PER_MS),
                    seed=seed,
                    known_outputs=known_outputs,
                    keep_receipts=bool(explain),
                    observe=lambda number: done(1),
                )
            )
    rows = [_row(result, explain) for result in results]
    note = extrapolated(cluster.timing, choice.step_times)
    if note is not None:
        terminal.echo(f"note: {note}", err=True)
    if output != "table":
        answers.show(msgspec.json.Encoder(order="deterministic").encode(rows), output)
        return
    _print(rows, log, trace, choice)


@route.command()
@click.argument("trace", type=FILE)
@engine_options
@_LAG
@_KNOWN
@click.option("--goal", metavar="GOAL", default="latency", show_default=True, help="latency, ttft, ttft-p99 or reuse.")
@click.option("--rounds", type=click.IntRange(1, 20), default=2, show_default=True, help="Passes over all weights.")
@click.option("--save", type=_PATH, metavar="FILE.yaml", help="Where to write the weights, for `replay --settings`.")
@_SEED
@OUTPUT
@_QUIET
def tune(
    trace: Path,
    event_lag: float,
    known_outputs: bool,
    goal: str,
    rounds: int,
    save: Path | None,
    seed: int,
    output: str,
    quiet: bool,
    **engines: Any,
) -> None:
    """Fit the weights of the `tonnage` policy to TRACE: on its first half, checked on its second.

    \b
    tonnage route tune requests.jsonl.gz --workers 4 --save weights.yaml
    """
    from tonnage.inference.replay import tuning

    wanted = next((one for one in tuning.GOALS if one == goal), None)
    if wanted is None:
        raise InputError.at(f"there is no goal {goal!r}", field="--goal", hint=f"one of {', '.join(tuning.GOALS)}")
    if save is not None:
        files.check_writable(save)
    choice = EngineChoice(**engines)
    cluster = _cluster(choice)
    log = load_log(trace, cluster.config.block_size)
    if len(log) < 2:
        raise InputError.at(f"{trace} has one request", field="TRACE", hint="give a log of at least two requests")
    with meter(tuning.trials(rounds), "tune", quiet=quiet) as done:
        try:
            found = tuning.tune(
                log,
                cluster,
                goal=wanted,
                rounds=rounds,
                event_lag_ns=round(event_lag * NS_PER_MS),
                seed=seed,
                known_outputs=known_outputs,
                done=done,
            )
        except tuning.NothingServed as none:
            hint = "choose a larger GPU or more of them, or a log of shorter requests"
            raise InputError.at(f"{trace}: {none}", field="TRACE", hint=hint) from none
    if save is not None:
        files.write(save, as_yaml(found))
    if output != "table":
        answers.show(msgspec.json.Encoder(order="deterministic").encode(found), output)
        return
    _print_tuned(found, goal)


def _cluster(choice: EngineChoice) -> ReplayWorkers:
    from tonnage.inference.replay import ReplayWorkers

    config, timing = choice.build()
    return ReplayWorkers(choice.workers, config, timing)


def _policy(name: str, cluster: ReplayWorkers, settings: TonnageSettings | None) -> Any:
    from tonnage.inference.routing.catalog import make_policy
    from tonnage.inference.routing.costs import EngineCosts

    # A copy: what the router asks a table of step times is not what the engines did.
    return make_policy(name, EngineCosts(deepcopy(cluster.timing), cluster.config.max_num_batched_tokens), settings)


def _settings(file: Path | None) -> TonnageSettings | None:
    if file is None:
        return None
    from tonnage.inference.routing.seconds import TonnageSettings

    try:
        return msgspec.yaml.decode(file.read_bytes(), type=TonnageSettings)
    except OSError as error:
        raise InputError.at(
            f"cannot read {file}: {error.strerror}", field="--settings", hint="give a YAML file"
        ) from None
    except msgspec.DecodeError as error:
        raise InputError.at(
            f"{file}: {error}", field="--settings", hint="give weights as `tonnage route tune --save` writes them"
        ) from None


def as_yaml(found: Tuned) -> str:
    """The weights to save, with what they scored."""
    note = f"# score {found.fitted_before:.6g} -> {found.fitted_after:.6g}; held out "
    note += f"{found.held_out_before:.6g} -> {found.held_out_after:.6g}\n"
    if found.rejected is not None:
        note += "# these are the defaults: what was fitted is worse on the half that was held out\n"
    return note + msgspec.yaml.encode(found.settings).decode()


def _quantiles(values: NDArray[Any]) -> dict[str, float | None]:
    import numpy as np

    if not len(values):
        return {"mean": None, "p50": None, "p99": None}
    p50, p99 = np.percentile(values, (50, 99)).tolist()
    return {"mean": float(values.mean()), "p50": p50, "p99": p99}


def _row(result: Replay, explain: tuple[int, ...]) -> dict[str, Any]:
    row = {
        "policy": result.policy,
        "reuse": result.reuse,
        "ttft_ms": _quantiles(result.ttft_ms),
        "tpot_ms": _quantiles(result.tpot_ms),
        "imbalance": result.imbalance,
        "requests": len(result.finished),
        "refused": result.refused,
    }
    if explain:
        row["receipts"] = [result.receipts[number].text() for number in explain]
    return row


def _print(rows: list[dict[str, Any]], log: Log, trace: Path, choice: EngineChoice) -> None:
    from tonnage.cli.look import Console, Look

    console = Console(sys.stdout)
    table = Look.of(console).table()
    table.add_column("policy")
    for name in ("reuse", "TTFT mean", "p50", "p99", "TPOT mean", "p99", "imbalance"):
        table.add_column(name, justify="right")
    for row in rows:
        ttft, tpot = row["ttft_ms"], row["tpot_ms"]
        times = [ttft["mean"], ttft["p50"], ttft["p99"], tpot["mean"], tpot["p99"]]
        cells = [_ms(value) for value in times]
        table.add_row(row["policy"], f"{row['reuse']:.1%}", *cells, f"{row['imbalance']:.2f}")
    console.print(table)
    engines = f"{choice.workers} engines" if choice.workers > 1 else "one engine"
    lines.say(f"{len(log):,} requests of {trace.name} on {engines}; times in milliseconds")
    for row in rows:
        if row["refused"]:
            lines.say(f"{row['policy']}: {row['refused']:,} requests were not served")
        for line in row.get("receipts", ()):
            terminal.echo(line)
    if not log.paths:
        lines.say("the log says nothing of what prompts have in common: nothing can be reused")


def _ms(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _print_tuned(found: Tuned, goal: str) -> None:
    unit = "" if goal == "reuse" else " s"
    name = "share not reused" if goal == "reuse" else goal
    terminal.echo(f"{name}, {len(found.trials)} settings tried")
    terminal.echo(f"  fitted half    {found.fitted_before:.4f}{unit} -> {found.fitted_after:.4f}{unit}")
    terminal.echo(f"  held-out half  {found.held_out_before:.4f}{unit} -> {found.held_out_after:.4f}{unit}")
    for field, value in msgspec.structs.asdict(found.settings).items():
        terminal.echo(f"  {field}: {value:g}")
    if found.rejected is not None:
        lines.say("what was fitted is worse than the defaults on what it was not fitted to: these are the defaults")
