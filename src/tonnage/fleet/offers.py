"""What a node offers, as it is written into the columns: amounts of resources, devices and their parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tonnage.fleet.cards import NO_DEVICE, SHARED_DEVICE, Cards, Chosen
from tonnage.fleet.devices import Cut
from tonnage.fleet.holding import Holding
from tonnage.fleet.node_columns import Amounts, NodeColumns
from tonnage.fleet.outfit import Outfit, offered, outfit
from tonnage.fleet.rows import Conflict, FleetNode, NodeRow


def put_allocatable(holding: Holding, row: int, given: Amounts, held: Mapping[int, Chosen] | None = None) -> None:
    """Write what a node can hold, and the devices of that. ``held``: what its pods then hold; None: what they do."""
    nodes = holding.nodes
    new = _outfit(nodes, nodes.node(row), given)
    holding.refit(row, new, nodes.amounts(new.allocatable), held)


def _outfit(nodes: NodeColumns, node: NodeRow, given: Amounts) -> Outfit:
    named = zip(nodes.resources, given.tolist(), strict=False)
    return outfit(node, {name: amount for name, amount in named if amount})


def check_kept(holding: Holding, row: int, given: Amounts) -> None:
    """Raises Conflict when the pods of a node hold more than these amounts, or a device that would be gone."""
    nodes = holding.nodes
    node = nodes.node(row)
    short = np.flatnonzero(given < nodes.allocatable[row] - nodes.free[row])
    if len(short):
        raise Conflict(f"node {node.spec.name}: its pods hold more {nodes.resources[short[0]]} than that")
    new = _outfit(nodes, node, given)
    if not all(new.same(nodes.cards, row, device) for device in holding.in_use(row)):
        raise Conflict(f"node {node.spec.name}: a device that a pod holds cannot be taken away")


def too_small(cards: Cards, row: int, memory: int) -> bool:
    """Whether parts of devices of this node are held, which may be of more memory than each would have then (MiB).

    A label counts what a driver leaves of a GPU, the facts what its MIG instances are cut of: these differ a little."""
    return bool(memory < cards.memory[row]) and bool((cards.holder[row] == SHARED_DEVICE).any())


def recut(
    holding: Holding, row: int, new: tuple[Cut, ...], held: Mapping[int, Chosen]
) -> tuple[FleetNode, dict[str, int]]:
    """The spec of a node, and what it can hold by resource, when its devices are partitioned so. Raises Conflict when
    its pods hold (``held``) a device or an instance that would be gone, and ValueError when there is not one cut for
    each device."""
    nodes = holding.nodes
    node = nodes.node(row)
    spec = node.spec
    old = [nodes.cards.cut_of(row, device) for device in range(int((nodes.devices[row] != NO_DEVICE).sum()))]
    if len(new) != len(old):
        raise ValueError(f"node {spec.name} has {len(old)} devices, not {len(new)}")
    after = replace(spec, cuts=(*new, *node.cuts[len(new) :]))
    for device in holding.in_use(row):
        pieces = [piece for chosen in held.values() for piece in chosen[1] if piece.device == device]
        if not new[device].keeps(old[device], pieces):
            raise Conflict(f"node {spec.name}: device {device} is in use and would be repartitioned")
    memory = outfit(replace(node, spec=after), {}).memory
    if too_small(nodes.cards, row, memory):
        raise Conflict(f"node {spec.name}: its devices are in use and would have {memory} MiB then")
    more = nodes.allocatable_of(row)
    for sign, of in ((-1, old), (1, new)):
        for name, n in offered(of, spec.device_resource).items():
            more[name] = more.get(name, 0) + sign * n
    return after, more
