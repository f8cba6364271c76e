"""`tonnage trace fit`: a traffic profile from a request log, or from what Prometheus has of engines that served."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tonnage.cli import files, lines, prometheus_options
from tonnage.cli.piped import FILE
from tonnage.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tonnage.traffic.profile import ProfileSource, TrafficProfile

_PATH = click.Path(path_type=Path)
_ONLY_THERE = ("service", "selector", "gateway", "context", "ttft", "tpot", "start", "end")


@click.command(name="fit", short_help="Fit a traffic profile to FILE, or to what Prometheus has.")
@click.argument("file", type=FILE, required=False)
@click.option(
    "-o", "--output", "out", type=_PATH, metavar="OUT.yaml", required=True, help="Where to write the profile."
)
@click.option("--name", default="", help="What the trace is called, for results and reports. [required with FILE]")
@click.option("--url", default="", help="Where the trace is published.")
@click.option("--licence", default="", help="Under which licence.")
@click.option("--citation", default="", help="How to cite it.")
@click.option("--fitted", type=click.DateTime(["%Y-%m-%d"]), metavar="YYYY-MM-DD", help="The day of the fit.")
@click.option(
    "--interval",
    type=click.IntRange(1, 3600),
    metavar="SECONDS",
    help="Interval over which arrivals are counted. [default: 10; with --prometheus 60]",
)
@click.option("--service", metavar="NAMESPACE/NAME", default="", help="With --prometheus: whose requests.")
@click.option("--ttft", metavar="DURATION", help="With --prometheus: say which share met this TTFT.")
@click.option("--tpot", metavar="DURATION", help="With --prometheus: say which share met this TPOT.")
@prometheus_options.options
def fit(
    file: Path | None,
    out: Path,
    name: str,
    url: str,
    licence: str,
    citation: str,
    fitted: datetime | None,
    interval: int | None,
    **given: Any,
) -> None:
    """Fit a traffic profile to FILE, a request log: arrivals over time, and the joint lengths of prompts and outputs.

    With --prometheus and --service instead of FILE: to what vLLM, SGLang or TensorRT-LLM and the gateway counted while
    they served. What they do not say is assumed, and printed.

    \b
    tonnage trace fit requests.csv --name "chat, 3 June" -o chat.yaml
    tonnage trace fit --prometheus http://localhost:9090 --service inference/chat --last 6h -o chat.yaml
    """
    from tonnage.traffic import profile, profile_file
    from tonnage.traffic.traces import load_trace

    if (file is None) == (not given["prometheus"]):
        raise click.UsageError("expected either FILE or --prometheus URL")
    files.check_writable(out)
    day = fitted.date() if fitted else None
    if file is None:
        where = given["service"] or given["selector"]
        source = profile.ProfileSource(name or f"{where}, measured", url, licence, citation, day)
        made = _of_prometheus(source, interval, given)
    else:
        for one in _ONLY_THERE:
            if given[one]:
                raise click.UsageError(f"--{one} is for --prometheus, and FILE is given")
        if not name:
            raise click.UsageError("Missing option '--name'.")
        source = profile.ProfileSource(name, url, licence, citation, day)
        made = profile.fit(load_trace(file), source, interval or profile.DEFAULT_INTERVAL_S)
    files.write(out, profile_file.to_yaml(made))
    lines.say(f"{out}: {made.requests:,} requests, {made.mean_rate:.2f} per second over {made.span_ns // 10**9:,} s")
    for line in _found(made):
        lines.say_indented(line)


def _of_prometheus(source: ProfileSource, interval: int | None, given: dict[str, Any]) -> TrafficProfile:
    from tonnage.traffic import measured
    from tonnage.traffic.readings import find_served

    service = given.pop("service")
    ttft_s, tpot_s = (prometheus_options.target_s(f"--{one}", given.pop(one)) for one in ("ttft", "tpot"))
    asked = prometheus_options.asked(given)
    if service or not asked.selector:
        if not service:
            raise InputError.at("nothing says whose requests", field="--service", hint="give namespace/name")
        prometheus_options.check_service(service)
    wanted = measured.MeasuredPeriod(
        asked.start_ns,
        asked.end_ns,
        interval or measured.DEFAULT_INTERVAL_S,
        asked.context,
        ttft_s,
        tpot_s,
    )
    with asked.open() as server:
        served = find_served(
            server, service, asked.start_ns, asked.end_ns, selector=asked.selector, gateway=asked.gateway
        )
        return measured.fit_measured(server, served, source, wanted)


def _found(made: TrafficProfile) -> Iterator[str]:
    """What was measured beside the profile, and what was assumed for it."""
    found = made.measured
    if found is not None:
        lengths = made.lengths
        prompts = lengths.prompt_tokens[lengths.prompt_levels.index(0.5)]
        outputs = lengths.output_tokens[0][lengths.output_levels.index(0.5)]
        yield f"measured from {found.start}: prompts of {prompts:,} tokens and outputs of {outputs:,} (medians)"
        if found.found_in_cache is not None:
            yield f"  {100 * found.found_in_cache:.1f}% of the prompt tokens were found in prefix caches"
        for name, target, met in (("TTFT", found.ttft_s, found.ttft_met), ("TPOT", found.tpot_s, found.tpot_met)):
            if target is not None and met is not None:
                yield f"  {name} within {1000 * target:g} ms: {_share(met)} of the requests"
        if found.both_met is not None:
            yield f"  both: {_share(found.both_met)}"
    if made.source.assumed:
        yield "assumed:"
        yield from (f"  {text}" for text in made.source.assumed)


def _share(met: tuple[float, float]) -> str:
    low, high = (f"{100 * one:.1f}" for one in met)
    return f"{low}%" if low == high else f"{low} to {high}%"
