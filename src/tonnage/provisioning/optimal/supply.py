"""Where pods may stand: nodes that can be launched, by NodePool, layout, type and offering, and nodes there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from tonnage.decisions import Ref
from tonnage.facts.price_book import Reservation
from tonnage.partitioning.node_cuts import STATED
from tonnage.provisioning import labels
from tonnage.provisioning.catalogue import NO_OFFER, OfferingKey, TypeMask
from tonnage.provisioning.load import ClaimLoad, Market, Stage
from tonnage.provisioning.optimal.classes import PARTS, UNLIMITED, PackingClass
from tonnage.provisioning.optimal.program import Bin
from tonnage.provisioning.pods import ExistingNode, PendingPod
from tonnage.provisioning.requirements import Requirement, Requirements
from tonnage.provisioning.reserving import Reserving
from tonnage.provisioning.standing import StandingNode
from tonnage.provisioning.template import PoolTemplate
from tonnage.units import usd

NO_LIMIT = UNLIMITED, UNLIMITED
_MOST_FLAVOURS = 32
"""Ways to choose the values of labels of the user's own that a NodePool leaves open."""


class PoolNodes(msgspec.Struct, frozen=True, eq=False):
    """New nodes of one NodePool. ``labels``: the values of labels of the user's own that it leaves open, as chosen
    here; ``types``: those within its limits."""

    market: Market
    template: PoolTemplate
    labels: Requirements
    types: TypeMask
    _empty: dict[OfferingKey | None, ClaimLoad] = msgspec.field(default_factory=dict)

    def empty(self, only: OfferingKey | None = None) -> ClaimLoad:
        """A NodeClaim without pods, of one offering alone where it is given."""
        if only not in self._empty:
            requirements = self.labels.merged(_pinned(only))
            load = ClaimLoad.empty(self.market, self.template, self.types)
            if requirements:
                merged = load.requirements.merged(requirements)
                types = load.types & self.market.catalogue.select(merged) & self.market.offers.open_to(merged)
                load = replace(load, requirements=merged, types=types, _joined={}, _wanted={})
            self._empty[only] = load
        return self._empty[only]


@dataclass(frozen=True, slots=True)
class NewNodeKind:
    """Of which new nodes a kind is: of ``site``, cut in this ``layout``, of this offering. ``stages``: by class, what
    its pods insist on there."""

    site: PoolNodes
    layout: int
    offering: OfferingKey
    micro_usd_per_hour: int
    stages: tuple[Stage | None, ...]


class ExistingNodes(msgspec.Struct, frozen=True):
    """Nodes that are there and alike. ``stages``: as of a :class:`NewNodeKind`; ``pods``: those on it, which have to
    move if it does not stay."""

    nodes: tuple[Ref, ...]
    stages: tuple[Stage | None, ...]
    pods: tuple[Ref, ...] = ()


class NodeTarget(msgspec.Struct, frozen=True):
    """``count`` nodes of a kind that are to hold this many pods of each class."""

    kind: NewNodeKind | ExistingNodes
    counts: tuple[int, ...]
    count: int


class Occupied(msgspec.Struct, frozen=True, kw_only=True):
    """A node that may go back if its ``pods`` find a place elsewhere. ``micro_usd_per_hour``: what it costs; free room
    of ``node`` is beside them."""

    node: ExistingNode
    pods: tuple[PendingPod, ...]
    micro_usd_per_hour: int


def sites(
    market: Market,
    templates: Sequence[PoolTemplate],
    remaining: Mapping[str, Mapping[str, int]],
    classes: Sequence[PackingClass],
    reservations: Sequence[Reservation] = (),
) -> Iterator[PoolNodes]:
    """New nodes of these NodePools, with what remains of their limits, in these ``reservations`` too."""
    reserving = Reserving(reservations) if reservations else None
    for template in templates:
        types = template.within(dict(remaining[template.name]), market.catalogue)
        own = market if reserving is None else reserving.market(market, template.reservations)
        for chosen in _flavours(template, classes):
            yield PoolNodes(own, template, chosen, types)


def offers(site: PoolNodes, classes: Sequence[PackingClass]) -> Iterator[NewNodeKind]:
    """All that can be launched there and takes pods of some class."""
    catalogue, template = site.market.catalogue, site.template
    table = site.market.offers.prices
    shape = (len(classes), len(template.machines.layouts), len(catalogue.types), len(catalogue.pairs))
    admitted = np.full(shape, -1, dtype=np.int16)
    for c, of in enumerate(classes):
        for s, stage in enumerate(of.stages):
            load = site.empty().join(stage)
            if load is None:
                continue
            fits = (load.choices & load.types)[:, :, np.newaxis]
            rows = np.zeros(len(catalogue.pairs), dtype=np.bool_)
            rows[list(site.market.offers.rows(load.requirements))] = True
            new = (admitted[c] < 0) & fits & rows
            admitted[c][new] = s
    there = (admitted >= 0).any(axis=0) & (table.T[np.newaxis] != NO_OFFER)
    for layout, index, row in np.argwhere(there).tolist():
        chosen = admitted[:, layout, index, row].tolist()
        stages = tuple(of.stages[s] if s >= 0 else None for of, s in zip(classes, chosen, strict=True))
        offering = OfferingKey(catalogue.names[index], *catalogue.pairs[row])
        yield NewNodeKind(site, layout, offering, int(table[row, index]), stages)


