"""Workloads, NodeClaims and NodePools as decisions see them, kept current from what informers report."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from tonnage.control.nodes import number_in
from tonnage.decisions import Launch, Reason, Ref
from tonnage.facts.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, ZONE
from tonnage.fleet.cluster_state import Offering, offering_of
from tonnage.fleet.snapshot import ClaimView, PodView, WorkloadView
from tonnage.fleet.state import Fleet
from tonnage.kube.clock import Clock
from tonnage.live.annotations import LAUNCH
from tonnage.live.feed import Changes
from tonnage.objects import apps, autoscaling, core, karpenter, keda, quantity
from tonnage.workloads.owners import workload_of

NO_CAPACITY = frozenset({"InsufficientCapacityError", "InsufficientCapacity"})
"""Reasons of a NodeClaim's condition Launched, where the cloud had none of the offering.

Source: kubernetes-sigs/karpenter pkg/controllers/nodeclaim/lifecycle (events.go, launch.go).
"""
COLD_STARTS_KEPT = 16


@dataclass(slots=True)
class _Times:
    """Of one pod, in ns. ``served``: it has been Ready, so its start is over whatever its probe says later."""

    created: int
    bound: int | None = None
    ready: int | None = None
    served: bool = False


@dataclass(slots=True)
class _Workload:
    """A workload's pods by name, and when each was seen Ready."""

    pods: dict[str, core.Pod] = field(default_factory=dict)
    times: dict[str, _Times] = field(default_factory=dict)
    cold_starts_ns: deque[int] = field(default_factory=lambda: deque(maxlen=COLD_STARTS_KEPT))
    view: WorkloadView | None = None


