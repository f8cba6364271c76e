"""The pods of StatefulSets: their names, labels, claims, and in which order they come and go.

Source: kubernetes/kubernetes v1.36 pkg/controller/statefulset/stateful_set_utils.go, stateful_set_control.go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from tonnage.objects import apps
from tonnage.objects.base import KubeObject, ObjectMeta
from tonnage.objects.storage import PersistentVolumeClaim
from tonnage.workloads.replicas import WorkloadPod

POD_NAME = "statefulset.kubernetes.io/pod-name"
POD_INDEX = "apps.kubernetes.io/pod-index"
PARALLEL = "Parallel"
CLAIM = "PersistentVolumeClaim"


def ordinal(pod: str) -> int:
    """The number in the name of a pod; -1 for none."""
    number = pod.rpartition("-")[2]
    return int(number) if number.isascii() and number.isdigit() else -1


def wanted(obj: apps.StatefulSet, count: int) -> range:
    """The numbers of this many pods."""
    return range(first(obj), first(obj) + count)


def first(obj: apps.StatefulSet) -> int:
    """The number of its first pod."""
    return obj.spec.ordinals.start if obj.spec.ordinals is not None else 0


def pod_name(name: str, ordinal: int) -> str:
    """How the pod with this number is called."""
    return f"{name}-{ordinal}"


def claim_name(template: str, pod: str) -> str:
    """How the claim is called that a pod gets of a template."""
    return f"{template}-{pod}"


def labels(name: str, ordinal: int) -> dict[str, str]:
    """What each pod has beside the labels of its template."""
    return {POD_NAME: pod_name(name, ordinal), POD_INDEX: str(ordinal)}


def claim_names(obj: apps.StatefulSet, pod: str) -> dict[str, str]:
    """The claims of the pod of this name, by the names of their volumes."""
    return {one.metadata.name: claim_name(one.metadata.name, pod) for one in obj.spec.volume_claim_templates}


def volumes(own: Mapping[str, str], given: Collection[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The volumes of a pod with these claims (:func:`claim_names`), which replace those of the template that are called
    alike."""
    claims = [{"name": name, "persistentVolumeClaim": {"claimName": claim}} for name, claim in own.items()]
    return [*claims, *(dict(one) for one in given if one.get("name") not in own)]


def claims(obj: apps.StatefulSet, ordinal: int) -> Iterator[PersistentVolumeClaim]:
    """The claims that are made for the pod with this number, unless they are there."""
    pod = pod_name(obj.name, ordinal)
    for one in obj.spec.volume_claim_templates:
        metadata = ObjectMeta(
            name=claim_name(one.metadata.name, pod),
            namespace=obj.namespace or "default",
            labels={**one.metadata.labels, **obj.spec.selector.match_labels},
            annotations=one.metadata.annotations,
        )
        yield PersistentVolumeClaim(api_version="v1", kind=CLAIM, metadata=metadata, spec=one.spec)


def claims_to_come(objects: Iterable[KubeObject]) -> Iterator[PersistentVolumeClaim]:
    """The claims that the StatefulSets among the objects make for their pods; those of one without pods, its first."""
    given = tuple(objects)
    there = {(one.namespace or "default", one.name) for one in given if isinstance(one, PersistentVolumeClaim)}
    for obj in given:
        if isinstance(obj, apps.StatefulSet):
            for number in wanted(obj, max(1, obj.spec.replicas)) if obj.spec.volume_claim_templates else ():
                made = claims(obj, number)
                yield from (one for one in made if (one.namespace, one.name) not in there)


def replica(obj: apps.StatefulSet, ordinal: int) -> WorkloadPod:
    """The pod with this number."""
    template, name = obj.spec.template, pod_name(obj.name, ordinal)
    meta, spec = template.metadata, template.spec
    if obj.spec.volume_claim_templates:
        spec = msgspec.structs.replace(spec, volumes=volumes(claim_names(obj, name), spec.volumes))
    own = {**meta.labels, **labels(obj.name, ordinal)}
    return WorkloadPod(name, obj.namespace, "", ordinal, spec, own, dict(meta.annotations))


def replicas(obj: apps.StatefulSet) -> tuple[WorkloadPod, ...]:
    """Every pod that it is to have."""
    return tuple(replica(obj, number) for number in wanted(obj, obj.spec.replicas))


def to_make(wanted: range, there: Mapping[int, bool], *, parallel: bool) -> list[int]:
    """The numbers of the pods that are made now. ``there``: of each that is there whether it is Ready, and not being
    deleted. In order a pod is made only when all before it are Ready."""
    if parallel:
        return [number for number in wanted if number not in there]
    waits = next((number for number in wanted if not there.get(number, False)), None)
    return [waits] if waits is not None and waits not in there else []


def to_delete(wanted: range, there: Mapping[int, bool], *, parallel: bool) -> list[int]:
    """The numbers of the pods that are too many and deleted now, the largest first. In order one goes at a time, and
    none while one of those that stay is not Ready."""
    extra = sorted((number for number in there if number not in wanted), reverse=True)
    if parallel or not extra:
        return extra
    return extra[:1] if all(there.get(number, False) for number in wanted) else []
