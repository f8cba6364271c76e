"""How long the receipt of a pod or gang that waits takes on a large cluster, for each kind of refusal."""

from __future__ import annotations

import gc
import statistics
import time

from benchmarks import placement_why_cases as cases
from benchmarks.common import Report
from tonnage.fleet.snapshot import Snapshot
from tonnage.scheduling import place
from tonnage.scheduling.why import receipt as whys

ROUNDS, COLD = 5, 2
BAR_MS = 100.0


def rows(report: Report, *, quick: bool) -> None:
    """Add two rows for each case: with the tables of the decision there, and with tables made from nothing. Times are
    those of this thread."""
    nodes = 1_000 if quick else 5_000
    for fleet, waiting in (
        (cases.packed(nodes), cases.of_packed()),
        (cases.mixed(nodes), cases.of_mixed(nodes)),
    ):
        for case in waiting:
            _measure(report, f"why, {case.about}, {nodes} nodes", cases.snapshot(fleet, case), case, bar=not quick)
            cases.forget(fleet, case)


def _measure(report: Report, name: str, snapshot: Snapshot, case: cases.Case, *, bar: bool) -> None:
    warm = place.Cache(snapshot.fleet)
    receipt = whys.why(snapshot, case.key, cache=warm)
    assert receipt.state == whys.WAITS
    assert bool(receipt.changes) == case.changes
    there = [_ms(snapshot, case.key, warm) for _ in range(ROUNDS)]
    made = [_ms(snapshot, case.key, place.Cache(snapshot.fleet)) for _ in range(COLD)]
    value = statistics.median(there)
    report.row(measurement=name, value=value, unit="ms", remark="tables of the decision there")
    report.row(measurement=f"{name}, cold", value=min(made), unit="ms", remark="tables made from nothing")
    if bar:
        report.bar(name, value, "<=", BAR_MS, "ms", "cost")


def _ms(snapshot: Snapshot, key: str, cache: place.Cache) -> float:
    gc.collect()
    start = time.thread_time()
    whys.why(snapshot, key, cache=cache)
    return 1e3 * (time.thread_time() - start)
