"""Which nodes Karpenter would take back or replace next: empty, drifted and underused ones.

Each round the methods are asked in turn and the first that finds something acts: empty nodes, drifted nodes, several
nodes at once, a single node. Of several nodes the first N, dearest for their disruption first, are replaced by at most
one that is cheaper than all of them; N is found by bisection. A single node goes if its pods find room elsewhere, or
with one cheaper node. A node is never replaced by two.

Source: kubernetes-sigs/karpenter pkg/controllers/disruption (consolidation.go, multinodeconsolidation.go,
singlenodeconsolidation.go, emptiness.go, drift.go, helpers.go, types.go) and pkg/utils/disruption.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from tonnage.decisions import Launch, Ref
from tonnage.objects import karpenter
from tonnage.provisioning import bought, labels
from tonnage.provisioning.budgets import allowance
from tonnage.provisioning.candidates import Candidate, RunningNode, candidates, is_held
from tonnage.provisioning.catalogue import NO_OFFER, Catalogue, Offers, TypeMask
from tonnage.provisioning.karpenter import Claim, Packing, pack
from tonnage.provisioning.launch import choose, short_of_values
from tonnage.provisioning.load import Load
from tonnage.provisioning.plans import PlannedClaim, PlanSettings
from tonnage.provisioning.pods import BoundPod, PendingPod
from tonnage.provisioning.requirements import Requirement, Requirements

EMPTY, DRIFTED, UNDERUTILIZED = "Empty", "Drifted", "Underutilized"
"""Why a node goes, as budgets name it."""

MOST_AT_ONCE = 100
"""Nodes that are looked at together (multinodeconsolidation.go)."""
SPOT_FLEXIBILITY = 15
"""Cheaper instance types that there must be for a spot node to be replaced by a spot node, and among which it is then
launched (MinInstanceTypesForSpotToSpotConsolidation)."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes to take back, and what is launched before they are drained.

    ``method``: emptiness, drift, multi-node or single-node. ``claims`` goes with ``launches`` one to one.
    ``saves_micro_usd_per_hour``: their prices less those of what is launched.
    """

    reason: str
    method: str
    nodes: tuple[Ref, ...]
    claims: tuple[PlannedClaim, ...] = ()
    launches: tuple[Launch, ...] = ()
    saves_micro_usd_per_hour: int = 0


class Gates(msgspec.Struct, frozen=True, kw_only=True):
    """Feature gates of Karpenter that have a say here."""

    spot_to_spot_consolidation: bool = False


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
    one = _Round(nodes, pending, node_pools, catalogue, now_ns, settings or PlanSettings(), gates or Gates())
    return one.emptiness() or one.drift() or one.multi_node() or one.single_node()


@dataclass(slots=True)
class _Round:
    nodes: Sequence[RunningNode]
    pending: Sequence[PendingPod]
    node_pools: Sequence[karpenter.NodePool]
    catalogue: Catalogue
    now_ns: int
    settings: PlanSettings
    gates: Gates

    def emptiness(self) -> Command | None:
        """All empty nodes that the budgets allow."""
        budget = self._budget(EMPTY)
        going = []
        for one in self._candidates():
            if one.empty and one.consolidatable and budget[one.pool.metadata.name] > 0:
                budget[one.pool.metadata.name] -= 1
                going.append(one)
        if not going:
            return None
        saves = sum(one.price for one in going)
        return Command(reason=EMPTY, method="emptiness", nodes=_refs(going), saves_micro_usd_per_hour=saves)

    def drift(self) -> Command | None:
        """The node that drifted first, those without pods before the others, with as many new nodes as it takes."""
        budget = self._budget(DRIFTED)
        drifted = [one for one in self._candidates(eventual=True) if one.node.drifted_ns is not None]
        drifted.sort(key=lambda one: (bool(one.moving), one.node.drifted_ns, one.node.ref))
        for one in drifted:
            if budget[one.pool.metadata.name] <= 0:
                continue
            packing = self._simulated([one], consolidating=False)
            if packing is None:
                continue
            claims, launches = self._launched(packing, packing.claims)
            if len(launches) < len(packing.claims):
                continue
            saves = one.price - sum(launch.price_micro_usd_per_hour for launch in launches)
            return Command(
                reason=DRIFTED,
                method="drift",
                nodes=(one.node.ref,),
                claims=claims,
                launches=launches,
                saves_micro_usd_per_hour=saves,
            )
        return None

    def multi_node(self) -> Command | None:
        """The most nodes, from the dearest for their disruption on, that at most one cheaper node can stand in for."""
        budget = self._budget(UNDERUTILIZED)
        among = []
        for one in self._underused():
            if budget[one.pool.metadata.name] > 0:
                budget[one.pool.metadata.name] -= 1
                among.append(one)
        found: Command | None = None
        low, high = 1, min(MOST_AT_ONCE, len(among) - 1)
        while low <= high:
            middle = (low + high) // 2
            command = self._command(among[: middle + 1], "multi-node")
            if command is None:
                high = middle - 1
            else:
                found, low = command, middle + 1
        return found

    def single_node(self) -> Command | None:
        """The first node that can go alone; NodePools take turns."""
        budget = self._budget(UNDERUTILIZED)
        by_pool: dict[str, list[Candidate]] = defaultdict(list)
        for one in self._underused():
            by_pool[one.pool.metadata.name].append(one)
        turns = max(map(len, by_pool.values()), default=0)
        for turn in range(turns):
            for name in sorted(by_pool):
                if turn < len(by_pool[name]) and budget[name] > 0:
                    command = self._command([by_pool[name][turn]], "single-node")
                    if command is not None:
                        return command
        return None

    def _underused(self) -> list[Candidate]:
        return [
            one
            for one in self._candidates()
            if not one.empty
            and one.consolidatable
            and one.pool.spec.disruption.consolidation_policy != "WhenEmpty"
            and one.known
            and one.instance_type in self.catalogue.names
        ]

    def _candidates(self, *, eventual: bool = False) -> list[Candidate]:
        found = candidates(self.nodes, self.node_pools, self.catalogue, self.now_ns, eventual=eventual)
        return sorted(found, key=lambda one: (-one.price / one.cost, one.node.ref))

    def _budget(self, reason: str) -> Counter[str]:
        """How many nodes of each NodePool may go for this reason."""
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
            most = counted[name] if allowed.nodes is None else allowed.nodes
            found[name] = max(most - busy[name], 0)
        return found

    def _simulated(self, going: Sequence[Candidate], *, consolidating: bool) -> Packing | None:
        """Where pods go without these nodes; ``None`` where one that has to move finds no room that is sure."""
        gone = {one.node.ref for one in going}
        leaving = [one for one in self.nodes if one.state.deleted]
        moved = [pod.pod for one in going for pod in one.moving]
        already = [pod.pod for one in leaving for pod in one.pods]
        movers = [msgspec.structs.replace(pod, moved=True) for pod in moved] if consolidating else moved
        pods = [*self.pending, *movers, *already]
        staying = [one for one in self.nodes if one.ref not in gone]
        pools = {pool.metadata.name: pool for pool in self.node_pools}
        nodes = [
            msgspec.structs.replace(one.node, held=is_held(pools.get(one.state.node_pool), one.state, self.now_ns))
            for one in staying
        ]
        bound = tuple(_bound(one for one in staying if not one.state.deleted))
        settings = msgspec.structs.replace(self.settings, bound=bound)
        packing = pack(pods, nodes, self.node_pools, self.catalogue, settings)
        must = {pod.ref for pod in (*moved, *already)}
        if any(wait.pod in must for wait in packing.waits):
            return None
        starting = {one.node.ref for one in staying if not one.node.initialized}
        unsure = {pod.ref for pod in moved}
        if any(one.node in starting and one.pod in unsure for one in packing.nominations):
            return None
        return packing

    def _command(self, going: Sequence[Candidate], method: str) -> Command | None:
        packing = self._simulated(going, consolidating=True)
        if packing is None or len(packing.claims) > 1:
            return None
        price = sum(one.price for one in going)
        if not packing.claims:
            return Command(reason=UNDERUTILIZED, method=method, nodes=_refs(going), saves_micro_usd_per_hour=price)
        claim = packing.claims[0]
        load = self._cheaper(claim.load, going, price)
        if load is None:
            return None
        if len(going) > 1:
            load = self._other_types(load, going)
            if load is None:
                return None
        claims, launches = self._launched(packing, [replace_load(claim, load)])
        if not launches:
            return None
        saves = price - launches[0].price_micro_usd_per_hour
        return Command(
            reason=UNDERUTILIZED,
            method=method,
            nodes=_refs(going),
            claims=claims,
            launches=launches,
            saves_micro_usd_per_hour=saves,
        )

    def _cheaper(self, load: Load, going: Sequence[Candidate], price: int) -> Load | None:
        """The load with the types that cost less even where they are dearest, bought as spot where spot may be had."""
        spot = Requirement.of(labels.CAPACITY_TYPE, "In", (labels.SPOT,))
        may = load.requirements.get(labels.CAPACITY_TYPE)
        allows_spot = may is None or may.has(labels.SPOT)
        all_spot = all(one.capacity_type == labels.SPOT for one in going)
        if all_spot and allows_spot:
            if not self.gates.spot_to_spot_consolidation:
                return None
            requirements = load.requirements.merged(Requirements([spot]))
            found = self._below(load, requirements, price)
            if found is None or len(going) > 1:
                return found
            if int(found.types.sum()) < SPOT_FLEXIBILITY:
                return None
            return self._cheapest(found)
        found = self._below(load, load.requirements, price)
        if found is None or not allows_spot or (may is not None and not may.has(labels.ON_DEMAND)):
            return found
        return replace(found, requirements=found.requirements.merged(Requirements([spot])))

    def _below(self, load: Load, requirements: Requirements, price: int) -> Load | None:
        worst = worst_prices(load.market.offers, requirements)
        types: TypeMask = load.types & (worst < price)
        if not types.any() or short_of_values(self.catalogue, requirements, np.flatnonzero(types)):
            return None
        return replace(load, requirements=requirements, types=types)

    def _cheapest(self, load: Load) -> Load:
        """The fifteen cheapest types, or as many as minValues takes."""
        rows = list(load.market.offers.rows(load.requirements))
        best = np.where(load.types, load.market.offers.prices[rows].min(axis=0), NO_OFFER)
        order = np.argsort(best, kind="stable")[: int(load.types.sum())]
        count = SPOT_FLEXIBILITY
        while count < len(order) and short_of_values(self.catalogue, load.requirements, order[:count]):
            count += 1
        types = np.zeros_like(load.types)
        types[order[:count]] = True
        return replace(load, types=types)

    def _other_types(self, load: Load, going: Sequence[Candidate]) -> Load | None:
        """Of a type that is taken back anyway one node could simply stay: what is launched has to be cheaper."""
        limit = NO_OFFER
        for one in going:
            index = self.catalogue.index(one.instance_type)
            if load.types[index]:
                limit = min(limit, one.price)
        return self._below(load, load.requirements, int(limit))

    def _launched(
        self, packing: Packing, claims: Iterable[Claim]
    ) -> tuple[tuple[PlannedClaim, ...], tuple[Launch, ...]]:
        """What is launched for these claims; those for which nothing can be are left out."""
        found: list[PlannedClaim] = []
        launches: list[Launch] = []
        for claim in claims:
            load = claim.load
            choice = choose(
                packing.market.offers, load.requirements, load.types, strict=packing.market.strict_min_values
            )
            if isinstance(choice, str):
                continue
            name = f"{load.template.name}-{self.settings.first_claim + len(found):05d}"
            found.append(bought.planned(Ref("NodeClaim", name), load, claim.pods, choice))
            launches.append(bought.launch(found[-1], load, choice))
        return tuple(found), tuple(launches)


def replace_load(claim: Claim, load: Load) -> Claim:
    """The same pods on other instance types."""
    return Claim(load, claim.pods, claim.host)


def worst_prices(offers: Offers, requirements: Requirements) -> NDArray[np.int64]:
    """By instance type, micro-USD an hour of its dearest offering of the capacity type that it would be launched as:
    spot where there is any, else on-demand; ``NO_OFFER`` where there is none."""
    rows = offers.rows(requirements)
    worst = np.full(len(offers.catalogue.types), NO_OFFER, dtype=np.int64)
    for kind in (labels.ON_DEMAND, labels.SPOT):  # spot is written over on-demand
        of_kind = [row for row in rows if offers.catalogue.pairs[row][1] == kind]
        if of_kind:
            prices = offers.prices[of_kind]
            dearest = np.where(prices == NO_OFFER, -1, prices).max(axis=0)
            worst = np.where(dearest >= 0, dearest, worst)
    return worst


def _refs(going: Iterable[Candidate]) -> tuple[Ref, ...]:
    return tuple(one.node.ref for one in going)


def _bound(nodes: Iterable[RunningNode]) -> Iterable[BoundPod]:
    for one in nodes:
        for pod in one.pods:
            shape = pod.pod.shape
            namespace, own = pod.pod.ref.namespace, pod.pod.labels
            yield BoundPod(namespace, one.node.ref.name, own, shape.pod_anti_affinity, 1, shape.tolerations)
