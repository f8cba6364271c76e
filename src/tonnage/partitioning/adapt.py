"""Layouts that follow the load: which GPUs to cut otherwise now, so that pods can run that wait for what none gives.

Nothing is changed for its own sake. A GPU is cut otherwise only when a pod that waits can run on it afterwards, in the
place of instances that nobody uses; of all ways to let as many run the one that destroys the fewest instances is taken
(:mod:`tonnage.partitioning.fleet_plan`). So demand that fits what there is changes nothing, however it alternates.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tonnage.decisions import Alternative, Instances, Reason, Ref, Relayout, Scalar, layout_text
from tonnage.fleet.gangs import Gang
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Conflict, Fleet
from tonnage.partitioning.layouts import Layout, card, place
from tonnage.partitioning.patterns import Prices
from tonnage.partitioning.relayout import subsets, text
from tonnage.partitioning.trial import Site, Trial, all_of, as_instances, as_layout, instances_of, lay

OTHERS = 3
"""So many other GPUs are named in a reason."""
NEVER = math.inf


@dataclass(frozen=True, slots=True)
class Settings:
    """``whole``: GPUs may be taken out of MIG mode, and whole ones cut, when nothing is on them. ``prices``: what a
    change costs, beside letting a pod run."""

    whole: bool = True
    prices: Prices | None = None


DEFAULTS = Settings()


@dataclass(frozen=True, slots=True)
class Unit:
    """Pods that are bound together, by row: one, or the pending ones of a ``gang`` that is not complete."""

    pods: tuple[int, ...]
    priority: int
    gang: Gang | None = None


def decide(snapshot: Snapshot, settings: Settings = DEFAULTS) -> list[Relayout]:
    """A Relayout for each GPU to cut otherwise now, by node and index.

    Pods that can be bound as things stand, for whom a node is on its way, or room is being made, do not count, and
    neither do those that can run once the changes under way are done."""
    fleet = snapshot.fleet
    units = _waiting(snapshot)
    if not units:
        return []
    with fleet.what_if():
        changing = frozenset(
            (row, device) for (node, device) in snapshot.relayouts if (row := fleet.node_by_name.get(node)) is not None
        )
        for (node, device), goal in sorted(snapshot.relayouts.items()):
            _finish(fleet, node, device, goal)
        trial = Trial(fleet, settings.whole, settings.prices, changing)
        short = _bind_all(trial, units)
        if not short:
            return []
        sites = trial.sites(fleet.node_rows())
        trial.done.clear()
        for priority in sorted({unit.priority for unit in short}, reverse=True):
            _serve(trial, [unit for unit in short if unit.priority == priority])
        return _decisions(trial, sites, short)


def _finish(fleet: Fleet, node: str, device: int, goal: Instances) -> None:
    """Let the GPU be what it will be; one on which a pod came meanwhile, or that has failed, is left as it is."""
    row = fleet.node_by_name.get(node)
    if row is not None:
        try:
            lay(fleet, (row, device), goal)
        except Conflict:
            return


# ---- who waits ----


def _waiting(snapshot: Snapshot) -> list[Unit]:
    """Who waits and asks for GPUs, in the order of priority, age and name."""
    fleet = snapshot.fleet
    expected = {(ref.namespace, ref.name) for claim in snapshot.claims for ref in claim.launch.pods}
    units: list[Unit] = []
    gangs: dict[str, list[int]] = {}
    for row in fleet.pending:
        pod = fleet.pod(row)
        spec = pod.spec
        if spec.spec.scheduling_gates or spec.daemon or pod.key in snapshot.nominations or snapshot.leaves(pod.key):
            continue
        if (spec.namespace, spec.name) in expected:
            continue
        gang = snapshot.gangs.get(spec.gang)
        if gang is not None and not _complete(fleet, gang):
            gangs.setdefault(spec.gang, []).append(row)
        elif not spec.gang or gang is not None:
            units.append(Unit((row,), spec.priority))
    for key, rows in gangs.items():
        rows.sort(key=lambda row: fleet.pod(row).key)
        units.append(Unit(tuple(rows), snapshot.gang_priority(key), snapshot.gangs[key]))
    trial = Trial(fleet, whole=False)
    units = [unit for unit in units if any(trial.asks(row) for row in unit.pods)]
    return sorted(units, key=lambda unit: (-unit.priority, *_age(fleet, unit)))


def _age(fleet: Fleet, unit: Unit) -> tuple[int, str]:
    return min((fleet.pod(row).spec.created_ns, fleet.pod(row).key) for row in unit.pods)


def _complete(fleet: Fleet, gang: Gang) -> bool:
    """Whether so many pods of the gang are bound as it needs, in each of its parts."""
    found: Counter[str] = Counter()
    counted = gang.counted_in
    for row in fleet.gang_pods.get(gang.key, ()):
        pod = fleet.pod(row)
        if pod.node >= 0:
            found.update(counted.get(pod.spec.subgroup, ("",)))
    return all(found[name] >= least for name, least in gang.minima.items())


# ---- trying ----


def _bind_all(trial: Trial, units: Sequence[Unit]) -> list[Unit]:
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


def _bind(trial: Trial, unit: Unit) -> bool:
    """Bind all that the unit needs, or nothing."""
    if unit.gang is None:
        return trial.bind(unit.pods[0])
    with trial.attempt() as attempt:
        for row in unit.pods:
            trial.bind(row)
        attempt.keep = _complete(trial.fleet, unit.gang)
    return attempt.keep


def _serve(trial: Trial, units: Sequence[Unit]) -> None:
    """Make room for units of one priority: first for those that need several devices in one place or none, then for all
    others together, those that may stand on the fewest nodes first."""
    alone = [unit for unit in units if unit.gang is not None or len(trial.asks(unit.pods[0])) > 1]
    for unit in alone:
        with trial.attempt() as attempt:
            for row in unit.pods:
                if not trial.bind(row):
                    _make_room_for(trial, row)
            attempt.keep = _complete(trial.fleet, unit.gang) if unit.gang else trial.fleet.pod(unit.pods[0]).node >= 0
    groups: dict[tuple[int, ...], list[Unit]] = {}
    for unit in (unit for unit in units if unit not in alone):
        groups.setdefault(trial.admitting(unit.pods[0]), []).append(unit)
    for rows, group in sorted(groups.items(), key=lambda one: (len(one[0]), one[0])):
        left = _bind_all(trial, group)
        trial.make_room([unit.pods[0] for unit in left], rows)
        _bind_all(trial, left)


def _make_room_for(trial: Trial, pod: int) -> None:
    """Bind the pod after GPUs of one node are cut otherwise, of the node where the fewest instances have to go."""
    best: tuple[int, int] | None = None
    for row in trial.admitting(pod):
        with trial.attempt():  # not kept: to see what it costs
            destroyed = trial.make_room([pod], (row,))
            if trial.bind(pod) and (best is None or destroyed < best[0]):
                best = destroyed, row
    if best is not None:
        trial.make_room([pod], (best[1],))
        trial.bind(pod)


# ---- saying it ----


def _decisions(trial: Trial, sites: Sequence[Site], short: Sequence[Unit]) -> list[Relayout]:
    """What was cut otherwise and is of use to somebody."""
    fleet, found = trial.fleet, []
    waiting = sum(len(unit.pods) for unit in short)
    cut, gained = trial.cut(), trial.gained()
    for site in sites:
        pods = gained.get(site.device, [])
        if site.device not in cut or not pods:
            continue
        before, after = cut[site.device], _filled(trial, site, pods)
        node = fleet.node(site.device[0]).spec
        reason = _reason(trial, sites, site, after, pods, waiting)
        found.append(Relayout(Ref("Node", node.name, uid=node.uid), site.device[1], before, after, reason))
    return found


def _filled(trial: Trial, site: Site, pods: Sequence[int]) -> Instances:
    """What the GPU is to be: what is left of it is cut into more of what was waited for, what most waited for first.
    The device plugin has to be restarted in any case, and instances that nobody uses may go again."""
    after = instances_of(trial.fleet, site.device)
    if after is None:
        return None
    layout, slots = as_layout(after), site.card.on.slots
    served = Counter(slots[piece].name for pod in pods for piece in trial.asks(pod) if piece in slots)
    for profile, _ in served.most_common():
        while (more := place(site.card.on, [profile], layout)) is not None:
            layout = more
    return as_instances(layout)


def _reason(
    trial: Trial, sites: Sequence[Site], site: Site, after: Instances, pods: Sequence[int], waiting: int
) -> Reason:
    asked = Counter(piece for pod in pods for piece in trial.asks(pod))
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
    first = trial.fleet.pod(min(pods, key=lambda row: _age(trial.fleet, Unit((row,), 0)))).key
    others = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
    verdict = f"no GPU gives {names} for {first}{others}"
    stay = Alternative(f"stay {layout_text(None if site.whole else as_instances(running))}", "none of them can run")
    return Reason(verdict, evidence, (*_others(sites, site, after), stay))


def _others(sites: Sequence[Site], chosen: Site, after: Instances) -> Iterator[Alternative]:
    """What the same would have cost on other GPUs, the cheapest first. ``score``: instances destroyed."""
    new = [one.profile for one in as_layout(after) if chosen.whole or one not in chosen.card.running]
    if after is None:
        new = [all_of(chosen.card.on).profile]
    found: list[tuple[float, str]] = []
    for other in sites:
        if other is not chosen and other.card.on.gpu == chosen.card.on.gpu:
            goes = _goes(other.card.on.gpu, other.card.running, other.card.busy, tuple(new))
            found.append((NEVER if goes is None else goes, other.card.name))
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