def only(offer: NewNodeKind, allowed: Sequence[bool]) -> NewNodeKind:
    """The same for the classes that are allowed there alone."""
    stages = tuple(stage if may else None for stage, may in zip(offer.stages, allowed, strict=True))
    return offer if stages == offer.stages else replace(offer, stages=stages)


def room_of(offer: NewNodeKind, resources: Sequence[str]) -> tuple[int, ...]:
    """What such a node has for pods, of each of these resources."""
    template, catalogue = offer.site.template, offer.site.market.catalogue
    index = catalogue.index(offer.offering.instance_type)
    devices: Mapping[str, int] = {}
    if template.machines.cut:
        devices = template.machines.outfits[offer.layout][index].allocatable
    found = []
    parts: dict[str, int] = {}
    if PARTS[0] in resources:
        parts = dict(zip(PARTS, template.machines.parts(offer.layout, index) or NO_LIMIT, strict=True))
    for name in resources:
        if name in parts:
            found.append(parts[name])
            continue
        column = catalogue.column.get(name)
        if template.machines.cut and (column is None or name in _devices(catalogue.resources)):
            daemons = 0 if column is None else int(template.daemons[index, column])
            found.append(max(0, devices.get(name, 0) - daemons))
        else:
            found.append(0 if column is None else max(0, int(template.free[index, column])))
    return tuple(found)


def bin_of(
    offer: NewNodeKind,
    resources: Sequence[str],
    limits: Mapping[tuple[str, str], int],
    reservations: Sequence[Reservation] = (),
) -> Bin:
    """The same as numbers. ``limits``: the index of each (NodePool, resource) that is limited; of reserved capacity
    there are as many nodes as ``reservations`` that the NodePool may use have free."""
    template, catalogue = offer.site.template, offer.site.market.catalogue
    index = catalogue.index(offer.offering.instance_type)
    charges = []
    for (name, resource), row in limits.items():
        column = catalogue.column.get(resource)
        amount = 0 if name != template.name or column is None else int(template.capacity[index, column])
        if amount:
            charges.append((row, amount / scale(resource)))
    admits = tuple(c for c, stage in enumerate(offer.stages) if stage is not None)
    there = None
    if offer.offering.capacity_type == labels.RESERVED:
        place = offer.offering.instance_type, offer.offering.zone
        usable = [one for one in reservations if one.id in template.reservations]
        there = sum(one.count for one in usable if (one.instance_type, one.zone) == place)
    return Bin(usd(offer.micro_usd_per_hour), room_of(offer, resources), admits, there, tuple(charges))


def scale(resource: str) -> float:
    """In what units limits are counted, so that all are numbers of the same order: cores, GiB, pieces."""
    return {"cpu": 1e3, "memory": 2.0**30, "ephemeral-storage": 2.0**30}.get(resource, 1.0)


def standing(
    nodes: Sequence[ExistingNode], classes: Sequence[PackingClass], resources: Sequence[str], most: Sequence[int]
) -> list[tuple[ExistingNodes, Bin]]:
    """Nodes that are there, equal ones together. ``most``: more than this of a resource nobody needs."""
    alike: dict[tuple[tuple[int, ...], tuple[int | None, ...]], list[Ref]] = {}
    listed: dict[tuple[int | None, ...], tuple[Stage | None, ...]] = {}
    for node in nodes:
        stages = tuple(_stage_on(node, of) for of in classes)
        if all(stage is None for stage in stages):
            continue
        free = _free(node, resources)
        room = tuple(min(max(0, free.get(name, 0)), top) for name, top in zip(resources, most, strict=True))
        ids = tuple(None if stage is None else stage.id for stage in stages)
        alike.setdefault((room, ids), []).append(node.ref)
        listed[ids] = stages
    found = []
    for (room, ids), refs in alike.items():
        stages = listed[ids]
        admits = tuple(c for c, stage in enumerate(stages) if stage is not None)
        found.append((ExistingNodes(tuple(refs), stages), Bin(0.0, room, admits, len(refs))))
    return found


