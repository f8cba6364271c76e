"""What is known of a cluster behind a Kubernetes API: fed by informers, or once by the objects of a dump."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol, TypeVar

from tonnage.control.nodes import Pools
from tonnage.decisions import Bind, ClaimAllocation, Evict, Instances, Ref
from tonnage.fleet.claim_needs import ClaimNeed
from tonnage.fleet.cluster_state import State
from tonnage.fleet.device_claims import DeviceClaims
from tonnage.fleet.gangs import Gang
from tonnage.fleet.snapshot import ClaimView, PodLife, Snapshot, WorkloadView
from tonnage.fleet.state import Fleet
from tonnage.fleet.volumes import NO_VOLUMES, VolumeNeed
from tonnage.kube.clock import Clock
from tonnage.live.configurations import WatchedConfigurations
from tonnage.live.cutting import Cutter, Cutting
from tonnage.live.feed import Changes, FleetFeed, Price, karpenter_pool
from tonnage.live.lives import Lives
from tonnage.live.views import ClaimViews, WorkloadViews
from tonnage.objects import apps, core, karpenter
from tonnage.objects.base import KubeObject
from tonnage.objects.policy import PodDisruptionBudget
from tonnage.provisioning import nodeclass
from tonnage.workloads.membership import Member
from tonnage.workloads.volumes.book import Volumes

Kind = TypeVar("Kind", bound=KubeObject)


class KnownGangs(Protocol):
    """Who knows the gangs, and of which each pod is."""

    gangs: dict[str, Gang]
    topologies: dict[str, tuple[str, ...]]

    absent: Callable[[], frozenset[str]]

    @property
    def done(self) -> Mapping[str, Mapping[str, int]]:
        """Pods that have succeeded, by gang and subgroup."""
        ...

    def pod(self, old: core.Pod | None, new: core.Pod | None) -> None:
        """A pod was added, changed or deleted. Told before its gang is asked for."""
        ...

    def member_of(self, pod: core.Pod) -> Member:
        """The gang of a pod, and its part of it."""
        ...


class Observed(State):
    """Implements :class:`tonnage.fleet.cluster_state.State` over what an API reports.

    ``in_flight``: nodes on their way that no NodeClaim stands for; ``pool_of``: where a node comes from; ``cutter``:
    who partitions GPUs; ``volumes``, ``device_claims``: claims that are known already."""

    def __init__(
        self,
        clock: Clock,
        groups: KnownGangs,
        *,
        price: Price,
        changes: Changes,
        in_flight: Callable[[], tuple[ClaimView, ...]] = tuple,
        pool_of: Callable[[core.Node], str] = karpenter_pool,
        cutter: Cutter | None = None,
        volumes: Volumes | None = None,
        device_claims: DeviceClaims | None = None,
    ) -> None:
        super().__init__(Fleet())
        self.volumes = volumes or Volumes()
        self.fleet.attach_limits = self.volumes.attach_limits
        self.fleet.device_claims = device_claims or DeviceClaims()
        self._changes = changes
        self._claims_changed = False
        self._served: dict[str, str] = {}
        self.configurations = WatchedConfigurations(self._cut_anew)
        self.cutting = Cutting(clock, self.configurations, cutter or Cutter())
        self.feed = FleetFeed(
            self.fleet, clock, price, changes, pool_of, groups.member_of, self.cutting, self._need, self._claim_need
        )
        self.groups = groups
        self.pod_lives = Lives(clock, self.nominations)
        self.deployments = WorkloadViews(self.fleet, clock)
        self.node_claims = ClaimViews(clock, changes, self.is_up, self.refused)
        self._in_flight = in_flight
        self._node_pools: dict[str, karpenter.NodePool] = {}
        self._node_classes: dict[str, karpenter.EC2NodeClass] = {}
        self._daemon_sets: dict[str, apps.DaemonSet] = {}
        self._budgets: dict[str, PodDisruptionBudget] = {}

    # ---- what is reported ----

    def see_pod(self, old: core.Pod | None, new: core.Pod | None) -> None:
        """A pod was added, changed or deleted."""
        self.groups.pod(old, new)
        self.pod_lives.pod(old, new)
        self.cutting.pod(old, new)
        self._see_claims_of(old, new)
        self.feed.pod(old, new)
        self.deployments.pod(old, new)

    def _see_claims_of(self, old: core.Pod | None, new: core.Pod | None) -> None:
        one = new or old
        assert one is not None
        status = new.status if new is not None else core.PodStatus()
        held = status.extended_resource_claim_status
        name = held.resource_claim_name if held is not None else ""
        if self.fleet.device_claims.note_pod(one.namespace, one.name, status.resource_claim_statuses, name):
            self._claims_changed = True

    def see_node(self, old: core.Node | None, new: core.Node | None) -> None:
        """A node was added, changed or deleted."""
        self.cutting.node(old, new)
        self.feed.node(old, new)
        if old is None or new is None or old.metadata.uid != new.metadata.uid:
            self.deployments.forget_rows()
        name = (new or old).metadata.name  # type: ignore[union-attr]
        if self.is_up(name):
            self.node_claims.node_is_up(name)
        self._note_return(name)

    def _cut_anew(self) -> None:
        """Labels may mean other layouts now."""
        for node in self.cutting.nodes.values():
            self.feed.node(node, node)

    def see_claim(self, old: karpenter.NodeClaim | None, new: karpenter.NodeClaim | None) -> None:
        """A NodeClaim was added, changed or deleted."""
        self.node_claims.claim(old, new)
        one = new or old
        assert one is not None
        for name in {one.name, one.status.node_name}:
            self._note_return(name)

    def is_up(self, name: str) -> bool:
        """Whether a node of that name has been seen initialised."""
        row = self.fleet.node_by_name.get(name)
        return row is not None and self.fleet.node(row).initialized

    def _note_return(self, name: str) -> None:
        """A return is over, as far as it is ours, when the node's NodeClaim is being deleted."""
        row = self.fleet.node_by_name.get(name)
        if row is not None:
            self.fleet.note(row, unfinished=self.fleet.node(row).returning and not self.node_claims.leaves(name))

    def see_node_pool(self, old: karpenter.NodePool | None, new: karpenter.NodePool | None) -> None:
        """A NodePool was added, changed or deleted."""
        _keep(self._node_pools, old, new)

    def see_node_class(self, old: karpenter.EC2NodeClass | None, new: karpenter.EC2NodeClass | None) -> None:
        """An EC2NodeClass was added, changed or deleted."""
        _keep(self._node_classes, old, new)

    def see_daemon_set(self, old: apps.DaemonSet | None, new: apps.DaemonSet | None) -> None:
        """A DaemonSet was added, changed or deleted."""
        _keep(self._daemon_sets, old, new)

    def see_budget(self, old: PodDisruptionBudget | None, new: PodDisruptionBudget | None) -> None:
        """A PodDisruptionBudget was added, changed or deleted."""
        _keep(self._budgets, old, new)

    def see_namespace(self, old: core.Namespace | None, new: core.Namespace | None) -> None:
        """A namespace was added, changed or deleted."""
        one = new or old
        assert one is not None
        if self.fleet.namespaces.put(one.name, new.metadata.labels if new is not None else None):
            self._changes.kinds.add("pod")

    def see_volumes(self, old: KubeObject | None, new: KubeObject | None) -> None:
        """A PersistentVolumeClaim, PersistentVolume, StorageClass or CSINode was added, changed or deleted."""
        if new is not None:
            self.volumes.see(new)
        elif old is not None:
            self.volumes.forget(old)
        self._claims_changed = True
        self._changes.kinds.add("pod")

    def see_devices(self, old: KubeObject | None, new: KubeObject | None) -> None:
        """A ResourceClaim, ResourceClaimTemplate, ResourceSlice, DeviceClass or DeviceTaintRule was added, changed or
        deleted."""
        if new is not None:
            self.fleet.device_claims.see(new)
        elif old is not None:
            self.fleet.device_claims.forget(old)
        self._claims_changed = True
        self._changes.kinds.add("pod")

    def snapshot(self, now_ns: int) -> Snapshot:
        if self._claims_changed:
            self._claims_changed = False
            for row in list(self.fleet.pending):
                pod = self.fleet.pod(row).spec
                if pod.spec.volumes:
                    self.fleet.set_volumes(row, self.volumes.need(pod.namespace, pod.name, pod.spec.volumes))
            self._follow_claims()
        return replace(super().snapshot(now_ns), absent_groups=self.groups.absent())

    def _follow_claims(self) -> None:
        """Of bound pods the names of their claims count, which may be known later than where they stand."""
        fleet, asks = self.fleet, self.fleet.device_claims.asks
        every = asks.served != self._served
        self._served, news = dict(asks.served), asks.take_news()
        for row, pod in enumerate(fleet.pods):
            if pod is None:
                continue
            spec = pod.spec
            if every or spec.spec.resource_claims or (spec.namespace, spec.name) in news:
                need = asks.need(spec.namespace, spec.name, spec.uid, spec.spec)
                if pod.node < 0 or (need.used and need.used != spec.claims.used):
                    fleet.set_claims(row, need)

    def claims_of(self, pod: Ref, node: str) -> list[tuple[Ref, Ref | None]]:
        """The claims that are bound with the pod where it is bound to the node, each with the volume that it gets; None
        where one is made for it."""
        row, at = self.fleet.pod_by_key.get((pod.namespace, pod.name)), self.fleet.node_by_name.get(node)
        if row is None or at is None or not (spec := self.fleet.pod(row).spec).spec.volumes:
            return []
        found = self.volumes.waiting(pod.namespace, pod.name, spec.spec.volumes, self.fleet.node(at).labels)
        return [
            (
                Ref(claim.kind, claim.name, claim.namespace, claim.metadata.uid),
                Ref(volume.kind, volume.name, uid=volume.metadata.uid) if volume is not None else None,
            )
            for claim, volume in found
        ]

    def devices_of(self, decision: Bind) -> list[tuple[Ref, ClaimAllocation | None]]:
        """The ResourceClaims of the pod, each with what the decision gives it."""
        row, claims = self.fleet.pod_by_key.get((decision.pod.namespace, decision.pod.name)), self.fleet.device_claims
        if row is None:
            return []
        if not (used := claims.used_by(row)):
            return []
        given = {(one.claim.namespace, one.claim.name): one for one in decision.claims}
        found = ((key, claims.claims[key]) for key in used)
        return [(Ref(one.kind, one.name, one.namespace, one.metadata.uid), given.get(key)) for key, one in found]

    def _need(self, pod: core.Pod) -> VolumeNeed:
        return self.volumes.need(pod.namespace, pod.name, pod.spec.volumes) if pod.spec.volumes else NO_VOLUMES

    def _claim_need(self, pod: core.Pod) -> ClaimNeed:
        return self.fleet.device_claims.need(pod.namespace, pod.name, pod.metadata.uid, pod.spec)

    # ---- what is asked ----

    def pools(self) -> Pools:
        """NodePools by name, those without their class left out, and what else planning needs of the cluster."""
        return Pools(
            tuple(
                pool
                for _, pool in sorted(self._node_pools.items())
                if pool.spec.template.spec.node_class_ref.kind != "EC2NodeClass"
                or pool.spec.template.spec.node_class_ref.name in self._node_classes
            ),
            {name: nodeclass.read(one) for name, one in self._node_classes.items()},
            tuple(one.spec.template.spec for _, one in sorted(self._daemon_sets.items())),
            self.configurations.current,
        )

    def node_pools(self) -> list[karpenter.NodePool]:
        """Every NodePool that there is, by name."""
        return [pool for _, pool in sorted(self._node_pools.items())]

    def node_pool(self, name: str) -> karpenter.NodePool | None:
        """The NodePool of this name."""
        return self._node_pools.get(name)

    # ---- State ----

    def workloads(self) -> Mapping[str, WorkloadView]:
        return self.deployments.all()

    def claims(self) -> tuple[ClaimView, ...]:
        return (*self.node_claims.open(), *self._in_flight())

    def knows_claim(self, name: str) -> bool:
        return self.node_claims.knows(name)

    def last_claim(self) -> int:
        return self.node_claims.last_number

    def gangs(self) -> Mapping[str, Gang]:
        return self.groups.gangs

    def done(self) -> Mapping[str, Mapping[str, int]]:
        return self.groups.done

    def topologies(self) -> Mapping[str, tuple[str, ...]]:
        return self.groups.topologies

    def disruption_budgets(self) -> tuple[PodDisruptionBudget, ...]:
        return tuple(one for _, one in sorted(self._budgets.items()))

    def life(self, pod: str) -> PodLife:
        return self.pod_lives.lives.get(pod, PodLife())

    def lives(self) -> Mapping[str, PodLife]:
        return self.pod_lives.lives

    def leaves(self, decision: Evict) -> None:
        super().leaves(decision)
        pod = decision.pod
        self.pod_lives.assume_leaving(f"{pod.namespace}/{pod.name}", pod.uid)

    def relayouts(self) -> Mapping[tuple[str, int], Instances]:
        return self.cutting.relayouts()

    def fixed(self) -> Mapping[tuple[str, int], str]:
        return self.cutting.fixed(self.fleet)


def _keep(store: dict[str, Kind], old: Kind | None, new: Kind | None) -> None:
    one = new or old
    assert one is not None
    key = f"{one.namespace}/{one.name}" if one.namespace else one.name
    if new is None:
        store.pop(key, None)
    else:
        store[key] = new
