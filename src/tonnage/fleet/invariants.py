"""What must hold after every step. Derived tables are rebuilt from the bindings and compared."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from tonnage.fleet.asks import FULL, as_numbers
from tonnage.fleet.claim_asks import is_extended
from tonnage.fleet.claim_needs import ClaimKey
from tonnage.fleet.devices import How
from tonnage.fleet.outfit import outfit
from tonnage.fleet.rows import PodRow
from tonnage.fleet.state import FREE_DEVICE, HOSTNAME, NO_DEVICE, SHARED_DEVICE, Fleet

COLUMNS = ("holder", "milli", "mib", "mask", "sharers")


def violations(fleet: Fleet) -> list[str]:
    """Every broken invariant as one sentence; empty when all hold."""
    columns, broken = _device_columns(fleet)
    return [
        *_resources(fleet, columns),
        *broken,
        *_devices(fleet, columns),
        *_pods(fleet),
        *_nodes(fleet),
        *_claims(fleet),
    ]


Columns = dict[str, NDArray[np.int32]]


def _device_columns(fleet: Fleet) -> tuple[Columns, list[str]]:
    """The columns of :class:`~tonnage.fleet.cards.Cards`, built from what the pods hold; and what cannot be so."""
    cards, found = fleet.cards, []
    there = cards.holder != NO_DEVICE
    columns = {
        "holder": np.where(there, FREE_DEVICE, NO_DEVICE).astype(np.int32),
        "milli": there.astype(np.int32) * FULL,
        "mib": there * cards.memory[:, None],
        "mask": np.zeros_like(cards.mask),
        "sharers": np.zeros_like(cards.sharers),
    }
    holder, milli, mib, mask, sharers = (columns[name] for name in COLUMNS)
    bound = [(row, pod) for row, pod in enumerate(fleet.pods) if pod is not None and pod.node >= 0]
    for _, pod in bound:
        for piece in pod.pieces:
            at = pod.node, piece.device
            if holder[at] == NO_DEVICE:
                found.append(f"node row {pod.node}: a part of device {piece.device} is held that does not exist")
            if mask[at] & piece.mask:
                found.append(f"node row {pod.node}: two instances overlap on device {piece.device}")
            holder[at] = SHARED_DEVICE
            milli[at] -= piece.milli
            mib[at] -= piece.mib
            mask[at] |= piece.mask
            sharers[at] += 1
    for row, pod in bound:
        shared = {piece.device for piece in pod.pieces}
        for device in pod.devices:
            at = pod.node, device
            if device not in shared:
                if holder[at] != FREE_DEVICE:
                    found.append(f"node row {pod.node}: device {device} is held twice or does not exist")
                holder[at], milli[at], mib[at] = row, 0, 0
    for name in ("milli", "mib"):
        for row, device in np.argwhere(columns[name] < 0):
            found.append(f"node row {row}: more {name} of device {device} are held than it has")
    return columns, found


def _corrections(fleet: Fleet, columns: Columns) -> NDArray[np.int64]:
    """What devices change in the nodes' free resources beyond the pods' requests."""
    more = np.zeros_like(fleet.free)
    cards = fleet.cards
    touched = (columns["holder"] >= 0) | (columns["holder"] == SHARED_DEVICE)
    for row, device in np.argwhere(touched):
        holder = int(columns["holder"][row, device])
        cut, own = cards.cut_of(row, device), fleet.device_unit(row)
        if cut.how is How.OPEN and holder == SHARED_DEVICE:
            more[row, fleet.resource(own)] -= 1
        elif cut.how is How.SPLIT:
            taken = int(columns["sharers"][row, device]) if holder < 0 else cut.replicas - 1
            more[row, fleet.resource(cut.resource or own)] -= taken
        elif cut.dynamic:
            empty, now = cut.geometry.capacity(0), cut.geometry.capacity(int(columns["mask"][row, device]))
            for name in now:
                more[row, fleet.resource(name)] += (now[name] if holder < 0 else 0) - empty[name]
            if cut.whole and holder == SHARED_DEVICE:
                more[row, fleet.resource(cut.resource or own)] -= 1
    for pod in fleet.pods:
        for piece in pod.pieces if pod else ():
            if pod and piece.what and cards.cut_of(pod.node, piece.device).dynamic:
                more[pod.node, fleet.resource(piece.what)] += 1
    return more


def _resources(fleet: Fleet, columns: Columns) -> list[str]:
    found = []
    free = fleet.allocatable + fleet.uncounted + _corrections(fleet, columns)
    for pod in fleet.pods:
        if pod is not None and pod.node >= 0:
            for column, amount in fleet.requests(fleet.classes.rows[pod.class_id].shape):
                free[pod.node, column] -= amount
    for row in np.flatnonzero((free != fleet.free).any(axis=1)):
        found.append(f"node row {row}: free resources differ from a rebuild")
    for row in np.flatnonzero((free < 0).any(axis=1)):
        short = [fleet.resources[c] for c in np.flatnonzero(free[row] < 0)]
        found.append(f"node row {row}: more allocated than allocatable: {', '.join(short)}")
    return found


def _devices(fleet: Fleet, columns: Columns) -> list[str]:
    found = []
    cards = fleet.cards
    if any((column != getattr(cards, name)).any() for name, column in columns.items()):
        found.append("the device table differs from a rebuild")
    for row, pod in enumerate(fleet.pods):
        if pod is not None and pod.node >= 0:
            found += [f"pod row {row}: {text}" for text in _held(fleet, row, pod)]
    for row, node in enumerate(fleet.nodes):
        there = int((cards.holder[row] != NO_DEVICE).sum())
        new = outfit(node, fleet.allocatable_of(row)) if node else None
        if there != (new.count if new else 0):
            found.append(f"node row {row}: {there} devices, {new.count if new else 0} allocatable")
        elif new and there and not new.all_same(cards, row):
            found.append(f"node row {row}: its devices are not those that its labels and resources say")
    return found


def _held(fleet: Fleet, row: int, pod: PodRow) -> list[str]:
    """What is wrong with a bound pod's devices: too few, or an instance that is not on its card."""
    found = []
    pod_class = fleet.classes.rows[pod.class_id]
    ask, cards = fleet.classes.shapes[pod_class.shape].ask, fleet.cards
    ask = as_numbers(ask) if cards.numbers[pod.node] else ask
    claims = fleet.device_claims.claims
    special = bool(cards.special[pod.node])
    unit = fleet.device_unit(pod.node)
    wanted = ask.count if ask.shares else pod_class.requests.get(unit, 0) * (unit not in fleet.served(pod.node))
    if not ask.shares and any(is_extended(claims[key]) for key in fleet.device_claims.used_by(row) if key in claims):
        wanted = 0
    if special and any(cards.cut_of(pod.node, device).how is How.MIG for device in pod.devices):
        wanted += sum(n for _, n in ask.profiles)
    shared = {piece.device for piece in pod.pieces}
    holds = len(pod.pieces) + sum(device not in shared for device in pod.devices)
    if holds != wanted:
        found.append(f"holds {holds} devices, requests {wanted}")
    if ask.shares and len(shared) != len(pod.pieces):
        found.append("holds two parts of one device")
    for piece in pod.pieces:
        cut = cards.cut_of(pod.node, piece.device)
        if cut.how is How.SPLIT or cut.how is How.REPLICAS:
            if cards.sharers[pod.node, piece.device] > cut.replicas:
                found.append(f"device {piece.device} has more sharers than replicas")
        elif (cut.how is How.MIG) != bool(piece.what):
            found.append(f"device {piece.device} does not give that")
        elif cut.instances is not None and (piece.what, piece.mask) not in {
            (name, cut.geometry.span(name, start)) for name, start in cut.instances
        }:
            found.append(f"device {piece.device} has no such instance")
    return found