def occupied(
    one: Occupied, classes: Sequence[PackingClass], resources: Sequence[str], number: Mapping[Ref, int]
) -> tuple[ExistingNodes, Bin]:
    """A node that may go back, at its price. ``number``: the index of each pod's class."""
    stages = tuple(_stage_on(one.node, of) for of in classes)
    holds = [0] * len(classes)
    for pod in one.pods:
        holds[number[pod.ref]] += 1
    free = _free(one.node, resources)
    room = tuple(max(0, free.get(name, 0)) for name in resources)
    admits = tuple(c for c, stage in enumerate(stages) if stage is not None)
    kind = ExistingNodes((one.node.ref,), stages, tuple(pod.ref for pod in one.pods))
    return kind, Bin(usd(one.micro_usd_per_hour), room, admits, 1, (), tuple(holds))


def _free(node: ExistingNode, resources: Sequence[str]) -> dict[str, int]:
    """What is free of a node that is there; of parts of devices too, where these count."""
    if PARTS[0] not in resources:
        return node.free
    return {**node.free, **dict(zip(PARTS, (node.devices and node.devices.parts(0)) or NO_LIMIT, strict=True))}


def take(node: StandingNode, stage: Stage) -> bool:
    """Put such a pod on a node that is there, if it takes one."""
    if node.full(stage):
        return False
    wanted = node.wanted(stage)
    return wanted is not None and node.add(stage, wanted, ())


def _stage_on(node: ExistingNode, of: PackingClass) -> Stage | None:
    """What a pod of the class requires, if one fits on the node."""
    if any(amount > node.free.get(name, 0) for name, amount in of.amounts.items()):
        return None
    return next((stage for stage in of.stages if take(StandingNode(node), stage)), None)


def undominated(bins: Sequence[tuple[NewNodeKind, Bin]], most: Sequence[int]) -> list[tuple[NewNodeKind, Bin]]:
    """Without those that another kind beats: it takes the same pods and more, for no more money and no more of any
    limit. ``most``: more of a resource than this nobody needs."""
    cheapest: dict[tuple[object, ...], tuple[NewNodeKind, Bin]] = {}
    for offer, one in sorted(bins, key=lambda pair: (pair[1].price, pair[0].offering)):
        room = tuple(min(room, top) for room, top in zip(one.room, most, strict=True))
        cheapest.setdefault((room, one.admits, one.charges), (offer, replace(one, room=room)))
    alike: dict[tuple[int, ...], list[tuple[NewNodeKind, Bin]]] = {}
    for pair in cheapest.values():
        alike.setdefault(tuple(row for row, _ in pair[1].charges), []).append(pair)
    return [pair for pairs in alike.values() for pair in _best_of(pairs)]


def _best_of(pairs: Sequence[tuple[NewNodeKind, Bin]]) -> Iterator[tuple[NewNodeKind, Bin]]:
    """Of kinds that take of the same limits, by price, those that none before them beats."""
    classes = len(pairs[0][0].stages)
    admits = np.zeros((len(pairs), classes), dtype=np.bool_)
    for at, (_, one) in enumerate(pairs):
        admits[at, list(one.admits)] = True
    rooms = np.array([one.room for _, one in pairs], dtype=np.int64)
    charges = np.array([[amount for _, amount in one.charges] for _, one in pairs], dtype=float)
    kept = np.zeros(len(pairs), dtype=np.bool_)
    for at, pair in enumerate(pairs):
        beaten = kept[:at] & (admits[:at] >= admits[at]).all(axis=1) & (rooms[:at] >= rooms[at]).all(axis=1)
        if not (beaten & (charges[:at] <= charges[at]).all(axis=1)).any():
            kept[at] = True
            yield pair


def _flavours(template: PoolTemplate, classes: Sequence[PackingClass]) -> Iterator[Requirements]:
    """Each choice of values for labels of the user's own that the NodePool leaves open and pods ask for."""
    known = labels.well_known()
    asked = [stage.step.requirements for of in classes for stage in of.stages]
    open_: list[list[Requirement]] = []
    for key, own in sorted(template.requirements.items()):
        if key in known or key in STATED or (not own.complement and len(own.values) <= 1):
            continue
        wanted = {value for one in asked if key in one and not one[key].complement for value in one[key].values}
        values = sorted(value for value in wanted if own.has(value))
        if values:
            open_.append([Requirement.of(key, "In", (value,)) for value in values])
    for chosen in itertools.islice(itertools.product(*open_), _MOST_FLAVOURS):
        yield Requirements(chosen)


def _pinned(only: OfferingKey | None) -> Requirements:
    if only is None:
        return Requirements()
    wanted = {
        labels.INSTANCE_TYPE: only.instance_type,
        labels.ZONE: only.zone,
        labels.CAPACITY_TYPE: only.capacity_type,
    }
    return Requirements.of_labels(wanted)


def _devices(resources: Sequence[str]) -> frozenset[str]:
    return frozenset(name for name in resources if "/" in name and not name.startswith("vpc."))
