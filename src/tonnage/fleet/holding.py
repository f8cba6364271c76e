"""Which pods stand on a node and hold what of its devices: choosing, taking, releasing, and what is left when a node
changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tonnage.fleet import search
from tonnage.fleet.asks import FULL, Ask, as_numbers
from tonnage.fleet.cards import FREE_DEVICE, NO_CHOICE, SHARED_DEVICE, Chosen
from tonnage.fleet.classes import PodClass
from tonnage.fleet.devices import How, Piece
from tonnage.fleet.node_columns import Amounts, NodeColumns, Requests
from tonnage.fleet.outfit import Outfit
from tonnage.fleet.pod_columns import PodColumns
from tonnage.fleet.rows import Conflict, PodRow

Place = tuple[int, int | None]
"""(index of a device, first memory slice of a MIG instance on it)."""


def of_each(pod: PodRow) -> list[tuple[int, int]]:
    """(device, thousandths of it that the pod has: of a part, of its compute)."""
    if not pod.pieces:
        return [(device, FULL) for device in pod.devices]
    apart = {piece.device for piece in pod.pieces}
    whole = [(device, FULL) for device in pod.devices if device not in apart]
    return whole + [(piece.device, piece.milli) for piece in pod.pieces]


def milli(pod: PodRow) -> int:
    """Thousandths of devices that the pod has."""
    if not pod.pieces:
        return FULL * len(pod.devices)
    found, apart = 0, set()
    for piece in pod.pieces:
        found += piece.milli
        apart.add(piece.device)
    return found + FULL * sum([device not in apart for device in pod.devices])


class Holding:
    """Which pods stand on which nodes, and what they hold of the devices: what is written of it is written of both."""

    def __init__(self, nodes: NodeColumns, pods: PodColumns) -> None:
        self.nodes, self.pods = nodes, pods

    def held(self, row: int) -> dict[int, Chosen]:
        """What the node's pods have of its devices, by pod row."""
        pods = ((pod_row, self.pods.pod(pod_row)) for pod_row in sorted(self.nodes.node(row).pods))
        return {pod_row: (pod.devices, pod.pieces) for pod_row, pod in pods if pod.devices}

    def in_use(self, row: int) -> list[int]:
        """The node's devices that something is on."""
        holder = self.nodes.devices[row]
        return [int(device) for device in np.flatnonzero((holder >= 0) | (holder == SHARED_DEVICE))]

    def choose(self, pod_class: PodClass, row: int, wanted: Sequence[int] | None, *, observed: bool = False) -> Chosen:
        """The devices of the node for a pod of this class; nothing changes.

        Raises Conflict when they are not free or not enough, unless that was ``observed``: then those that are."""
        ask = self.pods.classes.shapes[pod_class.shape].ask
        cards = self.nodes.cards
        if ask.shares or cards.special[row]:
            return self._parts(ask, pod_class, row, wanted, observed=observed)
        column = cards.unit.item(row)
        count = self._whole(pod_class, row, self.nodes.resources[column]) if column >= 0 else 0
        if not count and not wanted:
            return NO_CHOICE
        holder = cards.holder[row].tolist()
        if wanted is None and count == 1 and FREE_DEVICE in holder:
            return (holder.index(FREE_DEVICE),), ()
        if wanted is None:
            chosen = tuple([device for device, by in enumerate(holder) if by == FREE_DEVICE][:count])
        else:
            free = {device for device, by in enumerate(holder) if by == FREE_DEVICE}
            chosen = tuple([device for device in wanted if device in free]) if observed else tuple(wanted)
            if not free.issuperset(chosen):
                raise Conflict(f"node {self.nodes.node(row).spec.name}: a device of {chosen} is not free")
        if not len(chosen) == len(set(chosen)) == count and not observed:
            raise Conflict(f"node {self.nodes.node(row).spec.name}: {count} devices requested, not {chosen}")
        return chosen, ()

    def _whole(self, pod_class: PodClass, row: int, resource: str) -> int:
        """How many whole devices of the node the pod is to have: none where claims serve the resource."""
        return 0 if resource in self.nodes.served[row] else pod_class.requests.get(resource, 0)

    def stand(self, pod_class: PodClass, row: int, places: Sequence[Place]) -> Chosen:
        """What a pod of this class has that stands, as was observed, in these places of the node; where such a place
        is not free here, what is chosen among the devices."""
        chosen = self.choose(pod_class, row, [device for device, _ in places], observed=True)
        left, pieces = list(places), []
        for piece in chosen[1]:
            found = next((place for place in left if self._fits(row, piece, place)), None)
            if found is not None:
                left.remove(found)
                piece = piece._replace(mask=self._span(row, piece, found))
            pieces.append(piece)
        masks = [(piece.device, piece.mask) for piece in pieces if piece.mask]
        apart = all(not a[1] & b[1] for i, a in enumerate(masks) for b in masks[:i] if a[0] == b[0])
        return (chosen[0], tuple(pieces)) if apart else chosen

    def _fits(self, row: int, piece: Piece, place: Place) -> bool:
        """Whether the MIG instance can stand in that place as things are."""
        span = self._span(row, piece, place) if piece.mask and place[0] == piece.device else 0
        return bool(span) and not span & int(self.nodes.cards.mask[row, piece.device])

    def _span(self, row: int, piece: Piece, place: Place) -> int:
        """The slices of the instance that was made there for the piece; 0: none was."""
        cut = self.nodes.cards.cut_of(row, piece.device)
        made = place[1] is not None and (piece.what, place[1]) in (cut.instances or ())
        return cut.geometry.named(piece.what).spans.get(place[1] or 0, 0) if made else 0

    def claim(self, pod_class: PodClass, row: int) -> Chosen:
        """What keeps room on the node for a pod of this class that is to stand on devices which are not free yet: those
        that are, and where some are missing, what is free of the shared ones, as it may wait for just these."""
        chosen, cards = self.choose(pod_class, row, None, observed=True), self.nodes.cards
        ask, resource = self.pods.classes.shapes[pod_class.shape].ask, self.nodes.unit(row)
        ask = as_numbers(ask) if cards.numbers[row] else ask
        if len(set(chosen[0])) >= (ask.count if ask.shares else self._whole(pod_class, row, resource)):
            return chosen
        devices, pieces = chosen
        for device in np.flatnonzero((cards.holder[row] == SHARED_DEVICE) & (cards.milli[row] > 0)).tolist():
            if device not in devices and cards.cut_of(row, device).how is How.OPEN:
                pieces += (Piece(device, int(cards.milli[row, device]), int(cards.mib[row, device])),)
        return (*devices, *(piece.device for piece in pieces if piece.device not in devices)), pieces

    def _parts(
        self, ask: Ask, pod_class: PodClass, row: int, wanted: Sequence[int] | None, *, observed: bool
    ) -> Chosen:
        """:meth:`choose` where devices are shared."""
        resource = self.nodes.unit(row)
        count = self._whole(pod_class, row, resource) if resource else 0
        ask = as_numbers(ask) if self.nodes.cards.numbers[row] else ask
        if not (ask.count or ask.refused) and ask.shares:
            chosen, missing = NO_CHOICE, ""
        elif ask.shares and (ask.refused or ask.resource != resource):
            chosen, missing = NO_CHOICE, ask.resource
        else:
            chosen, missing = search.choose(self.nodes.cards, row, ask, count, wanted, observed=observed)
        if not observed and (missing or (wanted is not None and set(wanted) != set(chosen[0]))):
            name, among = self.nodes.node(row).spec.name, "" if wanted is None else f" on devices {tuple(wanted)}"
            raise Conflict(ask.refused or f"node {name} has no room for the pod's {missing or 'devices'}{among}")
        return chosen

    # ---- what is written ----

    def put(self, pod_row: int, pod: PodRow, node_row: int, requests: Requests, chosen: Chosen) -> None:
        """Let a pending pod stand on the node, on devices that are free. ``requests``: of its shape."""
        pods = self.pods
        free = self.nodes.free[node_row]
        for column, amount in requests:
            free[column] -= amount
        if chosen[0]:
            self.take(node_row, chosen, pod_row)
        pod.devices, pod.pieces = chosen
        pod.node = node_row
        self.nodes.node(node_row).pods.add(pod_row)
        del pods.pending[pod_row]
        pods.count(pod, node_row, 1)

    def lift(self, pod_row: int, pod: PodRow, requests: Requests) -> None:
        """Undo :meth:`put`."""
        pods = self.pods
        node_row = pod.node
        free = self.nodes.free[node_row]
        for column, amount in requests:
            free[column] += amount
        if pod.devices:
            self.give_back(node_row, (pod.devices, pod.pieces))
        self.nodes.node(node_row).pods.discard(pod_row)
        pod.node, pod.devices, pod.pieces = -1, (), ()
        pods.pending[pod_row] = None
        pods.count(pod, node_row, -1)

    def take(self, row: int, chosen: Chosen, pod_row: int) -> None:
        """Put the pod on its devices."""
        if not chosen[1] and not self.nodes.cards.special[row]:
            self.nodes.cards.hold(row, chosen[0], pod_row)
            return
        for name, more in self.nodes.cards.take(row, chosen, self.nodes.unit(row), pod_row):
            column = self.nodes.resource(name)
            self.nodes.free[row, column] += more

    def give_back(self, row: int, chosen: Chosen) -> None:
        """Undo :meth:`take`."""
        if not chosen[1] and not self.nodes.cards.special[row]:
            self.nodes.cards.release(row, chosen[0])
            return
        for name, more in self.nodes.cards.give_back(row, chosen, self.nodes.unit(row)):
            column = self.nodes.resource(name)
            self.nodes.free[row, column] += more

    def refit(self, row: int, new: Outfit, amounts: Amounts, restored: Mapping[int, Chosen] | None) -> None:
        """Give the node these devices, and these amounts as its allocatable. Its pods then have what they had of
        devices that are as before, and of the others what these give; or, where given, what is to be ``restored``."""
        cards, node = self.nodes.cards, self.nodes.node(row)
        changed = {device for device in self.in_use(row) if not new.same(cards, row, device)}
        before = self.held(row)
        lifted = before if changed or restored is not None else {}
        for pod_row, chosen in lifted.items():
            self.give_back(row, chosen)
            self._note(pod_row, NO_CHOICE)
        without = sorted(node.pods - set(before)) if node.cuts != new.cuts else []
        self.nodes.put_amounts(row, amounts, numbers=new.numbers)
        node.cuts = new.cuts
        cards.lay(row, new.cuts, new.count, new.memory, self.nodes.resource(new.unit) if new.unit else -1)
        kept = {pod: chosen for pod, chosen in lifted.items() if not changed & set(chosen[0])}
        for pod_row, chosen in (kept if restored is None else restored).items():
            self.take(row, chosen, pod_row)
            self._note(pod_row, chosen)
        for pod_row in (*sorted(set(lifted) - set(kept)), *without) if restored is None else ():
            there = None if pod_row not in lifted else [device for device in lifted[pod_row][0] if device < new.count]
            pod_class = self.pods.classes.rows[self.pods.pod(pod_row).class_id]
            chosen = self.choose(pod_class, row, there, observed=True)
            self.take(row, chosen, pod_row)
            self._note(pod_row, chosen)

    def _note(self, pod_row: int, chosen: Chosen) -> None:
        pod = self.pods.pod(pod_row)
        pod.devices, pod.pieces = chosen
