"""The machines of a simulated cluster behind a Kubernetes API: kubelets, device plugins and a cloud that are not real.

What happens to them is written to the API; what others write there (bindings, deletions, NodeClaims) happens to them.
Writes are levelled: a change only marks its object, :meth:`Machines.flush` writes what the object should be now, and
what could not be written stays marked. So nothing is lost when the API is away, and nothing depends on order.

Not safe for several threads: its owner's alone.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from zlib import crc32

import msgspec

from tonnage.cluster.client.transport import STRATEGIC_PATCH, ApiError, ClientError
from tonnage.cluster.client.verbs import Client, JsonObject
from tonnage.cluster.clock import rfc3339
from tonnage.cluster.feed import belongs_to_node, workload_of
from tonnage.cluster.resources import PODS
from tonnage.cluster.views import launch_of
from tonnage.decisions import Ref, Refused
from tonnage.errors import InputError, Where
from tonnage.facts import instances
from tonnage.fleet.rows import PodSpec
from tonnage.fleet.state import Conflict
from tonnage.hollow import statuses
from tonnage.hollow.node_writer import NodeWriter
from tonnage.objects import apps, core, karpenter
from tonnage.simulation import nodes, pods
from tonnage.simulation.cluster import SimulatedCluster
from tonnage.simulation.configure import server_of
from tonnage.simulation.life import Terminating
from tonnage.simulation.objects import Claim, Node, Pod, Workload

Key = tuple[str, str]
Event = Callable[[Ref, str, str, str], None]
"""(object, type, reason, message)."""
TOLD_BY_OTHERS = frozenset({"Scheduled", "FailedScheduling", "ScalingReplicaSet"})
"""Events that whoever decided writes."""


@dataclass(slots=True)
class Options:
    """``epoch_ns``: the Unix time at which the run starts. ``parallel``: writes at once. ``event``: told of events."""

    epoch_ns: int = 0
    parallel: int = 1
    event: Event | None = None


class Machines:
    """Implements :class:`tonnage.simulation.mirror.Mirror`."""

    def __init__(self, cluster: SimulatedCluster, client: Client, options: Options | None = None) -> None:
        self.cluster = cluster
        self.options = options or Options()
        self.errors: dict[str, str] = {}
        """What could not be written at the last attempt, by object."""
        self._client = client
        self._pool = ThreadPoolExecutor(self.options.parallel, "kubelet") if self.options.parallel > 1 else None
        self._owners: dict[str, JsonObject] = {}  # workload → its object in the API, for the pods made here
        self._daemons: dict[Key, tuple[PodSpec, str]] = {}  # DaemonSets' pods made here, with their node
        self._uids: dict[Key, str] = {}  # pods that are in the API
        self._deleting: set[Key] = set()  # pods whose deletion the API knows
        self._failing: dict[Key, tuple[str, str]] = {}
        self._nodes = NodeWriter(cluster, client, self._stamp)
        self._bought: dict[str, str] = {}  # uid of a NodeClaim → its machine
        self._dirty_pods: dict[Key, None] = {}
        self._dirty_nodes: dict[str, None] = {}
        self._unreconciled: dict[str, None] = {}  # workloads whose number of replicas has changed
        cluster.mirror = cluster.events.mirror = self

    # ---- what happens to the machines ----

    def pod_created(self, pod: Pod) -> None:
        self._dirty_pods[pod.namespace, pod.name] = None

    def daemon_created(self, spec: PodSpec, node: Node) -> None:
        key = (spec.namespace, spec.name)
        self._daemons[key] = (spec, node.name)
        self._dirty_pods[key] = None

    def pod_changed(self, pod: Pod) -> None:
        if pod.started_ns is not None:
            self._failing.pop((pod.namespace, pod.name), None)  # its container runs again
        self._dirty_pods[pod.namespace, pod.name] = None

    def pod_failing(self, pod: Pod, reason: str, message: str) -> None:
        self._failing[pod.namespace, pod.name] = (reason, message)
        self._dirty_pods[pod.namespace, pod.name] = None

    def pod_deleted(self, pod: Pod) -> None:
        self._dirty_pods[pod.namespace, pod.name] = None

    def pod_gone(self, pod: Pod) -> None:
        self._dirty_pods[pod.namespace, pod.name] = None

    def claim_running(self, claim: Claim) -> None:
        self._dirty_nodes[claim.launch.claim.name] = None

    def node_changed(self, node: Node) -> None:
        self._dirty_nodes[node.name] = None

    def node_gone(self, node: Node) -> None:
        self._dirty_nodes[node.name] = None
        for key, (_, on) in self._daemons.items():
            if on == node.name:
                self._dirty_pods[key] = None

    def event(self, object_: str, type_: str, reason: str, message: str) -> None:
        if self.options.event is None or reason in TOLD_BY_OTHERS:
            return
        kind, _, path = object_.partition(" ")
        namespace, _, name = path.rpartition("/")
        uid = self._uids.get((namespace, name), "") if kind == "Pod" else ""
        self.options.event(Ref(kind, name, namespace, uid), type_, reason, message)

    # ---- what others write ----

    def own(self, workload: str, owner: JsonObject) -> None:
        """Pods made here for ``workload`` (namespace/name) are stamped from this object, and owned by it."""
        self._owners[workload] = owner

    def show_all(self) -> None:
        """Mark all that there is, for an API that knows nothing of it yet."""
        fleet = self.cluster.fleet
        self._dirty_nodes.update(dict.fromkeys(self.cluster.nodes))
        for row in fleet.node_rows():
            for pod_row in sorted(fleet.node(row).pods):
                spec = fleet.pod(pod_row).spec
                if spec.daemon and (spec.namespace, spec.name) not in self.cluster.pods:
                    self._daemons[spec.namespace, spec.name] = (spec, fleet.node(row).spec.name)
                    self._dirty_pods[spec.namespace, spec.name] = None
        self._dirty_pods.update(dict.fromkeys(self.cluster.pods))

    def see_pod(self, old: core.Pod | None, new: core.Pod | None) -> None:
        """A pod was added, changed or deleted."""
        cluster = self.cluster
        if new is None:
            assert old is not None
            self._pod_deleted(old)
            return
        key = (new.namespace, new.name)
        before, self._uids[key] = self._uids.get(key, ""), new.metadata.uid
        if key in self._daemons and not before:
            self._dirty_pods[key] = None  # the answer to its creation was lost
        if key in self._daemons or new.status.phase in ("Succeeded", "Failed"):
            return
        pod = cluster.pods.get(key)
        if pod is not None and before not in ("", new.metadata.uid):
            pods.end_pod(cluster, pod)  # another pod of that name: the end of this one was not seen
            pod = None
        if pod is None:
            if cluster.runs_workloads and workload_of(new) in cluster.workloads:
                if not before:
                    self._dirty_pods[key] = None  # its creation was never answered, and so it was not deleted
                return  # one of ours that has ended since
            if new.metadata.deletion_timestamp and not new.spec.node_name:
                return
            pod = self._adopt(new)
        pod.deletion_cost = new.metadata.deletion_cost
        node = cluster.nodes.get(new.spec.node_name)
        if node is not None and node.name in cluster.fleet.node_by_name and pod.bound_ns is None:
            self._bound(pod, node)
            if key not in cluster.pods:
                return
        if new.metadata.deletion_timestamp and not pod.terminating and key in self.cluster.pods:
            self._deleting.add(key)
            pods.stop_pod(cluster, pod)
            pods.reconcile(cluster, pod.workload)

    def _bound(self, pod: Pod, node: Node) -> None:
        try:
            self.cluster.assign(pod, node)
        except Conflict as conflict:
            self._failing[pod.namespace, pod.name] = ("OutOfResources", str(conflict))
            if self.cluster.runs_workloads:  # its workload makes another
                pod.terminating = True
                pods.end_pod(self.cluster, pod)
                pods.reconcile(self.cluster, pod.workload)
        self._dirty_pods[pod.namespace, pod.name] = None

    def _pod_deleted(self, old: core.Pod) -> None:
        key = (old.namespace, old.name)
        if self._uids.get(key) != old.metadata.uid:
            return
        del self._uids[key]
        self._deleting.discard(key)
        self._failing.pop(key, None)
        pod = self.cluster.pods.get(key)
        if pod is not None:
            pod.terminating = True
            pods.end_pod(self.cluster, pod)
            pods.reconcile(self.cluster, pod.workload)

    def _adopt(self, new: core.Pod) -> Pod:
        """A pod that somebody else made."""
        cluster = self.cluster
        workload = self._workload(new)
        spec = PodSpec(
            new.namespace,
            new.name,
            new.metadata.uid,
            new.metadata.labels,
            msgspec.structs.replace(new.spec, node_name=""),
            owner=workload.key,
            priority=new.spec.priority or 0,
            created_ns=cluster.now_ns,
            daemon=belongs_to_node(new),
        )
        pod = Pod(workload, new.name, new.metadata.uid, cluster.fleet.add_pod(spec), cluster.now_ns)
        workload.pods[new.name] = pod
        cluster.pods[new.namespace, new.name] = pod
        return pod

    def _workload(self, pod: core.Pod) -> Workload:
        """The workload of the pod; another one for each command line, as a rolling update makes them."""
        key = workload_of(pod) or f"{pod.namespace}/{pod.name}"
        first = pod.spec.containers[0]
        variant = (first.image, *first.command, *first.args)
        known = self.cluster.workloads.get(key)
        if known is not None and _command(known) == variant:
            return known
        name = key if known is None else f"{key}#{crc32(chr(0).join(variant).encode()):x}"
        if name not in self.cluster.workloads:
            try:
                server = server_of(pod.spec, Where(field=f"pod {pod.namespace}/{pod.name}"))
            except InputError as error:
                self.event(f"Pod {pod.namespace}/{pod.name}", "Warning", "Failed", error.problems[0].message)
                server = None
            template = core.PodTemplateSpec(spec=pod.spec, metadata=pod.metadata)
            made = Workload(pod.namespace, key.partition("/")[2], template, 0, server)
            made.service = known.service if known is not None else None
            self.cluster.workloads[name] = made
        return self.cluster.workloads[name]

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
        cluster.claims.pop(name, None)
        node = cluster.nodes.get(name)
        if node is None or node.ended_ns is not None:
            self._dirty_nodes[name] = None
            return
        if name not in cluster.fleet.node_by_name:  # it has not registered
            node.ended_ns, node.end_reason = cluster.now_ns, "NodeClaim deleted"
            cluster.ledger.close_node(name, cluster.now_ns)
            self._dirty_nodes[name] = None
        elif not node.leaving:
            Terminating(node).begin(cluster)

    def see_node(self, old: core.Node | None, new: core.Node | None) -> None:
        """A Node was deleted: its machine is given back."""
        name = (new or old).name  # type: ignore[union-attr]
        self._nodes.seen(name, new.metadata.uid if new is not None else None)
        if new is not None:
            return
        node = self.cluster.nodes.get(name)
        if node is not None and node.ended_ns is None and name in self.cluster.fleet.node_by_name:
            nodes.lose_node(self.cluster, node, "Node object deleted")

    # ---- writing ----

    @property
    def behind(self) -> bool:
        """Whether something is still to be written: after :meth:`flush`, what could not be."""
        return bool(self._dirty_pods or self._dirty_nodes)

    def flush(self) -> bool:
        """Write what has changed; True when something was written or tried."""
        for key in self._unreconciled:
            pods.reconcile(self.cluster, self.cluster.workloads[key])
        self._unreconciled = {}
        if not self._dirty_pods and not self._dirty_nodes:
            return False
        todo_nodes, self._dirty_nodes = list(self._dirty_nodes), {}
        todo_pods, self._dirty_pods = list(self._dirty_pods), {}
        written = self._run([(f"node {name}", self._nodes.job(name)) for name in todo_nodes])
        self._dirty_nodes.update((name, None) for name, done in zip(todo_nodes, written, strict=True) if not done)
        written = self._run([(f"pod {'/'.join(key)}", self._pod_job(key)) for key in todo_pods])
        self._dirty_pods.update((key, None) for key, done in zip(todo_pods, written, strict=True) if not done)
        return True

    def _run(self, jobs: list[tuple[str, Callable[[], None]]]) -> list[bool]:
        """Make the calls, each with the name of its object; whether each is done."""
        if self._pool is None:
            return [self._write(what, call) for what, call in jobs]
        return list(self._pool.map(lambda job: self._write(*job), jobs))

    def _write(self, what: str, call: Callable[[], object]) -> bool:
        try:
            call()
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

    def _pod_job(self, key: Key) -> Callable[[], None]:
        """What to call so that the API has the pod as it is now; what it says is fixed here, in the owner's thread."""
        client, (namespace, name) = self._client, key
        uid, pod = self._uids.get(key, ""), self.cluster.pods.get(key)
        if key in self._daemons:
            return self._daemon_job(key, uid)
        if pod is None:
            self._failing.pop(key, None)
            return (lambda: client.delete(PODS, name, namespace, uid=uid, grace_s=0)) if uid else _nothing
        if key not in self._uids:
            if not self.cluster.runs_workloads:
                return _nothing
            return self._create_job(pod)
        if pod.terminating and key not in self._deleting:
            self._deleting.add(key)
            return lambda: client.delete(PODS, name, namespace, uid=uid)
        if pod.bound_ns is None and key not in self._failing:
            return _nothing
        status = self._pod_status(pod)
        patch = {"metadata": {"uid": uid}, "status": status}
        return lambda: _ignore(
            client.patch(PODS, name, patch, namespace, subresource="status", content_type=STRATEGIC_PATCH)
        )

    def _pod_status(self, pod: Pod) -> JsonObject:
        key = (pod.namespace, pod.name)
        failing = self._failing.get(key)
        if failing is not None and failing[0] == "OutOfResources":
            return {"phase": "Failed", "reason": failing[0], "message": failing[1]}
        times = {"bound": pod.bound_ns, "started": pod.started_ns, "ready": pod.ready_ns}
        at = {name: self._stamp(t) for name, t in times.items() if t is not None}
        return statuses.pod_status(pod, self.cluster.fleet.pod(pod.row).spec.spec, at, failing)

    def _create_job(self, pod: Pod) -> Callable[[], None]:
        body = self._stamped(pod.workload.key, pod.namespace, pod.name)
        if pod.workload.template.spec.priority:
            body["spec"].setdefault("priority", pod.workload.template.spec.priority)

        def create() -> None:
            made = self._client.create(PODS, body, pod.namespace)
            self._uids[pod.namespace, pod.name] = made["metadata"]["uid"]

        return create

    def _stamped(self, workload: str, namespace: str, name: str) -> JsonObject:
        """A pod from the template of its workload."""
        owner = self._owners[workload]
        template = deepcopy(owner["spec"]["template"])
        meta = template.get("metadata", {})
        meta |= {"name": name, "namespace": namespace, "ownerReferences": [owner_reference(owner)]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}

    def _daemon_job(self, key: Key, uid: str) -> Callable[[], None]:
        spec, node = self._daemons[key]
        if key not in self.cluster.fleet.pod_by_key:
            del self._daemons[key]
            namespace, name = key
            return (lambda: self._client.delete(PODS, name, namespace, uid=uid, grace_s=0)) if uid else _nothing
        body = self._stamped(spec.owner, spec.namespace, spec.name)
        body["spec"]["nodeName"] = node
        at = self._stamp(self.cluster.now_ns)

        def create() -> None:
            if not uid:
                made = self._client.create(PODS, body, spec.namespace)
                self._uids[key] = made["metadata"]["uid"]
            stand_in = Pod(Workload("", "", core.PodTemplateSpec(spec=spec.spec), 0), spec.name, uid, -1, 0)
            status = statuses.pod_status(stand_in, spec.spec, {"bound": at, "started": at, "ready": at}, None)
            self._client.patch(
                PODS, spec.name, {"status": status}, spec.namespace, subresource="status", content_type=STRATEGIC_PATCH
            )

        return create

    def _stamp(self, at_ns: int) -> str:
        return rfc3339(self.options.epoch_ns + at_ns)

    def take_away(self) -> None:
        """Every machine is gone: take its Node and its NodeClaim from the API."""
        live = [node for node in self.cluster.nodes.values() if node.ended_ns is None]
        for node in live:
            node.ended_ns, node.end_reason = self.cluster.now_ns, "the end"
        for name in dict.fromkeys([*(node.name for node in live), *self._nodes.machines()]):
            self._write(f"node {name}", partial(self._nodes.clear_away, name))

    def close(self) -> None:
        """Wait for the writes that are under way."""
        if self._pool is not None:
            self._pool.shutdown()


def _command(workload: Workload) -> tuple[str, ...]:
    first = workload.template.spec.containers[0]
    return (first.image, *first.command, *first.args)


def owner_reference(owner: JsonObject) -> JsonObject:
    """As its controller writes it on what it makes."""
    meta = owner["metadata"]
    named = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {**named, "controller": True, "blockOwnerDeletion": True}


def _nothing() -> None:
    """There is nothing to write."""


def _ignore(answer: object) -> None:
    """The answer is not needed: the watch brings it."""
