"""One program: the pods that patterns express, on nodes that are there and new ones, beside what stays as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tonnage.decisions import Ref
from tonnage.facts.price_book import Reservation
from tonnage.provisioning.labels import RESERVED
from tonnage.provisioning.load import Market, Stage
from tonnage.provisioning.optimal import supply
from tonnage.provisioning.optimal.claims import UnnamedClaim, make
from tonnage.provisioning.optimal.classes import PARTS, Classes, PackingClass, taken
from tonnage.provisioning.optimal.program import Bin, Effort, NodePattern, Program, Solution
from tonnage.provisioning.optimal.solve import solve
from tonnage.provisioning.optimal.supply import ExistingNodes, NewNodeKind, NodeTarget, Occupied
from tonnage.provisioning.plans import Nomination, Plan, PlannedClaim
from tonnage.provisioning.pods import ExistingNode
from tonnage.provisioning.standing import StandingNode
from tonnage.provisioning.template import PoolTemplate
from tonnage.units import micro_usd

_ROUNDING = 1e-5
"""USD per hour: less than this is a difference of rounding."""

Kind = tuple[NewNodeKind | ExistingNodes, Bin]


@dataclass(slots=True)
class RoundResult:
    """``made``: new nodes; ``nominations``: pods on nodes that are there; ``left``: pods without a place;
    ``bound_micro_usd_per_hour``: of the new nodes of any plan that leaves no more out; ``stay``: nodes that might have
    gone back and do not."""

    made: list[UnnamedClaim]
    nominations: list[Nomination]
    left: list[Ref]
    bound_micro_usd_per_hour: int
    stay: list[Ref] = field(default_factory=list)


@dataclass(slots=True)
class PackingRound:
    """``templates``: the NodePools; ``remaining``: of their limits, by NodePool and resource; ``nodes``: those that are
    there and take pods; ``base``: Karpenter's plan of these classes, to start from; ``already``: what its whole plan
    costs, USD per hour. ``occupied``: nodes that may go back, whose pods are among the classes; ``fare``: what moving
    one of them costs, USD per hour. ``reservations``: capacity reservations of which nodes may be launched.
    ``misfits``: pods that did not fit together although their numbers do, after :meth:`solve`."""

    classes: list[PackingClass]
    of: Classes
    templates: Sequence[PoolTemplate]
    remaining: Mapping[str, Mapping[str, int]]
    nodes: Sequence[ExistingNode]
    base: Plan
    market: Market
    effort: Effort
    already: float
    occupied: Sequence[Occupied] = ()
    fare: float = 0.0
    reservations: Sequence[Reservation] = ()
    misfits: set[Ref] = field(default_factory=set)

    def solve(self) -> RoundResult:
        """The best places for these pods; of no worth where there are ``misfits``."""
        kinds, resources, limits = self._kinds()
        program = self._program(kinds, resources, limits)
        solution = solve(program, self._start(program, kinds), self.effort)
        answer = self._answer(program, solution, kinds)
        if self._within_limits(answer.made):
            return answer
        return RoundResult([], [], [pod for of in self.classes for pod in of.pods], 0)

    def targets(self) -> tuple[int, list[NodeTarget]]:
        """What no plan costs less than that places all of these pods, micro-USD an hour, and the nodes of the cheapest
        one found, to be filled. ``base`` is one, and costs what is ``already`` there. A bound of 0: it is not known."""
        kinds, resources, limits = self._kinds()
        program = self._program(kinds, resources, limits)
        start = self._start(program, kinds)
        solution = solve(program, start, self.effort)
        covered = [sum(n * program.covers(one)[c] for one, n in start) for c in range(len(program.demand))]
        cost = sum(n * program.cost(one) for one, n in start)
        least = max(0, micro_usd(solution.bound))
        if cost > self.already + _ROUNDING or any(a < b for a, b in zip(covered, program.demand, strict=True)):
            least = 0  # base is no plan of this program, so others may not be either
        chosen = sorted(solution.chosen, key=lambda one: (program.bins[one[0].bin].price, one[0]))
        return least, [NodeTarget(kinds[one.bin][0], one.counts, count) for one, count in chosen if any(one.counts)]

    def _kinds(self) -> tuple[list[Kind], list[str], dict[tuple[str, str], int]]:
        """What pods may stand on, the resources that matter, and the limits by NodePool and resource."""
        resources = sorted({name for of in self.classes for name, amount in of.amounts.items() if amount})
        if any(of.shape.ask.profiles for of in self.classes):
            resources += PARTS
        most = [sum(taken(of, name) * len(of.pods) for of in self.classes) for name in resources]
        pairs = [
            (name, resource)
            for name, amounts in sorted(self.remaining.items())
            for resource in sorted(amounts)
            if resource in self.market.catalogue.column
        ]
        limits = {pair: row for row, pair in enumerate(pairs)}
        sites = supply.sites(self.market, self.templates, self.remaining, self.classes, self.reservations)
        offers = [offer for site in sites for offer in supply.offers(site, self.classes)]
        least = self._least_weights(offers)
        offers = [supply.only(offer, [offer.site.template.weight >= one for one in least]) for offer in offers]
        bins = [(offer, supply.bin_of(offer, resources, limits, self.reservations)) for offer in offers]
        fitting = [(offer, bin_) for offer, bin_ in bins if bin_.admits and bin_.supply is None]
        counted: list[Kind] = [(offer, bin_) for offer, bin_ in bins if bin_.admits and bin_.supply is not None]
        there: list[Kind] = list(supply.standing(self.nodes, self.classes, resources, most))
        number = {pod: c for c, of in enumerate(self.classes) for pod in of.pods}
        held: list[Kind] = [supply.occupied(one, self.classes, resources, number) for one in self.occupied]
        return [*there, *held, *counted, *supply.undominated(fitting, most)], resources, limits

    def _least_weights(self, offers: Sequence[NewNodeKind]) -> list[int]:
        """By class, the lowest weight of a NodePool that it may use: where Karpenter's plan puts its pods, or the
        highest that takes them."""
        used: dict[int, int] = {}
        weights = {one.name: one.weight for one in self.templates}
        for claim in self.base.claims:
            for pod in claim.pods:
                of = self.of.of(pod)
                if of is not None:
                    used[id(of)] = min(used.get(id(of), weights[claim.node_pool]), weights[claim.node_pool])
        waiting = {id(self.of.of(wait.pod)) for wait in self.base.waits}
        placed = {id(self.of.of(one.pod)) for one in self.base.nominations} | set(used)
        found = []
        for c, of in enumerate(self.classes):
            best = max((one.site.template.weight for one in offers if one.stages[c] is not None), default=0)
            known = used.get(id(of), best) if id(of) in placed else best
            found.append(0 if id(of) in waiting else known)
        return found

    def _program(
        self, kinds: Sequence[Kind], resources: Sequence[str], limits: Mapping[tuple[str, str], int]
    ) -> Program:
        gangs: dict[str, list[int]] = {}
        for c, of in enumerate(self.classes):
            if of.gang:
                gangs.setdefault(of.gang, []).append(c)
        dearest = max((bin_.price for _, bin_ in kinds), default=0.0)
        groups = sorted({group for of in self.classes for group in of.apart})
        one_each = (1,) * len(groups)
        return Program(
            demand=tuple(len(of.pods) for of in self.classes),
            weights=tuple(
                (*(taken(of, name) for name in resources), *(int(one in of.apart) for one in groups))
                for of in self.classes
            ),
            bins=tuple(replace(bin_, room=bin_.room + one_each) if groups else bin_ for _, bin_ in kinds),
            fares=tuple(self.fare if of.moving else 0.0 for of in self.classes) if self.fare else (),
            limits=tuple(max(0, self.remaining[name][of]) / supply.scale(of) for name, of in limits),
            gangs=tuple(tuple(one) for one in gangs.values()),
            missing=2 * (dearest + self.already) + 1,
        )

    def _start(self, program: Program, kinds: Sequence[Kind]) -> list[tuple[NodePattern, int]]:
        """Karpenter's plan in these kinds of nodes, or in those that beat them; nothing where limits are in the way."""
        number = {id(of): c for c, of in enumerate(self.classes)}
        where: dict[Ref, int] = {
            ref: at for at, (one, _) in enumerate(kinds) if isinstance(one, ExistingNodes) for ref in one.nodes
        }
        on: dict[Ref, Counter[int]] = {}
        for one in self.base.nominations:
            on.setdefault(one.node, Counter())[number[id(self.of.of(one.pod))]] += 1
        columns: Counter[NodePattern] = Counter()
        for at, (kind, _) in enumerate(kinds):
            if isinstance(kind, ExistingNodes) and kind.pods and kind.nodes[0] not in on:
                columns[_column(at, {}, len(self.classes))] += 1
        for ref, counts in on.items():
            if ref in where:
                columns[_column(where[ref], counts, len(self.classes))] += 1
        alike = _Alike(program, kinds)
        for claim in self.base.claims:
            column = alike.holding(claim, Counter(number[id(self.of.of(pod))] for pod in claim.pods))
            if column is not None:
                columns[column] += 1
        start = [(column, count) for column, count in columns.items() if program.fits(column)]
        return start if _feasible(program, start) else []

    def _answer(self, program: Program, solution: Solution, kinds: Sequence[Kind]) -> RoundResult:
        """Pods onto nodes, in their order; nodes that get none are not launched. Pods beyond what is needed stay away
        from the dearest."""
        stay = {pod for column, _ in solution.chosen for pod in _held(kinds[column.bin][0])}
        out = {c for gang in program.gangs if any(solution.left_out[c] for c in gang) for c in gang}
        waiting = [[] if c in out else [p for p in of.pods if p not in stay] for c, of in enumerate(self.classes)]
        made: list[UnnamedClaim] = []
        nominations: list[Nomination] = []
        free: dict[int, list[Ref]] = {}
        for column, count in sorted(solution.chosen, key=lambda one: (program.bins[one[0].bin].price, one[0])):
            kind = kinds[column.bin][0]
            for _ in range(count):
                pods = []
                for c, n in enumerate(column.counts):
                    stage = kind.stages[c]
                    if n and stage is not None and waiting[c]:
                        pods.append((stage, waiting[c][:n]))
                        del waiting[c][:n]
                if pods and isinstance(kind, ExistingNodes):
                    nodes = free.setdefault(column.bin, list(kind.nodes))
                    nominations += self._nominated(nodes.pop(0), pods)
                elif pods and isinstance(kind, NewNodeKind):
                    new = make(kind, pods)
                    if new is None:
                        self.misfits.update(ref for _, refs in pods for ref in refs)
                    else:
                        made.append(new)
        left = [ref for c in out for ref in self.classes[c].pods] + [ref for refs in waiting for ref in refs]
        missing = program.missing * sum(solution.left_out)
        bound = max(0, micro_usd(solution.bound - missing))
        kept = {ref for column, _ in solution.chosen if program.bins[column.bin].holds for ref in _nodes(kinds, column)}
        return RoundResult(made, nominations, left, bound, sorted(kept))

    def _nominated(self, ref: Ref, pods: Sequence[tuple[Stage, Sequence[Ref]]]) -> list[Nomination]:
        there = (*self.nodes, *(one.node for one in self.occupied))
        node = StandingNode(next(one for one in there if one.ref == ref))
        for stage, refs in pods:
            self.misfits.update(one for one in refs if not supply.take(node, stage))
        return [Nomination(one, ref) for _, refs in pods for one in refs]

    def _within_limits(self, made: Sequence[UnnamedClaim]) -> bool:
        """Whether what is launched stays within the limits to the last unit."""
        used: Counter[tuple[str, str]] = Counter()
        for one in made:
            for name, amount in one.used().items():
                used[one.load.template.name, name] += amount
        return all(amount <= self.remaining[pool][name] for (pool, name), amount in used.items())


