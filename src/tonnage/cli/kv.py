"""`tonnage kv`: what KV cache tiers below the GPU are worth."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tonnage.cli import answers, kv_tiers, lines, terminal
from tonnage.cli.engine_options import EngineChoice, engine_options, extrapolated
from tonnage.cli.meter import meter
from tonnage.cli.options import ENGINE_WORDS, OUTPUT, Finite, at_option, said_as
from tonnage.cli.piped import FILE
from tonnage.errors import InputError
from tonnage.units import GIB, MICRO_PER_USD

if TYPE_CHECKING:
    from tonnage.inference.engine import EngineConfig
    from tonnage.inference.replay import Log
    from tonnage.inference.tiers import TierSpec
    from tonnage.inference.worth import Setup, TierValuation, TierWorth
    from tonnage.traffic.traces import Trace

_SCHEMA = "tonnage.dev/kv-worth/v1"
_ASSUMED_MODEL, _ASSUMED_GPU = "meta-llama/Llama-3.1-8B-Instruct", "h100"
_BLOCK_SIZES = (16, 32, 64, 128, 256, 512)
_USUAL = (("host", 4), ("disk", 16), ("remote", None))
"""Tiers when none is named: as many times the GPU's blocks; None is unlimited."""


@click.group()
def kv() -> None:
    """KV cache tiers below the GPU: host memory, disk, a store for all engines."""


@kv.command(short_help="What each tier is worth on a request log.")
@click.argument("trace", type=FILE)
@engine_options
@click.option(
    "--tier",
    "tiers",
    multiple=True,
    metavar=kv_tiers.FORM,
    help="A tier, fastest first; see below.  [default: host=4x disk=16x remote=inf]",
)
@click.option(
    "--hash-block",
    type=click.IntRange(1, 1 << 20),
    metavar="TOKENS",
    help="Tokens that one hash id of the log stands for.  [default: as the log says, else 512]",
)
@click.option("--policy", default="round-robin", show_default=True, metavar="NAME", help="How requests are routed.")
@click.option(
    "--usd-per-hour",
    type=Finite(0),
    metavar="USD",
    help="Price of one engine.  [default: the cheapest on-demand instance with that GPU]",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Seed of random choices and ties of the policy.",
)
@OUTPUT
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def worth(
    trace: Path,
    tiers: tuple[str, ...],
    hash_block: int | None,
    policy: str,
    usd_per_hour: float | None,
    seed: int,
    output: str,
    quiet: bool,
    **engine: Any,
) -> None:
    """Play TRACE (Mooncake format with hash_ids) with the GPU's KV cache alone, then with one tier more each time.

    \b
    SIZE is a number of KV blocks, bytes (256GiB), a multiple of the GPU's
    blocks (4x), inf, or 0 for no such tier; for each engine, or for all if
    the tier is shared. GB/S is the bandwidth of reads and writes.
    Keys: read, write (GB/s), latency (100us), admit (uses before a block is
    taken in), fill (through, spill), shared (yes, no), price (USD per GiB
    and hour), free (yes: neither capacity nor reads and writes cost anything).
    Tiers called host, disk and remote have defaults for all keys.

    Without --model the engine is that of Dynamo's offline replay, with the KV cache of Llama 3.1 8B and the price of an
    H100.

    \b
    tonnage kv worth requests.jsonl.gz
    tonnage kv worth requests.jsonl.gz --tier host=4x --tier disk=16x
    """
    from tonnage.inference.worth import value

    choice = EngineChoice(**engine)
    with said_as(ENGINE_WORDS):
        config, log, setup, loaded = _setup(choice, trace, hash_block, policy, seed, usd_per_hour)
    short = _short_prompts(loaded, config.block_size)
    known = _known(choice)
    specs = [kv_tiers.parse(text, known, config.kv_blocks, setup.block_bytes) for text in tiers]
    if not tiers:
        specs = _usual(known, config)
    _check_names(specs)
    with meter(len(log) * (len(specs) + 2), "replay", quiet=quiet) as done:
        found = value(log, setup, specs, lambda number: done(1))
    note = extrapolated(setup.timing, choice.step_times)
    if note is not None:
        terminal.echo(f"note: {note}", err=True)
    if output != "table":
        shown = {"schema": _SCHEMA, "trace": str(trace), "policy": policy, **msgspec.structs.asdict(found)}
        shown["short_prompts"] = short
        answers.show(msgspec.json.Encoder(order="deterministic").encode(shown), output)
        return
    _print(found, setup, choice, policy)
    rates = ", ".join(f"{one['reuse']:.1%} with {one['block_size']}" for one in short["by_block_size"])
    lines.say(
        f"short prompts: of the shortest quarter, up to {short['longest']:,} tokens, unlimited caches for all reuse "
        f"{rates} tokens per block"
    )


