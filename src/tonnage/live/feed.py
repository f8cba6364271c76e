"""From what informers see to the fleet's columns: each change is one small write, never a rebuild.

Pods that are bound to a node that is not known yet wait in ``_homeless`` until it is; finished pods and pods without a
node that are being deleted are not in the fleet.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from tonnage.facts import instances
from tonnage.facts import labels as well_known
from tonnage.fleet.asks import Kind, relevant
from tonnage.fleet.claim_needs import UNKNOWN_CLAIMS, ClaimNeed
from tonnage.fleet.devices import Cut
from tonnage.fleet.holding import Place
from tonnage.fleet.outfit import splits_gpus
from tonnage.fleet.rows import FleetNode, FleetPod
from tonnage.fleet.state import Conflict, Fleet
from tonnage.fleet.volumes import UNKNOWN, VolumeNeed
from tonnage.kube.clock import Clock
from tonnage.live import nodes as machines
from tonnage.live.annotations import DISRUPTED_TAINT, RETURNING
from tonnage.live.cutting import Cutting
from tonnage.live.places import places, places_of
from tonnage.objects import core
from tonnage.objects.karpenter import DO_NOT_DISRUPT
from tonnage.objects.placement import as_counted
from tonnage.partitioning.fleet_layouts import devices
from tonnage.provisioning.cluster_autoscaler.scale_down import SCALE_DOWN_DISABLED
from tonnage.workloads.admission.topology import own_labels
from tonnage.workloads.membership import Member
from tonnage.workloads.owners import belongs_to_node, workload_of

Price = Callable[[str, str, str], int]
"""(instance type, zone, capacity type) → micro-dollars an hour; 0 where it is not known."""
Key = tuple[str, str]


@dataclass(slots=True)
class Changes:
    """The kinds of change since somebody last asked."""

    kinds: set[str]

    def take(self) -> frozenset[str]:
        """What has changed; forgets it."""
        found = frozenset(self.kinds)
        self.kinds.clear()
        return found


def karpenter_pool(node: core.Node) -> str:
    """The NodePool of a node, "" for a node that is not Karpenter's."""
    return node.metadata.labels.get(well_known.NODE_POOL, "")


def alone(pod: core.Pod) -> Member:
    """No pod is of a gang."""
    return Member()


def unknown(pod: core.Pod) -> VolumeNeed:
    """Nobody knows of claims."""
    return UNKNOWN


def unknown_claims(pod: core.Pod) -> ClaimNeed:
    """Nobody knows of ResourceClaims."""
    return UNKNOWN_CLAIMS


