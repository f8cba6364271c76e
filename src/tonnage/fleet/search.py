"""Finding devices of one node for one ask."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple, TypeAlias

import numpy as np

from tonnage.fleet.asks import FULL, Ask, as_numbers
from tonnage.fleet.cards import FREE_DEVICE, NO_CHOICE, NO_DEVICE, SHARED_DEVICE, Cards, Chosen
from tonnage.fleet.devices import Cut, DeviceState, How, Piece, Want, amounts, instances, replica, takes_part, wants

Outcome: TypeAlias = tuple[tuple[int, DeviceState, DeviceState], ...]
"""(number of the cut, before, after) of each device, in order."""

OUTCOMES = 10_000
"""This many are looked at for an ask of several MIG instances; one without room by then is taken to have none."""


def choose(
    cards: Cards, row: int, ask: Ask, count: int, wanted: Sequence[int] | None = None, *, observed: bool = False
) -> tuple[Chosen, str]:
    """Devices and pieces for an ask of this many whole devices or replicas, among ``wanted`` where given; and what
    found no room, empty where all did. Changes nothing.

    Pieces go to the tightest device that has room, whole asks to the lowest free one; the earlier device wins a tie.
    Several MIG instances are tried in other ways too where this leaves one without room. What was ``observed`` may be
    more replicas than a pod should have."""
    if cards.numbers[row]:
        ask = as_numbers(ask)
    if ask.shares and not cards.special[row]:
        return _open_parts(cards, row, ask, wanted)
    search = PieceSearch(cards, row, ask, wanted, observed=observed)
    todo = asked_of(cards, row, ask, count)
    missing = ""
    for want in todo:
        found = min(search.options(want), key=TIGHTEST, default=None)
        if found is None:
            missing = missing or want.what or ask.resource
        else:
            search.add(found)
    if missing and len(ask.profiles) and len(todo) > 1:
        way = next(ways(PieceSearch(cards, row, ask, wanted, observed=observed), todo), None)
        if way is not None:
            return way.chosen, ""
    return search.chosen, missing


def _open_parts(cards: Cards, row: int, ask: Ask, wanted: Sequence[int] | None) -> tuple[Chosen, str]:
    """:func:`choose` for parts of open devices alone, of which there are most: the same, faster."""
    need = amounts(ask, int(cards.memory[row]))
    if need is None:
        return NO_CHOICE, ask.resource
    milli, mib = need
    alone = ask.separate and milli == FULL
    holder, free, left = cards.holder[row].tolist(), cards.milli[row].tolist(), cards.mib[row].tolist()
    among = range(len(holder)) if wanted is None else [one for one in set(wanted) if 0 <= one < len(holder)]
    room = sorted(
        [
            (free[device] - milli, free[device] - milli + left[device] - mib, device)
            for device in among
            if holder[device] in (FREE_DEVICE, SHARED_DEVICE)
            and free[device] >= max(milli, 1)
            and left[device] >= mib
            and not (alone and cards.sharers[row, device])
        ]
    )
    devices = tuple(device for _, _, device in room[: ask.count])
    missing = ask.resource if len(devices) < ask.count else ""
    return (devices, tuple(Piece(device, milli, mib) for device in devices)), missing


def ways(search: PieceSearch, todo: Sequence[Want]) -> Iterator[PieceSearch]:
    """Every way to find room for all pieces, one for each different outcome, tightest first."""
    seen: set[Outcome] = set()

    def go_on(search: PieceSearch, left: Sequence[Want]) -> Iterator[PieceSearch]:
        if not left:
            yield search
            return
        for option in sorted(search.options(left[0], every=True), key=TIGHTEST):
            further = search.copy()
            further.add(option)
            outcome = further.outcome
            if outcome not in seen and len(seen) < OUTCOMES:
                seen.add(outcome)
                yield from go_on(further, left[1:])

    yield from go_on(search, todo)


def asked_of(cards: Cards, row: int, ask: Ask, count: int) -> list[Want]:
    """The pieces that devices of the node are to give. MIG resources that none of them offers are mere numbers, as
    other resources are."""
    found = wants(ask, count)
    if not ask.profiles:
        return found
    cuts = {cards.cut_of(row, int(device)) for device in np.flatnonzero(cards.holder[row] != NO_DEVICE)}
    offered = {name for cut in cuts if cut.how is How.MIG for name in cut.offers("")}
    return [want for want in found if not want.what or want.what in offered]


Tightness: TypeAlias = tuple[int, int, int]
"""The lower, the tighter the device, and the more of what is left of it is worth keeping; last the device."""


class DeviceOption(NamedTuple):
    """One device that has room for one piece of an ask. ``piece``: None where it is taken whole."""

    key: Tightness
    device: int
    piece: Piece | None


TIGHTEST = attrgetter("key")


class PieceSearch:
    """The pieces of one ask found so far on one node, and what its devices would then be."""

    def __init__(
        self, cards: Cards, row: int, ask: Ask, wanted: Sequence[int] | None = None, *, observed: bool = False
    ) -> None:
        self._ask, self._any_number = ask, observed or ask.count <= 1
        self._memory = int(cards.memory[row])
        self._need = amounts(ask, self._memory) if ask.shares else (FULL, 0)
        holder = cards.holder[row].tolist()
        among = range(len(holder)) if wanted is None else sorted(set(wanted))
        there = [d for d in among if 0 <= d < len(holder) and holder[d] in (FREE_DEVICE, SHARED_DEVICE)]
        self.before = {device: cards.state(row, device) for device in there}
        self.cuts = {device: cards.cut_of(row, device) for device in there}
        self._numbers = {device: int(cards.cut[row, device]) for device in there}
        self.after: dict[int, DeviceState] = {}
        self.whole: list[int] = []
        self.pieces: list[Piece] = []

    @property
    def chosen(self) -> Chosen:
        """The devices and pieces found."""
        return tuple(self.after), tuple(self.pieces)

    @property
    def outcome(self) -> Outcome:
        """What becomes of the devices taken, whichever of those that are alike they are."""
        return tuple(sorted((self._numbers[at], self.before[at], after) for at, after in self.after.items()))

    def copy(self) -> PieceSearch:
        """Another that can go on from here."""
        other = copy.copy(self)
        other.after, other.whole, other.pieces = dict(self.after), list(self.whole), list(self.pieces)
        return other

    def add(self, option: DeviceOption) -> None:
        """Take this one."""
        device, piece = option.device, option.piece
        if piece is None:
            self.whole.append(device)
            self.after[device] = DeviceState(0, 0, 0, 0)
        else:
            self.pieces.append(piece)
            self.after[device] = (self.after.get(device) or self.before[device]).without(piece)

    def options(self, want: Want, *, every: bool = False) -> Iterator[DeviceOption]:
        """The devices that have room for one more piece; MIG instances at the best start, or at ``every`` one."""
        if self._need is None:
            return
        for device, before in self.before.items():
            state = self.after.get(device) or before
            if device in self.whole or (want.part and device in self.after):
                continue
            cut = self.cuts[device]
            for piece in self._pieces(cut, state, want, device):
                yield DeviceOption(_tightness(cut, state, piece, want, device in self.after), device, piece)
                if not every:
                    break
            is_whole = cut.whole or cut.how in (How.OPEN, How.SPLIT)
            if not want.what and not want.part and is_whole and not state.sharers:
                yield DeviceOption((-1, 0, device), device, None)

    def _pieces(self, cut: Cut, state: DeviceState, want: Want, device: int) -> Iterator[Piece]:
        if want.part:
            if self._need and takes_part(cut, state, self._ask, *self._need):
                yield Piece(device, *self._need)
        elif want.what:
            if cut.how is How.MIG:
                yield from instances(cut, state, device, want.what)
        elif cut.how is How.REPLICAS and state.sharers < cut.replicas and (self._any_number or not cut.one_each):
            yield replica(cut, device, self._memory)


def _tightness(cut: Cut, state: DeviceState, piece: Piece, want: Want, used: bool) -> Tightness:
    after = state.without(piece)
    if want.what:
        return after.milli, -cut.geometry.left(after.mask), piece.device
    if want.part:
        return after.mib if cut.how is How.SPLIT else after.milli, after.mib + after.milli, piece.device
    return int(used), cut.replicas - after.sharers, piece.device