class _Alike:
    """Finds the kind of new node that stands for a NodeClaim."""

    def __init__(self, program: Program, kinds: Sequence[Kind]) -> None:
        self._kinds = kinds
        self._rooms = np.array([bin_.room for bin_ in program.bins], np.int64)
        self._weights = np.array(program.weights, np.int64)
        self._prices = np.array([bin_.price for _, bin_ in kinds])
        self._admits = np.zeros((len(kinds), len(program.demand)), np.bool_)
        for at, (_, bin_) in enumerate(kinds):
            self._admits[at, list(bin_.admits)] = True
        new = [isinstance(kind, NewNodeKind) for kind, _ in kinds]
        counted = [one and bin_.supply is not None for one, (_, bin_) in zip(new, kinds, strict=True)]
        self._counted = np.array(counted, np.bool_)
        self._free = np.array(new, np.bool_) & ~self._counted

    def holding(self, claim: PlannedClaim, counts: Mapping[int, int]) -> NodePattern | None:
        """These pods on the cheapest kind that holds them; for a NodeClaim in a capacity reservation, on a kind of
        which there are so many."""
        classes = list(counts)
        if not self._kinds:
            return None
        load = np.array([counts[c] for c in classes], np.int64) @ self._weights[classes]
        among = self._free
        if claim.offering.capacity_type == RESERVED:
            same = [isinstance(kind, NewNodeKind) and kind.offering == claim.offering for kind, _ in self._kinds]
            among = self._counted & np.array(same)
        fits = among & (self._rooms >= load).all(axis=1) & self._admits[:, classes].all(axis=1)
        if not fits.any():
            return None
        at = int(np.where(fits, self._prices, np.inf).argmin())
        return _column(at, counts, len(self._weights))


def _held(kind: NewNodeKind | ExistingNodes) -> tuple[Ref, ...]:
    return kind.pods if isinstance(kind, ExistingNodes) else ()


def _nodes(kinds: Sequence[Kind], column: NodePattern) -> tuple[Ref, ...]:
    kind = kinds[column.bin][0]
    return kind.nodes if isinstance(kind, ExistingNodes) else ()


def _column(at: int, counts: Mapping[int, int], classes: int) -> NodePattern:
    return NodePattern(at, tuple(counts.get(c, 0) for c in range(classes)))


def _feasible(program: Program, chosen: Sequence[tuple[NodePattern, int]]) -> bool:
    """Whether these numbers of columns stay within limits and supply."""
    used = [0.0] * len(program.limits)
    taken: Counter[int] = Counter()
    for column, count in chosen:
        taken[column.bin] += count
        for row, amount in program.bins[column.bin].charges:
            used[row] += amount * count
    supplies = ((program.bins[at].supply, count) for at, count in taken.items())
    return all(a <= b + 1e-9 for a, b in zip(used, program.limits, strict=True)) and all(
        supply is None or count <= supply for supply, count in supplies
    )
