"""`tonnage bench`: published claims, measured on the engine model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tonnage.cli import answers, lines, terminal
from tonnage.cli.meter import meter
from tonnage.cli.options import ENGINE_WORDS, OUTPUT, Finite, at_option, said_as
from tonnage.cli.piped import FILE
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.inference.paged import PagedEngine, PagedReport, SchemeResult, Sized

_PROFILE = Path("examples/traffic-surge/traffic/azure-2023-conv.yaml")
_SCHEMA = "tonnage.dev/bench-paged/v1"
_MOST_TOKENS = 10**12
"""More than all the memory of a large cluster holds."""
_MODEL, _GPU = "meta-llama/Llama-3.1-8B-Instruct", "h100"


@click.group()
def bench() -> None:
    """Measure published claims on the engine model, and print both numbers."""


@bench.command(short_help="KV memory in pages against contiguous regions.")
@click.option("--trace", type=FILE, metavar="FILE", help="A request log (Azure or Mooncake format, plain or .gz).")
@click.option("--profile", type=FILE, metavar="FILE", help=f"A traffic profile.  [default: {_PROFILE}]")
@click.option(
    "--paper",
    type=click.Choice(["sharegpt", "alpaca"]),
    help="The paper's own setup instead: OPT-13B on an A100 with 40 GB, lengths with these published means.",
)
@click.option("--model", default=_MODEL, show_default=True, metavar="NAME", help="The model.")
@click.option("--gpu", default=_GPU, show_default=True, metavar="NAME", help="The GPU.")
@click.option("--tensor-parallel", "ranks", type=click.IntRange(1), default=1, show_default=True, metavar="N")
@click.option(
    "--max-model-len",
    type=click.IntRange(1, _MOST_TOKENS),
    metavar="TOKENS",
    help="The longest sequence.  [default: the longest request, up to a power of two]",
)
@click.option(
    "--kv-tokens",
    type=click.IntRange(1, _MOST_TOKENS),
    metavar="TOKENS",
    help="KV memory.  [default: what the GPU has]",
)
@click.option(
    "--requests",
    type=click.IntRange(1, 1_000_000),
    default=2000,
    show_default=True,
    metavar="N",
    help="Requests to replay.",
)
@click.option(
    "--load",
    type=Finite(0, 100, min_open=True),
    default=0.7,
    show_default=True,
    help="Rate at which TTFT is measured, as a share of what paging sustains.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random requests.")
@OUTPUT
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@click.pass_context
def paged(
    ctx: click.Context,
    trace: Path | None,
    profile: Path | None,
    paper: str | None,
    model: str,
    gpu: str,
    ranks: int,
    max_model_len: int | None,
    kv_tokens: int | None,
    requests: int,
    load: float,
    seed: int,
    output: str,
    quiet: bool,
) -> None:
    """Play the same requests on engines whose KV memory is contiguous or paged, and check PagedAttention's claims.

    Memory is measured while all requests are queued and only memory keeps the next one from being admitted; TTFT is
    measured at one rate for all. `tonnage bench paged --paper sharegpt` repeats the paper's setup.

    \b
    tonnage bench paged
    tonnage bench paged --paper sharegpt
    """
    from tonnage.inference.paged import SCHEMES, compare

    _exclude(ctx, trace, profile, paper)
    if paper is not None:
        from random import Random

        from tonnage.inference.paged.setups import paper_requests, paper_setting

        workload, name = f"{paper} (lengths drawn)", "facebook/opt-13b on a100-40"
        played, setting = paper_requests(paper, requests, Random(seed)), paper_setting()
    else:
        workload, played = _workload(trace, profile, requests, seed)
        name = f"{model} on {f'{ranks} x ' if ranks > 1 else ''}{gpu}"
        with said_as(ENGINE_WORDS):
            setting = _setting(model, gpu, ranks, kv_tokens, max_model_len, played)
    _check(setting, played)
    with meter(len(played) * len(SCHEMES) * 2, "play", quiet=quiet) as done:
        report = compare(played, setting, load=load, observe=done)
    if output != "table":
        found = {"schema": _SCHEMA, "workload": workload, "engine": name, **msgspec.structs.asdict(report)}
        answers.show(msgspec.json.Encoder(order="deterministic").encode(found), output)
        return
    _print(report, workload, name)


def _exclude(ctx: click.Context, trace: Path | None, profile: Path | None, paper: str | None) -> None:
    """One workload; and the paper's setup has its own engine."""
    given = [flag for flag, value in (("--trace", trace), ("--profile", profile), ("--paper", paper)) if value]
    if len(given) > 1:
        raise click.UsageError(f"{given[0]} and {given[1]} exclude each other", ctx)
    for parameter in ("model", "gpu", "ranks", "max_model_len", "kv_tokens"):
        if paper and ctx.get_parameter_source(parameter) == click.core.ParameterSource.COMMANDLINE:
            flag = {"ranks": "--tensor-parallel"}.get(parameter, "--" + parameter.replace("_", "-"))
            raise click.UsageError(f"--paper and {flag} exclude each other", ctx)


