"""Replicas for a surge, a day and steady traffic made of a request log: `slo` beside KEDA, a known rule, an oracle.

The log (``--trace FILE``, by default the Azure 2023 conversation trace) is cut in two halves. On the first, KEDA and
`slo` are tuned; on the second they are scored, on surges of other times and heights. All run in the simulator, one
model on nodes of one GPU, from as many replicas as the base load needs and one more.

*KEDA*: every setting of a fixed grid: requests in flight or requests per second (AverageValue), thresholds that are
multiples of what a replica sustains, the scale-down window and minReplicaCount. Along the thresholds, from the highest
down, the first that attains the share on the first half is kept, as lower ones hold more replicas. Of those kept, by
GPU-hours, the first that attains it on the second half too is the best. *slo*: the least ``z`` with which half as many
requests miss the SLO on the first half as may, as nothing of the second half is known when it is chosen.
*rule*: avg(DCGM_FI_DEV_GPU_UTIL), Value, 70. *oracle*: :mod:`benchmarks.scaling_oracle`.

GPU-hours are those of nodes from launch to termination, starting and draining included: no node is free. Requests of
the first 15 minutes, and of the 15 minutes after the beginning of a sudden surge, are counted apart for everybody.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from benchmarks.common import Options, Report
from benchmarks.scaling_oracle import Search
from benchmarks.scaling_runs import IN_FLIGHT, RATE, SHARE, SOURCES_RULE, Outcome, Setting, play, with_z
from benchmarks.scaling_traffic import GRACE_S, SHAPES, TPOT_S, TTFT_S, Half, Shape, first, halves, sustained, write
from tonnage.traffic.traces import Trace, load_trace
from tonnage.units import NS_PER_S

TRACE = Path("traces") / "azure2023_conv.csv.gz"
LOADS = (1.2, 1.0, 0.85, 0.7, 0.55)
WINDOWS_S = (120, 300)
MINIMA = (1, 2, 4)
ZS = (0.3, 0.6, 1.0, 1.5, 2.0, 3.0, 4.0)
TUNED_SHARE = 1 - (1 - SHARE) / 2
"""What `slo` is to attain on the first half: half of what may be missed is kept for the second."""
ORACLE_RUNS, QUICK_ORACLE_RUNS = 24, 9
REACHED = {"slo-gap-closed-surge": 0.2, "slo-of-rule-flat": 0.8}
"""Of the bars that are known to be missed, what may not get worse."""
COLUMNS = ("traffic", "policy", "setting", "share", "in_grace", "gpu_hours", "most", "reversals_per_h", "of_oracle")


@dataclass(frozen=True)
class Bench:
    """The two runs of one shape: their folders by half, what a replica sustains, and the replicas at the start."""

    shape: Shape
    folders: dict[Half, Path]
    rate: float
    in_flight: float
    replicas: int

    def play(self, half: Half, setting: Setting) -> Outcome:
        return play(self.folders[half], "keda", self.replicas, setting)

    def slo(self, half: Half, z: float) -> Outcome:
        return play(self.folders[half], "slo", self.replicas, scaler=with_z(z))


def run(options: Options) -> Report:
    """All three. ``--quick``: the surge alone, four KEDA settings, a shorter search for the oracle."""
    report = Report("scaling", COLUMNS)
    given = options.own.get("trace")
    path = Path(given) if given else options.data / TRACE if options.data else None
    if path is None or not (given or path.exists()):
        report.notes.append(f"left out: no {TRACE} (give --trace FILE, --data DIR or TONNAGE_DATA)")
        return report
    logs = halves(path)
    rate, in_flight = sustained(logs["tune"])
    report.notes.append(
        f"{path.name}: a replica sustains {rate:.3g} requests/s of its first half within TTFT {TTFT_S:g} s and TPOT "
        f"{TPOT_S * 1000:g} ms, {in_flight:.3g} in flight; {GRACE_S // 60} minutes of grace"
    )
    with tempfile.TemporaryDirectory() as folder:
        for shape in SHAPES[:1] if options.quick else SHAPES:
            folders = {half: write(Path(folder), shape, half, log, rate) for half, log in logs.items()}
            _score(report, Bench(shape, folders, rate, in_flight, first(shape)), options.quick)
    return report


def _score(report: Report, bench: Bench, quick: bool) -> None:
    z, slo = _best_slo(bench)
    keda = _best_keda(bench, quick)
    rule = bench.play("score", SOURCES_RULE)
    log = load_trace(bench.folders["score"] / "log.jsonl")
    budget = QUICK_ORACLE_RUNS if quick else ORACLE_RUNS
    oracle = _search(bench, log, budget).find()
    rows = [("slo", f"z {z:g}", slo), ("rule", str(SOURCES_RULE), rule)]
    if keda is not None:
        rows.insert(1, ("keda", str(keda[0]), keda[1]))
    if oracle is not None:
        rows.append(("oracle", f"best of {budget}", oracle))
    for policy, setting, got in rows:
        report.row(
            traffic=bench.shape.name,
            policy=policy,
            setting=setting,
            share=got.share,
            in_grace=got.in_grace,
            gpu_hours=got.hours,
            most=got.most,
            reversals_per_h=got.reversals,
            of_oracle=got.hours / oracle.hours if oracle else "",
        )
    _judge(report, bench.shape, slo, keda[1] if keda else None, rule, oracle)


def _judge(
    report: Report, shape: Shape, slo: Outcome, keda: Outcome | None, rule: Outcome, oracle: Outcome | None
) -> None:
    name = shape.name
    known = REACHED.get(f"slo-share-{name}")
    report.bar(f"slo-share-{name}", slo.share, ">=", SHARE, "share of requests", "result", known)
    if shape.steady:
        known = REACHED.get(f"slo-reversals-{name}")
        report.bar(f"slo-reversals-{name}", slo.reversals, "<=", 1.0, "an hour", "result", known)
    if rule.holds:
        known = REACHED.get(f"slo-of-rule-{name}")
        report.bar(f"slo-of-rule-{name}", slo.hours / rule.hours, "<=", 0.5, "of its GPU-hours", "result", known)
    else:
        report.notes.append(f"{name}: the rule serves {rule.share:.1%} within the SLO, its GPU-hours are no yardstick")
    if keda is None or oracle is None:
        missing = "no KEDA setting" if keda is None else "no schedule"
        report.notes.append(f"{name}: {missing} attains {SHARE:.0%} of the requests on both halves: reported apart")
        return
    cheapest = min(one.hours for one in (slo, keda) if one.holds)
    report.bar(f"oracle-is-beaten-{name}", cheapest / oracle.hours, ">=", 0.99, "of its GPU-hours", "result")
    if shape.steady:
        report.bar(f"slo-of-keda-{name}", slo.hours / keda.hours, "<=", 1.05, "of its GPU-hours", "result")
    elif keda.hours > oracle.hours:
        closed = (keda.hours - slo.hours) / (keda.hours - oracle.hours)
        known = REACHED.get(f"slo-gap-closed-{name}")
        report.bar(f"slo-gap-closed-{name}", closed, ">=", 0.5, "of keda - oracle", "result", known)


def _best_slo(bench: Bench) -> tuple[float, Outcome]:
    """The least z that attains the share with room to spare on the first half, else the most, and what it gives on the
    second."""
    z = next((z for z in ZS if bench.slo("tune", z).share >= TUNED_SHARE), ZS[-1])
    return z, bench.slo("score", z)


def _best_keda(bench: Bench, quick: bool) -> tuple[Setting, Outcome] | None:
    kept = [(found[1].hours, found[0]) for line in _grid(bench, quick) if (found := _first_that_holds(bench, line))]
    for _, setting in sorted(kept):
        got = bench.play("score", setting)
        if got.holds:
            return setting, got
    return None


def _grid(bench: Bench, quick: bool) -> Iterator[list[Setting]]:
    """The settings, in lines of falling thresholds."""
    sustained_by = {IN_FLIGHT: bench.in_flight, RATE: bench.rate}
    for query, window, minimum in product(sustained_by, WINDOWS_S, MINIMA):
        if quick and (window, minimum) != (WINDOWS_S[-1], 2):
            continue
        loads = LOADS[1:4:2] if quick else LOADS
        yield [Setting(query, load * sustained_by[query], "AverageValue", window, minimum) for load in loads]


def _first_that_holds(bench: Bench, line: list[Setting]) -> tuple[Setting, Outcome] | None:
    for setting in line:
        got = bench.play("tune", setting)
        if got.holds:
            return setting, got
    return None


def _search(bench: Bench, log: Trace, budget: int) -> Search:
    arrivals_s = log.arrivals_ns / NS_PER_S
    return Search(bench.folders["score"], bench.replicas, arrivals_s, bench.shape.minutes, bench.rate, budget)
