"""What a node offers, as it is written into the columns: its labels, amounts of resources, devices and their parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tonnage.fleet import holding
from tonnage.fleet.cards import NO_DEVICE, Chosen
from tonnage.fleet.devices import Cut
from tonnage.fleet.outfit import Outfit, offered, outfit
from tonnage.fleet.rows import HOSTNAME, Conflict, NodeRow, NodeSpec
from tonnage.fleet.tables import OTHERS, Tables

Amounts = NDArray[np.int64]
"""One for each of the fleet's resources."""


def amounts(fleet: Tables, by_name: Mapping[str, int]) -> Amounts:
    """Amounts by name as a row of columns; new resources get one. What stands for very many others has none."""
    columns = {fleet.resource(name): amount for name, amount in by_name.items()}
    found = np.zeros(fleet.free.shape[1], np.int64)
    for column, amount in columns.items():
        found[column] = amount if fleet.resources[column] != OTHERS else 0
    return found


def put_labels(fleet: Tables, row: int, labels: Mapping[str, str]) -> None:
    """Write a node's labels; what it holds stays as it was."""
    node = fleet.node(row)
    node.labels = node.spec.labelled(labels)
    shared = {key: value for key, value in node.labels.items() if key != HOSTNAME}
    fleet.label_set[row] = fleet.label_sets.intern(tuple(sorted(shared.items())), shared)


def put_allocatable(fleet: Tables, row: int, given: Amounts, held: Mapping[int, Chosen] | None = None) -> None:
    """Write what a node can hold, and the devices of that. ``held``: what its pods then hold; None: what they do."""
    new = _outfit(fleet, fleet.node(row), given)
    holding.refit(fleet, row, new, amounts(fleet, new.allocatable), held)


def _outfit(fleet: Tables, node: NodeRow, given: Amounts) -> Outfit:
    named = zip(fleet.resources, given.tolist(), strict=False)
    return outfit(node, {name: amount for name, amount in named if amount})


def check_kept(fleet: Tables, row: int, given: Amounts) -> None:
    """Raises Conflict when the pods of a node hold more than these amounts, or a device that would be gone."""
    node = fleet.node(row)
    short = np.flatnonzero(given < fleet.allocatable[row] - fleet.free[row])
    if len(short):
        raise Conflict(f"node {node.spec.name}: its pods hold more {fleet.resources[short[0]]} than that")
    new = _outfit(fleet, node, given)
    if not all(new.same(fleet.cards, row, device) for device in holding.in_use(fleet, row)):
        raise Conflict(f"node {node.spec.name}: a device that a pod holds cannot be taken away")


def recut(fleet: Tables, row: int, new: tuple[Cut, ...], held: Mapping[int, Chosen]) -> tuple[NodeSpec, dict[str, int]]:
    """The spec of a node, and what it can hold by resource, when its devices are partitioned so. Raises Conflict when
    its pods hold (``held``) a device or an instance that would be gone, and ValueError when there is not one cut for
    each device."""
    node = fleet.node(row)
    spec = node.spec
    old = [fleet.cards.cut_of(row, device) for device in range(int((fleet.devices[row] != NO_DEVICE).sum()))]
    if len(new) != len(old):
        raise ValueError(f"node {spec.name} has {len(old)} devices, not {len(new)}")
    after = replace(spec, cuts=(*new, *node.cuts[len(new) :]))
    for device in holding.in_use(fleet, row):
        pieces = [piece for chosen in held.values() for piece in chosen[1] if piece.device == device]
        if not new[device].keeps(old[device], pieces):
            raise Conflict(f"node {spec.name}: device {device} is in use and would be repartitioned")
    memory = outfit(replace(node, spec=after), {}).memory
    if held and memory != fleet.cards.memory[row]:
        raise Conflict(f"node {spec.name}: its devices are in use and would have {memory} MiB then")
    more = fleet.allocatable_of(row)
    for sign, of in ((-1, old), (1, new)):
        for name, n in offered(of, spec.device_resource).items():
            more[name] = more.get(name, 0) + sign * n
    return after, more