def _short_prompts(trace: Trace, own: int) -> dict[str, Any]:
    """What of the shortest quarter of the prompts an unlimited cache reuses, by block size: of a prompt that is no
    longer than a block, nothing is found again."""
    import numpy as np

    from tonnage.inference.replay import log_of
    from tonnage.inference.replay.reuse import reuse_bound

    longest = int(np.percentile(trace.prompt, 25, method="lower"))
    known = trace.hash_block
    sizes = sorted({own, *(size for size in _BLOCK_SIZES if known % size == 0 or size % known == 0)})
    rates = [(size, reuse_bound(log_of(trace, size), size, longest=longest)) for size in sizes]
    return {
        "longest": longest,
        "prompts": rates[0][1].prompts,
        "by_block_size": [{"block_size": size, "reuse": found.token_share} for size, found in rates],
    }


def _setup(
    choice: EngineChoice, trace: Path, hash_block: int | None, policy: str, seed: int, usd_per_hour: float | None
) -> tuple[EngineConfig, Log, Setup, Trace]:
    from tonnage.facts import models
    from tonnage.inference.config import kv_token_bytes
    from tonnage.inference.replay import log_of
    from tonnage.inference.routing.catalog import make_policy
    from tonnage.inference.routing.costs import EngineCosts
    from tonnage.inference.vllm_args import VllmArgs
    from tonnage.inference.worth import Setup
    from tonnage.traffic.traces import load_trace

    _check_names_of(choice)
    config, timing = choice.build()
    costs = EngineCosts(deepcopy(timing), config.max_num_batched_tokens)
    make_policy(policy, costs)  # a bad name is said before the log is read
    price = _price(choice, usd_per_hour)
    loaded = load_trace(trace, hash_block=hash_block)
    if loaded.hashes is None:
        raise InputError.at(
            "the log does not say what its prompts have in common",
            file=str(trace),
            field="hash_ids",
            hint="give a log in Mooncake format whose lines have hash_ids",
        )
    model = models.get(choice.model or _ASSUMED_MODEL)
    token_bytes = kv_token_bytes(model, VllmArgs(tensor_parallel_size=choice.tensor_parallel))
    setup = Setup(
        choice.workers,
        config,
        timing,
        token_bytes * config.block_size,
        price,
        lambda: make_policy(policy, costs),
        seed,
    )
    return config, log_of(loaded, config.block_size), setup, loaded


def _check_names_of(choice: EngineChoice) -> None:
    """What is unknown is said of the option that names it."""
    from tonnage.facts import gpus, models
    from tonnage.inference.memory.kinds import engine_kind

    for option, name, get in (
        ("--model", choice.model, models.get),
        ("--gpu", choice.gpu, gpus.get),
        ("--engine", choice.engine, engine_kind),
    ):
        if name is not None:
            with at_option(option):
                get(name)


def _price(choice: EngineChoice, usd_per_hour: float | None) -> int:
    """Micro-USD an hour of one engine."""
    from tonnage.facts import gpus, instances, prices
    from tonnage.units import micro_usd

    if usd_per_hour is not None:
        return micro_usd(usd_per_hour)
    gpu = gpus.get(choice.gpu or _ASSUMED_GPU)
    book = prices.load()
    known = [
        price // instance.gpu_count
        for instance in instances.all()
        if instance.gpu == gpu.name and instance.gpu_count and (price := book.on_demand(instance.name)) is not None
    ]
    if not known:
        raise InputError.at(
            f"no instance type with the GPU {gpu.name} has a known price",
            field="--usd-per-hour",
            hint="say what one engine costs an hour",
        )
    return min(known) * choice.tensor_parallel


