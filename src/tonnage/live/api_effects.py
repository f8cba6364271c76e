"""One decision, one guarded call to a Kubernetes API.

A call whose answer was lost may have worked: the object is read again before anything is said about it. Nothing here
looks at the fleet.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NoReturn

from tonnage.decisions import (
    BINDING,
    REMOVE_FIRST,
    Applied,
    Bind,
    ClaimAllocation,
    Disrupt,
    Evict,
    Launch,
    Outcome,
    Ref,
    Refused,
    Return,
    Scale,
    Stale,
    Wait,
)
from tonnage.kube.clock import Clock, rfc3339
from tonnage.kube.resources import DEPLOYMENTS, NODE_CLAIMS, NODES, PODS, REPLICA_SETS, STATEFUL_SETS
from tonnage.kube.transport import STRATEGIC_PATCH, Again, ApiError, ClientError, LostReply
from tonnage.kube.verbs import Client, JsonObject
from tonnage.live.annotations import COST_WAS, DISRUPTED_TAINT, LAUNCH, RETURNING
from tonnage.live.claiming import take
from tonnage.live.claims import claim_body, told
from tonnage.live.cut_effects import prepare, put_order
from tonnage.live.cutting import NodeWrite, read_order
from tonnage.live.effects import Ends, Unsure
from tonnage.live.reserving import is_reserved, release, reserve
from tonnage.objects import core, karpenter
from tonnage.objects.base import POD_DELETION_COST
from tonnage.partitioning.node_layouts import Order

_SCALED = {one.kind: one for one in (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS)}


class ApiEffects:
    """Does it, through the API. Nodes are launched as NodeClaims, which Karpenter (or a simulated cloud) launches."""

    makes_claims = True

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    def bind(self, decision: Bind) -> Outcome:
        """The binding subresource, guarded by the pod's uid."""
        pod = decision.pod
        return self._guarded(
            lambda: self._client.bind(pod.name, pod.namespace, pod.uid, decision.node.name),
            lambda: self._bound(decision),
            str(pod),
        )

    def submit_bind(self, decision: Bind, may: Callable[[], bool], done: Ends) -> bool:
        """As :meth:`bind`, without waiting for the answer; False, and nothing is done, where that is not possible.
        ``may``: see :meth:`tonnage.kube.transport.Overlapping.submit`. Both are called in any thread."""
        pod = decision.pod

        def end(error: ClientError | None) -> None:
            if isinstance(error, Again):
                done(lambda: self.bind(decision))
            elif isinstance(error, LostReply):
                done(lambda: self._guarded(partial(_raise, error), lambda: self._bound(decision), str(pod)))
            else:
                done(Applied() if error is None else _no(error, str(pod)))

        return self._client.submit_bind(pod.name, pod.namespace, pod.uid, decision.node.name, end, may)

    def take_claim(self, claim: Ref, volume: Ref | None, node: str) -> Outcome:
        """A claim that waited for its pod: the volume is kept for it, or one is to be made for the node. The binding
        controller and the provisioner do the rest, as after kube-scheduler."""
        return self._guarded(lambda: take(self._client, claim, volume, node), lambda: True, str(claim))

    def reserve(self, pod: Ref, claim: Ref, given: ClaimAllocation | None) -> Outcome:
        """The claim gets what it is given, and is reserved for the pod; guarded by its resourceVersion."""
        said: list[Outcome] = []

        def call() -> None:
            said.append(reserve(self._client, pod, claim, given, self._clock.now_ns()))

        def landed() -> bool:
            if given is None or given.extended is None:
                return is_reserved(self._client, pod, claim)
            call()  # what is done of it already is left as it is
            return isinstance(said[-1], Applied)

        outcome = self._guarded(call, landed, str(claim))
        return said[0] if said else outcome

    def release(self, pod: Ref, claim: Ref, given: ClaimAllocation | None) -> Outcome:
        """Undo :meth:`reserve`, once more where the answer is lost."""

        def call() -> object:
            return release(self._client, pod, claim, given)

        def again() -> bool:
            call()
            return True

        return self._guarded(call, again, str(claim))

    def bound(self, decision: Bind) -> bool | None:
        """Whether the pod stands on the node; None when that cannot be told."""
        try:
            return self._bound(decision)
        except ClientError:
            return None

    def _bound(self, decision: Bind) -> bool:
        found = self._read(PODS, decision.pod)
        return found is not None and found["spec"].get("nodeName", "") == decision.node.name

    def scale(self, decision: Scale) -> Outcome:
        """The scale subresource: read, compared, written with its resourceVersion. Pods to remove first are marked.

        Marks that an earlier decision has left are taken off, and its own when nothing comes of it: they would send the
        wrong pods when somebody else scales down."""
        target = decision.target
        resource = _SCALED.get(target.kind, DEPLOYMENTS)
        marked: list[JsonObject] = []
        try:
            scale = self._client.get_scale(resource, target.name, target.namespace)
            current = scale.get("spec", {}).get("replicas", 0)
            if target.uid and scale["metadata"].get("uid") != target.uid:
                return Stale(f"{target} is gone")
            if current != decision.current:
                return Stale(f"{target} has {current} replicas, not {decision.current}")
            if decision.remove:
                marked = self._mark(decision, scale.get("status", {}).get("selector", ""))
        except ClientError as error:
            return _no(error, str(target))
        scale["spec"] = {"replicas": decision.replicas}

        def landed() -> bool | None:
            found = self._client.get_scale(resource, target.name, target.namespace)
            return bool(found.get("spec", {}).get("replicas", 0) == decision.replicas)

        outcome = self._guarded(
            lambda: self._client.replace(resource, scale, target.namespace, "scale"), landed, str(target)
        )
        if not isinstance(outcome, Applied | Unsure):
            for pod in marked:
                self._unmark(pod)
        return outcome

    def _mark(self, decision: Scale, selector: str) -> list[JsonObject]:
        """Give the pods to remove a low deletion cost, and others theirs back; the pods marked. Raises ClientError."""
        wanted = {(ref.name, ref.uid) for ref in decision.remove}
        marked = []
        for pod in self._client.list(PODS, decision.target.namespace, label_selector=selector):
            meta = pod["metadata"]
            written = meta.get("annotations", {})
            goes = (meta["name"], meta["uid"]) in wanted or (meta["name"], "") in wanted
            if goes and COST_WAS not in written:
                cost = written.get(POD_DELETION_COST, "")
                meta["annotations"] = {**written, COST_WAS: cost}
                self._annotate(meta, {POD_DELETION_COST: str(REMOVE_FIRST), COST_WAS: cost})
            elif not goes and COST_WAS in written:
                self._unmark(pod)
            if goes:
                marked.append(pod)
        return marked

    def _unmark(self, pod: JsonObject) -> None:
        meta = pod["metadata"]
        self._annotate(meta, {POD_DELETION_COST: meta["annotations"][COST_WAS] or None, COST_WAS: None})

    def marked(self, decision: Scale) -> bool | None:
        """Whether pods have outlived their marks, which are taken off: pods that were not Ready went before them.

        None when that could not be done."""
        target = decision.target
        try:
            scale = self._client.get_scale(_SCALED.get(target.kind, DEPLOYMENTS), target.name, target.namespace)
            selector = scale.get("status", {}).get("selector", "")
            pods = self._client.list(PODS, target.namespace, label_selector=selector)
        except ClientError as error:
            return False if isinstance(error, ApiError) and error.code == 404 else None
        left = [pod["metadata"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        for meta in (one for one in left if COST_WAS in one.get("annotations", {})):
            self._unmark({"metadata": meta})
        return False

    def _annotate(self, meta: JsonObject, annotations: JsonObject) -> None:
        patch = {"metadata": {"uid": meta["uid"], "annotations": annotations}}
        try:
            self._client.patch(PODS, meta["name"], patch, meta["namespace"])
        except ClientError:
            return  # a hint: without it the ReplicaSet chooses by its own order

    def launch(self, decision: Launch, pool: karpenter.NodePool | None) -> Outcome:
        """A NodeClaim that asks for exactly the offering."""
        if pool is None:
            return Stale(f"NodePool {decision.node_pool} is gone")
        body = claim_body(decision, pool)
        return self._guarded(
            lambda: self._client.create(NODE_CLAIMS, body),
            lambda: self._claimed(decision),
            f"NodeClaim {decision.claim.name}",
            gone_is_refused=True,
        )

    def claimed(self, decision: Launch) -> bool | None:
        """Whether this decision's NodeClaim is there and stays; None when that cannot be told."""
        try:
            return self._claimed(decision)
        except ClientError:
            return None

    def _claimed(self, decision: Launch) -> bool:
        found = self._read(NODE_CLAIMS, decision.claim)
        if found is None or "deletionTimestamp" in found["metadata"]:
            return False
        return bool(found["metadata"].get("annotations", {}).get(LAUNCH) == told(decision))

    def disrupt(self, decision: Disrupt) -> Outcome:
        """Taint the node, unless somebody else has."""

        def taint(node: JsonObject) -> Outcome:
            if any(taint["key"] == DISRUPTED_TAINT for taint in node.get("spec", {}).get("taints", [])):
                return Stale(f"node {decision.node.name} is being disrupted already")
            self._taint(node, decision.reason.verdict)
            return Applied()

        return self._on_node(decision.node, taint)

    def give_back(self, decision: Return) -> Outcome:
        """Taint the node, look again whether it is empty, delete its NodeClaim, or the Node where it has none."""
        name = decision.node.name

        def end(node: JsonObject) -> Outcome:
            self._taint(node, decision.reason.verdict)
            if not decision.drained and (movable := [pod for pod in self._pods_on(name) if _movable(pod)]):
                self._untaint(name)
                return Stale(f"node {name} is not empty: {movable[0]['metadata']['name']} was bound meanwhile")
            return self._end(node)

        return self._on_node(decision.node, end)

    def _on_node(self, ref: Ref, act: Callable[[JsonObject], Outcome]) -> Outcome:
        """``act`` on the very node that was decided about, as it is now."""
        try:
            node = self._client.get(NODES, ref.name)
            if ref.uid and node["metadata"]["uid"] != ref.uid:
                return Stale(f"node {ref.name} is gone")
            return act(node)
        except LostReply:
            return Stale(f"node {ref.name}: the response was lost; its state is read again")
        except ClientError as error:
            return _no(error, f"node {ref.name}")

    def _taint(self, node: JsonObject, why: str) -> None:
        taints = [t for t in node.get("spec", {}).get("taints", []) if t["key"] != DISRUPTED_TAINT]
        taints.append({"key": DISRUPTED_TAINT, "effect": "NoSchedule"})
        meta = node["metadata"]
        guard = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"], "annotations": {RETURNING: why}}
        self._client.patch(NODES, meta["name"], {"metadata": guard, "spec": {"taints": taints}})

    def _untaint(self, name: str) -> None:
        node = self._client.get(NODES, name)
        taints = [t for t in node.get("spec", {}).get("taints", []) if t["key"] != DISRUPTED_TAINT]
        meta = node["metadata"]
        guard = {"resourceVersion": meta["resourceVersion"], "annotations": {RETURNING: None}}
        self._client.patch(NODES, name, {"metadata": guard, "spec": {"taints": taints or None}})

    def _pods_on(self, name: str) -> list[JsonObject]:
        return self._client.list(PODS, field_selector=f"spec.nodeName={name}")

    def _end(self, node: JsonObject) -> Outcome:
        """Let a tainted, empty node go. Raises ClientError."""
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        claims = [c["metadata"] for c in self._all_claims() if c.get("status", {}).get("nodeName") == name]
        if "deletionTimestamp" in (claims[0] if claims else node["metadata"]):
            return Stale(f"node {name} is terminating")
        if claims:
            self._client.delete(NODE_CLAIMS, claims[0]["name"], uid=claims[0]["uid"])
        else:
            self._client.delete(NODES, name, uid=uid)
        return Applied()

    def _all_claims(self) -> list[JsonObject]:
        try:
            return self._client.list(NODE_CLAIMS)
        except ApiError as error:
            if error.code == 404:  # a cluster without Karpenter
                return []
            raise

    def keep(self, node: Ref) -> Outcome:
        """Take back a return that was begun: the node is needed after all."""
        try:
            self._untaint(node.name)
        except ClientError as error:
            return _no(error, f"node {node.name}")
        return Stale(f"node {node.name} is not empty: it stays")

    def evict(self, decision: Evict) -> Outcome:
        """The Eviction API: a PodDisruptionBudget may refuse. It is asked for pods whose time is up too: where it
        refuses they go with their node."""
        pod = decision.pod
        return self._guarded(
            lambda: self._client.evict(pod.name, pod.namespace, pod.uid), lambda: self._evicted(decision), str(pod)
        )

    def evicted(self, decision: Evict) -> bool | None:
        """Whether the pod is gone or leaves; None when that cannot be told."""
        try:
            return self._evicted(decision)
        except ClientError:
            return None

    def _evicted(self, decision: Evict) -> bool:
        found = self._read(PODS, decision.pod)
        return found is None or "deletionTimestamp" in found["metadata"]

    def unschedulable(self, decision: Wait) -> Outcome:
        """The PodScheduled condition and the node on which room is made for the pod, as kube-scheduler writes them:
        ``SchedulerError`` is the reason where it could have been bound and the API server would not do it.

        Source: kubernetes/api core/v1 types.go, PodReasonSchedulerError."""
        pod = decision.pod
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulerError" if decision.by == BINDING else "Unschedulable",
            "message": decision.reason.verdict,
            "lastTransitionTime": rfc3339(self._clock.now_ns()),
        }
        status = {"conditions": [condition], "nominatedNodeName": decision.nominated or None}
        patch = {"metadata": {"uid": pod.uid}, "status": status}
        return self._guarded(
            lambda: self._client.patch(
                PODS, pod.name, patch, pod.namespace, subresource="status", content_type=STRATEGIC_PATCH
            ),
            lambda: True,
            str(pod),
        )

    def cut(self, node: Ref, wanted: NodeWrite) -> Outcome:
        """The configuration first; then the order and the label, in one patch."""
        order, what = wanted.order, f"the layouts of node {node.name}"
        try:
            seen = prepare(self._client, node, wanted)
        except ClientError as error:
            return _no(error, what)
        if isinstance(seen, Stale | Refused):
            return seen
        return self._guarded(lambda: put_order(self._client, seen, order), lambda: self._ordered(node, order), what)

    def ordered(self, node: Ref, order: Order) -> bool | None:
        """Whether the node has the order; None when that cannot be told."""
        try:
            return self._ordered(node, order)
        except ClientError:
            return None

    def _ordered(self, node: Ref, order: Order) -> bool:
        found = self._read(NODES, node)
        return found is not None and read_order(found["metadata"].get("annotations", {})) == order

    def _guarded(
        self,
        call: Callable[[], object],
        landed: Callable[[], bool | None],
        what: str,
        *,
        gone_is_refused: bool = False,
    ) -> Outcome:
        """Make the call; after a lost answer, ask whether it worked."""
        try:
            call()
        except LostReply:
            try:
                worked = landed()
            except ClientError as error:
                return Unsure(f"{what}: the response was lost, and its state cannot be read: {error}")
            return Applied() if worked else Stale(f"{what}: the response was lost, and it was not done")
        except ClientError as error:
            if gone_is_refused and isinstance(error, ApiError) and error.code == 404:
                return Refused(f"{what}: {error.message}", error.reason)
            return _no(error, what)
        return Applied()

    def _read(self, resource: object, ref: Ref) -> JsonObject | None:
        """The object of that uid; None when it is gone."""
        try:
            found = self._client.get(resource, ref.name, ref.namespace)  # type: ignore[arg-type]
        except ApiError as error:
            if error.code == 404:
                return None
            raise
        return found if ref.uid in ("", found["metadata"].get("uid")) else None


def _no(error: ClientError, what: str) -> Outcome:
    """What a server's no means for a decision: the world moved on, or it will not."""
    if isinstance(error, ApiError):
        if error.code == 404:
            return Stale(f"{what} is gone")
        if error.code == 409:
            return Stale(f"{what}: {error.message}")
        return Refused(f"{what}: {error.message}", error.reason)
    return Stale(f"{what}: {error}")


def _raise(error: ClientError) -> NoReturn:
    raise error


def _movable(pod: JsonObject) -> bool:
    owners = pod["metadata"].get("ownerReferences", [])
    own = any(o.get("kind") in ("DaemonSet", "Node") and o.get("controller") for o in owners)
    return not own and pod.get("status", {}).get("phase") not in core.FINISHED
