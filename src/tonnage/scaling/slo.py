"""The `slo` policy: as many replicas as the demand needs by the time they can serve, at the least cost.

For each workload, every tick:

1. *Demand.* Arrivals are counted at the gateway. The level is the rate of the last two minutes, or of the last 30 s
   when these exceed it by more than chance allows (a Poisson test); then the rise of those 30 s is extended by as long
   again, at most to the horizon. To this comes what a count leaves uncertain, ``z`` standard deviations of it.
2. *Horizon.* The measured cold start: what the workload's own recent pods took from creation to serving.
3. *Backlog.* Requests in flight above what the ready replicas hold when they meet the SLO, and those that will be added
   to them until help arrives, are to be gone ``drain_ns`` later.
4. *Replicas* = demand ÷ capacity: the highest arrival rate at which a replica meets the SLO, found with the simulator's
   own engine (:mod:`tonnage.inference.capacity`), at the share of prompts that engines lately found in their caches.
   Pods that are not ready count as ordered, never as capacity.
5. *Down* only to the highest need of the last ``hold_ns``, and not on nodes that are kept: a replica costs nothing on a
   GPU that is paid for anyway, so free ones are filled, shared out in proportion to need, and stay warm until another's
   pod waits that the scheduler would schedule in their place (:mod:`tonnage.scaling.waiting`). Then what is idle is
   given up at once, down to the minimum. Launched nodes empty: their replicas go first, after others have started on
   free GPUs of nodes of the fixed fleet.

Where every replica needs a new node (:attr:`tonnage.scaling.target.Target.far`), the look back is longer, bursts and
small numbers of replicas are allowed for, more are ordered when they were needed most of a while, and what was ordered
too much is given up before it starts
(docs/explanation/slo-policy.md).

"No data" holds: without a reading the replicas stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor, sqrt
from statistics import median_low
from typing import TypeAlias, TypeVar

from tonnage.decisions import Alternative, Reason, Ref, Scalar, Scale
from tonnage.fleet.snapshot import PodView, Snapshot, WorkloadView
from tonnage.scaling import waiting
from tonnage.scaling.counted import Counts, continued
from tonnage.scaling.demand import LONG_NS, MEMORY_NS, SHORT_NS, Forecast, forecast
from tonnage.scaling.free_room import FreeRoom
from tonnage.scaling.target import Target, TrafficReading
from tonnage.scaling.waiting import Seats
from tonnage.scaling.words import replicas_text
from tonnage.units import NS_PER_S

__all__ = ["Memory", "Target", "TrafficReading", "at_reuse", "decide", "forecast"]

Needs: TypeAlias = tuple[tuple[int, int], ...]

CHANCE = 3.0
"""Standard deviations of the requests in flight that are no backlog yet."""

CAUTION = 1.0
"""Standard deviations of what is uncertain that are added before replicas go: to have them again takes a cold start."""

STEADY_DOWN = 1.5
"""Of the cold start: how long the last replica above the need stays."""

PERSIST = 0.1
"""Of the cold start: more replicas are asked for when they were needed in more than half of this time."""

BURSTS = 1.5
"""Standard deviations of what bursts add for a minute that replicas are to serve within the SLO."""

BURST_S = 60.0
"""How long more than the mean must arrive to be felt: a replica's capacity allows for shorter bursts."""

NO_DATA = Reason("held: no data for arrivals or requests in flight")
TOO_SHORT = Reason("held: too few samples of the arrival rate")
"""Why a tick without a count of replicas changes nothing."""

REUSE_STEP = 0.05
"""Shares of prompts found in caches are rounded down to multiples of this; all of a prompt is never counted on."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What the policy carries from tick to tick: (time in ns, requests received), and (time in ns, replicas without
    which it is not to be left). ``reason`` explains the last tick, whatever came of it. ``falls``: when the counter
    fell lately; ``rate``: requests/s when they were last known; ``asked``: (time in ns, replicas needed), where help is
    far."""

    counts: Counts = ()
    needs: Needs = ()
    reason: Reason = field(default_factory=lambda: Reason("not evaluated yet"))
    falls: tuple[int, ...] = ()
    rate: float | None = None
    asked: Needs = ()


@dataclass(frozen=True, slots=True)
class ReplicaNeed:
    """Replicas that one workload needs, and from what. ``lasting``: those of them that it needed for long enough to
    order them; ``keep``: those without which it is not to be left; ``steady``: those for its demand alone, as a
    fraction."""

    replicas: int
    lasting: int
    keep: int
    steady: float
    forecast: Forecast
    backlog: float
    horizon_ns: int
    evidence: tuple[tuple[str, Scalar], ...] = ()


