"""Writes simulated machines to an API: their Nodes, and the NodeClaims that they were launched by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tonnage.facts.labels import INITIALIZED, MIG_PREFIX, NVIDIA
from tonnage.hollow import slice_writer, statuses
from tonnage.hollow.driver_upgrades import DriverUpgrades
from tonnage.hollow.mig_manager import MigManagers
from tonnage.kube.resources import NODE_CLAIMS, NODES
from tonnage.kube.transport import STRATEGIC_PATCH, ApiError
from tonnage.kube.verbs import Client, JsonObject
from tonnage.live.annotations import MIG_AT_WORK
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.nodes import cuts_of
from tonnage.machines.objects import SimulatedNode
from tonnage.objects import karpenter
from tonnage.partitioning.node_cuts import MIG_STATE
from tonnage.units import MIB


class NodeWriter:
    """What of the machines is in the API. ``stamp`` gives the RFC 3339 time of the simulation's ns, ``mig`` is
    the MIG manager of the machines, ``drivers`` what upgrades their drivers.

    :meth:`job` is for the owner's thread; the calls that it gives may be made by others, one machine's one at a time.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        client: Client,
        stamp: Callable[[int], str],
        mig: MigManagers,
        drivers: DriverUpgrades,
    ) -> None:
        self._mig, self._drivers = mig, drivers
        self._offered: dict[str, set[str]] = {}  # by node: extended resources that it has had
        self._profiles: dict[str, set[str]] = {}  # by node: labels of MIG profiles that it has had
        self.cluster = cluster
        self._client = client
        self._stamp = stamp
        self._uids: dict[str, str] = {}  # of the Nodes that are there
        self._published: dict[str, str] = {}  # by node: the uid of the Node whose slices are there
        self._claims: dict[str, JsonObject] = {}  # by machine: what of its NodeClaim's metadata its deletion needs

    # ---- what is there ----

    def seen(self, name: str, uid: str | None) -> None:
        """A Node is there with this uid, or (None) no more."""
        if uid is None:
            self._uids.pop(name, None)
        else:
            self._uids[name] = uid

    def claimed(self, machine: str, claim: karpenter.NodeClaim) -> None:
        """The machine was launched by this NodeClaim."""
        meta = claim.metadata
        self._claims[machine] = {"name": meta.name, "uid": meta.uid, "finalizers": meta.finalizers}

    def unclaimed(self, machine: str) -> None:
        """Its NodeClaim is gone."""
        self._claims.pop(machine, None)

    def machines(self) -> list[str]:
        """Those with a NodeClaim."""
        return list(self._claims)

    def free_name(self, claim: str) -> str:
        """A machine's name: the NodeClaim's, or with a number where an earlier NodeClaim had that name."""
        taken = self.cluster.nodes.keys() | self.cluster.cloud.claims.keys() | self._claims.keys()
        names = (claim, *(f"{claim}-{number}" for number in range(2, len(taken) + 3)))
        return next(name for name in names if name not in taken)

    # ---- writing ----

    def job(self, name: str) -> Callable[[], None]:
        """What to call so that the API has the machine as it is now; what it says is fixed here."""
        node = self.cluster.nodes.get(name)
        if node is None or node.ended_ns is not None:
            return partial(self.clear_away, name)
        itype = node.kind
        capacity = {**node.allocatable, "cpu": itype.vcpu * 1000, "memory": itype.memory_mib * MIB}
        at = self._stamp(self.cluster.now_ns)
        row = self.cluster.fleet.node_by_name.get(name)
        if row is not None and self._mig.state(name):  # repartitioned since it came: it has what its device plugin says
            found = self.cluster.fleet.allocatable_of(row).items()
            own = {key: n for key, n in capacity.items() if not key.startswith(NVIDIA)}
            capacity = own | {key: n for key, n in found if key.startswith(NVIDIA)}
        steps: list[Callable[[], object]] = []
        if row is not None:
            allocatable = self.cluster.fleet.allocatable_of(row)
            status = statuses.node_status(node, allocatable, capacity, at, self._gone(name, allocatable))
            body = statuses.node_body(node, self.cluster.fleet.node(row), capacity)
            steps.append(partial(self._put_node, name, body, status, self._changes(node)))
            if published := slice_writer.bodies(self.cluster, name):
                steps.append(partial(self._put_slices, name, published))
        if name in self._claims:
            claim = statuses.claim_status(name, node, row is not None, capacity, at)
            steps.append(partial(self._put_claim, name, claim, statuses.claim_labels(node)))
        return partial(_all, steps)

    def _gone(self, name: str, allocatable: Mapping[str, int]) -> list[str]:
        """The extended resources that the node has had, and has none of now."""
        known = self._offered.setdefault(name, set())
        known |= {key for key, amount in allocatable.items() if "/" in key and amount}
        return sorted(key for key in known if not allocatable.get(key))

    def _changes(self, node: SimulatedNode) -> JsonObject:
        """What of a Node's metadata and spec changes over its life."""
        changes: JsonObject = {}
        labels: JsonObject = self._gpu_labels(node) if node.ready_ns is not None else {}
        if node.ready_ns is not None and node.node_pool:
            labels[INITIALIZED] = "true"
        if labels:
            changes["metadata"] = {"labels": labels}
        if at_work := self._mig.at_work(node.name):
            changes.setdefault("metadata", {})["annotations"] = {MIG_AT_WORK: at_work}
        if node.leaving:
            changes["spec"] = {"unschedulable": True}
        return changes

    def _gpu_labels(self, node: SimulatedNode) -> JsonObject:
        """Those of GPU feature discovery and of the MIG manager; None takes one away."""
        first = cuts_of(self.cluster, node).labels
        row = self.cluster.fleet.node_by_name.get(node.name)
        there = self.cluster.fleet.node(row).labels if row is not None else first
        labels: JsonObject = {key: value for key, value in there.items() if key in first or key.startswith(MIG_PREFIX)}
        known = self._profiles.setdefault(node.name, set())
        labels |= dict.fromkeys(sorted(known - labels.keys()))
        known |= {key for key in labels if key.startswith(MIG_PREFIX)}
        state = self._mig.state(node.name)
        return labels | ({MIG_STATE: state} if state else {}) | self._drivers.labels(node.name)

    def _put_node(self, name: str, body: JsonObject, status: JsonObject, changes: JsonObject) -> None:
        if name not in self._uids:
            self._create(body, status)
        self._client.patch(NODES, name, {"status": status}, subresource="status", content_type=STRATEGIC_PATCH)
        if changes:
            self._client.patch(NODES, name, changes)

    def _put_slices(self, name: str, published: list[JsonObject]) -> None:
        """What the node's DRA driver publishes, once."""
        uid = self._uids.get(name, "")
        if self._published.get(name) == uid:
            return
        owner: JsonObject = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
        slice_writer.put(self._client, published, owner)
        self._published[name] = uid

    def _create(self, body: JsonObject, status: JsonObject) -> None:
        body["status"] |= status
        try:
            made = self._client.create(NODES, body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            made = self._client.get(NODES, body["metadata"]["name"])
            if statuses.ANNOTATION not in made["metadata"].get("annotations", {}):
                what = f"node {made['metadata']['name']} is there, and it is not simulated"
                raise ApiError(409, "Conflict", what) from error
        self._uids[made["metadata"]["name"]] = made["metadata"]["uid"]

    def _put_claim(self, machine: str, status: JsonObject, labels: JsonObject) -> None:
        claim = self._claims.get(machine)
        if claim is None:
            return
        if statuses.FINALIZER not in claim["finalizers"]:
            claim["finalizers"].append(statuses.FINALIZER)
            meta = {"finalizers": claim["finalizers"], "labels": labels}
            self._client.patch(NODE_CLAIMS, claim["name"], {"metadata": meta})
        self._client.patch(NODE_CLAIMS, claim["name"], {"status": status}, subresource="status")

    def clear_away(self, name: str) -> None:
        """The machine is gone: so are its Node and its NodeClaim."""
        self._offered.pop(name, None)
        self._profiles.pop(name, None)
        if name in self._uids:
            _quiet(partial(self._client.delete, NODES, name, uid=self._uids[name]))
            self._uids.pop(name, None)
        claim = self._claims.get(name)
        if claim is not None:
            left = [f for f in claim["finalizers"] if f != statuses.FINALIZER]
            if left != claim["finalizers"]:
                patch = {"metadata": {"uid": claim["uid"], "finalizers": left or None}}
                _quiet(partial(self._client.patch, NODE_CLAIMS, claim["name"], patch))
            _quiet(partial(self._client.delete, NODE_CLAIMS, claim["name"], uid=claim["uid"]))
            self._claims.pop(name, None)


def _all(steps: list[Callable[[], object]]) -> None:
    for step in steps:
        step()


def _quiet(call: Callable[[], object]) -> None:
    """Make a call whose object may be gone already."""
    try:
        call()
    except ApiError as error:
        if error.code != 404:
            raise