def _workload(trace: Path | None, profile: Path | None, count: int, seed: int) -> tuple[str, list[Sized]]:
    """Name and requests, arrivals in ns."""
    import numpy as np

    from tonnage.cli import files
    from tonnage.inference.paged import Sized
    from tonnage.traffic.profile import sample
    from tonnage.traffic.profile_file import read_profile
    from tonnage.traffic.traces import load_trace
    from tonnage.units import NS_PER_S

    if trace is not None:
        log = load_trace(trace)
        columns = (log.arrivals_ns[:count].tolist(), log.prompt[:count].tolist(), log.output[:count].tolist())
        return log.source, [Sized(*row) for row in zip(*columns, strict=True)]
    known = read_profile(files.existing(profile or _PROFILE))
    rng = np.random.default_rng(seed)
    prompt, output = sample(known, rng, count)
    arrivals = np.cumsum(rng.exponential(NS_PER_S, count)).astype(np.int64).tolist()
    rows = zip(arrivals, prompt.tolist(), output.tolist(), strict=True)
    return known.source.name, [Sized(*row) for row in rows]


def _setting(
    model: str, gpu: str, ranks: int, kv_tokens: int | None, max_model_len: int | None, played: Sequence[Sized]
) -> PagedEngine:
    from tonnage.facts import gpus, models
    from tonnage.inference import config
    from tonnage.inference.paged import PagedEngine
    from tonnage.inference.paged.contiguous import next_power_of_two
    from tonnage.inference.vllm_args import VllmArgs

    with at_option("--model"):
        shape = models.get(model)
    with at_option("--gpu"):
        card = gpus.get(gpu)
    # vLLM would refuse to start where the KV cache cannot hold one longest sequence; here it only sizes the memory.
    known = config.engine_config(shape, card, tensor_parallel=ranks, max_model_len=-1, hybrid_kv_cache=False)
    memory = kv_tokens or known.kv_blocks * known.block_size
    longest = max_model_len or min(
        next_power_of_two(max(one.prompt + one.output for one in played)), shape.context_tokens or memory, memory
    )
    return PagedEngine(
        kv_tokens=memory,
        max_model_len=longest,
        max_num_batched_tokens=known.max_num_batched_tokens,
        max_num_seqs=known.max_num_seqs,
        timing=config.step_times(shape, card, VllmArgs(tensor_parallel_size=ranks)),
    )


def _check(setting: PagedEngine, played: Sequence[Sized]) -> None:
    if setting.kv_tokens < setting.max_model_len:
        raise InputError.at(
            f"--max-model-len is {setting.max_model_len}, but the KV cache holds {setting.kv_tokens} tokens",
            field="--max-model-len",
            hint=f"set it to {setting.kv_tokens} or less, or raise --kv-tokens",
        )
    shortest = min(one.prompt + one.output for one in played)
    if shortest > setting.max_model_len or setting.kv_tokens < 256:
        raise InputError.at(
            f"no request fits: the shortest has {shortest} tokens, the longest sequence {setting.max_model_len}, "
            f"the KV cache {setting.kv_tokens}",
            field="--max-model-len",
            hint="raise --max-model-len, and --kv-tokens to 256 or more",
        )


def _print(report: PagedReport, workload: str, engine: str) -> None:
    requests = "1 request" if report.requests == 1 else f"{report.requests:,} requests"
    lines.say(
        f"{workload}: {requests}, mean {report.mean_prompt_tokens:,.0f} prompt and {report.mean_output_tokens:,.0f} "
        "output tokens" + (f"; {report.refused:,} longer than the longest sequence left out" if report.refused else "")
    )
    rate = report.offered_requests_per_s
    lines.say(
        f"{engine}: KV memory of {report.kv_tokens:,} tokens, longest sequence {report.max_model_len:,}; "
        + (f"TTFT at {rate:.2f} requests/s" if rate else "no TTFT, as all arrive at once")
    )
    terminal.echo()
    head = ("KV memory", "used", "reserved", "internal", "external", "batch", "max", "tokens/s", "TTFT ms", "p99")
    lines.show_table([head, *(_row(result) for result in report.schemes)])
    terminal.echo()
    rows = [("PagedAttention's claim", "claimed", "measured", "verdict")]
    rows += [(claim.claim, claim.claimed, claim.measured, claim.verdict) for claim in report.claims]
    lines.show_table(rows, left=(0, 3))


def _row(result: SchemeResult) -> tuple[str, ...]:
    memory = result.memory
    shares: tuple[str, ...] = ("-",) * 4
    if memory is not None:
        shares = tuple(f"{part:.1%}" for part in (memory.used, memory.reserved, memory.internal, memory.external))
    times = [f"{value:,.0f}" if value is not None else "-" for value in (result.ttft_ms_mean, result.ttft_ms_p99)]
    batch = f"{result.batch_mean:.1f}" if result.batch_mean is not None else "-"
    return (result.scheme, *shares, batch, f"{result.batch_max}", f"{result.output_tokens_per_s:,.0f}", *times)