def decide(
    snapshot: Snapshot,
    targets: Sequence[Target],
    readings: Mapping[str, TrafficReading],
    memory: Mapping[str, Memory],
    seats: Seats,
) -> tuple[list[Scale], dict[str, Memory]]:
    """Scale decisions for all targets together, and the memory for the next tick.

    ``seats``: what the scheduler would do: who of the pending pods would be bound now, and which nodes are feasible for
    a pod."""
    now = snapshot.now_ns
    remembered = dict(memory)
    targets = [at_reuse(target, readings.get(target.workload)) for target in targets]
    needs: dict[str, ReplicaNeed] = {}
    for target in targets:
        workload = snapshot.workloads.get(target.workload)
        reading = readings.get(target.workload)
        before = remembered.get(target.workload, Memory())
        if workload is None or reading is None or reading.received is None or reading.in_flight is None:
            remembered[target.workload] = replace(before, reason=NO_DATA)
            continue
        counted_ns = now - reading.age_ns
        counts, falls = _since(before.counts, counted_ns - (MEMORY_NS if target.far else 2 * LONG_NS)), before.falls
        if not counts or counted_ns > counts[-1][0] or reading.received < counts[-1][1]:  # else it was read before
            counts, falls = continued(counts, falls, before.rate, counted_ns, reading.received)
        need = _need(target, workload, counts, reading, _horizon(target, reading))
        if need is None:
            remembered[target.workload] = replace(before, counts=counts, falls=falls, reason=TOO_SHORT)
            continue
        asked: Needs = ()
        if target.far:
            asked = (*_since(before.asked, now - round(PERSIST * need.horizon_ns)), (now, need.replicas))
            need = replace(need, lasting=median_low(replicas for _, replicas in asked))
        needs[target.workload] = need
        window = max(target.hold_ns, round(STEADY_DOWN * need.horizon_ns)) if target.far else target.hold_ns
        history = (*_since(before.needs, now - window), (now, need.keep))
        remembered[target.workload] = Memory(counts, history, falls=falls, rate=need.forecast.level, asked=asked)
    idle = {one.workload: _idle(snapshot, one, remembered[one.workload]) for one in targets if one.workload in needs}
    more = {name: max(0, need.lasting - snapshot.workloads[name].replicas) for name, need in sorted(needs.items())}
    for_others = waiting.look(snapshot, idle, more, seats)
    warm = {} if for_others.first else _warm(snapshot, targets, needs, seats)
    decisions = []
    for target in targets:
        measured = needs.get(target.workload)
        if measured is not None:
            workload = snapshot.workloads[target.workload]
            history = remembered[target.workload].needs
            extra = None if target.workload in for_others.gives_up else warm.get(target.workload, 0)
            replicas, reason = _decide_one(snapshot, target, workload, measured, history, extra)
            remembered[target.workload] = replace(remembered[target.workload], reason=reason)
            if replicas != workload.replicas:
                going = max(0, workload.replicas - replicas)
                remove = first_to_go(snapshot, workload, going) if going else ()
                ref = Ref(workload.kind, workload.name, workload.namespace, workload.uid)
                decisions.append(Scale(ref, workload.replicas, replicas, reason, remove))
    return decisions, remembered


