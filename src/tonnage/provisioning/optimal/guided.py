"""Nodes filled as a plan without rules about other pods says, with those pods that the rules let on them.

A target says how many pods of each size a node is to hold. Which pods these are is chosen node by node, beside all that
have a place already, so that topology spread, pod affinity and anti-affinity hold as they do in Karpenter's order:
of pods of one size those with rules first, and of these the kind of which most are left. Where rules are about zones a
node gets its zone with its first pod: the cheapest one in which it can be filled, of equally cheap ones each in turn.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tonnage.decisions import Ref
from tonnage.provisioning import labels
from tonnage.provisioning.catalogue import NO_OFFER
from tonnage.provisioning.claim_order import ClaimOrder
from tonnage.provisioning.karpenter import Packer, QueuedPod
from tonnage.provisioning.load import ClaimLoad
from tonnage.provisioning.optimal.classes import PackingClass
from tonnage.provisioning.optimal.supply import ExistingNodes, NewNodeKind, NodeTarget
from tonnage.provisioning.packing import Packing
from tonnage.provisioning.pod_classes import AlikePods, Attempt
from tonnage.provisioning.requirements import Requirement, Requirements
from tonnage.provisioning.topology import Verdict


@dataclass(slots=True, eq=False)
class _Supply:
    """Pods of one size that planning cannot tell apart, and still have no place."""

    attempt: Attempt
    pods: deque[Ref]


@dataclass(slots=True, eq=False)
class _NewNode:
    """A node to be filled. ``at``: the index of the instance type that it is to be; ``pins``: what its first pod
    settles of its labels."""

    load: ClaimLoad
    host: str
    at: int
    pins: tuple[Requirement, ...]
    number: int | None = None


@dataclass(slots=True)
class Guided:
    """``packer``: a planning round in which nothing is planned yet; ``queued``: its queue."""

    packer: Packer
    queued: list[QueuedPod]
    _placed: set[Ref] = field(default_factory=set)
    _supplies: list[list[_Supply]] = field(default_factory=list)
    _in_zone: Counter[str] = field(default_factory=Counter)
    _short: bool = False
    """Whether the last node was not filled as it was to be."""

    def fill(self, classes: Sequence[PackingClass], targets: Sequence[NodeTarget]) -> None:
        """Fill these nodes, as far as there are pods that may stand there. ``classes``: the pods that targets count."""
        alike = {pod.ref: of for pod, of in self.queued if pod.ref not in self._placed}
        self._supplies = [self._sorted(of, alike) for of in classes]
        slots = sorted(range(len(classes)), key=lambda c: (not classes[c].apart, c))
        for target in targets:
            wanted = [c for c in slots for _ in range(target.counts[c])]
            if isinstance(target.kind, ExistingNodes):
                for ref in target.kind.nodes[: target.count]:
                    self._fill_existing(ref, wanted)
            else:
                for _ in range(target.count):
                    if not self._fill_new(target.kind, wanted):
                        break
        self.packer.order = ClaimOrder.of([len(one.pods) for one in self.packer.claims])

    def left(self) -> list[QueuedPod]:
        """The pods that have no place yet."""
        return [(pod, of) for pod, of in self.queued if pod.ref not in self._placed]

    def finish(self) -> Packing:
        """The rest in Karpenter's order."""
        return self.packer.rest(self.left())

    def _sorted(self, of: PackingClass, alike: dict[Ref, AlikePods]) -> list[_Supply]:
        found: dict[int, _Supply] = {}
        for ref in of.pods:
            own = alike.get(ref)
            if own is None or own.refused is not None:
                continue
            if id(own) not in found:
                found[id(own)] = _Supply(next(own.all_attempts(self.packer.topology)), deque())
            found[id(own)].pods.append(ref)
        return sorted(found.values(), key=_rank)

    def _fill_existing(self, ref: Ref, wanted: Sequence[int]) -> None:
        node = next(one for one in self.packer.nodes if one.ref == ref)
        for c in wanted:
            for one in self._supplies[c]:
                if self.packer.nominate(one.pods[0], one.attempt, node) is Verdict.YES:
                    self._took(c, one)
                    break

    def _fill_new(self, kind: NewNodeKind, wanted: Sequence[int]) -> bool:
        """Whether any pod got a place there."""
        if not self._affordable(kind):
            return False
        nodes = [self._empty(kind, zone) for zone in self._zones(kind)]
        if self._short and len(nodes) > 1:
            nodes = sorted(nodes, key=lambda node: -self._fitting(node, wanted))
        for node in nodes:
            filled = sum(self._put(node, c) for c in wanted)
            self._short = filled < len(wanted)
            if filled:
                self._charge(kind)
                self._in_zone.update(one.any() or "" for one in node.pins if one.key == labels.ZONE)
                return True
        return False

    def _zones(self, kind: NewNodeKind) -> list[str | None]:
        """In which zones such a node is offered, where rules are about zones; the cheapest first."""
        if labels.ZONE not in self.packer.topology.about:
            return [None]
        site, offers = kind.site, kind.site.market.offers
        at = site.market.catalogue.index(kind.offering.instance_type)
        found = []
        for row in offers.rows(site.template.requirements):
            zone, capacity_type = site.market.catalogue.pairs[row]
            price = int(offers.prices[row, at])
            if capacity_type == kind.offering.capacity_type and price != NO_OFFER:
                found.append((price, self._in_zone[zone], zone))
        return [zone for _, _, zone in sorted(found)]

    def _empty(self, kind: NewNodeKind, zone: str | None) -> _NewNode:
        template = next(one for one in self.packer.templates if one.name == kind.site.template.name)
        pins = [*kind.site.labels.values()]
        if zone is not None:
            pins.append(Requirement.of(labels.ZONE, "In", (zone,)))
        at = kind.site.market.catalogue.index(kind.offering.instance_type)
        return _NewNode(self.packer.empty(template, kind.site.types), self.packer.next_host, at, tuple(pins))

    def _fitting(self, node: _NewNode, wanted: Sequence[int]) -> int:
        """For how many of the pods wanted there is one that may be the first on it."""
        first = {c: any(self._joined(node, one.attempt) for one in self._supplies[c]) for c in set(wanted)}
        return sum(first[c] for c in wanted)

    def _put(self, node: _NewNode, c: int) -> bool:
        for one in self._supplies[c]:
            load = self._joined(node, one.attempt)
            if load is not None:
                if node.number is None:
                    node.number = self.packer.opened(node.load)
                node.load = load
                self.packer.add(one.pods[0], node.number, load, one.attempt)
                self._took(c, one)
                return True
        return False

    def _joined(self, node: _NewNode, attempt: Attempt) -> ClaimLoad | None:
        """The node's load with such a pod, if the rules let it there and the node can still be what it is to be."""
        topology, load = self.packer.topology, node.load
        wanted = load.wanted(attempt.stage)
        if wanted is None or topology.on_host(attempt.rules, node.host) is not Verdict.YES:
            return None
        pins = () if load.pods else node.pins
        if pins:
            known = Requirements(pins)
            if not wanted.compatible(known, labels.well_known()):
                return None
            wanted = wanted.merged(known)
        narrowed = topology.narrowed(attempt.rules, wanted)
        joined = None if narrowed is None else load.join(attempt.stage, (*pins, *narrowed))
        return joined if joined is not None and joined.types[node.at] else None

    def _took(self, c: int, one: _Supply) -> None:
        ref = one.pods.popleft()
        self._placed.add(ref)
        self.packer.placed.append(ref)
        supplies = self._supplies[c]
        supplies.remove(one)
        if one.pods:
            at = next((n for n, other in enumerate(supplies) if _later(other, one)), len(supplies))
            supplies.insert(at, one)

    def _affordable(self, kind: NewNodeKind) -> bool:
        return all(amount <= left for left, amount in self._amounts(kind))

    def _charge(self, kind: NewNodeKind) -> None:
        remaining = self.packer.remaining[kind.site.template.name]
        for resource, (_, amount) in zip(list(remaining), list(self._amounts(kind)), strict=True):
            remaining[resource] -= amount

    def _amounts(self, kind: NewNodeKind) -> Iterator[tuple[int, int]]:
        """By limited resource, what is left of it and what such a node takes."""
        template, catalogue = kind.site.template, kind.site.market.catalogue
        at = catalogue.index(kind.offering.instance_type)
        for resource, left in self.packer.remaining[template.name].items():
            column = catalogue.column.get(resource)
            yield left, 0 if column is None else int(template.capacity[at, column])


def _rank(one: _Supply) -> tuple[bool, int, Ref]:
    return (not one.attempt.rules, -len(one.pods), one.pods[0])


def _later(other: _Supply, one: _Supply) -> bool:
    return _rank(other) > _rank(one)
