"""Layouts that follow the load: which GPUs to repartition now, so that pods can run that wait for what none gives.

Nothing is changed for its own sake. A GPU is repartitioned only when a pending pod can run on it afterwards, in the
place of instances that nobody uses; of all ways to let as many run the one that destroys the fewest instances is taken
(:mod:`tonnage.partitioning.fleet_plan`). So demand that fits what there is changes nothing, however it alternates.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tonnage.decisions import Alternative, Instances, Reason, Ref, Relayout, Scalar, layout_text
from tonnage.fleet.filters import Filters
from tonnage.fleet.gangs import Gang
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Conflict, Fleet
from tonnage.partitioning.fleet_layouts import as_instances, as_layout, asks, instances_of, lay
from tonnage.partitioning.layouts import Layout, card, place
from tonnage.partitioning.relayout import subsets, text
from tonnage.partitioning.trial import LayoutTrial, TrialGpu, all_of

OTHERS = 3
"""This many other GPUs are named in a reason."""
NEVER = math.inf


Alike = dict[str, dict[tuple[Layout, Layout], list[str]]]
"""Names of GPUs by model, and by what runs on them and is in use."""


@dataclass(frozen=True, slots=True)
class PodUnit:
    """Pods that are bound together, by row: one, or the pending ones of a ``gang`` that is not complete."""

    pods: tuple[int, ...]
    priority: int
    gang: Gang | None = None


def decide(snapshot: Snapshot, filters: Filters, schedulers: Collection[str] | None = None) -> list[Relayout]:
    """A Relayout for each GPU to repartition now, by node and index. ``filters``: the scheduler's, of the snapshot's
    fleet, asked while it is changed for a trial. ``schedulers``: the schedulerName of the pods that count, None for
    all.

    Pods that can be bound as things stand, for whom a node is on its way, or room is being made, do not count, and
    neither do those that can run once the changes under way are done."""
    fleet = snapshot.fleet
    units = _waiting(snapshot, schedulers)
    if not units:
        return []
    with fleet.what_if():
        changing = frozenset(
            (row, device)
            for (node, device) in (*snapshot.relayouts, *snapshot.fixed)
            if (row := fleet.node_by_name.get(node)) is not None
        )
        for (node, device), goal in sorted(snapshot.relayouts.items()):
            _finish(fleet, node, device, goal)
        trial = LayoutTrial(fleet, filters, changing)
        short = _bind_all(trial, units)
        if not short:
            return []
        sites = trial.sites(fleet.node_rows())
        trial.done.clear()
        for priority in sorted({unit.priority for unit in short}, reverse=True):
            _serve(trial, [unit for unit in short if unit.priority == priority])
        return _decisions(trial, sites, short)


def seated(snapshot: Snapshot, filters: Filters) -> dict[int, str]:
    """The pending pods, by row, that can be bound once the changes under way are done and not before; the node of each.
    ``filters``: the scheduler's, of the snapshot's fleet."""
    if not snapshot.relayouts:
        return {}
    fleet = snapshot.fleet
    with fleet.what_if():
        trial = LayoutTrial(fleet, filters)
        short = _bind_all(trial, _waiting(snapshot, None))
        trial.done.clear()
        for (node, device), goal in sorted(snapshot.relayouts.items()):
            _finish(fleet, node, device, goal)
        _bind_all(trial, short)
        return {row: fleet.node(fleet.pod(row).node).spec.name for row in trial.done if isinstance(row, int)}


def _finish(fleet: Fleet, node: str, device: int, goal: Instances) -> None:
    """Let the GPU be what it will be; one on which a pod came meanwhile, or that has failed, is left as it is."""
    row = fleet.node_by_name.get(node)
    if row is not None:
        try:
            lay(fleet, (row, device), goal)
        except Conflict:
            return


# ---- who waits ----


def _waiting(snapshot: Snapshot, schedulers: Collection[str] | None) -> list[PodUnit]:
    """Who waits and asks for GPUs, in the order of priority, age and name."""
    fleet = snapshot.fleet
    expected = {(ref.namespace, ref.name) for claim in snapshot.claims for ref in claim.launch.pods}
    units: list[PodUnit] = []
    gangs: dict[str, list[int]] = {}
    for row in fleet.pending:
        pod = fleet.pod(row)
        spec = pod.spec
        if spec.spec.scheduling_gates or spec.daemon or pod.key in snapshot.nominations or snapshot.leaves(pod.key):
            continue
        if schedulers is not None and spec.spec.scheduler_name not in schedulers:
            continue
        if (spec.namespace, spec.name) in expected:
            continue
        gang = snapshot.gangs.get(spec.gang)
        if gang is not None and not _complete(fleet, gang):
            gangs.setdefault(spec.gang, []).append(row)
        elif not spec.gang or gang is not None:
            units.append(PodUnit((row,), spec.priority))
    for key, rows in gangs.items():
        rows.sort(key=lambda row: fleet.pod(row).key)
        units.append(PodUnit(tuple(rows), snapshot.gang_priority(key), snapshot.gangs[key]))
    units = [unit for unit in units if any(asks(fleet, row) for row in unit.pods)]
    return sorted(units, key=lambda unit: (-unit.priority, *_age(fleet, unit)))


def _age(fleet: Fleet, unit: PodUnit) -> tuple[int, str]:
    return min((fleet.pod(row).spec.created_ns, fleet.pod(row).key) for row in unit.pods)


def _complete(fleet: Fleet, gang: Gang) -> bool:
    """Whether this many pods of the gang are bound as it needs, in each of its parts."""
    bound = (pod for row in fleet.gang_pods.get(gang.key, ()) if (pod := fleet.pod(row)).node >= 0)
    return gang.is_whole(pod.spec.subgroup for pod in bound)


# ---- trying ----


def _bind_all(trial: LayoutTrial, units: Sequence[PodUnit]) -> list[PodUnit]:
    """Bind whom the fleet takes; those whom it does not. Of pods that no scheduler can tell apart the first that does
    not fit speaks for all: what is free only shrinks."""
    short, refused = [], set()
    for unit in units:
        number = trial.fleet.pod(unit.pods[0]).class_id
        if unit.gang is None and number in refused:
            short.append(unit)
        elif not _bind(trial, unit):
            short.append(unit)
            if unit.gang is None:
                refused.add(number)
    return short


def _bind(trial: LayoutTrial, unit: PodUnit) -> bool:
    """Bind all that the unit needs, or nothing."""
    if unit.gang is None:
        return trial.bind(unit.pods[0])
    with trial.attempt() as attempt:
        for row in unit.pods:
            trial.bind(row)
        attempt.keep = _complete(trial.fleet, unit.gang)
    return attempt.keep


def _serve(trial: LayoutTrial, units: Sequence[PodUnit]) -> None:
    """Make room for units of one priority: first one by one for those that need several devices in one place or none,
    or that rules about other pods bind, then for all others together, those that may stand on the fewest nodes first.
    """
    groups: dict[tuple[int, ...], list[PodUnit]] = {}
    refused = set[int]()
    for unit in units:
        if not _alone(trial, unit):
            groups.setdefault(trial.admitting(unit.pods[0]), []).append(unit)
            continue
        number = trial.fleet.pod(unit.pods[0]).class_id
        if unit.gang is None and number in refused:
            continue
        with trial.attempt() as attempt:
            placed = [trial.bind(row) or _make_room_for(trial, row) for row in unit.pods]
            attempt.keep = _complete(trial.fleet, unit.gang) if unit.gang else all(placed)
        if unit.gang is None and not attempt.keep:
            refused.add(number)
    for rows, group in sorted(groups.items(), key=lambda one: (len(one[0]), one[0])):
        left = _bind_all(trial, group)
        trial.make(trial.plan([unit.pods[0] for unit in left], rows))
        _bind_all(trial, left)


def _alone(trial: LayoutTrial, unit: PodUnit) -> bool:
    pod = unit.pods[0]
    return unit.gang is not None or len(asks(trial.fleet, pod)) > 1 or trial.rules(pod) is not None


def _make_room_for(trial: LayoutTrial, pod: int) -> bool:
    """Bind the pod after GPUs of one node are repartitioned, of the node where the fewest instances have to go. All
    nodes are planned first, which changes nothing, and tried from the cheapest on."""
    planned = [(one.destroyed, row) for row in trial.open(pod) if (one := trial.planned(pod, row)).changes]
    return any(trial.bind_after_change(pod, row) for _, row in sorted(planned, key=lambda one: one[0]))


# ---- saying it ----


def _decisions(trial: LayoutTrial, sites: Sequence[TrialGpu], short: Sequence[PodUnit]) -> list[Relayout]:
    """What was repartitioned and is of use to somebody."""
    fleet, found = trial.fleet, []
    waiting = sum(len(unit.pods) for unit in short)
    cut, gained = trial.cut(), trial.gained()
    alike: Alike = {}
    for site in sites:
        layouts = alike.setdefault(site.card.on.gpu, {})
        layouts.setdefault((site.card.running, site.card.busy), []).append(site.card.name)
    for names in (names for layouts in alike.values() for names in layouts.values()):
        names.sort()
    for site in sites:
        pods = gained.get(site.device, [])
        if site.device not in cut or not pods:
            continue
        before, after = cut[site.device], _filled(trial, site, pods)
        node = fleet.node(site.device[0]).spec
        reason = _reason(trial, alike, site, after, pods, waiting)
        found.append(Relayout(Ref("Node", node.name, uid=node.uid), site.device[1], before, after, reason))
    return found


def _filled(trial: LayoutTrial, site: TrialGpu, pods: Sequence[int]) -> Instances:
    """What the GPU is to be: what is left of it is partitioned into more of what was waited for, what most waited for
    first. The device plugin has to be restarted in any case, and instances that nobody uses may go again."""
    after = instances_of(trial.fleet, site.device)
    if after is None:
        return None
    layout, slots = as_layout(after), site.card.on.slots
    served = Counter(slots[piece].name for pod in pods for piece in asks(trial.fleet, pod) if piece in slots)
    for profile, _ in served.most_common():
        while (more := place(site.card.on, [profile], layout)) is not None:
            layout = more
    return as_instances(layout)


def _reason(
    trial: LayoutTrial, alike: Alike, site: TrialGpu, after: Instances, pods: Sequence[int], waiting: int
) -> Reason:
    asked = Counter(piece for pod in pods for piece in asks(trial.fleet, pod))
    names = ", ".join(f"{n} x {name}" if n > 1 else name for name, n in sorted(asked.items()))
    running = () if site.whole else site.card.running
    kept = [one for one in as_layout(after) if one in running]
    evidence: tuple[tuple[str, Scalar], ...] = (
        ("waiting", waiting),
        ("served here", len(pods)),
        ("destroyed", len(running) - len(kept)),
        ("created", len(as_layout(after)) - len(kept)),
        ("in use", len(site.card.busy)),
    )
    first = trial.fleet.pod(min(pods, key=lambda row: _age(trial.fleet, PodUnit((row,), 0)))).key
    others = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
    verdict = f"no GPU offers {names} for {first}{others}"
    stay = Alternative(f"stay {layout_text(None if site.whole else as_instances(running))}", "none of them can run")
    return Reason(verdict, evidence, (*_others(alike, site, after), stay))


def _others(alike: Alike, chosen: TrialGpu, after: Instances) -> Iterator[Alternative]:
    """What the same would have cost on other GPUs, the cheapest first. ``score``: instances destroyed."""
    new = [one.profile for one in as_layout(after) if chosen.whole or one not in chosen.card.running]
    if after is None:
        new = [all_of(chosen.card.on).profile]
    found: list[tuple[float, str]] = []
    for (running, busy), names in alike.get(chosen.card.on.gpu, {}).items():
        goes = _goes(chosen.card.on.gpu, running, busy, tuple(new))
        found += [(NEVER if goes is None else goes, name) for name in names[: OTHERS + 1] if name != chosen.card.name]
    for score, name in sorted(found)[:OTHERS]:
        if score == NEVER:
            yield Alternative(f"GPU {name}", f"no room for {text(chosen.card.on, new)} beside what is in use")
        else:
            yield Alternative(f"GPU {name}", f"destroys {score:.0f}", score)


@lru_cache(maxsize=1 << 14)
def _goes(gpu: str, running: Layout, busy: Layout, new: tuple[str, ...]) -> int | None:
    """How many instances of a card have to go for these profiles; None: what is in use leaves no room for them."""
    on = card(gpu)
    kept = next((one for one in subsets(running, busy) if place(on, new, one) is not None), None)
    return None if kept is None else len(running) - len(kept)