def _pods(fleet: Fleet) -> list[str]:
    found = []
    keys: dict[tuple[str, str], int] = {}
    pending: set[int] = set()
    bound: dict[int, dict[int, int]] = {}
    leaving: Counter[tuple[int, int]] = Counter()
    for row, pod in enumerate(fleet.pods):
        if pod is None:
            continue
        keys[pod.spec.namespace, pod.spec.name] = row
        if pod.node < 0:
            pending.add(row)
        else:
            on_nodes = bound.setdefault(pod.class_id, {})
            on_nodes[pod.node] = on_nodes.get(pod.node, 0) + 1
            if pod.spec.leaving:
                leaving[pod.class_id, pod.node] += 1
    if keys != fleet.pod_by_key:
        found.append("the pod index differs from the pod table")
    if pending != set(fleet.pending):
        found.append("the pending pods differ from the pods without a node")
    if Counter(pod.spec.priority for pod in fleet.pods if pod is not None and pod.node >= 0) != fleet.priorities:
        found.append("the bound pods by priority differ from the pod table")
    if bound != {class_id: on_nodes for class_id, on_nodes in fleet.bound.items() if on_nodes}:
        found.append("the pods of a class per node differ from the pod table")
    if leaving != {(number, at): n for number, nodes in fleet.leaving.items() for at, n in nodes.items()}:
        found.append("the pods that are being deleted differ from the pod table")
    return found


