"""Pods as they join and leave GPUs that several of them are on.

Only pods with a part of a card that others can slow down are sharers: replicas of the device plugin and fractions; a
MIG instance is a card of its own. Sources: tonnage.partitioning.turns and mps; NVIDIA/k8s-device-plugin (time-slicing
keeps apart neither memory nor faults); kai-scheduler docs/gpu-sharing (limits nothing); Project-HAMi/HAMi (limits
memory and cores).
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from tonnage.fleet.state import Fleet
from tonnage.machines.cards import SharedGpu, Sharer, holds
from tonnage.machines.objects import SimulatedPod
from tonnage.machines.serving.together import unite
from tonnage.machines.site import Site


def join(cluster: Site, pod: SimulatedPod, claim: Fraction | None = None) -> Fraction | None:
    """The pod's container starts. An engine claims a part of each card's memory, ``claim``, no more than its limit.

    Returns None if it has what it asked for, else how much is free: then it has not joined."""
    on = holds(cluster.fleet, pod.row)
    if not on:
        return None
    cards = {cluster.gpus.sharing.card(pod.node, one): one for one in on}
    limits = [one.memory for one in on if one.memory is not None]
    limit = min(limits, default=None)
    taken = claim or Fraction(0)
    if claim is None:
        taken = _memory(cluster.fleet, pod.row)
    elif limit is not None:  # HAMi shows a process its own part of the memory as if it were all, MPS stops it there
        taken = min(taken, limit) if on[0].mps else taken * limit
    elif (free := min(card.free() for card in cards)) < claim:
        return free
    cores, shares = {card: one.cores for card, one in cards.items()}, {card: one.share for card, one in cards.items()}
    wants = sum((one.size for one in on), Fraction(0)) if all(one.replica for one in on) else Fraction(pod.held.gpus)
    pod.sharer = Sharer(pod.key, cores, shares, limit, taken, on[0].lease, wants=wants, since_ns=cluster.now_ns)
    for card in cards:
        card.catch_up(cluster.now_ns)
        card.sharers.append(pod.sharer)
    if claim is None:
        pod.sharer.active = True
        _changed(cluster, cards)
    return None


def serves(cluster: Site, pod: SimulatedPod) -> None:
    """The pod's engine is there: from now on it may be active, and advances with those beside it."""
    sharer = pod.sharer
    if sharer is None or pod.workload.service is None or pod.replica is None:
        return
    sharer.replica, sharer.service = pod.replica, pod.workload.service
    pod.replica.sharer = sharer
    beside = [other.service for card in sharer.cores for other in card.sharers if other.service is not None]
    unite(beside, cluster.now_ns)
    _changed(cluster, sharer.cores)


def leave(cluster: Site, pod: SimulatedPod) -> None:
    """The pod's container has ended; its requests are gone already."""
    sharer, pod.sharer = pod.sharer, None
    if sharer is None:
        return
    sharer.catch_up(cluster.now_ns)
    for card in sharer.cores:
        card.sharers.remove(sharer)
    if sharer.replica is not None:
        sharer.replica.sharer = None
    _changed(cluster, sharer.cores)


def _changed(cluster: Site, cards: Iterable[SharedGpu]) -> None:
    """Others share these cards now: their pace changes."""
    for card in cards:
        card.catch_up(cluster.now_ns)
        card.divide(cluster.now_ns)
    beside = dict.fromkeys(sharer.pod for card in cards for sharer in card.sharers)
    for pod in map(cluster.pod_of, beside):
        if pod.workload.controller is not None:
            pod.workload.controller.paced(cluster, pod)


def _memory(fleet: Fleet, row: int) -> Fraction:
    """The part of a card's memory that a pod without an engine is taken to use: what it asks for."""
    pod = fleet.pod(row)
    memory = int(fleet.cards.memory[pod.node])
    return max((Fraction(piece.mib, memory) for piece in pod.pieces), default=Fraction(0)) if memory else Fraction(0)
