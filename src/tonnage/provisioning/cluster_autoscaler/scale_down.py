"""Which nodes the Cluster Autoscaler finds unneeded, what keeps the others, and which go now.

A node is unneeded while less than a threshold of it is requested (of a node with GPUs only these count), nothing
forbids to evict its pods, and all of them find room on other nodes. Once it has been so for long enough it goes: nodes
without pods several at once, the others one at a time.

Source: kubernetes/autoscaler cluster-autoscaler core/scaledown/{eligibility,planner,unneeded,budgets},
simulator/{cluster.go,utilization,drainability}, 1.36.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from tonnage.decisions import Ref
from tonnage.facts.labels import GPU
from tonnage.objects import karpenter
from tonnage.provisioning.candidates import MovablePod, RunningNode, protected
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.cluster_autoscaler import fitting
from tonnage.provisioning.cluster_autoscaler.eviction import SAFE_TO_EVICT
from tonnage.provisioning.cluster_autoscaler.fitting import Fitting
from tonnage.provisioning.cluster_autoscaler.options import DEFAULTS, AutoscalingOptions
from tonnage.provisioning.group_pools import is_node_group, spare
from tonnage.provisioning.plans import PlanSettings
from tonnage.provisioning.pods import BoundPod, PendingPod
from tonnage.provisioning.standing import StandingNode

SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
EVICTION_NS = 120 * 10**9
"""How long pods of a node that is drained are asked to go before that has failed (MaxPodEvictionTime)."""
_GPU_LABEL = "k8s.amazonaws.com/accelerator"
"""With this label a node is one with GPUs before its device plugin has registered them."""
_CONTROLLERS = frozenset({"deployment", "job", "replicaset", "replicationcontroller", "statefulset"})
_SYSTEM = "kube-system"


class Unneeded(msgspec.Struct, frozen=True):
    """A node that could go: which share of it is requested, and where each of its pods would find room."""

    node: Ref
    utilization: float
    moves: tuple[tuple[Ref, Ref], ...] = ()
    ready: bool = True


class Kept(msgspec.Struct, frozen=True):
    """A node of a group that stays, and why."""

    node: Ref
    why: str


class Deletions(msgspec.Struct, frozen=True):
    """Nodes that go now: those without pods, and those whose pods are evicted first."""

    empty: tuple[Unneeded, ...] = ()
    drained: tuple[Unneeded, ...] = ()


def unneeded(
    nodes: Sequence[RunningNode],
    node_pools: Iterable[karpenter.NodePool],
    catalogue: Catalogue,
    now_ns: int,
    settings: PlanSettings | None = None,
    options: AutoscalingOptions = DEFAULTS,
    before: Collection[str] = (),
) -> tuple[list[Unneeded], list[Kept]]:
    """The nodes of groups that are unneeded now, in the order in which they would go, and those that are not.

    ``nodes``: all that there are. ``before``: names of those that were unneeded before, which are looked at first.
    ``now_ns``: nanoseconds since the Unix epoch. Pods find room on nodes that stay, with what earlier ones have taken.
    """
    groups = {pool.metadata.name for pool in node_pools if is_node_group(pool)}
    shares = {one.ref: utilization(one, options) for one in nodes if one.state.node_pool in groups}
    found: list[Unneeded] = []
    kept: list[Kept] = []
    eligible = []
    for one in nodes:
        if one.state.node_pool not in groups or one.state.deleted:
            continue
        why = _why_not(one, shares[one.ref], now_ns, options)
        if why:
            kept.append(Kept(one.ref, why))
        else:
            eligible.append(one)
    eligible.sort(key=lambda one: (bool(_moving(one)), one.ref.name not in before, one.ref.name))
    room = _Room(nodes, catalogue, settings or PlanSettings())
    for one in eligible:
        moves = room.without(one)
        if moves is None:
            kept.append(Kept(one.ref, "its pods do not fit on other nodes"))
        else:
            found.append(Unneeded(one.ref, shares[one.ref], moves, one.state.ready))
    kept.sort(key=lambda each: each.node)
    return found, kept


def deletions(
    found: Sequence[Unneeded],
    since: Mapping[str, int],
    now_ns: int,
    nodes: Sequence[RunningNode],
    node_pools: Iterable[karpenter.NodePool],
    options: AutoscalingOptions = DEFAULTS,
    *,
    draining: int = 0,
) -> Deletions:
    """Of the unneeded nodes those that go now. ``since``: since when each has been unneeded, by name; ``draining``:
    nodes whose pods are being evicted, which count among those that are being deleted."""
    left = {pool.metadata.name: spare(pool) for pool in node_pools if is_node_group(pool)}
    group_of = {one.ref: one.state.node_pool for one in nodes}
    leaving = Counter(one.state.node_pool for one in nodes if one.state.deleted)
    for name in left:
        left[name] -= leaving[name]
    budget = options.max_scale_down_parallelism - sum(leaving[name] for name in left)
    empty: list[Unneeded] = []
    drained: list[Unneeded] = []
    for one in found:
        wait_ns = options.unneeded_ns if one.ready else options.unready_ns
        group, chosen = group_of[one.node], drained if one.moves else empty
        most = options.max_drain_parallelism - draining if one.moves else options.max_empty_bulk_delete
        due = now_ns - since.get(one.node.name, now_ns) >= wait_ns
        if due and left[group] > 0 and len(chosen) < most and len(empty) + len(drained) < budget:
            left[group] -= 1
            chosen.append(one)
    return Deletions(tuple(empty), tuple(drained))


def utilization(one: RunningNode, options: AutoscalingOptions = DEFAULTS) -> float:
    """Which share of a node is requested: of its GPUs where it has some, else of its devices for claims, else the
    larger of CPU and memory."""
    gpus = one.allocatable.get(GPU, 0)
    if not gpus and one.claimed is not None:
        return float(one.claimed)
    if gpus or _GPU_LABEL in one.node.labels:
        return (gpus - one.node.free.get(GPU, 0)) / gpus if gpus else 0.0
    if options.ignore_daemonsets_utilization:
        own = [pod.pod.shape.requests for pod in one.pods if not pod.belongs]
        used = {name: sum(requests.get(name, 0) for requests in own) for name in ("cpu", "memory")}
    else:
        used = {name: one.allocatable.get(name, 0) - one.node.free.get(name, 0) for name in ("cpu", "memory")}
    return max((used[name] / one.allocatable[name] for name in used if one.allocatable.get(name)), default=0.0)


def pod_keeps(pod: MovablePod, now_ns: int, options: AutoscalingOptions = DEFAULTS) -> str:
    """Why a pod keeps its node; empty where it does not. One that protects itself from Karpenter is left alone too."""
    if protected(pod, now_ns):
        return "has the annotation karpenter.sh/do-not-disrupt"
    if pod.belongs:
        return ""
    if pod.claims:
        return f"has {pod.claims}"
    if pod.blocked or pod.never or len(pod.budgets) > 1:
        return "has a PodDisruptionBudget that allows no eviction"
    if pod.safe_to_evict == "true":
        return ""
    if not pod.controller:
        return "has no controller that would recreate it"
    if options.skip_nodes_with_custom_controller_pods and pod.controller not in _CONTROLLERS:
        return f"is controlled by a {pod.controller} (--skip-nodes-with-custom-controller-pods)"
    if options.skip_nodes_with_system_pods and pod.pod.ref.namespace == _SYSTEM and not pod.budgets:
        return "is in kube-system without a PodDisruptionBudget (--skip-nodes-with-system-pods)"
    if pod.safe_to_evict == "false":
        return f'has the annotation {SAFE_TO_EVICT}: "false"'
    if options.skip_nodes_with_local_storage and pod.local_storage:
        return "has an emptyDir or hostPath volume (--skip-nodes-with-local-storage)"
    return ""


def _why_not(one: RunningNode, share: float, now_ns: int, options: AutoscalingOptions) -> str:
    state = one.state
    if state.initialized_ns is None:
        return "it is not initialized"
    if one.scale_down_disabled or state.do_not_disrupt:
        return f"annotation {SCALE_DOWN_DISABLED if one.scale_down_disabled else karpenter.DO_NOT_DISRUPT} is true"
    gpus = bool(one.allocatable.get(GPU)) or _GPU_LABEL in one.node.labels
    threshold = options.gpu_utilization_threshold if gpus else options.utilization_threshold
    if share >= threshold:
        claimed = one.claimed is not None and not one.allocatable.get(GPU)
        what = "devices for claims" if claimed else "GPUs" if gpus else "CPU or memory"
        return f"{100 * share:.3g} % of its {what} is requested, {100 * threshold:.3g} % or more"
    for pod in one.pods:
        if why := pod_keeps(pod, now_ns, options):
            return f"pod {pod.pod.ref.name} {why}"
    return "a pending pod is expected on it" if state.nominated else ""


def _moving(one: RunningNode) -> list[MovablePod]:
    return [pod for pod in one.pods if not pod.belongs]


class _Room:
    """What is left of the nodes that stay, as pods of others come to them."""

    def __init__(self, nodes: Sequence[RunningNode], catalogue: Catalogue, settings: PlanSettings) -> None:
        self._catalogue, self._settings = catalogue, settings
        self._ruled = any(pod.pod.shape.has_rules for one in nodes for pod in one.pods)
        self._nodes = {one.ref: one.node for one in nodes if not one.state.deleted}
        staying = sorted(
            (one for one in nodes if not one.state.deleted and one.state.ready), key=lambda one: one.ref.name
        )
        usable = [one for one in staying if one.state.initialized_ns is not None and one.node.free]
        self._standing = {one.ref: StandingNode(one.node) for one in usable}
        self._bound: dict[Ref, list[BoundPod]] = {}
        if self._ruled:
            self._bound = {one.ref: [fitting.bound(pod.pod, one.ref.name) for pod in one.pods] for one in nodes}

    def without(self, one: RunningNode) -> tuple[tuple[Ref, Ref], ...] | None:
        """Where the pods of this node go, which is gone from now on; ``None``: it stays, as one of them has no room."""
        moving = [pod.pod for pod in _moving(one)]
        bound = [pod for ref, pods in self._bound.items() if ref != one.ref for pod in pods]
        nodes = [node for ref, node in self._nodes.items() if ref != one.ref] if self._ruled else []
        rules = Fitting(self._catalogue, self._settings, bound, moving, nodes)
        changed: dict[Ref, StandingNode] = {}
        moves = []
        for pod in moving:
            on = self._for(rules, pod, one.ref, changed)
            if on is None:
                return None
            moves.append((pod.ref, on))
        self._standing |= changed
        for known in (self._standing, self._nodes, self._bound):
            known.pop(one.ref, None)
        if self._ruled:
            for pod, (_, ref) in zip(moving, moves, strict=True):
                self._bound.setdefault(ref, []).append(fitting.bound(pod, ref.name))
        return tuple(moves)

    def _for(self, rules: Fitting, pod: PendingPod, leaving: Ref, changed: dict[Ref, StandingNode]) -> Ref | None:
        """The first node but the one that goes which takes the pod; what it is then is among the ``changed``."""
        attempts = rules.attempts(rules.alike(pod))
        for ref, node in self._standing.items():
            now = changed.get(ref, node)
            if ref != leaving and fitting.has_room(now, attempts):
                after = now.copy()
                if rules.put(after, attempts):
                    changed[ref] = after
                    return ref
        return None
