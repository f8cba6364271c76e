"""The openb trace under every policy, beside the published results: what share of the GPUs is allocated.

The protocol is that of Weng et al. (:mod:`benchmarks.openb_data`): 130 % of the cluster's GPUs are asked for, pod by
pod, nobody leaves, a pod that fits nowhere is dropped. The fleet, the queue and the policies are the scheduler's own:
one call of ``decide`` places the whole queue in order of arrival. As the published algorithm does, a policy may know
the pod list, which is the mix of the recent past, but not which pods come in which order."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from benchmarks import openb_data as data
from benchmarks import openb_variants
from benchmarks.common import Options, Report
from tonnage.decisions import Bind, Decision
from tonnage.fleet.snapshot import Snapshot
from tonnage.scheduling import place
from tonnage.scheduling.value.mix import Mix

POLICIES = ("spread", "bestfit", "binpack", "fgd", "tonnage")
WHOLE_QUEUE = "tonnage, again"
"""The default as it decides a queue that is there at once: those left over are looked at again, others are placed
elsewhere for them, and other policies are tried. The other rows place pod by pod, as the published results do."""
SEEDS = tuple(range(42, 52))
QUICK_SEEDS = SEEDS[:2]
PUBLISHED = Path(__file__).with_name("openb_published.csv")
COLUMNS = ("policy", "allocated", "published", "at_100", "published_100", "decisions_per_s", "prices_s", "seeds")


def run(options: Options) -> Report:
    """Rows: one a policy, allocation in per cent of all GPUs, mean over the seeds."""
    variant, seeds, made = _asked(options)
    report = Report("openb" if variant == "default" else f"openb {variant}", COLUMNS)
    folder = data.folder(options.data)
    if folder is None:
        report.notes.append(f"no {data.NODES}.csv in the data (--data DIR, TONNAGE_DATA or ../shared/data): not run")
        return report
    machines = data.nodes(folder)
    try:
        listed = openb_variants.make(folder, variant) if made else data.pods(folder, variant)
    except FileNotFoundError as error:
        raise SystemExit(f"openb: {error}") from None
    if made:
        report.notes.append(f"{variant} is made from the default list by {openb_variants.__name__}")
    results = {policy: [once(listed, machines, seed, policy) for seed in seeds] for policy in (*POLICIES, WHOLE_QUEUE)}
    for policy, runs in results.items():
        told = {} if made else published(variant).get(policy, {})
        report.row(
            policy=policy,
            allocated=round(mean(one[0] for one in runs), 3),
            published=told.get("130", ""),
            at_100=round(mean(one[1] for one in runs), 3),
            published_100=told.get("100", ""),
            decisions_per_s=round(median(one[2] for one in runs)),
            prices_s=round(median(one[3] for one in runs), 2),
            seeds=f"{seeds[0]}-{seeds[-1]}",
        )
    if not made and (others := {name: told for name, told in published(variant).items() if name not in POLICIES}):
        shown = ", ".join(f"{name} {told['130']}" for name, told in others.items())
        report.notes.append(f"published for policies that are not run here, at 130 %: {shown}")
    if variant == "default" and not made:
        rate = round(running_rate(listed, machines, "tonnage"))
        report.notes.append(
            "decisions_per_s: by CPU time of the process in a scheduler's first call, the prices apart, receipts on, "
            f"median of the seeds; {rate} when asked again"
        )
        _bars(report, tuple(seeds) in (SEEDS, QUICK_SEEDS))
    return report


def _bars(report: Report, usual_seeds: bool) -> None:
    rows = {row["policy"]: row for row in report.rows}
    ours, fgd, again = rows["tonnage"], rows["fgd"], rows[WHOLE_QUEUE]
    if usual_seeds:
        report.bar("openb-allocated-again", again["allocated"], ">=", 96.3, "% of GPUs", "result")
        report.bar("openb-allocated", ours["allocated"], ">=", 95.8, "% of GPUs", "result")
        report.bar(
            "openb-fgd-as-published", abs(fgd["allocated"] - float(fgd["published"])), "<=", 0.15, "points", "result"
        )
    report.bar("openb-decisions", ours["decisions_per_s"], ">=", 10_000, "decisions a second", "cost")
    report.bar("openb-again-slower", ours["decisions_per_s"] / again["decisions_per_s"], "<=", 5, "times", "cost")
    report.bar("openb-prices", ours["prices_s"], "<=", 5.0, "s", "cost")


@dataclass(frozen=True)
class Ready:
    """A queue before its cluster: the arrivals, the tables of the scheduler, and what these took to price the mix."""

    order: list[data.Asked]
    cache: place.Cache
    prices_s: float

    def decide(self, policy: str) -> tuple[list[Decision], float]:
        """The decisions, and how many were made in a second of CPU time. Nothing changes."""
        start = time.process_time()
        again = policy == WHOLE_QUEUE
        settings = place.Settings("tonnage" if again else policy, look_again=again)
        decisions = place.decide(Snapshot(0, self.cache.fleet), settings, self.cache)
        return decisions, len(self.order) / (time.process_time() - start)


def ready(listed: Sequence[data.Asked], machines: Sequence[dict[str, str]], seed: int, policy: str) -> Ready:
    """The protocol's start for one seed."""
    stamp, rng = data.Stamp(), random.Random(seed)
    mix = history(listed, machines, stamp)
    fleet = data.empty_fleet(machines, rng)
    order = data.arrivals(listed, data.capacity(machines), rng)
    for number, asked in enumerate(order):
        fleet.add_pod(stamp.pod(number, asked))
    cache = place.Cache(fleet, mix)
    start = time.process_time()
    cache.view(fleet.pod_class(0), "tonnage" if policy == WHOLE_QUEUE else policy)
    return Ready(order, cache, time.process_time() - start)