class WorkloadViews:
    """Deployments with their pods. A view is rebuilt only when something of it changed."""

    def __init__(self, fleet: Fleet, clock: Clock) -> None:
        self._fleet = fleet
        self._clock = clock
        self._deployments: dict[str, apps.Deployment] = {}
        self._workloads: dict[str, _Workload] = {}
        self._owners: dict[str, dict[str, str]] = {}  # workload → HPA or ScaledObject that sets its replicas

    def deployment(self, old: apps.Deployment | None, new: apps.Deployment | None) -> None:
        """A Deployment was added, changed or deleted."""
        one = new or old
        assert one is not None
        key = f"{one.namespace}/{one.name}"
        if new is None:
            self._deployments.pop(key, None)
        else:
            self._deployments[key] = new
        self._touch(key)
        self._drop_if_gone(key)

    def pod(self, old: core.Pod | None, new: core.Pod | None) -> None:
        """A pod was added, changed or deleted."""
        before, after = (workload_of(pod) if pod is not None else None for pod in (old, new))
        if old is not None and before is not None and before in self._workloads:
            workload = self._workloads[before]
            workload.view = None
            if new is None or after != before or new.metadata.uid != old.metadata.uid:
                workload.pods.pop(old.name, None)
                workload.times.pop(old.name, None)
            if after != before:
                self._drop_if_gone(before)
        if new is not None and after is not None:
            workload = self._workloads.setdefault(after, _Workload())
            workload.view = None
            workload.pods[new.name] = new
            self._time(workload, new)

    def autoscaler(
        self,
        old: autoscaling.HorizontalPodAutoscaler | keda.ScaledObject | None,
        new: autoscaling.HorizontalPodAutoscaler | keda.ScaledObject | None,
    ) -> None:
        """An HPA or a ScaledObject was added, changed or deleted."""
        for one in (old, new):
            if one is None or one.spec.scale_target_ref.kind not in ("Deployment", ""):
                continue
            key = f"{one.namespace}/{one.spec.scale_target_ref.name}"
            label = f"{one.kind} {one.namespace}/{one.name}"
            owners = self._owners.setdefault(key, {})
            if one is new:
                owners[label] = label
            else:
                owners.pop(label, None)
            if not owners:
                del self._owners[key]
            self._touch(key)

    def all(self) -> dict[str, WorkloadView]:
        """Every Deployment, by namespace/name."""
        return {key: self._view(key, deployment) for key, deployment in sorted(self._deployments.items())}

    def _drop_if_gone(self, key: str) -> None:
        """Keep no memory of a workload without pods that is not a Deployment."""
        if key not in self._deployments and key in self._workloads and not self._workloads[key].pods:
            del self._workloads[key]

    def _touch(self, key: str) -> None:
        if key in self._workloads:
            self._workloads[key].view = None

    def _time(self, workload: _Workload, pod: core.Pod) -> None:
        times = workload.times.get(pod.name)
        if times is None:
            times = workload.times[pod.name] = _Times(self._clock.of(pod.metadata.creation_timestamp))
            times.served = _is_true(pod, "Ready")  # its start was not seen: when it served first is not known
        if times.bound is None and pod.spec.node_name:
            times.bound = self._since(pod, "PodScheduled")
        if not _is_true(pod, "Ready"):
            times.ready = None
        elif times.ready is None:
            times.ready = self._since(pod, "Ready")
            if times.ready > times.created > 0 and not times.served:  # what is there when time begins had no cold start
                workload.cold_starts_ns.append(times.ready - times.created)
            times.served = True

    def _since(self, pod: core.Pod, type_: str) -> int:
        """Since when a condition has been as it is."""
        found = next((c for c in pod.status.conditions if c.type == type_), None)
        return self._clock.of(found.last_transition_time if found else None)

    def _view(self, key: str, deployment: apps.Deployment) -> WorkloadView:
        workload = self._workloads.setdefault(key, _Workload())
        if workload.view is None:
            meta = deployment.metadata
            workload.view = WorkloadView(
                "Deployment",
                meta.namespace,
                meta.name,
                deployment.spec.replicas,
                tuple(self._pod_views(workload)),
                tuple(workload.cold_starts_ns),
                meta.uid,
                meta.annotations,
                min(self._owners.get(key, {}), default=""),
            )
        return workload.view

    def _pod_views(self, workload: _Workload) -> Iterator[PodView]:
        """Pods that are not being deleted, by name; those on a node that is not known yet are left out."""
        for name, pod in sorted(workload.pods.items()):
            row = self._fleet.pod_by_key.get((pod.namespace, name))
            if row is not None and _active(pod):
                at, cost = workload.times[name], pod.metadata.deletion_cost
                yield PodView(row, pod.namespace, name, pod.spec.node_name, at.created, at.bound, at.ready, cost)

    def forget_rows(self) -> None:
        """A node came or went: pods may stand in other rows of the fleet."""
        for workload in self._workloads.values():
            workload.view = None