def _known(choice: EngineChoice) -> dict[str, TierSpec]:
    """The usual tiers. Each GPU of an engine has its own link to the host, as fast as the GPU's generation."""
    from tonnage.facts import gpus
    from tonnage.inference import tiers

    known = {name: tiers.default(name) for name in tiers.names()}
    known["host"] = tiers.host_links(known["host"], gpus.get(choice.gpu or _ASSUMED_GPU), choice.tensor_parallel)
    return known


def _usual(known: dict[str, TierSpec], config: EngineConfig) -> list[TierSpec]:
    return [
        msgspec.structs.replace(known[name], blocks=None if times is None else times * config.kv_blocks)
        for name, times in _USUAL
    ]


def _check_names(specs: Sequence[TierSpec]) -> None:
    names = [spec.name for spec in specs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError.at(f"tier {twice} is given twice", field="--tier", hint="give each tier once, fastest first")


# --- the table -----


def _print(found: TierValuation, setup: Setup, choice: EngineChoice, policy: str) -> None:
    engine = f"{choice.model} on {choice.gpu}" if choice.model else "Dynamo's replay engine"
    if choice.tensor_parallel > 1:
        engine += f" x {choice.tensor_parallel}"
    gpu_gib = setup.config.kv_blocks * setup.block_bytes / GIB
    played = f"{_count(found.requests, 'request')} in {found.hours * 60:.1f} min, {_count(found.workers, 'worker')}"
    lines.say(f"{played}, {policy}; {engine} at {setup.micro_usd_per_engine_hour / MICRO_PER_USD:.2f} USD per hour")
    lines.say(
        f"KV cache of an engine on its GPUs: {_count(setup.config.kv_blocks, 'block')} of "
        f"{_count(setup.config.block_size, 'token')}, {gpu_gib:,.1f} GiB"
    )
    terminal.echo()
    rows: list[tuple[str, ...]] = [("", "reuse", "TTFT ms", "p50", "p99", "engine h", "saved", "tiers", "net USD/h")]
    rows += [_row(setting, index, found, setup) for index, setting in enumerate(found.settings)]
    lines.show_table(rows)
    terminal.echo()
    lines.say("saved: GPU time against the GPU alone; tiers: their cost; both in USD per hour of this traffic")
    own, shared = found.bound.own, found.bound.shared
    each = f"{own:.1%} with one for each worker and round robin, " if found.workers > 1 else ""
    lines.say(f"bound: unlimited caches reuse {each}{shared:.1%} with one for all")
    refused = max(setting.refused for setting in found.settings)
    if refused:
        lines.say(f"{_count(refused, 'request')} not served: too long for the engine")
    for finding in found.findings:
        terminal.echo(f"warning: {finding}", err=True)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _usd(amount: float) -> str:
    """To the cent; nothing is never less than nothing."""
    return f"{round(amount, 2) + 0.0:,.2f}"


def _row(setting: TierWorth, index: int, found: TierValuation, setup: Setup) -> tuple[str, ...]:
    hours = found.hours or inf
    if index == 0:
        name = "GPU alone"
    elif index == len(found.settings) - 1:
        name = setting.tiers[-1]
    else:
        use = setting.uses[-1]
        size = "unlimited" if use.blocks is None else f"{use.blocks * setup.block_bytes / GIB:,.1f} GiB"
        name = f"+ {use.name}, {size}"
    times = (setting.ttft_ms.mean, setting.ttft_ms.p50, setting.ttft_ms.p99)
    dollars = (setting.saved_usd / hours, setting.tier_usd / hours, setting.net_usd / hours)
    return (
        name,
        f"{setting.reuse:.1%}",
        *(f"{time:,.0f}" for time in times),
        f"{setting.engine_hours:.3f}",
        *(_usd(money) if index and isfinite(money) else "-" for money in dollars),
    )
