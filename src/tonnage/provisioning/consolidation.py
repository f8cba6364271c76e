"""Which nodes Karpenter would take back or replace next: empty, drifted and underused ones.

Each round the methods are asked in turn and the first that finds something acts: empty nodes, drifted nodes, several
nodes at once, a single node. Of several nodes the first N, dearest for their disruption first, are replaced by at most
one that is cheaper than all of them; N is found by bisection. A single node goes if its pods find room elsewhere, or
with one cheaper node. A node is never replaced by two. What is found is looked at once more a while later
(:func:`still`) before it takes effect.

Source: kubernetes-sigs/karpenter pkg/controllers/disruption (consolidation.go, multinodeconsolidation.go,
singlenodeconsolidation.go, emptiness.go, drift.go, validation.go, helpers.go, types.go) and pkg/utils/disruption.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from tonnage.decisions import Launch, Ref
from tonnage.fleet.state import BASE_RESOURCES
from tonnage.objects import karpenter
from tonnage.provisioning import balanced, bought, static
from tonnage.provisioning.balanced import Totals
from tonnage.provisioning.budgets import allowance
from tonnage.provisioning.candidates import Candidate, MovablePod, RunningNode, candidates, is_held, moves
from tonnage.provisioning.catalogue import NODES, Catalogue
from tonnage.provisioning.karpenter import pack
from tonnage.provisioning.launch import choose
from tonnage.provisioning.load import ClaimLoad
from tonnage.provisioning.packing import NewNodeClaim, Packing
from tonnage.provisioning.plans import PlannedClaim, PlanSettings
from tonnage.provisioning.pods import BoundPod, ExistingNode, PendingPod
from tonnage.provisioning.replacement import Replacing, cheapest_micro_usd
from tonnage.provisioning.template import limits_of

EMPTY, DRIFTED, UNDERUTILIZED = "Empty", "Drifted", "Underutilized"
"""Why a node goes, as budgets name it."""
EMPTINESS, STATIC_DRIFT, DRIFT = "emptiness", "static drift", "drift"
MULTI_NODE, SINGLE_NODE = "multi-node", "single-node"
"""By which method, in the order in which they are asked."""
REPLAN = "re-plan"
"""By the cheapest plan for the pods of all nodes that may go (:mod:`tonnage.control.replanning`)."""

_HOMELESS = "not all pods would schedule"
NOT_WORTH_IT = "what it would save of the NodePool's bill is not worth the disruption (Balanced)"

MOST_AT_ONCE = 100
"""Nodes that are looked at together (multinodeconsolidation.go)."""

UNLIMITED = 2**31 - 1
"""Nodes that may go where no budget is active (math.MaxInt32 in nodepool.go)."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes to take back, and what is launched before they are drained.

    ``method``: emptiness, static drift, drift, multi-node, single-node or re-plan. ``claims`` goes with ``launches``
    one to one. ``saves_micro_usd_per_hour``: their prices less those of what is launched.
    """

    reason: str
    method: str
    nodes: tuple[Ref, ...]
    claims: tuple[PlannedClaim, ...] = ()
    launches: tuple[Launch, ...] = ()
    saves_micro_usd_per_hour: int = 0


class Gates(msgspec.Struct, frozen=True, kw_only=True):
    """Feature gates of Karpenter that have a say here and in :mod:`tonnage.provisioning.repair`."""

    spot_to_spot_consolidation: bool = False
    node_repair: bool = False


def disrupt(
    nodes: Sequence[RunningNode],
    pending: Sequence[PendingPod],
    node_pools: Sequence[karpenter.NodePool],
    catalogue: Catalogue,
    now_ns: int,
    settings: PlanSettings | None = None,
    gates: Gates | None = None,
) -> Command | None:
    """The next command at ``now_ns`` (nanoseconds since the Unix epoch), ``None`` where all stays as it is.

    ``nodes``: all that there are. ``pending``: pods without a node, which need room too. ``settings.bound`` is not
    looked at: who is where follows from the nodes. Raises :class:`~tonnage.errors.InputError` for a NodePool that
    cannot be read.
    """
    one = Round(nodes, pending, node_pools, catalogue, now_ns, settings or PlanSettings(), gates or Gates())
    found = one.proposal()
    return None if found is None else one.command(found)


@dataclass(frozen=True, slots=True)
class DisruptionProposal:
    """Nodes that could go, before anything is bought: ``claims`` take the pods that find no room elsewhere."""

    reason: str
    method: str
    going: tuple[Candidate, ...]
    claims: tuple[NewNodeClaim, ...] = ()


@dataclass
class Round:
    """One round of disruption; the fields are the parameters of :func:`disrupt`. ``stays``: why single nodes that were
    looked at stay."""

    nodes: Sequence[RunningNode]
    pending: Sequence[PendingPod]
    node_pools: Sequence[karpenter.NodePool]
    catalogue: Catalogue
    now_ns: int
    settings: PlanSettings
    gates: Gates = field(default_factory=Gates)
    stays: dict[Ref, str] = field(default_factory=dict)

    def proposal(self) -> DisruptionProposal | None:
        """What the first method that finds something finds."""
        return self.first() or self.multi_node() or self.single_node()

    def first(self) -> DisruptionProposal | None:
        """What comes before consolidation: empty and drifted nodes."""
        return self.emptiness() or self.static_drift() or self.drift()

    def command(self, found: DisruptionProposal) -> Command | None:
        """With what is launched for it; ``None`` where that cannot be bought."""
        claims, launches = self._launched(found.claims)
        if len(launches) < len(found.claims):
            return None
        spent = sum(launch.price_micro_usd_per_hour for launch in launches)
        return Command(
            reason=found.reason,
            method=found.method,
            nodes=tuple(one.node.ref for one in found.going),
            claims=claims,
            launches=launches,
            saves_micro_usd_per_hour=sum(one.price for one in found.going) - spent,
        )

    def emptiness(self) -> DisruptionProposal | None:
        """All empty nodes that the budgets allow."""
        budget = self.budget(EMPTY)
        going = []
        for one in self.graceful:
            if one.empty and one.consolidatable and budget[one.pool.metadata.name] > 0:
                budget[one.pool.metadata.name] -= 1
                going.append(one)
        return DisruptionProposal(EMPTY, EMPTINESS, tuple(going)) if going else None

    def static_drift(self) -> DisruptionProposal | None:
        """The drifted nodes of the first static NodePool that may replace some: as many as its budgets and its limit
        of nodes allow, each by one like it."""
        budget = self.budget(DRIFTED)
        found = candidates(self.nodes, self.node_pools, self.catalogue, self.now_ns, eventual=True, static=True)
        drifted = sorted((one for one in found if one.node.drifted_ns is not None), key=_longest_drifted)
        for pool in sorted((one for one in self.node_pools if one.is_static), key=lambda one: one.name):
            own = [one for one in self.nodes if one.state.node_pool == pool.name]
            running = sum(not one.state.deleted for one in own)
            going = [one for one in drifted if one.pool.name == pool.name]
            if running > (pool.spec.replicas or 0) or not going:
                continue  # what is too much goes first
            most = limits_of(pool).get(NODES)
            room = min(len(going), budget[pool.name], len(going) if most is None else most - len(own))
            if room > 0:
                load = static.empty_load(pool, self.catalogue, self.settings)
                made = tuple(NewNodeClaim(load, [], f"static-{number}") for number in range(room))
                return DisruptionProposal(DRIFTED, STATIC_DRIFT, tuple(going[:room]), made)
        return None

    def drift(self) -> DisruptionProposal | None:
        """The node that drifted first, those without pods before the others, with as many new nodes as it takes."""
        budget = self.budget(DRIFTED)
        drifted = [one for one in self._sorted(eventual=True) if one.node.drifted_ns is not None]
        drifted.sort(key=lambda one: (_has_pods(one), *_longest_drifted(one)))
        for one in drifted:
            if budget[one.pool.metadata.name] <= 0:
                continue
            packing = self._simulated([one], consolidating=False)
            if not isinstance(packing, str):
                return DisruptionProposal(DRIFTED, DRIFT, (one,), packing.claims)
        return None

    def multi_node(self) -> DisruptionProposal | None:
        """The most nodes, from the dearest for their disruption on, that at most one cheaper node can stand in for."""
        budget = self.budget(UNDERUTILIZED)
        among = []
        for one in self._underused:
            if budget[one.pool.metadata.name] > 0:
                budget[one.pool.metadata.name] -= 1
                among.append(one)
        found: DisruptionProposal | None = None
        low, high = 1, min(MOST_AT_ONCE, len(among) - 1)
        while low <= high:
            middle = (low + high) // 2
            proposed = self._fewer(among[: middle + 1], MULTI_NODE)
            if isinstance(proposed, str):
                high = middle - 1
            else:
                found, low = proposed, middle + 1
        return found

    def single_node(self) -> DisruptionProposal | None:
        """The first node that can go alone. NodePools take turns, the one with the node that is dearest for its
        disruption first; Karpenter has them take turns in any order (singlenodeconsolidation.go, shuffleCandidates)."""
        budget = self.budget(UNDERUTILIZED)
        by_pool: dict[str, list[Candidate]] = defaultdict(list)
        for one in self._underused:
            by_pool[one.pool.metadata.name].append(one)
        turns = max(map(len, by_pool.values()), default=0)
        for turn in range(turns):
            for name, own in by_pool.items():
                if turn >= len(own) or budget[name] <= 0:
                    continue
                one = own[turn]
                found = self.alone(one)
                if not isinstance(found, str):
                    return found
                self.stays[one.node.ref] = found
        return None

    def alone(self, one: Candidate) -> DisruptionProposal | str:
        """What single-node consolidation makes of this node, or why it stays."""
        if not balanced.approved([one], one.price, self._totals):
            return NOT_WORTH_IT
        return self._fewer([one], SINGLE_NODE)

    def candidates_of(self, method: str) -> list[Candidate]:
        """The nodes that a method may choose from, whatever budgets say."""
        if method == EMPTINESS:
            return [one for one in self.graceful if one.empty and one.consolidatable]
        if method == DRIFT:
            return [one for one in self._sorted(eventual=True) if one.node.drifted_ns is not None]
        return self._underused

    def still(self, command: Command) -> Command | None:
        """What is left of a command that was found earlier: all of it or nothing, of empty nodes those that still are.

        Nodes have to be candidates of its method as before and within the budgets, and planning has to come to a node
        of the same kind again, or again to none."""
        budget = self.budget(command.reason)
        there = {one.node.ref: one for one in self.candidates_of(command.method)}
        going = []
        for ref in command.nodes:
            one = there.get(ref)
            if one is not None and budget[one.pool.metadata.name] > 0:
                budget[one.pool.metadata.name] -= 1
                going.append(one)
        if command.method == EMPTINESS:
            saves = sum(one.price for one in going)
            left = tuple(one.node.ref for one in going)
            return msgspec.structs.replace(command, nodes=left, saves_micro_usd_per_hour=saves) if going else None
        if len(going) < len(command.nodes):
            return None
        packing = self._simulated(going, consolidating=command.method != DRIFT)
        if isinstance(packing, str) or len(packing.claims) != len(command.claims):
            return None
        for then, now in zip(command.claims, packing.claims, strict=True):
            if not all(now.load.types[self.catalogue.index(name)] for name in then.instance_types):
                return None
        return command

    def budget(self, reason: str) -> Counter[str]:
        """How many nodes of each NodePool may go for this reason now."""
        counted: Counter[str] = Counter()
        busy: Counter[str] = Counter()
        for one in self.nodes:
            if one.state.initialized_ns is not None:
                counted[one.state.node_pool] += 1
                busy[one.state.node_pool] += one.state.deleted or not one.state.ready
        found: Counter[str] = Counter()
        for pool in self.node_pools:
            name = pool.metadata.name
            allowed = allowance(pool.spec.disruption.budgets, counted[name], self.now_ns, reason)
            most = UNLIMITED if allowed.nodes is None else allowed.nodes
            found[name] = max(most - busy[name], 0)
        return found

    def settings_with_bound(self, gone: Collection[Ref]) -> PlanSettings:
        """The settings of a plan without these nodes: pods that move are not where they were, the others still count
        for rules about other pods."""
        bound = (pods if one.ref not in gone else self._left(one) for one, _, pods in self._standing)
        return msgspec.structs.replace(self.settings, bound=tuple(itertools.chain.from_iterable(bound)))

    @cached_property
    def _underused(self) -> list[Candidate]:
        return [
            one
            for one in self.graceful
            if not one.empty
            and one.consolidatable
            and one.pool.spec.disruption.consolidation_policy != "WhenEmpty"
            and one.known
            and one.instance_type in self.catalogue.names
        ]

    @cached_property
    def graceful(self) -> list[Candidate]:
        """The nodes that could be taken back, dearest for their disruption first."""
        return self._sorted(eventual=False)

    def _sorted(self, *, eventual: bool) -> list[Candidate]:
        found = candidates(self.nodes, self.node_pools, self.catalogue, self.now_ns, eventual=eventual)
        return sorted(found, key=lambda one: (-one.price / one.cost, one.node.ref))

    @cached_property
    def _totals(self) -> dict[str, Totals]:
        return balanced.totals(self.nodes, self.catalogue)

    @cached_property
    def _standing(self) -> list[tuple[RunningNode, ExistingNode, tuple[BoundPod, ...]]]:
        """The nodes as planning takes them, each with its pods that others keep near or away from."""
        pools = {pool.metadata.name: pool for pool in self.node_pools}
        found = []
        for one in self.nodes:
            held = is_held(pools.get(one.state.node_pool), one.state, self.now_ns)
            node = msgspec.structs.replace(one.node, held=True) if held else one.node
            found.append((one, node, self._left(one) if one.state.deleted else self._bound(one, one.pods)))
        return found

    def _left(self, one: RunningNode) -> tuple[BoundPod, ...]:
        """The pods of a node that goes which are not planned again: nothing evicts them, or they belong to the node."""
        return self._bound(one, [pod for pod in one.pods if not moves(pod, self.now_ns)])

    def _bound(self, one: RunningNode, pods: Iterable[MovablePod]) -> tuple[BoundPod, ...]:
        """These pods of a node as rules about other pods see them; none where there are no such rules."""
        return tuple(_as_bound(one, pod.pod) for pod in pods) if self._ruled else ()

    @cached_property
    def _free(self) -> NDArray[np.int64]:
        """What is free of each of the standing nodes, of what every pod takes."""
        rows = [[node.free.get(name, 0) for name in BASE_RESOURCES] for _, node, _ in self._standing]
        return np.array(rows, dtype=np.int64).reshape(len(rows), len(BASE_RESOURCES))

    def _roomy(self, pods: Sequence[PendingPod]) -> list[tuple[RunningNode, ExistingNode, tuple[BoundPod, ...]]]:
        """The standing nodes, without those that have room for none of the pods where that changes nothing else: the
        others count for rules about other pods and for limits."""
        if self._ruled or not pods or any(pool.spec.limits for pool in self.node_pools):
            return self._standing
        least = [min(pod.shape.requests.get(name, 0) for pod in pods) for name in BASE_RESOURCES]
        return [self._standing[row] for row in np.flatnonzero((self._free >= least).all(axis=1))]

    @cached_property
    def _ruled(self) -> bool:
        """Whether any pod has a rule about other pods."""
        shapes = {id(pod.shape): pod.shape for pod in self.pending}
        shapes |= {id(pod.pod.shape): pod.pod.shape for one in self.nodes for pod in one.pods}
        return any(shape.has_rules for shape in shapes.values())

    @cached_property
    def _evicted(self) -> list[MovablePod]:
        """The pods of nodes that are being deleted."""
        leaving = (one for one in self.nodes if one.state.deleted)
        return [pod for one in leaving for pod in one.pods if moves(pod, self.now_ns)]

    def _simulated(self, going: Sequence[Candidate], *, consolidating: bool) -> Packing | str:
        """Where pods go without these nodes; why not where one that has to move finds no room that is sure."""
        gone = {one.node.ref for one in going}
        leaving = [*(pod for one in going for pod in one.moving), *self._evicted]
        if unplanned := [pod for pod in leaving if pod.claims]:
            why = min(unplanned, key=lambda pod: pod.pod.ref).claims
            return f"{_HOMELESS}, {_listed([pod.pod.ref for pod in unplanned])}: {why}"
        moved, evicted = [pod.pod for one in going for pod in one.moving], [pod.pod for pod in self._evicted]
        movers = [msgspec.structs.replace(pod, moved=True) for pod in moved] if consolidating else moved
        pods = [*self.pending, *movers, *evicted]
        staying = [one for one in self._roomy(pods) if one[0].ref not in gone]
        settings = self.settings_with_bound(gone)
        there = [node for _, node, _ in staying]
        if settings.bound:  # the pods left on nodes that go count where those are
            there += [msgspec.structs.replace(one.node.node, deleted=True) for one in going]
        packing = pack(pods, there, self.node_pools, self.catalogue, settings)
        must = {pod.ref for pod in (*moved, *evicted)}
        waiting = [wait.pod for wait in packing.waits if wait.pod in must]
        if waiting:
            return f"{_HOMELESS}, {_listed(waiting)}"
        starting = {node.ref for _, node, _ in staying if not node.initialized}
        unsure = {pod.ref for pod in moved}
        waiting = [one.pod for one in packing.nominations if one.node in starting and one.pod in unsure]
        if waiting:
            return f"{_HOMELESS}, {_listed(waiting)}: would schedule against uninitialized nodes"
        return packing

    def _fewer(self, going: Sequence[Candidate], method: str) -> DisruptionProposal | str:
        """These nodes give way to none, or to one that costs less than they do; why not where they do not."""
        packing = self._simulated(going, consolidating=True)
        if isinstance(packing, str):
            return packing
        if len(packing.claims) > 1:
            return f"Can't remove without creating {len(packing.claims)} candidates"
        price = sum(one.price for one in going)
        claims: tuple[NewNodeClaim, ...] = ()
        if packing.claims:
            (claim,) = packing.claims
            load = Replacing(self.catalogue, self.gates.spot_to_spot_consolidation).replacement(claim.load, going)
            if isinstance(load, str):
                return load
            claims = (_on(claim, load),)
            price -= cheapest_micro_usd(load, claim.load.requirements)
        if not balanced.approved(going, price, self._totals):
            return NOT_WORTH_IT
        return DisruptionProposal(UNDERUTILIZED, method, tuple(going), claims)

    def _launched(self, claims: Iterable[NewNodeClaim]) -> tuple[tuple[PlannedClaim, ...], tuple[Launch, ...]]:
        """What is launched for these claims; those for which nothing can be are left out."""
        found: list[PlannedClaim] = []
        launches: list[Launch] = []
        for claim in claims:
            load = claim.load
            choice = choose(load.market.offers, load.requirements, load.types, strict=load.market.strict_min_values)
            if isinstance(choice, str):
                continue
            name = f"{load.template.name}-{self.settings.first_claim + len(found):05d}"
            found.append(bought.planned(Ref("NodeClaim", name), load, claim.pods, choice))
            launches.append(bought.launch(found[-1], load, choice))
        return tuple(found), tuple(launches)


def _on(claim: NewNodeClaim, load: ClaimLoad) -> NewNodeClaim:
    """The same pods on other instance types."""
    return NewNodeClaim(load, claim.pods, claim.host)


def _listed(pods: Sequence[Ref]) -> str:
    more = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
    return f"{min(pods).namespace}/{min(pods).name}{more}"


def _longest_drifted(one: Candidate) -> tuple[int, Ref]:
    return one.node.drifted_ns or 0, one.node.ref


def _has_pods(one: Candidate) -> bool:
    return any(not pod.belongs for pod in one.node.pods)


def _as_bound(one: RunningNode, pod: PendingPod) -> BoundPod:
    shape, host = pod.shape, one.node.ref.name
    return BoundPod(pod.ref.namespace, host, pod.labels, shape.pod_anti_affinity, 1, shape.tolerations)