def _claims(fleet: Fleet) -> list[str]:
    """What ResourceClaims hold, and who uses them."""
    users: dict[ClaimKey, set[int]] = {}
    for row, pod in enumerate(fleet.pods):
        for key in pod.spec.claims.used if pod is not None and pod.node >= 0 else ():
            users.setdefault(key, set()).add(row)
    return [*fleet.device_claims.ledger.violations(users), *_served(fleet)]


def _served(fleet: Fleet) -> list[str]:
    """Extended resources that claims serve: where classes do, and nodes have none themselves."""
    found, by_class = [], fleet.device_claims.served
    for name, row in sorted(fleet.node_by_name.items()):
        own = fleet.allocatable_of(row)
        there = {one for one in fleet.resources if one in by_class and not own.get(one)}
        free = there if fleet.cards.numbers[row] else there | set(fleet.parts)
        counted = {one for one, more in zip(fleet.resources, fleet.uncounted[row], strict=False) if not more}
        if there != fleet.served(row) or not counted.isdisjoint(free) or len(counted | free) < len(fleet.resources):
            found.append(f"node {name}: what claims serve there is not what classes serve and the node has not")
    return found


def _nodes(fleet: Fleet) -> list[str]:
    found = []
    held: dict[int, set[int]] = {}
    for row, pod in enumerate(fleet.pods):
        if pod is not None and pod.node >= 0:
            held.setdefault(pod.node, set()).add(row)
    names = {node.spec.name: row for row, node in enumerate(fleet.nodes) if node is not None}
    if names != fleet.node_by_name:
        found.append("the node index differs from the node table")
    if set(np.flatnonzero(fleet.alive).tolist()) != set(names.values()):
        found.append("the nodes that are alive differ from the node table")
    if (fleet.schedulable & ~fleet.alive).any():
        found.append("a row without a node is schedulable")
    for name, row in names.items():
        node = fleet.node(row)
        if held.get(row, set()) != node.pods:
            found.append(f"node {name}: its pods differ from the pod table")
        if fleet.label_sets.rows[fleet.label_set[row]] != {k: v for k, v in node.labels.items() if k != HOSTNAME}:
            found.append(f"node {name}: its label set is not its labels")
        if fleet.taint_sets.rows[fleet.taint_set[row]] != node.taints:
            found.append(f"node {name}: its taint set is not its taints")
    return found