def _active(pod: core.Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and pod.status.phase not in core.FINISHED


def _is_true(pod: core.Pod, type_: str) -> bool:
    return any(c.type == type_ and c.status == "True" for c in pod.status.conditions)


class ClaimViews:
    """NodeClaims that are not initialized.

    ``sold_out`` is told of an offering that the cloud has refused.
    ``is_up`` says whether a node of that name has been seen initialised. A NodeClaim says so in a watch of its own:
    until the node is seen to be, it is still on its way, or it would be neither and launched again.
    """

    def __init__(
        self,
        clock: Clock,
        changes: Changes,
        is_up: Callable[[str], bool],
        sold_out: Callable[[Offering, int], None],
    ) -> None:
        self._is_up, self._sold_out = is_up, sold_out
        self._initialized: set[str] = set()  # open NodeClaims that say that they are, whose node has not been seen so
        self._clock = clock
        self._changes = changes
        self.last_number = 0
        """The highest number in the name of a NodeClaim seen so far: the initialised keep theirs."""
        self._open: dict[str, ClaimView] = {}
        self._assumed: dict[str, ClaimView] = {}  # created here, not seen there yet
        self._leaving: dict[str, str] = {}  # NodeClaims that are being deleted → their nodes

    def claim(self, old: karpenter.NodeClaim | None, new: karpenter.NodeClaim | None) -> None:
        """A NodeClaim was added, changed or deleted."""
        one = new or old
        assert one is not None
        name, known = one.name, self._open.get(one.name)
        self.last_number = max(self.last_number, number_in(name, one.metadata.labels.get(NODE_POOL, "")))
        self._assumed.pop(name, None)
        if new is None:
            self._leaving.pop(name, None)
        elif new.metadata.deletion_timestamp is not None:
            self._leaving[name] = new.status.node_name or name
        if new is None or new.metadata.deletion_timestamp is not None:
            if known is not None and not known.node:
                self.refused(known.launch)
            self._close(name)
            return
        launched = new.status.condition("Launched")
        if launched is not None and launched.status == "False" and launched.reason in NO_CAPACITY:
            self.refused(launch_of(new))
        initialized = new.status.condition("Initialized")
        if initialized is not None and initialized.status == "True":
            if self._is_up(new.status.node_name or name):
                self._close(name)
                return
            self._initialized.add(name)
        if known is None:
            self._open[name] = ClaimView(launch_of(new), self._clock.of(new.metadata.creation_timestamp))
            self._changes.kinds.add("node")
        if new.status.node_name or new.status.provider_id:
            view = self._open[name]
            self._open[name] = ClaimView(view.launch, view.created_ns, new.status.node_name or name)

    def node_is_up(self, node: str) -> None:
        """The node has been seen initialised."""
        for name in [name for name in self._initialized if self._open[name].node == node]:
            self._close(name)

    def assume(self, launch: Launch) -> None:
        """The NodeClaim was created, or may have been; no watch has shown it yet."""
        self._assumed[launch.claim.name] = ClaimView(launch, self._clock.now_ns())

    def forget(self, name: str) -> None:
        """It was not created, or is gone already."""
        if self._assumed.pop(name, None) is not None:
            self._changes.kinds.add("node")

    def knows(self, name: str) -> bool:
        """Whether there is such a NodeClaim that is not initialized."""
        return name in self._open or name in self._assumed

    def leaves(self, node: str) -> bool:
        """Whether the node's NodeClaim is being deleted."""
        return node in self._leaving.values()

    def refused(self, launch: Launch) -> None:
        """The cloud had none of this."""
        self._sold_out(offering_of(launch), self._clock.now_ns())
        self._changes.kinds.add("offering")

    def open(self) -> tuple[ClaimView, ...]:
        """By name."""
        return tuple(view for _, view in sorted({**self._assumed, **self._open}.items()))

    def _close(self, name: str) -> None:
        self._initialized.discard(name)
        if self._open.pop(name, None) is not None:
            self._changes.kinds.add("node")


def launch_of(claim: karpenter.NodeClaim) -> Launch:
    """The decision that launched the node: as it is written on the claim, or what the claim of another says of it."""
    written = claim.metadata.annotations.get(LAUNCH)
    if written:
        with suppress(msgspec.DecodeError):  # edited by hand: what the claim itself says is taken instead
            return msgspec.json.decode(written, type=Launch)
    wanted = {r.key: r.values[0] for r in claim.spec.requirements if r.operator == "In" and len(r.values) == 1}
    labels = {**wanted, **claim.metadata.labels}
    return Launch(
        Ref("NodeClaim", claim.name, uid=claim.metadata.uid),
        labels.get(NODE_POOL, ""),
        labels.get(INSTANCE_TYPE, ""),
        labels.get(ZONE, ""),
        labels.get(CAPACITY_TYPE, ""),
        0,
        Reason("not launched here"),
        labels=labels,
        allocatable={name: quantity.amount(name, value) for name, value in claim.status.allocatable.items()},
        taints=tuple(claim.spec.taints),
        startup_taints=tuple(claim.spec.startup_taints),
    )
