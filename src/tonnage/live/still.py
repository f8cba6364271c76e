"""A cluster dump: what files with the objects of a cluster say, as decisions see it.

The objects are those that ``kubectl get -A -o yaml`` prints, read by the same feed as what informers report. A workload
written by hand, without a uid, of which no pod is there stands for its pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from tonnage.fleet.device_claims import DeviceClaims
from tonnage.fleet.features import KUBELET
from tonnage.fleet.snapshot import Snapshot
from tonnage.live.feed import Changes
from tonnage.live.groups import PLACES, Groups
from tonnage.live.observed import Observed
from tonnage.live.to_come import Counted, ExpectedPods
from tonnage.objects import apps, autoscaling, core, dra, karpenter, keda, storage
from tonnage.objects.base import DEFAULT_NAMESPACE, KubeObject, ObjectMeta
from tonnage.objects.policy import PodDisruptionBudget
from tonnage.workloads import daemons, stateful
from tonnage.workloads.admission.chain import Admission
from tonnage.workloads.membership import epoch, stamped
from tonnage.workloads.owners import owner_key, workload_of
from tonnage.workloads.volumes.book import Volumes

CLUSTER_SCOPED = (
    core.Namespace,
    core.Node,
    karpenter.NodeClaim,
    storage.PersistentVolume,
    storage.StorageClass,
    storage.CSINode,
    dra.ResourceSlice,
    dra.DeviceClass,
    dra.DeviceTaintRule,
)
_READY = core.NodeCondition(type="Ready", status="True")
_POD_READY = core.PodCondition(type="Ready", status="True")


@dataclass(frozen=True, slots=True)
class _Then:
    """The clock shows the latest time that any object was created."""

    latest_ns: int = field(default=0)

    def now_ns(self) -> int:
        return self.latest_ns

    def of(self, timestamp: str | None) -> int:
        return epoch(timestamp) if timestamp else self.latest_ns


def snapshot_of(objects: Iterable[KubeObject], *, completed: bool = False) -> Snapshot:
    """The cluster of these objects. Nodes without conditions, as written by hand, are ready; pods without a priority
    get that of their class. ``completed``: Deployments, ReplicaSets, StatefulSets and Jobs have all of their pods, as
    soon as their controllers get to it."""
    given = tuple(
        one if one.namespace or isinstance(one, CLUSTER_SCOPED) else one.renamed(namespace=DEFAULT_NAMESPACE)
        for one in objects
    )
    admission = Admission(given)
    clock = _Then(max((epoch(one.metadata.creation_timestamp) for one in given), default=0))
    changes = Changes(set())
    groups = Groups(clock, changes, unseen_ns=0)
    volumes = Volumes((*given, *stateful.claims_to_come(given)), binds=True)
    claims = DeviceClaims(given, makes=True)
    state = Observed(clock, groups, price=lambda *_: 0, changes=changes, volumes=volumes, device_claims=claims)
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
    there = [one for one in given if isinstance(one, core.Pod)]
    for pod in there:
        state.see_pod(None, _admitted(_begun(pod), admission))
    written = tuple(_written(given))
    _start_daemons(state, written, admission)
    whole = ExpectedPods(given) if completed else None
    for pod in _missing(written, given, whole):
        state.see_pod(None, _admitted(pod, admission))
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


def _begun(pod: core.Pod) -> core.Pod:
    """One that is written by hand as running is ready."""
    status = pod.status
    if status.phase != "Running" or status.conditions or status.container_statuses:
        return pod
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(status, conditions=[_POD_READY]))


def _admitted(pod: core.Pod, admission: Admission) -> core.Pod:
    """As the API server stores it; of a pod that it has stored already only the priority is looked up."""
    known = pod.metadata.uid
    spec = admission.priorities.admitted(pod.spec) if known else admission.completed(pod.namespace, pod.spec)
    return msgspec.structs.replace(pod, spec=spec)


def _written(objects: tuple[KubeObject, ...]) -> Iterator[KubeObject]:
    """Workloads as people write them, of which no pod is there. In a cluster their controllers make the pods."""
    there = {workload_of(one) for one in objects if isinstance(one, core.Pod)}
    owned = {(one.namespace, owner.kind, owner.name) for one in objects for owner in one.metadata.owner_references}
    for one in objects:
        made = (
            one.metadata.uid
            or (one.namespace, one.kind, one.name) in owned
            or owner_key(one.namespace, one.kind, one.name) in there
        )
        if not (made or isinstance(one, core.Pod)):
            yield one


def _start_daemons(state: Observed, written: Iterable[KubeObject], admission: Admission) -> None:
    """The pods of DaemonSets, which come before all others."""
    sets = [one for one in written if isinstance(one, apps.DaemonSet)]
    for row in list(state.fleet.node_rows()) if sets else ():
        for one in sets:
            template = one.spec.template
            template = msgspec.structs.replace(template, spec=admission.completed(one.namespace, template.spec))
            owner = owner_key(one.namespace, one.kind, one.name)
            daemons.start(state.fleet, row, one.namespace, one.name, template, owner)


def _missing(
    written: Iterable[KubeObject], objects: tuple[KubeObject, ...], whole: ExpectedPods | None
) -> Iterator[core.Pod]:
    """The pods that the controllers of these workloads would make; with ``whole``, of all that can be counted."""
    made = [one for one in written if whole is None or not isinstance(one, Counted)]
    replicas = [replica for one in made for replica in stamped(one, objects)]
    if whole is not None:
        counted = (one for one in objects if isinstance(one, Counted))
        replicas += [replica for one in counted for replica in whole.to_come(one, objects)]
    for replica in replicas:
        metadata = ObjectMeta(
            name=replica.name,
            namespace=replica.namespace,
            labels=replica.labels,
            annotations=replica.annotations,
        )
        yield core.Pod(api_version="v1", kind="Pod", metadata=metadata, spec=replica.spec)
