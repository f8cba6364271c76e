"""Which nodes have room for a shape, and on which devices of a node an ask can stand."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tonnage.fleet.asks import FULL, Ask, Kind, as_numbers
from tonnage.fleet.cards import FREE_DEVICE, SHARED_DEVICE
from tonnage.fleet.classes import Shape
from tonnage.fleet.devices import DeviceState, How, Piece
from tonnage.fleet.search import PieceSearch, asked_of, choose, ways
from tonnage.fleet.state import Fleet

Mask = NDArray[np.bool_]
Rows = NDArray[np.intp]
NO_MEMORY = "node(s) do not say how much memory their GPUs have"


class DeviceFit(NamedTuple):
    """One way to stand on a node: the pieces (of whole devices none), and each device before and after."""

    devices: tuple[int, ...]
    pieces: tuple[Piece, ...]
    before: tuple[DeviceState, ...]
    after: tuple[DeviceState, ...]


def fits(fleet: Fleet, rows: Rows, shape: Shape) -> Mask:
    """Whether each of these nodes has the shape's resources and devices free, by position in ``rows``."""
    requests = fleet.requests(shape.id)
    columns, needs = [column for column, _ in requests], [amount for _, amount in requests]
    there = np.atleast_1d((fleet.free[rows][:, columns] >= needs).all(axis=1))
    if needs_devices(fleet, shape.ask):
        there[there] = gives(fleet, rows[there], shape.ask)
    return there


def needs_devices(fleet: Fleet, ask: Ask) -> bool:
    """Whether the node's resources alone do not say whether it can give this."""
    return ask.shares or bool(ask.refused) or (ask.kind is not Kind.NONE and bool(fleet.cards.special.any()))


def gives(fleet: Fleet, rows: Rows, ask: Ask) -> Mask:
    """Whether the devices of each of these nodes, whose free resources cover the requests, give what is asked."""
    if ask.plain >= 0 and (numbers := fleet.cards.numbers[rows]).any():
        found = np.zeros(len(rows), np.bool_)
        found[numbers] = _give_parts(fleet, rows[numbers], as_numbers(ask)) if ask.plain else True
        found[~numbers] = gives(fleet, rows[~numbers], ask)
        return found
    if ask.refused:
        return np.zeros(len(rows), np.bool_)
    if ask.shares:
        return _give_parts(fleet, rows, ask)
    there = np.ones(len(rows), np.bool_)
    special = np.flatnonzero(fleet.cards.special[rows])
    if ask.count and len(special):
        there[special] = _give_units(fleet, rows[special], ask)
    if len(ask.profiles) + bool(ask.count) > 1:
        dynamic = np.array([cut.dynamic for cut in fleet.cards.cuts.rows])
        for i in special[dynamic[fleet.cards.cut[rows[special]]].any(axis=1)]:
            count = ask.count if ask.resource == fleet.device_unit(int(rows[i])) else 0
            there[i] &= not choose(fleet.cards, int(rows[i]), ask, count)[1]
    return there


def gives_on(fleet: Fleet, row: int, ask: Ask) -> bool:
    """:func:`gives` for one node."""
    if ask.refused or not ask.shares or fleet.cards.special[row] or fleet.cards.numbers[row]:
        return bool(gives(fleet, np.array([row]), ask)[0])
    counted = int(fleet.cards.unit[row]) == fleet.resource(ask.resource)
    return counted and not choose(fleet.cards, row, ask, 0)[1]


def lack(fleet: Fleet, rows: Rows, ask: Ask) -> tuple[Rows, dict[str, Rows]]:
    """Those of the nodes whose devices give what is asked; and what the others lack, with these nodes."""
    if not needs_devices(fleet, ask):
        return rows, {}
    given = gives(fleet, rows, ask)
    others, plain = rows[~given], np.zeros(0, np.intp)
    if ask.plain >= 0:
        numbers = fleet.cards.numbers[others]
        plain, others = others[numbers], others[~numbers]
    found = {f"Insufficient {ask.resource}": plain} if len(plain) else {}
    if ask.refused:
        return rows[given], {**found, ask.refused: others}
    dumb = np.zeros(len(others), np.bool_)
    if ask.kind is Kind.MEMORY:
        dumb = (fleet.cards.memory[others] == 0) & (fleet.cards.unit[others] == fleet.resource(ask.resource))
    texts = {NO_MEMORY: dumb, f"Insufficient {describe(ask)}": ~dumb}
    return rows[given], {**found, **{text: others[mask] for text, mask in texts.items()}}


