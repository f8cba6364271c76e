"""The machines of a simulated cluster behind a Kubernetes API: kubelets, device plugins and a cloud that are not real.

What happens to them is written to the API; what others write there (bindings, deletions, NodeClaims) happens to them.
Writes are levelled: a change only marks its object, :meth:`Machines.flush` writes what the object should be now, and
what could not be written stays marked. So nothing is lost when the API is unreachable, and nothing depends on order.

Not safe for several threads: its owner's alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec

from tonnage.decisions import Ref, Refused
from tonnage.facts import instances
from tonnage.fleet.claim_asks import key_of
from tonnage.fleet.claim_needs import ClaimKey
from tonnage.fleet.rows import FleetPod
from tonnage.fleet.state import Conflict
from tonnage.hollow.driver_upgrades import DriverUpgrades
from tonnage.hollow.mig_manager import MigManagers
from tonnage.hollow.node_writer import NodeWriter
from tonnage.hollow.pod_writer import REJECTED, Key, NotAdmitted, PodWriter
from tonnage.hollow.refused_pods import RefusedPods
from tonnage.hollow.strangers import Ours, take_up
from tonnage.hollow.workload_writer import WorkloadWriter
from tonnage.kube.clock import rfc3339
from tonnage.kube.resources import RESOURCE_CLAIMS
from tonnage.kube.transport import ApiError, ClientError
from tonnage.kube.verbs import Client
from tonnage.live.views import launch_of
from tonnage.machines import nodes, pods
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.life import Terminating
from tonnage.machines.objects import SimulatedNode, SimulatedNodeClaim, SimulatedPod, WorkloadController
from tonnage.objects import apps, core, karpenter
from tonnage.objects.dra import AllocationResult, ResourceClaim
from tonnage.objects.gpu_operator import ClusterPolicy
from tonnage.workloads.failures import Cause

K = TypeVar("K")
Event = Callable[[Ref, str, str, str], None]
"""(object, type, reason, message)."""
TOLD_BY_OTHERS = frozenset({"Scheduled", "FailedScheduling", "ScalingReplicaSet"})
"""Events that whoever decided writes."""


@dataclass(slots=True)
class MachineOptions:
    """``epoch_ns``: the Unix time at which the run starts. ``parallel``: writes at once. ``event``: told of events.
    ``opens_gates``: whether scheduling gates that somebody would remove are removed here."""

    epoch_ns: int = 0
    parallel: int = 1
    event: Event | None = None
    opens_gates: bool = True


class Machines:
    """Implements :class:`tonnage.machines.mirror.Mirror`."""

    def __init__(self, cluster: SimulatedCluster, client: Client, options: MachineOptions | None = None) -> None:
        self.cluster = cluster
        self.options = options or MachineOptions()
        self.errors: dict[str, str] = {}
        """What could not be written at the last attempt, by object."""
        self._client = client
        self._pool = ThreadPoolExecutor(self.options.parallel, "kubelet") if self.options.parallel > 1 else None
        self.mig = MigManagers(cluster, client, self._mark_node, self.event)
        self.drivers = DriverUpgrades(cluster, client, self._mark_node, self.event)
        self._nodes = NodeWriter(cluster, client, self._stamp, self.mig, self.drivers)
        self.workloads = WorkloadWriter(cluster, client, self._stamp)
        self.pods = PodWriter(cluster, client, self.workloads, self._stamp)
        self._ours = Ours(cluster, self.workloads.uid)
        self._bought: dict[str, str] = {}  # uid of a NodeClaim → its machine
        self._dirty_pods: dict[Key, None] = {}
        self._dirty_nodes: dict[str, None] = {}
        self._dirty_workloads: dict[str, None] = {}  # of training, by key
        self._unreconciled: dict[str, None] = {}  # workloads whose number of replicas has changed
        self._refused = RefusedPods(cluster, self.event)
        self._paused: dict[str, float] = {}  # until when an object is left alone that could not be written
        cluster.mirror = cluster.events.mirror = self

    def _mark_node(self, name: str) -> None:
        self._dirty_nodes[name] = None

    # ---- what happens to the machines ----

    def pod_created(self, pod: SimulatedPod) -> None:
        self._dirty_pods[pod.namespace, pod.name] = None

    def daemon_created(self, spec: FleetPod, node: SimulatedNode) -> None:
        key = (spec.namespace, spec.name)
        self.pods.daemons[key] = (spec, node.name)
        self._dirty_pods[key] = None

    def pod_changed(self, pod: SimulatedPod) -> None:
        if pod.started_ns is not None:
            self.pods.failing.pop((pod.namespace, pod.name), None)  # its container runs again
        self._dirty_pods[pod.namespace, pod.name] = None

    def pod_failing(self, pod: SimulatedPod, reason: str, message: str) -> None:
        self.pods.failing[pod.namespace, pod.name] = (reason, message)
        self._dirty_pods[pod.namespace, pod.name] = None

    def pod_deleted(self, pod: SimulatedPod) -> None:
        self._dirty_pods[pod.namespace, pod.name] = None

    def pod_gone(self, pod: SimulatedPod) -> None:
        self.pods.ended(pod)
        self._dirty_pods[pod.namespace, pod.name] = None

    def training_changed(self, training: WorkloadController[Any]) -> None:
        self.show_workload(training.key)

    def claim_running(self, claim: SimulatedNodeClaim) -> None:
        self._dirty_nodes[claim.launch.claim.name] = None

    def node_changed(self, node: SimulatedNode) -> None:
        self._dirty_nodes[node.name] = None

    def node_gone(self, node: SimulatedNode) -> None:
        self._dirty_nodes[node.name] = None
        for key, (_, on) in self.pods.daemons.items():
            if on == node.name:
                self._dirty_pods[key] = None

    def event(self, object_: str, type_: str, reason: str, message: str) -> None:
        if self.options.event is None or reason in TOLD_BY_OTHERS:
            return
        kind, _, path = object_.partition(" ")
        namespace, _, name = path.rpartition("/")
        uid = self.pods.uid((namespace, name)) if kind == "Pod" else ""
        if kind == "Training":
            owner = self.workloads.owner(path)
            if owner is None:
                return  # bare pods have no object; of one that is not there yet nobody hears
            namespace = namespace.partition("/")[0]
            kind, name, uid = owner["kind"], owner["metadata"]["name"], owner["metadata"]["uid"]
        self.options.event(Ref(kind, name, namespace, uid), type_, reason, message)

    # ---- what others write ----

    def show_workload(self, key: str) -> None:
        """Create the object of a workload, and its pod groups before it, unless they are there; write how far it is."""
        for name in (*self.workloads.groups(key), key):
            if self.workloads.has(name):
                self._dirty_workloads[name] = None

    def show_all(self) -> None:
        """Mark all that there is, for an API that knows nothing of it yet."""
        fleet = self.cluster.fleet
        self._dirty_nodes.update(dict.fromkeys(self.cluster.nodes))
        for row in fleet.node_rows():
            for pod_row in sorted(fleet.node(row).pods):
                spec = fleet.pod(pod_row).spec
                if spec.daemon and (spec.namespace, spec.name) not in self.cluster.pods:
                    self.pods.daemons[spec.namespace, spec.name] = (spec, fleet.node(row).spec.name)
                    self._dirty_pods[spec.namespace, spec.name] = None
        self._dirty_pods.update(dict.fromkeys(self.cluster.pods))

    def see_pod(self, old: core.Pod | None, new: core.Pod | None) -> None:
        """A pod was added, changed or deleted."""
        cluster = self.cluster
        if new is None:
            assert old is not None
            self._pod_deleted(old)
            return
        key, uid = (new.namespace, new.name), new.metadata.uid
        if self.pods.is_over(uid):
            return
        before = self.pods.seen(key, uid)
        if key in self.pods.daemons and not before:
            self._dirty_pods[key] = None  # the answer to its creation was lost
        if key in self.pods.daemons or new.status.phase in ("Succeeded", "Failed"):
            return
        pod = cluster.pods.get(key)
        if pod is not None and before not in ("", uid):
            self._lose(pod)  # another pod of that name: the end of this one was not seen
            pod = None
        if pod is None:
            if before == uid and self.pods.standing(key) is not None:
                return  # it has ended here, and its end is written: this was on its way meanwhile
            if self._ours.made_here(key, new):
                if not before:
                    self._dirty_pods[key] = None  # its creation was never answered, and so it was not deleted
                return  # one of ours that has ended since
            if new.metadata.deletion_timestamp and not new.spec.node_name:
                return
            pod = take_up(cluster, new, self.event)
            self.pods.stands_no_more(key)  # for an earlier one of that name
        self.pods.stands_for(key, pod)
        pod.deletion_cost = new.metadata.deletion_cost
        if self.options.opens_gates and self.pods.opens(pod, new):
            self._dirty_pods[key] = None
        node = cluster.nodes.get(new.spec.node_name)
        if node is not None and node.name in cluster.fleet.node_by_name and pod.bound_ns is None:
            self._bound(pod, node, new.status.extended_resource_claim_status)
            if key not in cluster.pods:
                return
        if new.metadata.deletion_timestamp and not pod.terminating and key in self.cluster.pods:
            self.pods.deleting.add(key)
            pods.stop_pod(cluster, pod)
            pods.replace(cluster, pod, Cause.EVICTION)

    def _lose(self, pod: SimulatedPod) -> None:
        """The pod is gone, and nobody here has ended it."""
        if pod.workload.controller is not None:
            pods.lose(self.cluster, pod, Cause.EVICTION)
            return
        pod.terminating = True
        pods.end_pod(self.cluster, pod)

    def _bound(self, pod: SimulatedPod, node: SimulatedNode, made: core.PodExtendedResourceClaimStatus | None) -> None:
        try:
            self.cluster.assign(pod, node, None, self._allocations(pod, node, made))
        except Conflict as conflict:
            if self.cluster.runs_workloads or pod.workload.controller is not None:  # its workload makes another
                self._lose(pod)
                if pod.workload.controller is None:
                    pods.reconcile(self.cluster, pod.workload)
            else:
                self.pods.failing[pod.namespace, pod.name] = (REJECTED, str(conflict))
        self._dirty_pods[pod.namespace, pod.name] = None

    def _allocations(
        self, pod: SimulatedPod, node: SimulatedNode, made: core.PodExtendedResourceClaimStatus | None
    ) -> dict[ClaimKey, AllocationResult] | None:
        """What the API says that the pod's ResourceClaims have, that which was made for its extended resources
        included; None where it does not answer, or they have nothing."""
        fleet, found = self.cluster.fleet, dict[ClaimKey, AllocationResult]()
        names = {key: key[1] for key in fleet.pod(pod.row).spec.claims.keys}
        own = fleet.extended_claim(pod.row, fleet.node_by_name[node.name])
        if own is not None and made is not None:
            names[key_of(own)] = made.resource_claim_name
        for key, name in names.items():
            namespace = key[0]
            try:
                one = msgspec.convert(self._client.get(RESOURCE_CLAIMS, name, namespace), ResourceClaim, strict=False)
            except (ClientError, msgspec.ValidationError):
                return None
            if one.status.allocation is None:
                return None
            found[key] = one.status.allocation
        return found or None

    def _pod_deleted(self, old: core.Pod) -> None:
        key = (old.namespace, old.name)
        stood_for = self.pods.standing(key)
        if not self.pods.is_gone(key, old.metadata.uid):
            return
        pod = self.cluster.pods.get(key)
        if pod is None:
            return
        if pod is not stood_for:
            self._dirty_pods[key] = None  # it has come since, and can be created now
            return
        self._lose(pod)
        if pod.workload.controller is None:
            pods.reconcile(self.cluster, pod.workload)

    def see_deployment(self, old: apps.Deployment | None, new: apps.Deployment | None) -> None:
        """A Deployment was changed; its pods are made here."""
        if new is None or not self.cluster.runs_workloads:
            return
        workload = self.cluster.workloads.get(f"{new.namespace}/{new.name}")
        if workload is not None and workload.replicas != new.spec.replicas:
            workload.replicas = new.spec.replicas
            self._unreconciled[workload.key] = None  # the marks on its pods, written before, may still be on their way

    def see_claim(self, old: karpenter.NodeClaim | None, new: karpenter.NodeClaim | None) -> None:
        """A NodeClaim was added, changed or deleted: the cloud launches, or terminates."""
        if new is None:
            assert old is not None
            machine = self._bought.pop(old.metadata.uid, None)
            if machine is not None:
                self._nodes.unclaimed(machine)
                self._terminate(machine)
            return
        uid = new.metadata.uid
        known = uid in self._bought
        machine = self._bought[uid] if known else self._nodes.free_name(new.name)
        self._bought[uid] = machine
        self._nodes.claimed(machine, new)
        if new.metadata.deletion_timestamp:
            self._terminate(machine)
        elif not known:
            self._launch(new, machine)

    def _launch(self, claim: karpenter.NodeClaim, machine: str) -> None:
        launch = launch_of(claim)
        launch = msgspec.structs.replace(launch, claim=msgspec.structs.replace(launch.claim, name=machine))
        if not instances.known(launch.instance_type):
            self.event(f"NodeClaim {claim.name}", "Warning", "InvalidInstanceType", f"{launch.instance_type!r}")
            return
        if isinstance(self.cluster.buy(launch), Refused):
            self._dirty_nodes[machine] = None  # there is none: its NodeClaim is cleared away

    def _terminate(self, name: str) -> None:
        cluster = self.cluster
        cluster.cloud.claims.pop(name, None)
        node = cluster.nodes.get(name)
        if node is None or node.ended_ns is not None:
            self._dirty_nodes[name] = None
            return
        if name not in cluster.fleet.node_by_name:  # it has not registered
            node.ended_ns, node.end_reason = cluster.now_ns, "NodeClaim deleted"
            cluster.records.ledger.close_node(name, cluster.now_ns)
            self._dirty_nodes[name] = None
        elif not node.leaving:
            Terminating(node).begin(cluster)

    def see_node(self, old: core.Node | None, new: core.Node | None) -> None:
        """A Node was deleted: its machine is terminated."""
        name = (new or old).name  # type: ignore[union-attr]
        self._nodes.seen(name, new.metadata.uid if new is not None else None)
        if new is not None:
            self.mig.see(new)
            self.drivers.see(new)
            return
        self.mig.gone(name)
        self.drivers.gone(name)
        node = self.cluster.nodes.get(name)
        if node is not None and node.ended_ns is None and name in self.cluster.fleet.node_by_name:
            nodes.lose_node(self.cluster, node, "Node object deleted")

    def see_policy(self, old: ClusterPolicy | None, new: ClusterPolicy | None) -> None:
        """The GPU operator's settings were changed."""
        self.drivers.policy(new)

    # ---- writing ----

    @property
    def behind(self) -> bool:
        """Whether something is still to be written: after :meth:`flush`, what could not be."""
        return bool(self._dirty_pods or self._dirty_nodes or self._dirty_workloads)

    def flush(self, pause_s: float = 0.0) -> bool:
        """Write what has changed; True when something was written or tried. What could not be written is left alone for
        ``pause_s`` real seconds; the others go on."""
        for key in self._unreconciled:
            pods.reconcile(self.cluster, self.cluster.workloads[key])
        self._unreconciled = {}
        self.mig.catch_up()
        self.drivers.catch_up()
        if not self.behind:
            return False
        now = time.monotonic()
        self._paused = {what: until for what, until in self._paused.items() if until > now}
        nodes_, self._dirty_nodes = self._due(self._dirty_nodes, _node)
        workloads, self._dirty_workloads = self._due(self._dirty_workloads, str)
        pods_, self._dirty_pods = self._due(self._dirty_pods, _pod)
        self._dirty_nodes |= self._left(nodes_, [(_node(name), self._nodes.job(name)) for name in nodes_], pause_s)
        self._dirty_workloads |= self._left(workloads, [(key, self.workloads.job(key)) for key in workloads], pause_s)
        self._dirty_pods |= self._left(pods_, [(_pod(key), self.pods.job(key)) for key in pods_], pause_s)
        self._refused.tell(self.pod_created)
        return bool(nodes_ or workloads or pods_)

    def _due(self, dirty: Iterable[K], name: Callable[[K], str]) -> tuple[list[K], dict[K, None]]:
        """Those to be written now, and those that are left alone for a while."""
        paused = {key: None for key in dirty if name(key) in self._paused} if self._paused else {}
        return [key for key in dirty if key not in paused], paused

    def _left(self, keys: list[K], jobs: list[tuple[str, Callable[[], None]]], pause_s: float) -> dict[K, None]:
        """Write these; those that could not be written."""
        left: dict[K, None] = {}
        for key, (what, _), done in zip(keys, jobs, self._run(jobs), strict=True):
            if not done:
                left[key] = None
                if pause_s:
                    self._paused[what] = time.monotonic() + pause_s
        return left

    def _run(self, jobs: list[tuple[str, Callable[[], None]]]) -> list[bool]:
        """Make the calls, each with the name of its object; whether each is done."""
        if self._pool is None:
            return [self._write(what, call) for what, call in jobs]
        return list(self._pool.map(lambda job: self._write(*job), jobs))

    def _write(self, what: str, call: Callable[[], object]) -> bool:
        try:
            call()
        except NotAdmitted as refused:
            self.errors[what] = str(refused)
            self._refused.add(refused.pod, str(refused))
            return True  # it is made again later
        except ApiError as error:
            if error.code != 404 and error.reason != "AlreadyExists":
                self.errors[what] = str(error)
                return error.code == 422  # it will not do; trying again changes nothing
            # it is gone, or there already: what the watch brings next decides
        except ClientError as error:
            self.errors[what] = str(error)
            return False
        self.errors.pop(what, None)
        return True

    def _stamp(self, at_ns: int) -> str:
        return rfc3339(self.options.epoch_ns + at_ns)

    def take_away(self) -> None:
        """Every machine is gone: take its Node and its NodeClaim from the API, and the training workloads made here."""
        live = [node for node in self.cluster.nodes.values() if node.ended_ns is None]
        for node in live:
            node.ended_ns, node.end_reason = self.cluster.now_ns, "the end"
        for key in list(self.workloads.created):
            self._write(key, partial(self.workloads.take_away, key))
        for pod in list(self.pods.bare()):
            self._write(_pod(pod), partial(self.pods.take_away, pod))
        for name in dict.fromkeys([*(node.name for node in live), *self._nodes.machines()]):
            self._write(_node(name), partial(self._nodes.clear_away, name))

    def close(self) -> None:
        """Wait for the writes that are under way."""
        if self._pool is not None:
            self._pool.shutdown()


def _node(name: str) -> str:
    return f"node {name}"


def _pod(key: Key) -> str:
    return f"pod {'/'.join(key)}"
