"""Serving: the engine model beside Dynamo's offline replay, routing policies, the KV index, KV tiers.

The peer is ai-dynamo-runtime, in the same run. Where it or a trace is absent, what needs it is left out and named in a
note. The parts are in `inference_schedule`, `inference_routing` and `inference_index`.
"""

from __future__ import annotations

import gzip
import itertools
import tempfile
from pathlib import Path

from benchmarks import inference_conversations, inference_peer
from benchmarks.common import Options, Report

COLUMNS = ("what", "amount", "ours", "peer", "ratio", "detail")
SYNTHETIC = "mooncake_synthetic_trace.jsonl"
CONVERSATION = "conversation"
SOME = 1_000
"""Requests that ``--quick`` takes of a trace where it does not take them all."""
TALKS, FEW_TALKS = 12_031, 4_000
"""Requests of generated conversations: as many as the conversation trace has; with ``--quick``."""
BLOCK_BYTES = 64 * 131_072
"""A block of 64 tokens of Llama 3.1 8B in 16 bits."""


def run(options: Options) -> Report:
    """All parts. ``--quick``: fewer repetitions, one seed, fewer lags, loads and requests."""
    report = Report("inference", COLUMNS)
    with tempfile.TemporaryDirectory() as folder:
        trace = unpacked(find_trace(options.data, SYNTHETIC), Path(folder))
        conversation = unpacked(find_trace(options.data, CONVERSATION), Path(folder))
        if trace is None:
            report.notes.append(f"absent, and left out with all it shows: traces/ has no {SYNTHETIC}[.gz] (--data DIR)")
        if conversation is None:
            report.notes.append(
                f"traces/ has no trace with `{CONVERSATION}` in its name (--data DIR): conversations are generated, as "
                "inference_conversations says"
            )
            talks = FEW_TALKS if options.quick else TALKS
            conversation = inference_conversations.write(Path(folder) / "conversations.jsonl", talks)
        short = beginning(trace, Path(folder)) if options.quick and trace is not None else None
        _schedule(report, trace, short)
        _index(report, options.quick)
        _routing(report, trace, conversation, options.quick)
        if trace is not None:
            _tiers(report, trace, options.quick)
    return report


def find_trace(data: Path | None, name: str) -> Path | None:
    """The first file in ``data``/traces whose name has ``name`` in it and is .jsonl or .jsonl.gz."""
    if data is None:
        return None
    return next(
        (
            path
            for path in sorted((data / "traces").iterdir())
            if name in path.name and path.name.removesuffix(".gz").endswith(".jsonl")
        ),
        None,
    )


def unpacked(path: Path | None, folder: Path) -> Path | None:
    """``path`` itself, or its content in ``folder`` if it is compressed: the peer reads plain text alone."""
    if path is None or path.suffix != ".gz":
        return path
    plain = folder / path.stem
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    return plain


def beginning(trace: Path, folder: Path) -> Path:
    """The first requests of ``trace``, in ``folder``."""
    with trace.open(encoding="utf-8") as lines:
        text = "".join(itertools.islice(lines, SOME))
    short = folder / f"{trace.stem}-{SOME}.jsonl"
    short.write_text(text, encoding="utf-8")
    return short


def _schedule(report: Report, trace: Path | None, short: Path | None) -> None:
    from benchmarks import inference_schedule

    if inference_peer.python() is None:
        report.notes.append(f"no schedule and no speed beside the peer: {inference_peer.ABSENT}")
    elif trace is not None:
        inference_schedule.measure(report, trace, short)


def _routing(report: Report, trace: Path | None, conversation: Path, quick: bool) -> None:
    from benchmarks import inference_routing

    inference_routing.measure(report, trace, conversation, quick)


def _index(report: Report, quick: bool) -> None:
    from benchmarks import inference_index

    rows, bars, notes = inference_index.rows_and_bars(quick)
    report.rows.extend({**row, "what": f"index: {row['what']}"} for row in rows)
    report.bars.extend(bars)
    report.notes.extend(notes)


def _tiers(report: Report, trace: Path, quick: bool) -> None:
    """The GPU's caches alone and with a free unlimited tier below them, beside the bound that nothing passes."""
    from benchmarks.inference_schedule import CONFIG, TIMING, log_from
    from tonnage.inference.replay import Log
    from tonnage.inference.worth import Setup, value
    from tonnage.traffic.traces import load_trace

    workers = 4
    log = log_from(load_trace(trace))
    if quick:
        some = slice(SOME)
        log = Log(log.arrival_ns[some], log.prompt[some], log.output[some], log.paths[some])
    found = value(log, Setup(workers, CONFIG, TIMING, BLOCK_BYTES), [])
    bound = 100 * found.bound.own
    for what, one in (("GPU alone", found.settings[0]), ("and a free tier without end", found.settings[-1])):
        report.row(
            what=f"KV tiers: {what}, reuse",
            amount=f"{workers} workers, {len(log)} requests, %",
            ours=100 * one.reuse,
            peer=bound,
            ratio=100 * one.reuse / bound,
            detail=f"peer: the bound; TTFT {one.ttft_ms.mean:.1f} ms, p99 {one.ttft_ms.p99:.0f} ms",
        )
