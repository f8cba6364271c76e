"""What a planning round takes as settings and gives as its result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from tonnage.decisions import Launch, Ref, Wait
from tonnage.facts.price_book import Reservation
from tonnage.objects import core
from tonnage.partitioning.node_cuts import OWN, Configurations
from tonnage.provisioning.catalogue import OfferingKey
from tonnage.provisioning.devices import FreeDevices, coming
from tonnage.provisioning.nodeclass import NodeStorage
from tonnage.provisioning.pods import BoundPod, ExistingNode, PodShape
from tonnage.provisioning.requirements import Requirements


class PlanSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to plan.

    ``unavailable``: offerings out of stock, skipped. ``daemon_sets``: their pods, which every fitting node
    must also hold. ``node_classes``: storage by EC2NodeClass name. ``preferences`` False is
    PREFERENCE_POLICY=Ignore; ``strict_min_values`` False is MIN_VALUES_POLICY=BestEffort. NodeClaims are
    numbered from ``first_claim``. ``configurations``: those that labels of nodes may name, as their GPUs are
    partitioned. ``bound``: pods on nodes, which spread and pod affinity count. ``namespaces``: labels by namespace, for
    rules that select namespaces. ``reservations``: capacity reservations with what is free of them. ``seen_groups``:
    node groups of which the Cluster Autoscaler has seen a node, so that it knows their devices.
    """

    unavailable: frozenset[OfferingKey] = frozenset()
    daemon_sets: tuple[PodShape, ...] = ()
    node_classes: Mapping[str, NodeStorage] = {}
    preferences: bool = True
    strict_min_values: bool = True
    first_claim: int = 1
    configurations: Configurations = OWN
    bound: tuple[BoundPod, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = {}
    reservations: tuple[Reservation, ...] = ()
    seen_groups: frozenset[str] = frozenset()


class PlannedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The NodeClaim of one launch: everything that the node will be once it has started.

    ``instance_types``: those asked of EC2, cheapest first. ``requests`` sums its pods (of devices, those
    that something is on), ``daemons`` what DaemonSets take; ``devices``: with what the pods have of them,
    None where that follows from ``requests``; ``allocatable`` and ``capacity`` are of the chosen type,
    ``labels`` of the chosen offering.
    """

    ref: Ref
    node_pool: str
    offering: OfferingKey
    instance_types: tuple[str, ...]
    requirements: Requirements
    labels: dict[str, str]
    taints: tuple[core.Taint, ...]
    startup_taints: tuple[core.Taint, ...]
    requests: dict[str, int]
    daemons: dict[str, int]
    allocatable: dict[str, int]
    capacity: dict[str, int]
    pods: tuple[Ref, ...]
    devices: FreeDevices | None = None

    def in_flight(self, *, with_pods: bool = True, configurations: Configurations = OWN) -> ExistingNode:
        """The node on its way, as the next plan sees it: its DaemonSets already counted, and its pods too.

        Without ``with_pods`` their room is free: while they are pending, they are planned again.
        """
        pods = self.requests if with_pods else {}
        devices = self.devices
        if devices is None or not with_pods:
            devices = coming(self.offering.instance_type, self.labels, self.allocatable, pods, configurations)
        free = {
            name: amount - self.daemons.get(name, 0) - pods.get(name, 0) for name, amount in self.allocatable.items()
        }
        return ExistingNode(
            ref=self.ref,
            labels=self.labels,
            free=free,
            taints=self.taints,
            startup_taints=self.startup_taints,
            initialized=False,
            node_pool=self.node_pool,
            capacity=self.capacity,
            devices=devices,
        )


class Nomination(msgspec.Struct, frozen=True):
    """A pending pod that an existing node, or one on its way, is expected to take."""

    pod: Ref
    node: Ref


class Plan(msgspec.Struct, frozen=True):
    """What Karpenter would do now. ``claims`` goes with ``launches`` one to one, in the order of planning.

    ``waits``: pods that no node and no NodePool can take, with the reason of each NodePool. ``unplanned``:
    per kind of constraint that is not weighed here, how many of the pods carry it. ``order``: the pods that have a
    place, as they were placed: what a pod demands of where others are holds beside those before it.
    """

    launches: tuple[Launch, ...]
    claims: tuple[PlannedClaim, ...]
    nominations: tuple[Nomination, ...]
    waits: tuple[Wait, ...]
    unplanned: dict[str, int]
    order: tuple[Ref, ...] = ()

    @property
    def micro_usd_per_hour(self) -> int:
        """What the nodes that it launches cost."""
        return sum(launch.price_micro_usd_per_hour for launch in self.launches)

    def placed(self) -> Iterator[Ref]:
        """The pods that have a place."""
        yield from (ref for claim in self.claims for ref in claim.pods)
        yield from (one.pod for one in self.nominations)
