"""A cluster that stands still: what files with its objects say, as decisions see it.

The objects are those that ``kubectl get -A -o yaml`` prints, read by the same feed as what informers report. A workload
written by hand, without a uid, of which no pod is there stands for its pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from tonnage.cluster.feed import Changes, owner_key, workload_of
from tonnage.cluster.groups import PLACES, Groups
from tonnage.cluster.observed import Observed
from tonnage.fleet.features import KUBELET
from tonnage.fleet.snapshot import Snapshot
from tonnage.objects import apps, autoscaling, core, karpenter, keda, storage
from tonnage.objects.base import KubeObject, ObjectMeta
from tonnage.objects.policy import PodDisruptionBudget
from tonnage.workloads.membership import epoch, stamped
from tonnage.workloads.priority import Priorities
from tonnage.workloads.volumes.book import Volumes

DEFAULT = "default"
CLUSTER_SCOPED = (
    core.Namespace,
    core.Node,
    karpenter.NodeClaim,
    storage.PersistentVolume,
    storage.StorageClass,
)
_READY = core.NodeCondition(type="Ready", status="True")


@dataclass(frozen=True, slots=True)
class _Then:
    """Time stands still at the latest that any object was created."""

    latest_ns: int = field(default=0)

    def now_ns(self) -> int:
        return self.latest_ns

    def of(self, timestamp: str | None) -> int:
        return epoch(timestamp) if timestamp else self.latest_ns


def snapshot_of(objects: Iterable[KubeObject]) -> Snapshot:
    """The cluster of these objects. Nodes without conditions, as written by hand, are ready; pods without a priority
    get that of their class."""
    given = tuple(
        one if one.namespace or isinstance(one, CLUSTER_SCOPED) else one.renamed(namespace=DEFAULT) for one in objects
    )
    priorities = Priorities(one for one in given if isinstance(one, core.PriorityClass))
    clock = _Then(max((epoch(one.metadata.creation_timestamp) for one in given), default=0))
    changes = Changes(set())
    groups = Groups(clock, changes, unseen_ns=0)
    volumes = Volumes(given, binds=True)
    state = Observed(clock, groups, price=lambda *_: 0, changes=changes, volumes=volumes)
    groups.renew = state.feed.renew
    for one in given:
        place = PLACES.get((one.api_version, one.kind))
        if place is not None:
            groups.see(place, None, one)
        if isinstance(one, core.Namespace):
            state.see_namespace(None, one)
        elif isinstance(one, core.Node):
            state.see_node(None, _usable(one))
        elif isinstance(one, PodDisruptionBudget):
            state.see_budget(None, one)
        elif isinstance(one, karpenter.NodeClaim):
            state.see_claim(None, one)
        elif isinstance(one, apps.Deployment):
            state.deployments.deployment(None, one)
        elif isinstance(one, autoscaling.HorizontalPodAutoscaler | keda.ScaledObject):
            state.deployments.autoscaler(None, one)
    for pod in [*(one for one in given if isinstance(one, core.Pod)), *_missing(given)]:
        state.see_pod(None, _admitted(pod, priorities))
    groups.settle()
    return state.snapshot(clock.now_ns())


def _usable(node: core.Node) -> core.Node:
    """One that is written by hand says less than a kubelet does."""
    status = node.status
    if not status.conditions:
        status = msgspec.structs.replace(status, conditions=[_READY])
    if not node.metadata.uid and not status.declared_features:
        status = msgspec.structs.replace(status, declared_features=list(KUBELET))
    return msgspec.structs.replace(node, status=status) if status is not node.status else node


def _admitted(pod: core.Pod, priorities: Priorities) -> core.Pod:
    """With priority and preemption policy as admission writes them."""
    return msgspec.structs.replace(pod, spec=priorities.admitted(pod.spec))


def _missing(objects: tuple[KubeObject, ...]) -> Iterator[core.Pod]:
    """The pods of workloads as people write them, of which none is there. In a cluster its controllers make them."""
    there = {workload_of(one) for one in objects if isinstance(one, core.Pod)}
    owned = {(one.namespace, owner.kind, owner.name) for one in objects for owner in one.metadata.owner_references}
    for one in objects:
        made = (
            one.metadata.uid
            or (one.namespace, one.kind, one.name) in owned
            or owner_key(one.namespace, one.kind, one.name) in there
        )
        if isinstance(one, core.Pod) or made:
            continue
        for replica in stamped(one, objects):
            metadata = ObjectMeta(
                name=replica.name,
                namespace=replica.namespace,
                labels=replica.labels,
                annotations=replica.annotations,
            )
            yield core.Pod(api_version="v1", kind="Pod", metadata=metadata, spec=replica.spec)
