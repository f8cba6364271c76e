"""The nodes of a snapshot with their pods, as taking nodes back looks at them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from tonnage.decisions import Ref
from tonnage.fleet import claimed_gpus
from tonnage.fleet.claim_plans import ComingTypes, as_moved
from tonnage.fleet.rows import NodeRow
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.volumes import folded
from tonnage.objects import core, karpenter, policy, selectors
from tonnage.objects.base import POD_DELETION_COST
from tonnage.provisioning.candidates import MovablePod, RunningNode
from tonnage.provisioning.cluster_autoscaler.eviction import SAFE_TO_EVICT, keeps_local_data
from tonnage.provisioning.disruption import NodeState
from tonnage.provisioning.pods import ExistingNode, PendingPod, PodShape
from tonnage.scheduling.budgets import Budgets

IGNORED = "ResourceClaims are ignored by Karpenter (--ignore-dra-requests is on by default)"
MADE_ONCE = "ResourceClaims for devices that no node has which could be launched, or that no template makes"


def running_nodes(
    snapshot: Snapshot,
    on: Mapping[int, Sequence[MovablePod]],
    there: Mapping[Ref, ExistingNode],
    *,
    epoch_ns: int = 0,
    nominated: Collection[str] = (),
    buffered: Collection[str] = (),
    drifted_ns: Callable[[NodeRow], int | None] = lambda node: None,
    graced: Collection[str] = (),
    sized: bool = False,
) -> Iterator[tuple[RunningNode, NodeRow]]:
    """Every node. ``on``: see :func:`movable_pods`. ``there``: nodes with what is free of them; others count as full.

    ``epoch_ns`` is added to the snapshot's times to make them Unix times. ``nominated``: nodes on which pending pods
    are expected, by name; ``buffered``: those on which CapacityBuffers keep room; ``drifted_ns``: since when one has
    drifted; ``graced``: NodePools with a terminationGracePeriod; ``sized``: with what each can hold.
    """
    fleet = snapshot.fleet
    for row in fleet.node_rows():
        node = fleet.node(row)
        spec = node.spec
        ref = Ref("Node", spec.name, uid=spec.uid)
        pods = tuple(on.get(row, ()))
        state = NodeState(
            node=ref,
            node_pool=spec.node_pool,
            price_micro_usd_per_hour=spec.price_micro_usd_per_hour,
            initialized_ns=epoch_ns + spec.created_ns if node.initialized else None,
            pods=fleet.workload_pods(row),
            last_pod_event_ns=epoch_ns + node.last_pod_event_ns,
            ready=bool(fleet.schedulable[row]),
            nominated=spec.name in nominated,
            buffered=spec.name in buffered,
            deleted=node.leaving,
            do_not_disrupt=node.do_not_disrupt,
        )
        bare = ExistingNode(ref=ref, labels=node.labels, free={}, node_pool=spec.node_pool, deleted=node.leaving)
        running = RunningNode(
            state=state,
            node=there.get(ref, bare),
            pods=pods,
            drifted_ns=drifted_ns(node),
            grace=spec.node_pool in graced,
            allocatable=fleet.allocatable_of(row) if sized else {},
            claimed=claimed_gpus.utilization(fleet, row) if sized and fleet.device_claims.slices else None,
            scale_down_disabled=node.scale_down_disabled,
        )
        yield running, node


def movable_pods(
    snapshot: Snapshot, epoch_ns: int = 0, *, claims: bool = False, coming: ComingTypes | None = None
) -> dict[int, list[MovablePod]]:
    """The pods on nodes, by row of the node. Of those that belong to their node just the ones that may keep it.
    ``claims``: whether places are planned for ResourceClaims; ``coming``: which nodes could come for them."""
    fleet = snapshot.fleet
    evictions = Budgets(snapshot)
    evictions.count()
    never = {number for number, one in enumerate(snapshot.disruption_budgets) if policy.is_closed(one.spec)}
    shapes: dict[int, PodShape] = {}
    staying: dict[int, bool] = {}
    unplanned: dict[int, str] = {}
    found: dict[int, list[MovablePod]] = {}
    for row, pod in enumerate(fleet.pods):
        if pod is None or pod.node < 0 or snapshot.life(pod.key).leaving:
            continue
        spec, of = pod.spec, pod.class_id
        numbers = evictions.of(row)
        note = spec.annotations.get(karpenter.DO_NOT_DISRUPT, "")
        if spec.daemon and not note and not numbers:
            continue
        if of not in shapes:
            planned = as_moved(spec, fleet.device_claims, coming) if claims or not spec.spec.resource_claims else None
            shapes[of] = PodShape.of(planned or folded(spec.spec, spec.volumes), spec.annotations)
            staying[of] = stays(spec.spec)
            unplanned[of] = "" if planned is not None else MADE_ONCE if claims else IGNORED
        started = snapshot.life(pod.key).started_ns
        found.setdefault(pod.node, []).append(
            MovablePod(
                pod=PendingPod(spec.ref, shapes[of], spec.created_ns, fleet.classes.rows[of].labels),
                priority=spec.priority,
                deletion_cost=_cost(spec.annotations.get(POD_DELETION_COST, "")),
                do_not_disrupt=note,
                started_ns=None if started is None else epoch_ns + started,
                budgets=tuple(snapshot.disruption_budgets[number].name for number in numbers),
                blocked=bool(evictions.forbids(row)),
                never=not never.isdisjoint(numbers),
                stays=staying[of],
                belongs=spec.daemon,
                controller=_controller(spec.owner),
                safe_to_evict=spec.annotations.get(SAFE_TO_EVICT, ""),
                local_storage=keeps_local_data(spec.spec.volumes, spec.annotations),
                claims=unplanned[of],
            )
        )
    return found


def stays(spec: core.PodSpec) -> bool:
    """Whether the pod tolerates the taint of a drained node, so that nobody evicts it."""
    return selectors.untolerated((karpenter.DISRUPTED,), spec.tolerations, (karpenter.DISRUPTED.effect,)) is None


def _controller(owner: str) -> str:
    """The kind of what controls a pod, in lower case; empty for a pod that nothing does."""
    parts = owner.split("/")
    kind = parts[1] if len(parts) > 2 else "deployment" if owner else ""
    return "" if kind == "pod" else kind


def _cost(written: str) -> int:
    """A deletion cost as annotated; 0 for one that cannot be read."""
    try:
        return int(float(written)) if written else 0
    except (ValueError, OverflowError):
        return 0
