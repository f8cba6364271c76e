"""A workload of which other pods are wanted while it runs: a replica more, a worker less."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from tonnage.fleet.gangs import Gang
from tonnage.machines import pods
from tonnage.machines.site import Site
from tonnage.machines.training.part import AT_WORK, OVER, PartState, WorkloadPart
from tonnage.machines.training.workload import Training


def rescale(cluster: Site, training: Training, wanted: Training) -> None:
    """The workload has the pods of ``wanted``, which is as it would be made now, and works on as it did.

    Pods that stay go on. Of what is stopped, a part that goes whole counts as done; a pod whose turn has yet to come
    begins again. There is no pod yet of the names that come."""
    had, names = ({replica.name for replica in one.replicas} for one in (training, wanted))
    known = {part.name: part for part in training.parts if not had.isdisjoint(part.replicas)}
    for part in known.values():
        part.settle(cluster.now_ns)
    gangs = {key: replace(gang, created_ns=training.arrival_ns) for key, gang in wanted.gangs.items()}
    parts = [_fitted(known.get(part.name), part, gangs) for part in wanted.parts]
    early = _early(wanted, training.succeeded)
    for key in training.gangs.keys() - gangs.keys():
        cluster.declared.gangs.pop(key, None)
    cluster.declared.gangs.update(gangs)
    for part in parts:
        part.busy = lambda pod, gpu_ns: cluster.records.ledger.add_busy(pod.node, training.origin, gpu_ns)
    training.object, training.replicas, training.members = wanted.object, wanted.replicas, wanted.members
    training.gangs = gangs
    training.parts = (*(part for part in training.parts if part not in parts), *parts)
    training.succeeded &= names
    training.stopped &= names
    training.failures = {
        why: left for why, hit in training.failures.items() if (left := [n for n in hit if n in names])
    }
    training.workload.replicas = len(wanted.replicas)
    training.index()
    for part in known.values():
        if part not in parts:
            _end(part, parts, cluster.now_ns)
    _stop(cluster, training, names, early)
    said = f"from {len(had)} to {len(names)} pods"
    cluster.events.add(cluster.now_ns, f"Training {training.key}", "Normal", "Scaled", said)
    training.reconcile(cluster)


def _fitted(known: WorkloadPart | None, wanted: WorkloadPart, gangs: Mapping[str, Gang]) -> WorkloadPart:
    """The part of this name with the replicas that it is to have, or a new one. It keeps its work: more pods do it
    sooner. What is at work goes on with the pods that it has until the others come."""
    gang = gangs[wanted.gang.key] if wanted.gang is not None else None
    if known is None:
        wanted.gang = gang
        return wanted
    known.replicas, known.gpus = wanted.replicas, wanted.gpus
    known.subgroups = {**known.subgroups, **wanted.subgroups}
    if known.gang is None or gang is None or known.state not in AT_WORK or gang.min_member < known.gang.min_member:
        known.gang = gang
    return known


def _end(part: WorkloadPart, others: Iterable[WorkloadPart], now_ns: int) -> None:
    """The part is no more; those of its pods that stay go to others, as where a pod alone becomes one of a gang."""
    for other in others:
        for name in part.pods.keys() & other.replicas.keys():
            other.settle(now_ns)
            other.pods[name] = part.pods.pop(name)
            other.was_whole |= part.was_whole
            other.state = PartState.WAITING if other.state is PartState.ABSENT else other.state
    part.replicas = {}  # the next part of this name is another one
    if part.state not in OVER:
        part.finish(now_ns, PartState.DONE)


def _early(wanted: Training, succeeded: Collection[str]) -> set[str]:
    """The pods that are to run only when more of their Job have succeeded."""
    done = Counter((one.role, one.group) for one in wanted.replicas if one.name in succeeded)
    return {one.name for one in wanted.replicas if done[one.role, one.group] < one.turn}


def _stop(cluster: Site, training: Training, names: Collection[str], early: Collection[str]) -> None:
    """Stop the pods that are not among ``names``, and those that are early; what goes on does so without them."""
    for part in training.parts:
        hit = [pod for name, pod in part.pods.items() if name not in names or name in early]
        for pod in hit:
            if part.state not in OVER and pod.name in early:
                part.roll_back()
            pods.stop_pod(cluster, pod)
        if part.state not in OVER:
            training.review(cluster, part)
