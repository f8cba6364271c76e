"""What one card can be changed into around what is in use, each way with its price: the columns of a fleet's plan.

All layouts of a card are worked out once, as sets of bits (one bit a placement), so that the layouts that include what
is in use, and what each destroys and creates, are a few operations on arrays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tonnage.fleet.geometry import Geometry, geometry
from tonnage.partitioning.layouts import Layout, Placement, mask_of, resource


@dataclass(frozen=True, slots=True)
class Prices:
    """What a change costs, in instances destroyed: an idle instance destroyed, one created, a card that had no instance
    cut, and a card that was idle put to use, for each dollar an hour."""

    destroyed: float = 1.0
    created: float = 1.0
    cut: float = 5.0
    dollar: float = 1.0


class Pattern(Struct, frozen=True):
    """``layout``: the card afterwards. ``offers``: how many instances of each profile it then has that are not in use,
    in the order of the profiles asked for."""

    layout: Layout
    offers: tuple[int, ...]
    price: float


class _Table(Struct, frozen=True):
    """Every layout of a card made of some profiles. ``sets``: [L] bits by placement. ``counts``: [L, P] instances by
    profile. ``left``: [L] placements of all profiles that are still free."""

    places: tuple[Placement, ...]
    sets: NDArray[np.int64]
    counts: NDArray[np.int16]
    left: NDArray[np.int16]

    def bits(self, layout: Collection[Placement]) -> int:
        return sum(1 << self.places.index(one) for one in layout)

    def layout(self, row: int) -> Layout:
        bits = int(self.sets[row])
        return tuple(sorted(one for i, one in enumerate(self.places) if bits >> i & 1))


def patterns(
    on: Geometry,
    running: Layout,
    busy: Collection[Placement],
    asked: tuple[str, ...],
    prices: Prices,
    micro_usd_per_hour: int = 0,
) -> list[Pattern]:
    """Every way to offer the profiles ``asked`` on a card, each as cheap as can be, the cheapest first. A way that
    offers no more than another, and costs no less, is left out.

    Of layouts that offer and cost the same, the one that leaves most placements free. Raises InputError for a layout
    that the card cannot have."""
    mask_of(on, running)
    used = {*asked, *(one.profile for one in running)}
    table = _table(on.gpu, tuple(slot.name for slot in on.slots.values() if slot.name in used))
    columns = [i for i, name in enumerate(_names(table)) if name in asked]
    there, held = table.bits(running), table.bits(busy)
    rows = np.flatnonzero(table.sets & held == held)
    sets = table.sets[rows]
    gone = _ones(there & ~sets)
    new = _ones(sets & ~there)
    in_use = np.array([sum(one.profile == name for one in busy) for name in _names(table)], dtype=np.int16)
    offers = (table.counts[rows] - in_use)[:, columns]
    price = prices.destroyed * gone + prices.created * new
    if not running:
        price += prices.cut * (new > 0)
    if not busy:
        price += prices.dollar * micro_usd_per_hour / 1e6 * (offers.any(axis=1))
    order = np.lexsort((rows, -table.left[rows], price))
    cheapest: dict[tuple[int, ...], tuple[int, float]] = {}
    for at in order.tolist():
        cheapest.setdefault(tuple(offers[at].tolist()), (int(rows[at]), float(price[at])))
    names = [_names(table)[i] for i in columns]
    by_asked = [names.index(name) if name in names else -1 for name in asked]
    found = [
        Pattern(table.layout(row), tuple(offer[i] if i >= 0 else 0 for i in by_asked), cost)
        for offer, (row, cost) in _undominated(cheapest).items()
    ]
    return sorted(found, key=lambda one: (one.price, one.offers))


def _undominated(
    found: Mapping[tuple[int, ...], tuple[int, float]],
) -> dict[tuple[int, ...], tuple[int, float]]:
    """Without the offers that another one covers for no more."""
    offers = np.array(list(found), dtype=np.int16).reshape(len(found), -1)
    costs = np.array([cost for _, cost in found.values()])
    covers = (offers[:, None, :] <= offers[None, :, :]).all(axis=2) & (costs[:, None] >= costs[None, :])
    np.fill_diagonal(covers, False)  # offers differ, so of two that cover each other there are none
    kept = np.flatnonzero(~covers.any(axis=1)).tolist()
    rows = list(found.items())
    return dict(rows[at] for at in kept)


_ONES = np.array([number.bit_count() for number in range(1 << 16)], dtype=np.int64)


def _ones(sets: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many bits of each are set; of 48."""
    counts: NDArray[np.int64] = _ONES[sets & 0xFFFF] + _ONES[sets >> 16 & 0xFFFF] + _ONES[sets >> 32 & 0xFFFF]
    return counts


def _names(table: _Table) -> list[str]:
    return list(dict.fromkeys(one.profile for one in table.places))


@lru_cache(maxsize=256)
def _table(gpu: str, profiles: tuple[str, ...]) -> _Table:
    """Every layout made of these profiles, in the card's order; the empty one first."""
    on = geometry(gpu)
    assert on is not None
    places = tuple(Placement(start, name) for name in profiles for start in on.slots[resource(on, name)].spans)
    spans = [on.slots[resource(on, one.profile)].spans[one.start] for one in places]
    sets, masks = [0], [0]
    for i, span in enumerate(spans):
        free = [at for at, mask in enumerate(masks) if not mask & span]
        sets += [sets[at] | 1 << i for at in free]
        masks += [masks[at] | span for at in free]
    all_sets = np.array(sets, dtype=np.int64)
    counts = np.zeros((len(sets), len(profiles)), dtype=np.int16)
    for i, one in enumerate(places):
        counts[:, profiles.index(one.profile)] += (all_sets >> i & 1).astype(np.int16)
    left = {mask: on.left(mask) for mask in set(masks)}
    return _Table(places, all_sets, counts, np.array([left[mask] for mask in masks], dtype=np.int16))