def describe(ask: Ask) -> str:
    """What is asked of devices, as a few words."""
    if ask.kind is Kind.MIG:
        return ", ".join(name if n == 1 else f"{n} {name}" for name, n in ask.profiles)
    if not ask.shares:
        return ask.resource
    share = f"{ask.milli / FULL:g} of a device" if ask.milli else ""
    memory = f"{ask.mib} MiB" if ask.mib else f"{ask.percent} % of the memory" if ask.percent else ""
    each = " and ".join(part for part in (memory, share) if part)
    return f"{ask.resource} ({each}{f' on {ask.count} devices' if ask.count > 1 else ''})"


def _give_parts(fleet: Fleet, rows: Rows, ask: Ask) -> Mask:
    """:func:`tonnage.fleet.devices.takes_part` for all devices of the nodes at once."""
    cards = fleet.cards
    memory = cards.memory[rows].astype(np.int64)
    if ask.kind is Kind.SHARE:
        mib, milli = ask.milli * memory // FULL, np.full(len(rows), ask.milli)
    else:
        mib = np.full(len(rows), ask.mib) if ask.mib else ask.percent * memory // 100
        milli = np.full(len(rows), ask.milli)
        if not ask.separate:
            milli = np.maximum(1, mib * FULL // np.maximum(memory, 1))
    holder, sharers = cards.holder[rows], cards.sharers[rows]
    room = (holder == FREE_DEVICE) | (holder == SHARED_DEVICE)
    room &= (cards.milli[rows] >= np.maximum(milli, 1)[:, None]) & (cards.mib[rows] >= mib[:, None])
    if ask.separate and ask.milli == FULL:
        room &= sharers == 0
    if cards.special[rows].any():
        most = np.array([_most_sharers(cut.how, cut.replicas) for cut in cards.cuts.rows])
        room &= sharers < most[cards.cut[rows]]
    there: Mask = (room.sum(axis=1) >= ask.count) & (cards.unit[rows] == fleet.resource(ask.resource))
    return there if ask.kind is Kind.SHARE else there & (memory > 0) & (mib <= memory)


def _most_sharers(how: How, replicas: int) -> int:
    """The most parts of a device that can be given away at once."""
    if how is How.OPEN:
        return np.iinfo(np.int32).max
    return replicas if how is How.SPLIT else 0


def _give_units(fleet: Fleet, rows: Rows, ask: Ask) -> Mask:
    """Whole devices and replicas of nodes where they are not all open."""
    cards = fleet.cards
    cuts = cards.cuts.rows
    whole = np.array([cut.whole or cut.how in (How.OPEN, How.SPLIT) for cut in cuts])
    replicas = np.array([cut.replicas if cut.how is How.REPLICAS else 0 for cut in cuts])
    one = np.array([cut.one_each for cut in cuts])
    cut, holder = cards.cut[rows], cards.holder[rows]
    left = replicas[cut] - cards.sharers[rows]
    if ask.count > 1:
        left = np.where(one[cut], 0, left)
    there = np.where(whole[cut], holder == FREE_DEVICE, left).clip(0)
    there[(holder != FREE_DEVICE) & (holder != SHARED_DEVICE)] = 0
    units: Mask = there.sum(axis=1) >= ask.count
    return units | ~np.isin(cards.unit[rows], [fleet.resource(ask.resource)])


CHOICES = 64
"""The most that are listed: an ask of many MIG instances has thousands."""


def choices(fleet: Fleet, row: int, ask: Ask) -> list[DeviceFit]:
    """The ways to give devices of the node to an ask, one for each different outcome, tightest first; none where it
    does not fit, and one without devices where none are to be given. Its other resources are not looked at."""
    ask = as_numbers(ask) if fleet.cards.numbers[row] else ask
    counts_it = ask.resource == fleet.device_unit(row)
    if ask.refused or (ask.shares and not counts_it):
        return []
    todo = asked_of(fleet.cards, row, ask, ask.count if counts_it else 0)
    return [_choice(way) for way in islice(ways(PieceSearch(fleet.cards, row, ask), todo), CHOICES)]


def _choice(way: PieceSearch) -> DeviceFit:
    devices, pieces = way.chosen
    before = tuple(way.before[device] for device in devices)
    return DeviceFit(devices, pieces, before, tuple(way.after.values()))
