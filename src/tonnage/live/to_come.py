"""Pods that controllers have still to make: those that a workload asks for, without those that are there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tonnage.objects import apps, batch, core, selectors
from tonnage.objects.base import KubeObject
from tonnage.workloads.membership import stamped
from tonnage.workloads.owners import is_over, owner_key, workload_of
from tonnage.workloads.replicas import WorkloadPod, at_once

Counted = apps.Deployment | apps.ReplicaSet | apps.StatefulSet | batch.Job
"""Workloads whose pods can be counted one by one."""


class ExpectedPods:
    """Pods that are there, by the workload that made them, also where the files lack the ReplicaSet between them."""

    def __init__(self, objects: Sequence[KubeObject]) -> None:
        self._objects = {owner_key(one.namespace, one.kind, one.name): one for one in objects}
        self._deployments = [one for one in objects if isinstance(one, apps.Deployment)]
        self._names = {(one.namespace, one.name) for one in objects if isinstance(one, core.Pod)}
        self._alive: Counter[str] = Counter()
        self._succeeded: Counter[str] = Counter()
        for one in objects:
            if isinstance(one, core.Pod):
                for key in self._makers(one):
                    self._alive[key] += not is_over(one)
                    self._succeeded[key] += one.status.phase == "Succeeded"

    def to_come(self, one: Counted, objects: tuple[KubeObject, ...]) -> Iterator[WorkloadPod]:
        """The pods that its controller would make now."""
        key = owner_key(one.namespace, one.kind, one.name)
        if isinstance(self._objects.get(self._controller(one)), apps.Deployment):
            return  # its Deployment counts
        asked = stamped(one, objects)
        missing = len(asked) - self._alive[key]
        if isinstance(one, batch.Job):
            missing = self._of_job(one, key, len(asked))
        for replica in asked:
            if missing > 0 and (replica.namespace, replica.name) not in self._names:
                missing -= 1
                yield replica

    def _of_job(self, one: batch.Job, key: str, asked: int) -> int:
        if one.status.over or one.spec.suspend:
            return 0
        if not one.metadata.uid:
            return asked - self._alive[key] - self._succeeded[key]
        ended = max(one.status.succeeded, self._succeeded[key])
        most = at_once(one.spec)
        if one.spec.completions is not None:
            most = min(most, one.spec.completions - ended)
        elif ended:
            return 0  # a Job without completions makes no more pods once one has succeeded
        return most - self._alive[key]

    def _makers(self, pod: core.Pod) -> Iterator[str]:
        """What made the pod, and what made that."""
        seen: set[str] = set()
        owner = next((one for one in pod.metadata.owner_references if one.controller), None)
        if owner is None:
            return
        key = owner_key(pod.namespace, owner.kind, owner.name)
        deployment = workload_of(pod)
        for start in (key, deployment if deployment != key else self._deployment(pod, owner.kind, owner.name)):
            at = start
            while at and at not in seen:
                seen.add(at)
                yield at
                at = self._controller(self._objects.get(at))

    def _deployment(self, pod: core.Pod, kind: str, name: str) -> str | None:
        """Whose ReplicaSet of this name it is, by the name and what it selects."""
        if kind != "ReplicaSet":
            return None
        own = pod.metadata.labels
        for one in self._deployments:
            same = (one.namespace, one.name) == (pod.namespace, name.rpartition("-")[0])
            if same and selectors.matches(one.spec.selector, own):
                return owner_key(one.namespace, one.kind, one.name)
        return None

    def _controller(self, one: KubeObject | None) -> str:
        owner = next((each for each in one.metadata.owner_references if each.controller), None) if one else None
        return owner_key(one.namespace, owner.kind, owner.name) if one and owner else ""
