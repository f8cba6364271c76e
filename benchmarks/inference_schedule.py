"""The engine model beside Dynamo's offline replay: the same schedule, and how long each takes to find it.

Both read the same file and deal the requests out in turn. The peer's own ``wall_time_ms`` is its simulation alone;
ours is the numbering of the prompts' blocks and the simulation. *engines alone*: each engine is given its requests, as
round robin does not depend on what the engines do. *behind the router*: `replay`, as `tonnage route replay` runs it;
*by content*: under the `tonnage` policy, beside the peer behind its KV router.
Every repetition is a process of its own on both sides, and they take turns; medians are shown. Both sides are one
thread, so processor time, which others on the machine disturb less than wall time, decides.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks import inference_peer
from benchmarks.common import Report, in_process
from tonnage.inference.engine import Engine, EngineConfig
from tonnage.inference.engine.requests import Finished
from tonnage.inference.replay import Log, ReplayWorkers, log_of, replay
from tonnage.inference.routing import EngineCosts, make_policy
from tonnage.inference.timing import PolynomialTiming
from tonnage.traffic.traces import Trace, load_trace

BLOCK = 64
BLOCKS = 16_384
CHUNK = 8_192
CONFIG = EngineConfig(CHUNK, 256, 1 << 30, BLOCKS, BLOCK, reserve_full_prompt=True)
"""The engine of Dynamo's replay with nothing set."""
TIMING = PolynomialTiming(BLOCKS * BLOCK)
WORKERS = (1, 4, 16)
TOLERANCE_NS = 1_000
_WALL, _CPU = 0, 1
_FOREVER_NS = 1 << 60


def log_from(trace: Trace) -> Log:
    """The trace's requests with their blocks numbered."""
    return log_of(trace, BLOCK)


def cluster(workers: int) -> ReplayWorkers:
    return ReplayWorkers(workers, CONFIG, TIMING)


def in_turn(log: Log, workers: int) -> list[Finished]:
    """What becomes of the requests, in order of arrival, when engines get them in turn."""
    engines = [Engine(CONFIG, TIMING, prefix_caching=True) for _ in range(workers)]
    for number, (at, prompt, output, path) in enumerate(
        zip(log.arrival_ns, log.prompt, log.output, log.paths, strict=True)
    ):
        engines[number % workers].submit(number, at, prompt, output, path=path)
    for engine in engines:
        engine.advance(_FOREVER_NS)
    return sorted((one for engine in engines for one in engine.take_finished()), key=lambda one: one.request_id)


def agreement(finished: Sequence[Finished], workers: int, peer: Sequence[tuple[float, ...]]) -> tuple[float, float]:
    """(share of requests with admission, first token and end within 1 µs of the peer's, share with equal reuse).

    ``peer``: rows of ``PeerRun.requests``, in any order. A request that the peer does not know disagrees."""
    first = min((row[0] for row in peer), default=0.0)
    theirs: dict[tuple[float, ...], deque[tuple[float, ...]]] = defaultdict(deque)
    for row in peer:
        theirs[round((row[0] - first) * 1e6), row[1], row[2], row[3]].append(row[4:])
    on_time = reused = 0
    for number, one in enumerate(finished):
        rows = theirs[one.arrival_ns, one.prompt_tokens, one.output_tokens, number % workers]
        if not rows:
            continue
        *times_ms, cached = rows.popleft()
        ours = (one.admitted_ns, one.first_token_ns, one.finish_ns)
        on_time += all(
            ns is not None and abs((ms - first) * 1e6 - ns) <= TOLERANCE_NS
            for ns, ms in zip(ours, times_ms, strict=True)
        )
        reused += cached == one.cached_tokens
    return on_time / max(1, len(finished)), reused / max(1, len(finished))


