"""CapacityBuffers: room for pods that do not exist yet, planned for as if they were pending.

They are planned again every time, beside the pods that are, so that a pod that takes the room has it launched again.
They nominate no node; but a node on which the last plan put one is not empty. The feature gate CapacityBuffer is
taken to be on where there are such objects.

Source: kubernetes-sigs/karpenter v1.14.0 pkg/controllers/capacitybuffer, pkg/controllers/provisioning/buffers.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from tonnage.decisions import Finding, Ref
from tonnage.objects import apps, core, load, quantity
from tonnage.objects.base import KubeObject
from tonnage.objects.buffers import ACTIVE, CapacityBuffer, CapacityBufferSpec, StoredPodTemplate
from tonnage.provisioning.pods import PendingPod, PodShape

PREFIX = "capacity-buffer-"
BUFFER_NAME, BUFFER_NAMESPACE = "karpenter.sh/capacity-buffer-name", "karpenter.sh/capacity-buffer-namespace"
_SCALABLE = (apps.Deployment, apps.StatefulSet, apps.ReplicaSet)


class Buffer(msgspec.Struct, frozen=True):
    """A CapacityBuffer with the pods that it is for. ``workload``: whose replicas a percentage is of, as
    ``Ref.workload`` writes it, with how many the manifest says."""

    ref: Ref
    spec: CapacityBufferSpec
    pod: core.PodSpec
    shape: PodShape
    workload: str = ""
    replicas: int = 0

    def count(self, replicas: int) -> int:
        """For how many pods it keeps room while its workload has that many ``replicas``."""
        wanted = [] if self.spec.replicas is None else [self.spec.replicas]
        if self.spec.percentage is not None and self.workload and replicas > 0:
            share = -(-replicas * self.spec.percentage // 100)
            wanted.append(share)
        most = _within(self.spec.limits, core.pod_requests(self.pod))
        if not wanted:
            return most or 0
        return max(wanted) if most is None else min(max(wanted), most)


def _within(limits: Mapping[str, quantity.Written], requests: Mapping[str, int]) -> int | None:
    """How many such pods the limits have room for; None: they say nothing of what these request."""
    found = [quantity.amount(name, most) // requests[name] for name, most in limits.items() if requests.get(name)]
    return min(found, default=None)


def read(objects: Sequence[KubeObject]) -> tuple[Buffer, ...]:
    """The buffers among the objects whose pods are known, by name."""
    return tuple(one for one in _resolved(objects) if isinstance(one, Buffer))


def findings(objects: Sequence[KubeObject]) -> list[Finding]:
    """Buffers that keep no room, and why."""
    return [one for one in _resolved(objects) if isinstance(one, Finding)]


def _resolved(objects: Sequence[KubeObject]) -> Iterator[Buffer | Finding]:
    named: dict[tuple[str, str, str], KubeObject] = {
        (one.kind, one.namespace or "default", one.name): one
        for one in objects
        if isinstance(one, (StoredPodTemplate, *_SCALABLE))
    }
    buffers = (one for one in objects if isinstance(one, CapacityBuffer))
    for one in sorted(buffers, key=lambda each: (each.namespace or "default", each.name)):
        yield _read(one, named)


def _read(one: CapacityBuffer, named: Mapping[tuple[str, str, str], KubeObject]) -> Buffer | Finding:
    spec, namespace = one.spec, one.namespace or "default"
    ref = Ref("CapacityBuffer", one.name, namespace, one.metadata.uid)
    if spec.provisioning_strategy != ACTIVE:
        why = f"{spec.provisioning_strategy} launches no nodes"
        return _finding(ref, one, "provisioningStrategy", why, f"write {ACTIVE}")
    if spec.pod_template_ref is not None:
        field, key = "podTemplateRef", ("PodTemplate", namespace, spec.pod_template_ref.name)
    elif spec.scalable_ref is not None:
        field, key = "scalableRef", (spec.scalable_ref.kind, namespace, spec.scalable_ref.name)
    else:
        return _finding(ref, one, "", "neither podTemplateRef nor scalableRef is set", "set one of them")
    found = named.get(key)
    if isinstance(found, StoredPodTemplate):
        template, workload, replicas = found.template, "", 0
    elif isinstance(found, _SCALABLE):
        workload = Ref(found.kind, found.name, namespace).workload
        template, replicas = found.spec.template, found.spec.replicas
    else:
        why = f"{key[0]} {key[2]} of namespace {namespace} is not there"
        return _finding(ref, one, field, why, "add it to the files, or name another")
    if not spec.limits and spec.replicas is None and spec.percentage is None:
        why = "neither replicas, percentage nor limits say for how many pods"
        return _finding(ref, one, "", why, "set one of them")
    pod = _without_claims(template.spec)
    return Buffer(ref, spec, pod, PodShape.of(pod, template.metadata.annotations), workload, replicas)


def _finding(ref: Ref, one: CapacityBuffer, field: str, why: str, help_: str) -> Finding:
    where = load.where(one, f"spec.{field}" if field else "spec")
    return Finding("capacity-buffer-no-effect", "warning", ref, where, f"no room is kept for it: {why}", help=help_)


def _without_claims(spec: core.PodSpec) -> core.PodSpec:
    """The pod without volumes that are claimed: there are no claims of a pod that does not exist."""
    kept = [one for one in spec.volumes if "persistentVolumeClaim" not in one and "ephemeral" not in one]
    return msgspec.structs.replace(spec, volumes=kept, node_name="")


def virtual_pods(buffers: Iterable[Buffer], replicas: Mapping[str, int], now_ns: int) -> list[PendingPod]:
    """The pods to plan for. ``replicas``: those that workloads have now, where that is known; ``now_ns``: they come
    after pods as large as they."""
    found = []
    for one in buffers:
        labels = {BUFFER_NAME: one.ref.name, BUFFER_NAMESPACE: one.ref.namespace}
        for number in range(1, one.count(replicas.get(one.workload, one.replicas)) + 1):
            name = f"{PREFIX}{one.ref.name}-{number}"
            ref = Ref("Pod", name, one.ref.namespace, f"{one.ref.uid or one.ref.name}-{number}")
            found.append(PendingPod(ref, one.shape, now_ns, labels))
    return found
