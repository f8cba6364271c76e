"""Nodes that could be taken back now, what keeps the others, and what it costs to move their pods.

Source: kubernetes-sigs/karpenter pkg/controllers/disruption/types.go, pkg/utils/disruption,
pkg/utils/pod/scheduling.go, pkg/utils/pdb and pkg/controllers/state/statenode.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import msgspec

from tonnage.decisions import Ref
from tonnage.facts.labels import INSTANCE_TYPE
from tonnage.objects import duration, karpenter
from tonnage.provisioning import labels
from tonnage.provisioning.catalogue import NO_OFFER, Catalogue
from tonnage.provisioning.disruption import NodeState, consolidate_after_ns
from tonnage.provisioning.pods import ExistingNode, PendingPod

NODE_COST = 1.0
"""What it costs to drain any node."""
_MOST = 10.0


class MovablePod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod on a node, as far as moving it is concerned. Static and ended ones are none.

    ``pod``: as it would be planned again. ``deletion_cost``: annotation controller.kubernetes.io/pod-deletion-cost.
    ``do_not_disrupt``: annotation karpenter.sh/do-not-disrupt as written, "true" or a duration from ``started_ns``
    (nanoseconds since the Unix epoch) on. ``budgets``: PodDisruptionBudgets that select it; ``blocked``: whether one of
    them has no room; ``never``: whether one of them never has any. ``stays``: it tolerates the taint of a node that is
    drained, so nobody evicts it. ``belongs``: it belongs to its node (a DaemonSet's), so it does not move, but what
    protects it keeps its node. ``controller``: the kind of what controls it, in lower case, empty where nothing does;
    ``safe_to_evict``: annotation cluster-autoscaler.kubernetes.io/safe-to-evict as written; ``local_storage``: it has
    data on its node that it would lose; ``claims``: why no place is planned for it by its ResourceClaims, empty where
    one is.
    """

    pod: PendingPod
    priority: int = 0
    deletion_cost: int = 0
    do_not_disrupt: str = ""
    started_ns: int | None = None
    budgets: tuple[str, ...] = ()
    blocked: bool = False
    stays: bool = False
    never: bool = False
    belongs: bool = False
    controller: str = ""
    safe_to_evict: str = ""
    local_storage: bool = False
    claims: str = ""


class RunningNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node with what planning and disruption have to know of it, and its pods.

    ``drifted_ns``: since when it differs from its NodePool; None: it does not. ``grace``: its terminationGracePeriod is
    set, so that drift passes pods that would block it. ``allocatable``: what it can hold, in the units of requests;
    ``claimed``: which share claims hold of the devices that drivers publish of it, None where they publish none;
    ``scale_down_disabled``: its annotation cluster-autoscaler.kubernetes.io/scale-down-disabled is "true".
    """

    state: NodeState
    node: ExistingNode
    pods: tuple[MovablePod, ...] = ()
    drifted_ns: int | None = None
    grace: bool = False
    allocatable: dict[str, int] = {}
    claimed: Fraction | None = None
    scale_down_disabled: bool = False

    @property
    def ref(self) -> Ref:
        """Names the node."""
        return self.node.ref


class Candidate(msgspec.Struct, frozen=True):
    """A node that could be taken back. ``price``: micro-USD per hour, 0 where it is not known. ``cost``: of moving its
    pods, in pods. ``moving``: those that have to find room elsewhere. ``consolidatable``: quiet for
    consolidateAfter."""

    node: RunningNode
    pool: karpenter.NodePool
    price: int
    cost: float
    moving: tuple[MovablePod, ...]
    consolidatable: bool

    @property
    def empty(self) -> bool:
        """Whether no pod of it costs anything to move, and no CapacityBuffer keeps room on it."""
        return self.cost <= NODE_COST and not self.node.state.buffered

    @property
    def known(self) -> bool:
        """Whether its labels say what it is, so that it can be compared."""
        return bool(self.instance_type and self.capacity_type and labels.ZONE in self.node.node.labels)

    @property
    def instance_type(self) -> str:
        """By its label; empty where it has none."""
        return self.node.node.labels.get(INSTANCE_TYPE, "")

    @property
    def capacity_type(self) -> str:
        """By its label; empty where it has none."""
        return self.node.node.labels.get(labels.CAPACITY_TYPE, "")


def candidates(
    nodes: Sequence[RunningNode],
    node_pools: Sequence[karpenter.NodePool],
    catalogue: Catalogue,
    now_ns: int,
    *,
    eventual: bool = False,
    static: bool = False,
) -> list[Candidate]:
    """The nodes that could be taken back at ``now_ns``, in their order. ``eventual``: of nodes with a
    terminationGracePeriod also those that have pods which block it; ``static``: those of static NodePools, instead of
    the others."""
    pools = {pool.metadata.name: pool for pool in node_pools if pool.is_static == static}
    found = []
    for one in nodes:
        pool = pools.get(one.state.node_pool)
        if pool is None or blocker(one, now_ns, eventual=eventual):
            continue
        own = [pod for pod in one.pods if not pod.belongs]
        moving = tuple(pod for pod in own if moves(pod, now_ns))
        cost = NODE_COST + sum(max(0.0, eviction_cost(pod)) for pod in own)
        quiet = consolidate_after_ns(pool) is not None and not is_held(pool, one.state, now_ns)
        found.append(Candidate(one, pool, price_of(one.node, catalogue), cost, moving, quiet))
    return found


def blocker(one: RunningNode, now_ns: int, *, eventual: bool = False) -> str:
    """Why a node cannot be taken back now whatever its price and budgets; empty where it can."""
    state = one.state
    if state.initialized_ns is None:
        return "it is not initialized"
    if state.deleted:
        return "it is being deleted"
    if state.nominated:
        return "a pending pod is expected on it"
    if state.do_not_disrupt:
        return "annotation karpenter.sh/do-not-disrupt is true"
    if eventual and one.grace:
        return ""
    for pod in one.pods:
        if protected(pod, now_ns):
            return f"pod {pod.pod.ref.name} has the annotation karpenter.sh/do-not-disrupt"
    for pod in one.pods:
        if _blocks(pod, now_ns):
            several = len(pod.budgets) > 1
            why = "several PodDisruptionBudgets select it" if several else "its PodDisruptionBudget allows no eviction"
            return f"pod {pod.pod.ref.name}: {why}"
    return ""


def moves(pod: MovablePod, now_ns: int) -> bool:
    """Whether a pod will need room elsewhere when its node is drained: nothing protects it for good."""
    fixed = not pod.stays and (len(pod.budgets) > 1 or pod.never)
    return not pod.belongs and not protected(pod, now_ns) and not fixed


def _blocks(pod: MovablePod, now_ns: int) -> bool:
    """Whether a PodDisruptionBudget forbids its eviction. Whoever is not evicted is not asked."""
    return not pod.stays and not protected(pod, now_ns) and (len(pod.budgets) > 1 or pod.blocked)


def protected(pod: MovablePod, now_ns: int) -> bool:
    """Whether its annotation karpenter.sh/do-not-disrupt holds now."""
    return is_protected(pod.do_not_disrupt, pod.started_ns, now_ns)


def is_protected(written: str, started_ns: int | None, now_ns: int) -> bool:
    """Whether the annotation karpenter.sh/do-not-disrupt of a pod, as written, holds now. One that cannot be read does
    not."""
    if not written or written == "true":
        return bool(written)
    try:
        length = duration.parse(written)
    except ValueError:
        return False
    return length > 0 and (started_ns is None or now_ns < started_ns + length)


def eviction_cost(pod: MovablePod) -> float:
    """What it costs to move a pod: 1 for one without priority or deletion cost, from -10 to 10."""
    cost = 1.0 + pod.deletion_cost / 2**27 + pod.priority / 2**25
    return min(max(cost, -_MOST), _MOST)


def price_of(node: ExistingNode, catalogue: Catalogue) -> int:
    """What the node costs by its labels, micro-USD per hour; 0 where nobody sells it any more."""
    pair = (node.labels.get(labels.ZONE, ""), node.labels.get(labels.CAPACITY_TYPE, ""))
    name = node.labels.get(INSTANCE_TYPE, "")
    if name not in catalogue.names or pair not in catalogue.pairs:
        return 0
    price = int(catalogue.prices[catalogue.pairs.index(pair), catalogue.index(name)])
    return 0 if price == NO_OFFER else price


def is_held(pool: karpenter.NodePool | None, state: NodeState, now_ns: int) -> bool:
    """Whether the node has not been quiet for its NodePool's consolidateAfter: then it takes no pods that are moved."""
    wait_ns = consolidate_after_ns(pool) if pool is not None else None
    if not wait_ns or state.initialized_ns is None:
        return False
    since = state.last_pod_event_ns if state.last_pod_event_ns is not None else state.initialized_ns
    return now_ns - since < wait_ns
