"""apps/v1."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from tonnage.objects import selectors
from tonnage.objects.base import Field, KubeObject, ObjectMeta
from tonnage.objects.core import LabelSelector, Pod, PodTemplateSpec
from tonnage.objects.storage import PersistentVolumeClaimSpec


class DeploymentSpec(Field, frozen=True, kw_only=True):
    """``replicas`` defaults to 1."""

    selector: LabelSelector
    template: PodTemplateSpec
    replicas: int = 1
    strategy: dict[str, Any] = {}
    min_ready_seconds: int = 0


class Deployment(KubeObject, kw_only=True):
    """apps/v1 Deployment."""

    spec: DeploymentSpec

    def selects(self, pod: Pod) -> bool:
        """Whether the pod is in its namespace and has the labels that it selects."""
        same = (self.namespace or "default") == (pod.namespace or "default")
        return same and selectors.matches(self.spec.selector, pod.metadata.labels)


class ReplicaSetSpec(Field, frozen=True, kw_only=True):
    """``replicas`` defaults to 1."""

    selector: LabelSelector
    template: PodTemplateSpec
    replicas: int = 1
    min_ready_seconds: int = 0


class ReplicaSet(KubeObject, kw_only=True):
    """apps/v1 ReplicaSet."""

    spec: ReplicaSetSpec


class DaemonSetSpec(Field, frozen=True, kw_only=True):
    """One pod on every node that the template fits."""

    selector: LabelSelector
    template: PodTemplateSpec


class DaemonSet(KubeObject, kw_only=True):
    """apps/v1 DaemonSet."""

    spec: DaemonSetSpec


class ClaimTemplate(Field, frozen=True, kw_only=True):
    """A PersistentVolumeClaim that each pod gets, called like the volume that it is mounted as."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


class Ordinals(Field, frozen=True, kw_only=True):
    """``start``: the number of the first pod."""

    start: int = 0


class StatefulSetSpec(Field, frozen=True, kw_only=True):
    """``replicas`` defaults to 1. ``pod_management_policy``: OrderedReady makes each pod when those before it are
    Ready, Parallel all at once. ``ordinals``: None counts from 0."""

    selector: LabelSelector
    template: PodTemplateSpec
    replicas: int = 1
    service_name: str = ""
    pod_management_policy: str = "OrderedReady"
    volume_claim_templates: list[ClaimTemplate] = []
    ordinals: Ordinals | None = None
    min_ready_seconds: int = 0


class StatefulSet(KubeObject, kw_only=True):
    """apps/v1 StatefulSet."""

    spec: StatefulSetSpec


Replicated: TypeAlias = Deployment | StatefulSet | ReplicaSet
"""What has a number of like pods, and serves."""


def replicated(objects: Iterable[KubeObject]) -> Iterator[Replicated]:
    """Those among the objects, Deployments first; ReplicaSets that a Deployment has made are not among them."""
    given = tuple(objects)
    for kind in (Deployment, StatefulSet, ReplicaSet):
        for one in given:
            if isinstance(one, Replicated) and type(one) is kind and not (kind is ReplicaSet and is_owned(one)):
                yield one


def is_owned(one: KubeObject) -> bool:
    """Whether another object controls it: it is made and replaced by that."""
    return any(owner.controller for owner in one.metadata.owner_references)