class FleetFeed:
    """Writes nodes and pods into a fleet as they are observed. Not safe for several threads: its owner's alone.

    ``pool_of``: the NodePool or node group that a node comes from, "" where it comes from neither. ``member_of``: a
    pod's gang, and its part of it. ``cutting``: how the GPUs of nodes are partitioned, where somebody knows.
    ``need_of``: what the volumes of a pod ask of its node; ``claims_of``: what its ResourceClaims ask.
    """

    def __init__(
        self,
        fleet: Fleet,
        clock: Clock,
        price: Price,
        changes: Changes,
        pool_of: Callable[[core.Node], str] = karpenter_pool,
        member_of: Callable[[core.Pod], Member] = alone,
        cutting: Cutting | None = None,
        need_of: Callable[[core.Pod], VolumeNeed] = unknown,
        claims_of: Callable[[core.Pod], ClaimNeed] = unknown_claims,
    ) -> None:
        self.fleet = fleet
        self._need_of, self._claims_of = need_of, claims_of
        self._cutting = cutting
        self._pool_of = pool_of
        self._member_of = member_of
        self._clock = clock
        self._price = price
        self._changes = changes
        self.assumed: set[Key] = set()
        """Pods that were bound here and have not been seen bound."""
        self._homeless: dict[str, dict[Key, FleetPod]] = {}  # by the name of the node that is not known
        self._homes: dict[Key, str] = {}
        self._on: dict[Key, tuple[Place, ...]] = {}  # by pod: on which devices the API has said that it is

    # ---- nodes ----

    def node(self, old: core.Node | None, new: core.Node | None) -> None:
        """A node was added, changed or deleted."""
        name = (new or old).metadata.name  # type: ignore[union-attr]
        row = self.fleet.node_by_name.get(name)
        if row is not None and (new is None or self.fleet.node(row).spec.uid != new.metadata.uid):
            self._remove_node(row)
            row = None
        if new is None:
            return
        if row is None:
            self._add_node(new)
        else:
            self._change_node(row, new)

    def _add_node(self, node: core.Node) -> None:
        labels = node.metadata.labels
        type_ = labels.get(well_known.INSTANCE_TYPE, "")
        zone, capacity_type = labels.get(well_known.ZONE, ""), machines.capacity_type(labels)
        known = instances.get(type_) if instances.known(type_) else None
        spec = FleetNode(
            node.metadata.name,
            core.amounts(node.status.allocatable),
            labels,
            taints=machines.taints(node),
            uid=node.metadata.uid,
            instance_type=type_,
            gpu=known.gpu if known else "",
            device_resource=(known.resource if known else "") or machines.device_resource_of(node),
            node_pool=self._pool_of(node),
            capacity_type=capacity_type,
            zone=zone,
            price_micro_usd_per_hour=self._price(type_, zone, capacity_type),
            created_ns=self._clock.of(node.metadata.creation_timestamp),
            provider_id=node.spec.provider_id,
            cuts=self._cuts(node),
            features=tuple(sorted(node.status.declared_features)),
            named=not node.metadata.uid,
            splits=splits_gpus(node.metadata.annotations),
        )
        row = self.fleet.add_node(spec, schedulable=machines.takes_pods(node, spec.node_pool))
        self._note(row, node)
        self._pod_event(row)
        if self.fleet.schedulable[row]:
            self._changes.kinds.add("node")
        for key, pod in self._homeless.pop(node.metadata.name, {}).items():
            self._homes.pop(key, None)
            on = self._on.get(key) or places(pod.annotations)
            self._settle(self.fleet.add_pod(pod), node.metadata.name, on)

    def _cuts(self, node: core.Node) -> tuple[Cut, ...]:
        return self._cutting.cuts(node) if self._cutting is not None else ()

    def recut(self, node: core.Node) -> None:
        """The GPUs of a node that is known are repartitioned, or are about to be. Pods keep what they have."""
        row = self.fleet.node_by_name.get(node.metadata.name)
        if row is None or (cuts := self._cuts(node)) == self.fleet.node(row).spec.cuts:
            return
        fleet, there = self.fleet, devices(self.fleet, row)
        with suppress(Conflict, ValueError):  # it cannot have come to this from what was known: what it says counts
            fleet.set_cuts(row, cuts[:there])
        if fleet.node(row).spec.cuts != cuts:
            fleet.describe(row, cuts=cuts)
            fleet.set_allocatable(row, machines.some(node), observed=True)
        self._give_back(row)

    def _give_back(self, row: int) -> None:
        """Pods of the node that hold less of its devices than they have, as while it did not say that it had them, hold
        theirs again, as far as they are there; of pods of which the API does not say which, any that are left."""
        pods = sorted(self.fleet.node(row).pods)
        specs = {pod_row: self.fleet.pod(pod_row).spec for pod_row in pods}
        said = {pod_row: self._on.get((spec.namespace, spec.name), ()) for pod_row, spec in specs.items()}
        away = [pod_row for pod_row, on in said.items() if on and on != places_of(self.fleet, pod_row)]
        theirs = {device for pod_row in away for device, _ in said[pod_row]}
        away += [pod_row for pod_row, on in said.items() if not on and self._makes_way(pod_row, theirs)]
        for pod_row in away:
            self.fleet.unbind(pod_row)
        for pod_row in away:
            self.fleet.bind(pod_row, row, observed=True, places=said[pod_row])

    def _makes_way(self, pod_row: int, theirs: set[int]) -> bool:
        """Whether other devices are to be found for a pod of which the API does not say on which it is."""
        pod = self.fleet.pod(pod_row)
        assumed = (pod.spec.namespace, pod.spec.name) in self.assumed
        return self._lacks(pod_row) or not (assumed or theirs.isdisjoint(pod.devices))

    def _lacks(self, pod_row: int) -> bool:
        """Whether a bound pod holds fewer devices or instances than it asks for; what claims ask is not held so."""
        pod = self.fleet.pod(pod_row)
        classes = self.fleet.classes
        ask = classes.shapes[classes.rows[pod.class_id].shape].ask
        if ask.kind is Kind.NONE or pod.spec.claims.asks or pod.spec.claims.used:
            return False
        parts = {piece.device for piece in pod.pieces}
        held = len(pod.pieces) + sum(device not in parts for device in pod.devices)
        return held < ask.count + sum(number for _, number in ask.profiles)

    def _change_node(self, row: int, node: core.Node) -> None:
        fleet, known = self.fleet, self.fleet.node(row)
        before, offered = fleet.topology_revision, fleet.allocatable_of(row)
        if known.spec.labelled(node.metadata.labels) != known.labels:
            fleet.set_labels(row, node.metadata.labels)
        if (features := tuple(sorted(node.status.declared_features))) != known.spec.features:
            fleet.set_features(row, features)
        taints = machines.taints(node)
        if taints != known.taints:
            fleet.set_taints(row, taints)
        if not known.spec.device_resource and (device := machines.device_resource_of(node)):
            fleet.describe(row, device_resource=device)
        if not known.spec.node_pool or known.spec.provider_id != node.spec.provider_id:
            fleet.describe(row, node_pool=self._pool_of(node), provider_id=node.spec.provider_id)
        self.recut(node)
        amounts, splits = machines.some(node), splits_gpus(node.metadata.annotations)
        split_otherwise = splits != known.spec.splits
        if split_otherwise:
            fleet.describe(row, splits=splits)
        if split_otherwise or amounts != fleet.allocatable_of(row):
            fleet.set_allocatable(row, amounts, observed=True)
            self._give_back(row)
        if self._cutting is not None and self._cutting.changing(node.metadata.name):
            more = fleet.allocatable_of(row)
            if all(amount <= offered.get(name, 0) for name, amount in more.items()):
                before = fleet.topology_revision  # something goes, and nobody can profit from that
        if not known.initialized and machines.initialized(node, known.spec.node_pool):
            self._pod_event(row)
        fleet.set_schedulable(row, machines.takes_pods(node, known.spec.node_pool))
        self._note(row, node)
        if fleet.topology_revision != before and fleet.schedulable[row]:  # else no pod can profit from it
            self._changes.kinds.add("node")

    def _note(self, row: int, node: core.Node) -> None:
        returning, deleted = RETURNING in node.metadata.annotations, bool(node.metadata.deletion_timestamp)
        self.fleet.note(
            row,
            initialized=machines.initialized(node, self.fleet.node(row).spec.node_pool),
            shut=machines.shut(node),
            bare=not any((taint.key, taint.effect) == machines.CORDON for taint in node.spec.taints),
            do_not_disrupt=node.metadata.annotations.get(DO_NOT_DISRUPT) == "true",
            scale_down_disabled=node.metadata.annotations.get(SCALE_DOWN_DISABLED) == "true",
            returning=returning and not deleted,
            leaving=deleted or returning or any(t.key == DISRUPTED_TAINT for t in node.spec.taints),
        )

    def _pod_event(self, row: int) -> None:
        self.fleet.note(row, last_pod_event_ns=self._clock.now_ns())

    def _remove_node(self, row: int) -> None:
        node = self.fleet.node(row)
        for pod_row in sorted(node.pods):
            pod = self.fleet.pod(pod_row).spec
            key = (pod.namespace, pod.name)
            if key in self.assumed:  # whether it stood there at all is not known; if it did, it will be seen
                self.assumed.discard(key)
                self.fleet.unbind(pod_row)
                self._changes.kinds.add("pod")
                continue
            self.fleet.remove_pod(pod_row)
            self._keep_homeless(pod, node.spec.name)
        self.fleet.remove_node(row)
        self._changes.kinds.add("node")

    # ---- pods ----

    def renew(self, pod: core.Pod) -> None:
        """The pod is of another gang now."""
        self.pod(pod, pod)

    def pod(self, old: core.Pod | None, new: core.Pod | None) -> None:
        """A pod was added, changed or deleted."""
        meta = (new or old).metadata  # type: ignore[union-attr]
        key = (meta.namespace, meta.name)
        self._leave_homeless(key)
        self._on.pop(key, None)
        row = self.fleet.pod_by_key.get(key)
        if new is None or not _counts(new):
            if row is not None:
                self._leave(row)
            return
        if new.spec.node_name and new.spec.node_name not in self.fleet.node_by_name:
            if row is not None:
                self._leave(row)
            self._keep_homeless(self._spec_of(new), new.spec.node_name)
            return
        if row is not None and not self._same(row, old, new):
            row = self._renew(row, new)
        if row is None:
            row = self.fleet.add_pod(self._spec_of(new))
            if not new.spec.node_name:
                self._changes.kinds.add("pod")
        self.fleet.set_leaving(row, new.metadata.deletion_timestamp is not None)
        self._settle(row, new.spec.node_name, places(new.metadata.annotations))

    def _renew(self, row: int, new: core.Pod) -> int | None:
        """The pod has changed, or another has its name; the same one keeps its node and its devices."""
        known, key = self.fleet.pod(row), (new.namespace, new.name)
        node, devices, assumed = known.node, known.devices, key in self.assumed
        self._remove_pod(row)
        if known.spec.uid != new.metadata.uid or node < 0:
            return None
        row = self.fleet.add_pod(self._spec_of(new))
        self.fleet.bind(row, node, devices, observed=True)
        if assumed:
            self.assumed.add(key)
        return row

    def _same(self, row: int, old: core.Pod | None, new: core.Pod) -> bool:
        """Whether the fleet's row is still this pod, as placement sees it."""
        known = self.fleet.pod(row).spec
        if known.uid != new.metadata.uid or known.labels != own_labels(new.metadata.labels, new.spec.node_name):
            return False
        if (known.gang, known.subgroup) != self._member_of(new):
            return False
        if relevant(known.annotations) != relevant(new.metadata.annotations):
            return False
        if old is not None and old.spec == new.spec and old.status == new.status:
            return True
        return known.spec == _placeable(new)

    def _spec_of(self, pod: core.Pod) -> FleetPod:
        meta, member = pod.metadata, self._member_of(pod)
        return FleetPod(
            meta.namespace,
            meta.name,
            meta.uid,
            own_labels(pod.metadata.labels, pod.spec.node_name),
            _placeable(pod),
            owner=workload_of(pod) or "",
            priority=pod.spec.priority or 0,
            created_ns=self._clock.of(meta.creation_timestamp),
            daemon=belongs_to_node(pod),
            annotations=meta.annotations,
            gang=member.gang,
            subgroup=member.subgroup,
            volumes=self._need_of(pod),
            claims=self._claims_of(pod),
            leaving=pod.metadata.deletion_timestamp is not None,
        )

    def _settle(self, row: int, node_name: str, on: tuple[Place, ...] = ()) -> None:
        """Let the pod stand where the API says; ``on``: on which devices of the node, where that is said."""
        known = self.fleet.pod(row)
        if node_name:
            self.assumed.discard((known.spec.namespace, known.spec.name))
        if on:
            self._on[known.spec.namespace, known.spec.name] = on
        wanted = self.fleet.node_by_name[node_name] if node_name else -1
        if wanted < 0 and known.node >= 0:  # bound here, not seen there yet
            return
        if known.node == wanted and (not on or on == places_of(self.fleet, row)):
            return
        before = known.node
        if before >= 0:
            self.fleet.unbind(row)
        self.fleet.bind(row, wanted, observed=True, places=on)
        if before != wanted:
            self._pod_event(wanted)
        if before >= 0:
            self._give_back(before)
        if before != wanted and wanted >= 0 and on and on != places_of(self.fleet, row):
            self._give_back(wanted)

    def _leave(self, row: int) -> None:
        """The pod is gone, and what it held is there for others that are on it."""
        known = self.fleet.pod(row)
        node, held = known.node, bool(known.devices)
        self._remove_pod(row)
        if held:
            self._give_back(node)

    def _remove_pod(self, row: int) -> None:
        known = self.fleet.pod(row)
        self.assumed.discard((known.spec.namespace, known.spec.name))
        if known.node >= 0:
            self._pod_event(known.node)
            self._changes.kinds.add("node")
        self.fleet.remove_pod(row)
        self._changes.kinds.add("pod")

    def _keep_homeless(self, pod: FleetPod, node: str) -> None:
        key = (pod.namespace, pod.name)
        self._homeless.setdefault(node, {})[key] = pod
        self._homes[key] = node

    def _leave_homeless(self, key: Key) -> None:
        home = self._homes.pop(key, None)
        if home is not None:
            self._homeless[home].pop(key, None)
            if not self._homeless[home]:
                del self._homeless[home]


def _placeable(pod: core.Pod) -> core.PodSpec:
    """The spec as it counts, without the node that it was bound to: pods of one template stay one class wherever they
    stand."""
    spec = as_counted(pod)
    return msgspec.structs.replace(spec, node_name="") if spec.node_name else spec


def _counts(pod: core.Pod) -> bool:
    """Whether the pod holds resources or waits for a node."""
    if pod.status.phase in core.FINISHED:
        return False
    return bool(pod.spec.node_name) or pod.metadata.deletion_timestamp is None