def _hold_ns(target: Target, need: ReplicaNeed) -> int:
    return max(target.hold_ns, need.horizon_ns // 3) if target.far else target.hold_ns


def _held(snapshot: Snapshot, target: Target, need: ReplicaNeed, history: Needs) -> int:
    """The highest need of the time that needs are held; ``far``: and one more where it was needed not long before."""
    held = max(replicas for t, replicas in history if t >= snapshot.now_ns - _hold_ns(target, need))
    return min(held + 1, max(replicas for _, replicas in history)) if target.far else held


def _idle(snapshot: Snapshot, target: Target, memory: Memory) -> tuple[int, ...]:
    """The rows of the pods that would go if the workload gave up what is idle."""
    workload = snapshot.workloads[target.workload]
    least = max(target.minimum, min(target.maximum, workload.replicas, _recently(snapshot, memory.needs)))
    going = first_to_go(snapshot, workload, workload.replicas - least) if least < workload.replicas else ()
    return tuple(snapshot.fleet.pod_by_key[one.namespace, one.name] for one in going)


def _recently(snapshot: Snapshot, history: Needs) -> int:
    """The highest need of the last minute."""
    return max(replicas for t, replicas in history if t > snapshot.now_ns - 2 * SHORT_NS)


def at_reuse(target: Target, reading: TrafficReading | None) -> Target:
    """The target with what a replica sustains at the share of prompts that caches were seen to hold, if it is known."""
    if target.sized is None or reading is None or not reading.asked or reading.found is None:
        return target
    share = min(max(reading.found / reading.asked, 0.0), 1.0)
    reuse = round(min(floor(share / REUSE_STEP + 1e-9) * REUSE_STEP, 1 - REUSE_STEP), 6)
    if reuse <= 0:
        return target
    capacity, concurrency = target.sized(reuse)
    pair = target.pair_capacity * capacity / target.capacity
    return replace(target, capacity=capacity, concurrency=concurrency, reuse=reuse, pair_capacity=pair)


def _decide_one(
    snapshot: Snapshot, target: Target, workload: WorkloadView, need: ReplicaNeed, history: Needs, extra: int | None
) -> tuple[int, Reason]:
    """The replicas, be they as many as there are, and why. ``extra``: replicas for which nodes of the fixed fleet have
    free GPUs; None while others wait who would fit where replicas are idle."""
    current = workload.replicas
    held = _held(snapshot, target, need, history)
    recently = _recently(snapshot, history)
    on_kept, on_bought = _spread(snapshot, workload)
    settled = workload.ready == current == len(workload.pods)
    if need.lasting > current:
        replicas, verdict = need.lasting, "demand at the horizon exceeds capacity"
    elif extra is None:
        replicas, verdict = min(current, recently), "pods of other workloads wait for GPUs: idle replicas are scaled in"
    elif extra and settled:
        replicas, verdict = (
            current + extra,
            "free GPUs of the fixed fleet are filled: a warm replica costs nothing there",
        )
    else:
        serving = current - (_starting(snapshot, workload) if target.far else 0)
        replicas = min(current, max(held, on_kept, 0 if settled else serving))
        verdict = "no longer needed"
    replicas = max(target.minimum, min(target.maximum, replicas))
    if replicas == current:
        verdict = _why_held(target, need, held, current, settled=settled)
    verb = "serves" if current == 1 else "serve"
    serves = f"{replicas_text(current)} {verb} {current * target.capacity:.3g} requests/s within the SLO"
    window = f"the highest need of the last {target.hold_ns // NS_PER_S} s is {held}"
    alternatives = (
        Alternative("hold", serves, float(current)),
        Alternative("the need of this tick alone", window, float(need.replicas)),
    )
    evidence = (
        *need.evidence,
        ("needed", need.replicas),
        *((("needed_for_a_while", need.lasting),) if target.far else ()),
        ("others_pending", extra is None),
        ("on_fixed_nodes", on_kept),
        ("on_launched_nodes", on_bought),
        ("minimum", target.minimum),
        ("maximum", target.maximum),
    )
    return replicas, Reason(verdict, evidence, alternatives)


def _why_held(target: Target, need: ReplicaNeed, held: int, current: int, *, settled: bool) -> str:
    """Why there are to be no more and no fewer replicas than there are."""
    if need.lasting <= current < min(need.replicas, target.maximum):
        return "held: more are needed, but not for long enough yet"
    if need.replicas >= current:
        return "held: at the maximum" if current >= target.maximum else "held: all replicas are needed"
    if current <= target.minimum:
        return "held: at the minimum"
    if held >= current:
        return "held: needed a short time ago"
    return "held: a replica on the fixed fleet costs nothing" if settled else "held: not all replicas are serving yet"


def _horizon(target: Target, reading: TrafficReading) -> int:
    """The cold start of the next replica in ns: measured, and no less than that of a node where it needs one."""
    recent = sorted(reading.cold_starts_ns[-8:])
    measured = recent[-(-len(recent) * 3 // 4) - 1] if recent else target.prior_cold_start_ns
    return max(measured, target.new_node_ns)


def _need(
    target: Target, workload: WorkloadView, counts: Counts, reading: TrafficReading, horizon: int
) -> ReplicaNeed | None:
    assert reading.in_flight is not None
    demand = forecast(counts, horizon, target.z, far=target.far)
    if demand is None:
        return None
    ready = workload.ready
    usual = (max(ready, workload.replicas) if target.far else ready) * target.concurrency
    backlog = max(0.0, reading.in_flight - usual)
    if target.far and backlog <= CHANCE * sqrt(demand.scatter * usual):
        backlog = 0.0
    steady = (demand.upper + BURSTS * target.z * bursts(demand)) / target.capacity
    extra = 0.0
    if backlog > 0:
        growth = 0.0 if target.far else max(0.0, demand.level - ready * target.capacity) * horizon / NS_PER_S
        extra = (backlog + growth) / (target.capacity * target.drain_ns / NS_PER_S)
        extra = min(extra, float(ready)) if target.far else extra
    surer = forecast(counts, horizon, target.z + CAUTION, far=True) if target.far else demand
    assert surer is not None
    least = (surer.upper + BURSTS * target.z * bursts(surer)) / target.capacity
    replicas, keep = (
        max(target.minimum, min(target.maximum, target.needed((load + extra) * target.capacity)))
        for load in (steady, least)
    )
    keep = max(replicas, keep)
    evidence = (
        ("arrivals_per_s", round(demand.level, 3)),
        ("forecast_per_s", round(demand.upper, 3)),
        ("horizon_s", round(horizon / NS_PER_S, 1)),
        ("capacity_per_replica", round(target.capacity, 3)),
        ("in_flight", reading.in_flight),
        ("backlog", round(backlog, 1)),
        *((("reuse", target.reuse),) if target.reuse else ()),
    )
    return ReplicaNeed(replicas, replicas, keep, steady, demand, backlog, horizon, evidence)


_Value = TypeVar("_Value", int, float)


def _since(rows: tuple[tuple[int, _Value], ...], start_ns: int) -> tuple[tuple[int, _Value], ...]:
    return tuple(row for row in rows if row[0] >= start_ns)


def _warm(
    snapshot: Snapshot, targets: Sequence[Target], needs: Mapping[str, ReplicaNeed], seats: Seats
) -> dict[str, int]:
    """Replicas to fill the free GPUs of the fixed fleet, each for the workload that has the fewest for its need."""
    measured = [target for target in targets if target.workload in needs]
    current = {target.workload: snapshot.workloads[target.workload].replicas for target in measured}
    replicas = {name: max(now, needs[name].lasting) for name, now in current.items()}
    with snapshot.fleet.what_if():
        free = FreeRoom(snapshot, seats)
        for target in measured:  # what is ordered comes first
            for _ in range(replicas[target.workload] - len(snapshot.workloads[target.workload].pods)):
                free.fill(target.workload, target.gpus)
        given = dict.fromkeys(replicas, 0)

        def wealth(target: Target) -> tuple[float, str]:
            name = target.workload
            return (replicas[name] + given[name]) / max(needs[name].steady, 1e-9), name

        open_to = list(measured)
        while open_to:
            poorest = min(open_to, key=wealth)
            below = replicas[poorest.workload] + given[poorest.workload] < poorest.maximum
            if below and free.fill(poorest.workload, poorest.gpus):
                given[poorest.workload] += 1
            else:
                open_to.remove(poorest)
    return given


def bursts(demand: Forecast) -> float:
    """Requests/s that come on top for a minute, one standard deviation of it: what counts scatter more than those of a
    Poisson process, for which a replica's capacity was found."""
    return sqrt((demand.scatter - 1.0) * demand.level / BURST_S)


def _spread(snapshot: Snapshot, workload: WorkloadView) -> tuple[int, int]:
    """(pods on nodes that are never terminated, pods on launched nodes)."""
    fleet = snapshot.fleet
    rows = [row for pod in workload.pods if (row := fleet.node_by_name.get(pod.node)) is not None]
    bought = sum(bool(fleet.node(row).spec.node_pool) for row in rows)
    return len(rows) - bought, bought


def _starting(snapshot: Snapshot, workload: WorkloadView) -> int:
    """Pods that do not serve yet, and would not on a node that is kept: they go without loss."""
    fleet = snapshot.fleet
    rows = [fleet.node_by_name.get(pod.node) for pod in workload.pods if pod.ready_ns is None]
    return sum(row is None or bool(fleet.node(row).spec.node_pool) for row in rows)


def first_to_go(snapshot: Snapshot, workload: WorkloadView, count: int) -> tuple[Ref, ...]:
    """The pods to remove: not ready first, then those on launched nodes with the fewest pods, so that the nodes
    empty."""
    fleet = snapshot.fleet

    def order(pod: PodView) -> tuple[object, ...]:
        row = fleet.node_by_name.get(pod.node)
        if row is None:
            return (0, 0, 0, pod.name)
        node = fleet.node(row)
        kept = 0 if node.spec.node_pool else 1
        return (1 if pod.ready_ns is None else 2, kept, len(node.pods), node.spec.name, pod.name)

    chosen = sorted(workload.pods, key=order)[:count]
    return tuple(Ref("Pod", pod.name, pod.namespace) for pod in chosen)


Reading = TrafficReading
"""Its former name, for callers from outside."""