def once(file: str, workers_text: str) -> dict[str, list[float]]:
    """(wall, CPU) seconds of reading ``file``, of numbering its blocks, and of both ways to simulate."""
    workers = int(workers_text)
    marks = [_now()]
    trace = load_trace(Path(file))
    marks.append(_now())
    log = log_from(trace)
    marks.append(_now())
    engines = in_turn(log, workers)
    marks.append(_now())
    routed = replay(log, cluster(workers), make_policy("round-robin"))
    marks.append(_now())
    replay(log, cluster(workers), make_policy("tonnage", EngineCosts(TIMING, CHUNK)))
    marks.append(_now())
    if routed.finished != engines:
        raise AssertionError("the router's replay and the engines alone disagree")
    spent = [[after - before for before, after in zip(*pair, strict=True)] for pair in pairwise(marks)]
    return dict(zip(("read", "number", "engines", "router", "content"), spent, strict=True))


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def measure(report: Report, trace: Path, beginning: Path | None = None) -> None:
    """Rows and bars of schedules and speed, for each of WORKERS.

    With a ``beginning`` of the trace, for a quick look: schedules of that, and the speed at 4 workers alone, once."""
    log = log_from(load_trace(beginning or trace))
    for workers in WORKERS:
        kept = inference_peer.replay(str(beginning or trace), "round_robin", workers, keep_requests=True)
        share, reused = agreement(in_turn(log, workers), workers, kept.requests)
        detail = f"{len(log)} requests: admission, first token, end within 1 µs; reuse equal for {reused:.2%}"
        report.row(what="schedule equal", amount=_many(workers), ours=share, detail=detail)
        report.bar(f"schedule-equal-{workers}-workers", share, ">=", 0.99, "share of requests", "result")
    for workers in WORKERS[1:2] if beginning else WORKERS:
        _speed(report, trace, workers, 1 if beginning else 7)


def _speed(report: Report, trace: Path, workers: int, repeat: int) -> None:
    theirs, by_content, ours = [], [], []
    for _ in range(repeat):
        theirs.append(inference_peer.replay(str(trace), "round_robin", workers))
        by_content.append(inference_peer.replay(str(trace), "kv_router", workers))
        ours.append(in_process("benchmarks.inference_schedule", "once", str(trace), str(workers)))
    requests = theirs[0].count
    own, call = median(one.own_s for one in theirs), median(one.call_s for one in theirs)
    content, content_cpu = median(one.own_s for one in by_content), median(one.own_cpu_s for one in by_content)
    own_cpu, call_cpu = median(one.own_cpu_s for one in theirs), median(one.cpu_s for one in theirs)

    def spent(clock: int, *stages: str) -> float:
        return float(median(sum(one[stage][clock] for stage in stages) for one in ours))

    alone, routed = spent(_CPU, "number", "engines"), spent(_CPU, "number", "router")
    rate = f"{requests / alone:,.0f} and {requests / own_cpu:,.0f} requests/s"
    rows: tuple[tuple[str, float, float, str], ...] = (
        ("engines alone, CPU", alone, own_cpu, rate),
        ("engines alone, wall", spent(_WALL, "number", "engines"), own, "the peer's own wall_time_ms"),
        ("behind the router, CPU", routed, own_cpu, ""),
        ("behind the router by content, CPU", spent(_CPU, "number", "content"), content_cpu, "peer: its KV router"),
        ("behind the router by content, wall", spent(_WALL, "number", "content"), content, "peer: its KV router"),
        ("whole call, CPU", spent(_CPU, "read", "number", "engines"), call_cpu, "engines alone, and reading the file"),
        ("whole call, wall", spent(_WALL, "read", "number", "engines"), call, "engines alone, and reading the file"),
    )
    for what, mine, peer, detail in rows:
        report.row(
            what=f"replay: {what}",
            amount=f"{_many(workers)}, s",
            ours=mine,
            peer=peer,
            ratio=mine / peer,
            detail=detail,
        )
    report.bar(
        f"replay-speed-{workers}-workers", own_cpu / alone, ">=", 3.0, "times dynamo replay's requests/s", "cost"
    )
    report.bar(
        f"replay-speed-routed-{workers}-workers",
        own_cpu / routed,
        ">=",
        2.0,
        "times dynamo replay's requests/s",
        "cost",
    )


def _many(workers: int) -> str:
    return f"{workers} worker" + ("s" if workers > 1 else "")
