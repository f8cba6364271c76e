"""Which blocker is whose: what stops the pods of a workload in the simulated cluster."""

from __future__ import annotations

from collections.abc import Iterable

from tonnage.health.blocker import UNSCHEDULABLE, Blocker
from tonnage.machines.objects import Blockers, SimulatedPod, Workload
from tonnage.machines.site import Site


def by_object(found: Iterable[Blocker]) -> Blockers:
    """The blockers that stop every pod of their object."""
    grouped: dict[str, list[Blocker]] = {}
    for one in found:
        if not one.some:
            grouped.setdefault(_key(one.object.namespace, one.object.kind, one.object.name), []).append(one)
    return {key: tuple(blockers) for key, blockers in grouped.items()}


def _key(namespace: str, kind: str, name: str) -> str:
    return f"{namespace or 'default'}/{kind.lower()}/{name}"


def of_workload(cluster: Site, workload: Workload, pod: str = "") -> tuple[Blocker, ...]:
    """What stops the pods of a workload, or the pod of this name in a group of bare pods."""
    if workload.controller is None:
        return cluster.declared.blockers.get(_key(workload.namespace, workload.kind, workload.name), ())
    own = cluster.declared.blockers.get(_key(workload.namespace, "Pod", pod), ())
    return cluster.declared.blockers.get(workload.controller.origin, ()) or own


def of_group(cluster: Site, gang: str) -> tuple[Blocker, ...]:
    """What stops the pods of a gang that has an object of its own."""
    namespace, _, name = gang.partition("/")
    return cluster.declared.blockers.get(_key(namespace, "PodGroup", name), ()) if "/" not in name else ()


def unplaceable(cluster: Site, pod: SimulatedPod) -> Blocker | None:
    """Why no scheduler places the pod, where that is not for want of a place: of that the scheduler itself knows."""
    return held_back(cluster, pod.workload, pod.name) if cluster.declared.blockers else None


def held_back(cluster: Site, workload: Workload, pod: str) -> Blocker | None:
    """The same of a pod that is not there yet."""
    found = of_workload(cluster, workload, pod)
    return next((b for b in found if b.stage == UNSCHEDULABLE and not b.rule.startswith("pods-fit-no-")), None)


def blocked(cluster: Site, pod: SimulatedPod, *stages: str) -> Blocker | None:
    """What stops the pod, if that is at one of these stages of its life."""
    if not cluster.declared.blockers:
        return None
    first = next((b for b in of_workload(cluster, pod.workload, pod.name) if b.stage != UNSCHEDULABLE), None)
    return first if first is not None and first.stage in stages else None
