"""Node scores by what is left of the devices: FGD, and the policy that prices it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable
from functools import reduce

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tonnage.fleet.asks import FULL, Kind
from tonnage.fleet.classes import Shape
from tonnage.fleet.fits import fits
from tonnage.fleet.state import CPU, MEMORY, Fleet
from tonnage.scheduling.handle import Handle
from tonnage.scheduling.value.choices import NOWHERE, PRECISION, Choices, Weights
from tonnage.scheduling.value.mix import share_of
from tonnage.scheduling.value.states import FEW, NOTHING, DeviceDemand
from tonnage.scheduling.value.valuation import Valuation
from tonnage.scheduling.view import NEVER, TIE_BITS, Ints, NodeTable, ShapeView
from tonnage.units import MIB

Rows = NDArray[np.intp]
Points = NDArray[np.float64]

POINTS_BITS = 26
"""Room for the points of a node, ±33,000, beside which one point of a preference decides: what the user prefers comes
first. A device is worth at most 2 of its like (:data:`tonnage.scheduling.value.worth.MOST`): enough for 40 devices."""
HALF = 1 << POINTS_BITS - 1
MOST_WISHES = 60_000
"""More points of preferences than this, either way, count as this many: a key has no room for more."""
HOST_ALONE = 1_000.0
"""``host`` counts this many times more on nodes without devices, where nothing else counts."""


class Valued(Struct, frozen=True):
    """The placement policy with these weights, as :data:`tonnage.scheduling.policies.PlacementPolicy` says."""

    weights: Weights

    def __call__(self, handle: Handle, shape: Shape, before: ShapeView | None) -> ShapeView:
        valuation = handle.valuation(self.weights)
        if isinstance(before, ValueView) and before.valuation is valuation:
            return before
        return ValueView(handle.fleet, shape, handle.nodes, valuation)


class ValueView(ShapeView):
    """As :class:`ShapeView`, with points for what the node's devices are worth after the pod against before."""

    scale = 1 << POINTS_BITS

    def __init__(self, fleet: Fleet, shape: Shape, nodes: NodeTable, valuation: Valuation) -> None:
        super().__init__(fleet, shape, nodes)
        self.valuation = valuation
        weights, ask = valuation.weights, shape.ask
        self._cpu, self._memory = shape.requests.get("cpu", 0), shape.requests.get("memory", 0)
        self._unit = fleet.resource(ask.resource) if ask.count else -1
        self._demand = DeviceDemand(ask.count, FULL if ask.kind is Kind.WHOLE else ask.milli) if ask.count else NOTHING
        self._share = ask.kind is Kind.SHARE
        self._choices = valuation.choices(self._demand, complete=self._share)
        self._needs = fleet.requests(shape.id)
        self._by_claims = bool(ask.count) and not ask.shares and ask.resource in fleet.device_claims.served
        self._stated = ask.kind in (Kind.NONE, Kind.WHOLE, Kind.SHARE) and not (ask.refused or self._by_claims)
        self._per_milli = -PRECISION * weights.stranded / FULL
        host = valuation.worth.host(self._cpu, self._memory / MIB) * (-PRECISION * weights.worth / FULL)
        self._host_worth: list[float] = host.tolist() if host.any() else []
        self._host = 0.0 if ask.count else PRECISION * weights.host
        self._able_of = b""
        self._base: Ints = np.zeros(0, np.int64)
        self._bases: list[int] = []

    def refresh(self) -> Ints:
        """The current keys."""
        self.valuation.refresh()
        return super().refresh()

    def devices(self, node: int) -> tuple[int, ...] | None:
        """The device chosen for a share of one; None: those that the fleet chooses."""
        if not self._share or self.shape.ask.count != 1 or not self.valuation.plain:
            return None
        valuation = self.valuation
        left = bisect_right(valuation.cores, int(self.fleet.free[node, CPU]) - self._cpu)
        taken = self._choices.best(valuation.nodes.places[node] * valuation.buckets + left).taken
        return (self.fleet.cards.milli[node].tolist().index(taken),)

    def score(self, key: int) -> float:
        """In a key one point of a preference counts more than all others; in the score all count alike."""
        points = (key >> TIE_BITS) + HALF
        return ((points >> POINTS_BITS) * PRECISION + (points & (2 * HALF - 1)) - HALF) / PRECISION

    def parts(self, node: int) -> tuple[tuple[str, float], ...]:
        """What the score of a node that fits is made of, by name, in points; ``preferred`` counts before all others."""
        rows, valuation = np.array([node]), self.valuation
        weights, states = valuation.weights, valuation.states.rows
        (choices,) = self._tables(rows)
        best = choices.best(self._at(rows)[0])
        before, chosen = states[valuation.nodes.numbers[node]], states[best.state]
        after = before.idle - choices.demand.total
        idle = after / max(len(chosen.free) * FULL, 1)
        points = [("value", (chosen.excess - before.excess) * weights.worth / FULL)]
        points.append(("blocks", (chosen.blocks - before.blocks) * weights.block))
        points += [("fragment", best.fragment * weights.fragment), ("packing", idle * choices.packing / PRECISION)]
        points.append(("scarcity", choices.prices[chosen.kind] / PRECISION))
        beside = self._beside(rows, self.fleet.free[rows], np.array([after]))
        points += [(name, float(part[0]) / PRECISION) for name, part in beside]
        return (*points, ("preferred", float(self._static_score[node])))

    def _judge(self) -> None:
        super()._judge()
        self._static_score = np.minimum(np.maximum(self._static_score, -MOST_WISHES), MOST_WISHES)
        self._base = (self.scale * self._static_score << TIE_BITS) + self.nodes.tie
        self._bases = self.valuation.listed(self._base)
        self._able_of = self.opened.able_of
        if self._share:
            self.able = self.able & (self.fleet.cards.unit[: len(self.key)] == self._unit)
            self._able_of = self.able.tobytes()

    def _touch(self, nodes: Collection[int]) -> None:
        if self._stated and self.valuation.plain:
            self._few(nodes)
        else:
            super()._touch(nodes)

    def _score(self, rows: Rows) -> None:
        stated = self._stated and self.valuation.plain
        if stated and len(rows) <= FEW:
            self._few(rows.tolist())
            return
        free = self.fleet.free[rows]
        if stated:
            there = reduce(np.logical_and, [free[:, column] >= amount for column, amount in self._needs])
        else:
            there = fits(self.fleet, rows, self.shape)
        self.key[rows[~there]] = NEVER
        rows, free = rows[there], free[there]
        if len(rows) > FEW or not stated:
            self._many(rows, free, stated=stated)
        else:
            self._few(rows.tolist())

    def _few(self, rows: Iterable[int]) -> None:
        """Put the keys of those of these nodes that are able: what :meth:`_many` puts, by the same arithmetic in the
        same order."""
        valuation, nodes, choices, needs = self.valuation, self.valuation.nodes, self._choices, self._needs
        own, total, bases, host_worth = self._cpu, self._demand.total, self._bases, self._host_worth
        cores, buckets, per_core, per_milli = valuation.cores, valuation.buckets, valuation.per_core, self._per_milli
        places, idle, stranded, amounts = nodes.places, nodes.idle_of, nodes.stranded_of, nodes.amounts
        host, key, able = self._host, self.key, self._able_of
        for row in rows:
            if not able[row]:
                continue
            free = amounts[row]
            for column, amount in needs:
                if free[column] < amount:
                    key[row] = NEVER
                    break
            else:
                left = free[CPU] - own
                points = choices[places[row] * buckets + bisect_right(cores, left)]
                if points == NOWHERE:
                    key[row] = NEVER
                    continue
                if host_worth:
                    points += host_worth[nodes.kinds[row]]
                if per_core:
                    more = idle[row] - total - left * per_core
                    points += ((more if more > 0.0 else 0.0) - stranded[row]) * per_milli
                if host:
                    cpu, memory, with_devices = nodes.hosts[row]
                    used = 1 - (left / cpu + (free[MEMORY] - self._memory) / memory) / 2
                    points += used * ((1.0 if with_devices else HOST_ALONE) * host)
                key[row] = (round(points) << TIE_BITS) + bases[row]

    def _many(self, rows: Rows, free: Ints, *, stated: bool) -> None:
        """Put the keys of these nodes, which have the resources. ``stated``: the states say which have the devices."""
        if not len(rows):
            return
        choices, each, after = self._choices, self._at(rows), self.valuation.nodes.idle[rows]
        if stated:
            points = np.array([choices[at] for at in each])
            after -= self._demand.total
        else:
            tables = self._tables(rows)
            points = np.array([table[at] for table, at in zip(tables, each, strict=True)])
            after -= np.array([table.demand.total for table in tables])
        parts = self._beside(rows, free, after)
        total = reduce(np.add, [part for _, part in parts], points)
        keys = (np.rint(total).astype(np.int64) << TIE_BITS) + self._base[rows]
        self.key[rows] = np.where(points == NOWHERE, NEVER, keys)

    def _at(self, rows: Rows) -> list[int]:
        """What the choices of devices on these nodes are known by."""
        valuation = self.valuation
        left = valuation.fragments.bucket(self.fleet.free[rows, CPU] - self._cpu)
        each: list[int] = (valuation.nodes.place[rows] * valuation.buckets + left).tolist()
        return each

    def _tables(self, rows: Rows) -> list[Choices]:
        """The choices of devices for each of these nodes, where memory may decide how much of a device is taken."""
        ask, choices = self.shape.ask, self.valuation.choices
        if self._by_claims:
            own, none = choices(self._demand), choices(NOTHING)
            return [none if ask.resource in self.fleet.served(row) else own for row in rows.tolist()]
        if ask.kind is not Kind.MEMORY:
            return [choices(self._demand)] * len(rows)
        memory = self.fleet.cards.memory[rows].tolist()
        shares = {size: share_of(ask, size) for size in set(memory)}
        whole = choices(DeviceDemand(ask.plain, FULL) if ask.plain > 0 else NOTHING)
        each = [choices(DeviceDemand(ask.count, shares[size]) if shares[size] else NOTHING) for size in memory]
        numbers = self.fleet.cards.numbers[rows].tolist()
        return [whole if plain and ask.plain >= 0 else own for plain, own in zip(numbers, each, strict=True)]

    def _beside(self, rows: Rows, free: Ints, after: Ints) -> list[tuple[str, Points]]:
        """The parts that the node's cores and memory decide; ``after``: idle thousandths of devices then."""
        left = free[:, CPU] - self._cpu
        nodes, per_core = self.valuation.nodes, self.valuation.per_core
        parts: list[tuple[str, Points]] = []
        if self._host_worth:
            parts.append(("cores", np.array([self._host_worth[nodes.kinds[row]] for row in rows.tolist()])))
        if per_core:
            stranded = np.maximum(after - left * per_core, 0.0) - nodes.stranded[rows]
            parts.append(("stranding", stranded * self._per_milli))
        if self._host:
            whole = np.maximum(self.fleet.allocatable[rows], 1)
            used = 1 - (left / whole[:, CPU] + (free[:, MEMORY] - self._memory) / whole[:, MEMORY]) / 2
            parts.append(("host", used * (np.where(nodes.devices[rows] > 0, 1.0, HOST_ALONE) * self._host)))
        return parts