def once(
    listed: Sequence[data.Asked], machines: Sequence[dict[str, str]], seed: int, policy: str
) -> tuple[float, float, float, float]:
    """(per cent allocated of all GPUs when 130 % and when 100 % have been asked for, decisions a second of CPU time,
    CPU seconds to read the mix and price it)."""
    start = ready(listed, machines, seed, policy)
    decisions, rate = start.decide(policy)
    bound = {int(one.pod.name[1:]) for one in decisions if isinstance(one, Bind)}
    capacity = data.capacity(machines)
    used = came = 0
    at_100 = 0.0
    for number, asked in enumerate(start.order):
        came += asked.gpu_milli
        used += asked.gpu_milli if number in bound else 0
        if came <= capacity:
            at_100 = used / capacity
    return 100 * used / capacity, 100 * at_100, rate, start.prices_s


def running_rate(listed: Sequence[data.Asked], machines: Sequence[dict[str, str]], policy: str) -> float:
    """Decisions a second of a scheduler that is asked the same again, its tables filled: the median of four calls."""
    start = ready(listed, machines, SEEDS[0], policy)
    start.decide(policy)
    return median(start.decide(policy)[1] for _ in range(4))


def history(listed: Sequence[data.Asked], machines: Sequence[dict[str, str]], stamp: data.Stamp) -> Mix:
    """The mix of the pod list, as a cluster that has seen these pods reads it."""
    seen = data.empty_fleet(machines, random.Random(0))
    for number, asked in enumerate(listed):
        seen.add_pod(stamp.pod(number, asked))
    return Mix.of(seen)


def published(variant: str) -> dict[str, dict[str, str]]:
    """Published allocation by policy: at 130 % and at 100 % arrived, where it is known."""
    found: dict[str, dict[str, str]] = {}
    for row in data.table(PUBLISHED):
        if row["variant"] == variant:
            found[row["policy"]] = {"130": row["allocated_at_130"], "100": row["allocated_at_100"]}
    return found


def _asked(options: Options) -> tuple[str, Sequence[int], bool]:
    given = options.own
    seeds = QUICK_SEEDS if options.quick else SEEDS
    if "seeds" in given:
        first, _, last = given["seeds"].partition("-")
        seeds = tuple(range(int(first), int(last or first) + 1))
    return given.get("variant") or given.get("like") or "default", seeds, "like" in given
