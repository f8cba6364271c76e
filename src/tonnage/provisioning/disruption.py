"""Which empty nodes to terminate, as Karpenter's emptiness method does.

All consolidation policies terminate empty nodes; which others go too is :mod:`tonnage.provisioning.consolidation`'s.
Source: kubernetes-sigs/karpenter pkg/controllers/disruption/emptiness.go, helpers.go and
pkg/controllers/nodeclaim/disruption/consolidation.go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from tonnage.decisions import Alternative, Reason, Ref, Return, Scalar
from tonnage.errors import InputError, Problem
from tonnage.objects import duration, karpenter, load
from tonnage.provisioning.budgets import EMPTY, Allowance, allowance
from tonnage.units import seconds, usd

NEVER = "Never"


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """A node that Karpenter manages, as far as returning it is concerned.

    ``pods``: how many pods would have to move; pods of DaemonSets, static pods and finished pods do not
    count. ``last_pod_event_ns``: when a pod was last bound to it, finished or began to terminate (``None``:
    never), in nanoseconds since the Unix epoch like ``initialized_ns`` (``None``: not initialized yet).
    ``nominated``: a pending pod is expected on it; ``buffered``: a CapacityBuffer keeps room on it.
    ``do_not_disrupt``: the annotation karpenter.sh/do-not-disrupt is "true" on the node.
    """

    node: Ref
    node_pool: str
    price_micro_usd_per_hour: int
    initialized_ns: int | None
    pods: int = 0
    last_pod_event_ns: int | None = None
    ready: bool = True
    deleted: bool = False
    nominated: bool = False
    buffered: bool = False
    do_not_disrupt: bool = False


class KeptNode(msgspec.Struct, frozen=True):
    """An empty node that stays for now, and why."""

    node: Ref
    reason: Reason


class Emptiness(msgspec.Struct, frozen=True):
    """Nodes to return, dearest first; empty nodes that are held back; and when the next one falls due.

    ``next_ns`` is the earliest time after now at which a node's ``consolidateAfter`` elapses if nothing
    happens before, ``None`` when there is none. Budgets with a schedule may open at other times.
    """

    returns: tuple[Return, ...]
    held: tuple[KeptNode, ...]
    next_ns: int | None


def empty_nodes(nodes: Iterable[NodeState], node_pools: Sequence[karpenter.NodePool], now_ns: int) -> Emptiness:
    """Decide which empty nodes to terminate at ``now_ns`` (nanoseconds since the Unix epoch).

    A node is a candidate when it is initialised, no pod would have to move, ``consolidateAfter`` has
    elapsed since its last pod event (or since it was initialised), no pending pod is nominated to it and it
    is not marked do-not-disrupt. Per NodePool, the budget for reason Empty, less the pool's nodes that are
    not ready or already being deleted, limits how many go at once; the dearest go first, equal prices in
    order of name.
    """
    by_pool: dict[str, list[NodeState]] = defaultdict(list)
    for state in nodes:
        by_pool[state.node_pool].append(state)
    returns: list[tuple[NodeState, Return]] = []
    held: list[KeptNode] = []
    due: list[int] = []
    for pool in node_pools:
        if pool.is_static:
            continue
        own = by_pool.get(pool.metadata.name, [])
        candidates = []
        for state in own:
            if state.initialized_ns is None or state.pods or state.deleted:
                continue
            due_ns = _due_ns(pool, state)
            if due_ns is not None and due_ns > now_ns:
                due.append(due_ns)
            elif (blocker := _blocker(state, due_ns)) is not None:
                held.append(KeptNode(state.node, Reason(blocker)))
            else:
                candidates.append(state)
        candidates.sort(key=_dearest_first)
        budget = _Budget.of(pool, own, now_ns)
        beaten = tuple(_beaten(state) for state in candidates[budget.room :])
        for state in candidates[: budget.room]:
            returns.append((state, Return(state.node, budget.return_reason(state, now_ns, beaten))))
        held.extend(KeptNode(state.node, budget.held_reason()) for state in candidates[budget.room :])
    returns.sort(key=lambda item: _dearest_first(item[0]))
    held.sort(key=lambda item: item.node)
    return Emptiness(tuple(decision for _, decision in returns), tuple(held), min(due, default=None))


def consolidate_after_ns(pool: karpenter.NodePool) -> int | None:
    """How long a node must be without pod events before it may be returned; ``None`` for Never.

    Raises :class:`InputError`, with file and line, for a duration that cannot be read.
    """
    written = pool.spec.disruption.consolidate_after
    if written == NEVER:
        return None
    try:
        return duration.parse(written)
    except ValueError as error:
        where = load.where(pool, "spec.disruption.consolidateAfter")
        raise InputError(Problem(where, str(error), f"or {NEVER}")) from None


def _due_ns(pool: karpenter.NodePool, state: NodeState) -> int | None:
    """When the node has been without pod events for ``consolidateAfter``; ``None`` for Never."""
    wait_ns = consolidate_after_ns(pool)
    return None if wait_ns is None else _idle_since(state) + wait_ns


def _blocker(state: NodeState, due_ns: int | None) -> str | None:
    """Why an empty node must stay whatever the budget; ``None`` for a candidate."""
    if due_ns is None:
        return "consolidateAfter is Never"
    if state.do_not_disrupt:
        return "annotation karpenter.sh/do-not-disrupt is true"
    if state.nominated:
        return "a pending pod is expected on it"
    if state.buffered:
        return "a CapacityBuffer keeps room on it"
    return None


def _idle_since(state: NodeState) -> int:
    """The last pod event, else initialisation."""
    return state.last_pod_event_ns if state.last_pod_event_ns is not None else state.initialized_ns or 0


def _beaten(state: NodeState) -> Alternative:
    price = usd(state.price_micro_usd_per_hour)
    return Alternative(state.node.name, "held back by the disruption budget", price)


def _dearest_first(state: NodeState) -> tuple[int, Ref]:
    return (-state.price_micro_usd_per_hour, state.node)


class _Budget(msgspec.Struct, frozen=True):
    """How many empty nodes of a NodePool may go now, and the numbers behind it."""

    pool: karpenter.NodePool
    allowed: Allowance
    nodes: int
    busy: int

    @classmethod
    def of(cls, pool: karpenter.NodePool, nodes: Sequence[NodeState], now_ns: int) -> _Budget:
        counted = [state for state in nodes if state.initialized_ns is not None]
        busy = sum(1 for state in counted if state.deleted or not state.ready)
        return cls(pool, allowance(pool.spec.disruption.budgets, len(counted), now_ns), len(counted), busy)

    @property
    def room(self) -> int:
        return self.nodes if self.allowed.nodes is None else max(self.allowed.nodes - self.busy, 0)

    def return_reason(self, state: NodeState, now_ns: int, beaten: tuple[Alternative, ...]) -> Reason:
        evidence: tuple[tuple[str, Scalar], ...] = (
            ("idle_s", seconds(now_ns - _idle_since(state))),
            ("consolidate_after", self.pool.spec.disruption.consolidate_after),
            ("usd_per_hour", usd(state.price_micro_usd_per_hour)),
        )
        return Reason("empty: no pod would have to move", evidence + self._evidence(), beaten)

    def held_reason(self) -> Reason:
        return Reason(f"the disruption budget for reason {EMPTY} is used up", self._evidence())

    def _evidence(self) -> tuple[tuple[str, Scalar], ...]:
        return (
            ("node_pool", self.pool.metadata.name),
            ("budget", self.allowed.nodes),
            ("budget_rule", self.allowed.because),
            ("nodes", self.nodes),
            ("not_ready_or_leaving", self.busy),
        )
