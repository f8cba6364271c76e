"""Node scores by what is left of the devices: FGD, and the policy that prices it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tonnage.fleet.asks import FULL, Kind
from tonnage.fleet.classes import Shape
from tonnage.fleet.fits import fits
from tonnage.fleet.state import CPU, MEMORY, Fleet
from tonnage.scheduling.value.mix import share_of
from tonnage.scheduling.value.states import FEW, NOTHING, Demand
from tonnage.scheduling.value.valuation import Valuation
from tonnage.scheduling.view import NEVER, OPEN, TIE_BITS, Ints, NodeTable, ShapeView
from tonnage.units import MIB

Rows = NDArray[np.intp]
Points = NDArray[np.float64]

PRECISION = 1_000
"""A key counts thousandths of a point."""
POINTS_BITS = 26
"""Room for the points of a node, ±33,000, beside which one point of a wish decides: what the user wishes comes first.
A device is worth at most 2 of its like (:data:`tonnage.scheduling.value.worth.MOST`): enough for 40 devices."""
MOST_WISHES = 60_000
"""More points of wishes than this, either way, count as so many: a key has no room for more."""


class Best(NamedTuple):
    """A choice of devices: its points but for cores and memory, thousandths idle on the node before and after,
    thousandths free before on the device to take (0: no device is seen to give it), the state that follows, and the
    points of FGD."""

    points: float
    idle: int
    after: int
    taken: int
    state: int
    fragment: int


@dataclass(frozen=True, slots=True)
class Weights:
    """Points for: ``fragment``, one of FGD's 0 to 100; ``worth``, a device's worth lost beyond what the pod takes, with
    cores and memory where these have a price; ``stranded``, one more idle device for which no cores are left;
    ``block``, one device's part of a set of whole devices that is broken, where all demand asks for such sets;
    ``packing``, all of the node's devices idle, and ``packing_whole`` in its place where no pod shares a device;
    ``scarcity``, a kind of node that is all spoken for; ``host``, all cores and memory of the node in use."""

    fragment: float = 0.0
    worth: float = 0.0
    stranded: float = 0.0
    block: float = 0.0
    packing: float = 0.0
    packing_whole: float = 0.0
    scarcity: float = 0.0
    host: float = 0.0


FGD = Weights(fragment=1.0)
"""The published algorithm."""
TONNAGE = Weights(
    fragment=1.0, worth=400.0, stranded=20.0, block=5.0, packing=1.0, packing_whole=30.0, scarcity=20.0, host=0.1
)
"""Worth lost decides first, then stranded devices, fragments and scarcity, then packing. Chosen on the default list of
the openb trace, where half or twice any one of them moves the allocation by 0.12 point or less, ``block`` and
``scarcity`` with a look at lists made from it (benchmarks/openb_variants.py); but for whole devices, where nothing has
to fit together, packing outweighs fragments: nodes are filled, so that others come free."""
HOST_ALONE = 1_000.0
"""``host`` counts so many times more on nodes without devices, where nothing else counts."""


class ValueView(ShapeView):
    """As :class:`ShapeView`, with points for what the node's devices are worth after the pod against before."""

    scale = 1 << POINTS_BITS

    def __init__(self, fleet: Fleet, shape: Shape, nodes: NodeTable, valuation: Valuation, weights: Weights) -> None:
        super().__init__(fleet, shape, nodes)
        self.valuation = valuation
        self.weights = weights
        ask = shape.ask
        self._cpu, self._memory = shape.requests.get("cpu", 0), shape.requests.get("memory", 0)
        self._unit = fleet.resource(ask.resource) if ask.count else -1
        self._demand = Demand(ask.count, FULL if ask.kind is Kind.WHOLE else ask.milli) if ask.count else NOTHING
        self._needs = fleet.requests(shape.id)
        self._stated = ask.kind in (Kind.NONE, Kind.WHOLE, Kind.SHARE) and not ask.refused
        self._per_core = FULL / valuation.cores_per_device if weights.stranded and valuation.cores_per_device else 0.0
        self._per_milli = -PRECISION * weights.stranded / FULL
        self._prices: list[float] = (valuation.price * (-PRECISION * weights.scarcity * (ask.count > 0))).tolist()
        host = valuation.worth.host(self._cpu, self._memory / MIB) * (-PRECISION * weights.worth / FULL)
        self._host_worth: list[float] = host.tolist() if host.any() else []
        packing = weights.packing if valuation.shares else weights.packing_whole
        self._packing = -PRECISION * packing
        self._host = 0.0 if ask.count else PRECISION * weights.host
        self._bests: dict[int, Best] = valuation.bests.setdefault(self._demand, {})
        self._taken: list[int] = []
        self._open: list[bool] = []
        self._gives: list[bool] = []
        self._base: Ints = np.zeros(0, np.int64)
        self._bases: list[int] = []

    def refresh(self) -> Ints:
        """The current keys."""
        self.valuation.refresh()
        return super().refresh()

    def devices(self, node: int) -> tuple[int, ...] | None:
        """The device chosen for a share of one; None: those that the fleet chooses."""
        ask = self.shape.ask
        if ask.kind is not Kind.SHARE or ask.count != 1 or not self.valuation.plain:
            return None
        return (self.fleet.cards.milli[node].tolist().index(self._taken[node]),)

    def parts(self, node: int) -> tuple[tuple[str, float], ...]:
        """What the score of a node that fits is made of, by name, in points; ``wishes`` count before all others."""
        rows = np.array([node])
        free = self.fleet.free[rows]
        before = self.valuation.nodes.numbers[node]
        weights, valuation = self.weights, self.valuation
        best = self._bests_of(rows, free)[0]
        chosen = valuation.states.rows[best.state]
        idle = best.after / max(len(chosen.free) * FULL, 1)
        points = [("value", (chosen.excess - valuation.states.rows[before].excess) * weights.worth / FULL)]
        points.append(("blocks", (chosen.blocks - valuation.states.rows[before].blocks) * weights.block))
        points += [("fragment", best.fragment * weights.fragment), ("packing", idle * self._packing / PRECISION)]
        points.append(("scarcity", self._prices[chosen.kind] / PRECISION))
        beside = self._beside(rows, free, np.array([best.idle]), np.array([best.after]))
        points += [(name, float(part[0]) / PRECISION) for name, part in beside]
        return (*points, ("wishes", float(self._static_score[node])))

    def _judge(self) -> None:
        super()._judge()
        self._static_score = np.minimum(np.maximum(self._static_score, -MOST_WISHES), MOST_WISHES)
        self._base = (self.scale * self._static_score << TIE_BITS) + self.nodes.tie
        self._bases = self._base.tolist()
        self._open = (self.why == OPEN).tolist()
        self._taken = [0] * len(self.key)
        share = self.shape.ask.kind is Kind.SHARE
        self._gives = (self.fleet.cards.unit[: len(self.key)] == self._unit).tolist() if share else []

    def _touch(self, nodes: set[int]) -> None:
        if not self._stated or not self.valuation.plain:
            super()._touch(nodes)
            return
        free, key, is_open = self.fleet.free, self.key, self._open
        rows = [row for row in nodes if is_open[row]]
        for row, found in zip(rows, self._few(rows, [free[row].tolist() for row in rows]), strict=True):
            key[row] = found

    def _score(self, rows: Rows) -> None:
        free = self.fleet.free[rows]
        stated = self._stated and self.valuation.plain
        if stated:
            there = (free[:, self.columns] >= self.amounts).all(axis=1)
        else:
            there = fits(self.fleet, rows, self.shape)
        self.key[rows[~there]] = NEVER
        rows, free = rows[there], free[there]
        if len(rows) > FEW or not stated:
            self._many(rows, free, stated=stated)
        else:
            self.key[rows] = self._few(rows.tolist(), free.tolist())

    def _few(self, rows: list[int], amounts: list[list[int]]) -> list[int]:
        """The keys of these nodes: what :meth:`_many` puts, by the same arithmetic in the same order."""
        valuation, needs, own, bests = self.valuation, self._needs, self._cpu, self._bests
        numbers, cores, per_core, per_milli = valuation.nodes.numbers, valuation.cores, self._per_core, self._per_milli
        buckets, gives, bases, choices = valuation.buckets, self._gives, self._bases, self._taken
        host_worth, kinds, found = self._host_worth, valuation.nodes.kinds, []
        for row, free in zip(rows, amounts, strict=True):
            for column, amount in needs:
                if free[column] < amount:
                    found.append(NEVER)
                    break
            else:
                cpu = free[CPU]
                left = cpu - own
                at = (numbers[row] * buckets + bisect_right(cores, cpu)) * buckets + bisect_right(cores, left)
                points, idle, after, taken, _, _ = bests.get(at) or self._best(self._demand, at)
                if gives:
                    if not taken or not gives[row]:
                        found.append(NEVER)
                        continue
                    choices[row] = taken
                if host_worth:
                    points += host_worth[kinds[row]]
                if per_core:
                    stranded, was = after - left * per_core, idle - cpu * per_core
                    points += ((stranded if stranded > 0.0 else 0.0) - (was if was > 0.0 else 0.0)) * per_milli
                if self._host:
                    points += self._host_points(row, left, free[MEMORY] - self._memory)
                found.append((round(points) << TIE_BITS) + bases[row])
        return found

    def _host_points(self, row: int, cpu: int, memory: int) -> float:
        whole = self.fleet.allocatable[row].tolist()
        used = 1 - (cpu / max(whole[CPU], 1) + memory / max(whole[MEMORY], 1)) / 2
        there = self.valuation.nodes.devices[row] > 0
        return float(used * ((1.0 if there else HOST_ALONE) * self._host))

    def _many(self, rows: Rows, free: Ints, *, stated: bool) -> None:
        """Put the keys of these nodes, which have the resources. ``stated``: the states say which have the devices."""
        if not len(rows):
            return
        bests = self._bests_of(rows, free)
        idle = self.valuation.nodes.idle[rows]
        ask = self.shape.ask
        after = idle - (
            self._demand.total if ask.kind is not Kind.MEMORY else np.array([b.idle - b.after for b in bests])
        )
        parts = self._beside(rows, free, idle, after)
        total = reduce(np.add, [part for _, part in parts], np.array([best[0] for best in bests]))
        keys = (np.rint(total).astype(np.int64) << TIE_BITS) + self._base[rows]
        if self._gives and stated:
            gives, taken = self._gives, self._taken
            for i, (row, best) in enumerate(zip(rows.tolist(), bests, strict=True)):
                taken[row] = best[3]
                if not best[3] or not gives[row]:
                    keys[i] = NEVER
        self.key[rows] = keys

    def _bests_of(self, rows: Rows, free: Ints) -> list[Best]:
        """The best choice of devices on each of these nodes."""
        fragments, buckets = self.valuation.fragments, self.valuation.buckets
        cpu = free[:, CPU]
        at = self.valuation.nodes.of_row[rows] * buckets + fragments.bucket(cpu)
        each = (at * buckets + fragments.bucket(cpu - self._cpu)).tolist()
        if self.shape.ask.kind is not Kind.MEMORY:
            get, demand = self._bests.get, self._demand
            return [get(one) or self._best(demand, one) for one in each]
        ask, by_size = self.shape.ask, dict[int, Demand]()
        memory = self.fleet.cards.memory[rows].tolist()
        for size in set(memory):
            share = share_of(ask, size)
            by_size[size] = Demand(ask.count, share) if share else NOTHING
        return [self._best(by_size[size], one) for size, one in zip(memory, each, strict=True)]

    def _best(self, demand: Demand, at: int) -> Best:
        """The choice of devices with the most points for a node in the state, and with the cores, that ``at`` encodes.

        Where states do not show what the pod takes (MIG instances, replicas), nothing is seen to change."""
        valuation, weights = self.valuation, self.weights
        states, buckets = valuation.states, valuation.buckets
        memo: dict[int, Best] = valuation.bests.setdefault(demand, {})
        if at in memo:
            return memo[at]
        before, bucket, bucket_after = at // buckets // buckets, at // buckets % buckets, at % buckets
        now = states.rows[before]
        best: Best | None = None
        after = now.idle - demand.total
        beside = after / max(len(now.free) * FULL, 1) * self._packing + self._prices[now.kind]
        for number, taken in states.following(demand, before) or ((before, 0),):
            state = states.rows[number]
            gain = now.fragment[bucket] - state.fragment[bucket_after]
            fragment = bisect_right(valuation.steps, gain)
            points = (state.excess - now.excess) * (PRECISION * weights.worth / FULL)
            points += (state.blocks - now.blocks) * (PRECISION * weights.block)
            points += fragment * (PRECISION * weights.fragment) + beside
            if best is None or points > best.points:
                best = Best(points, now.idle, after, taken, number, fragment)
        assert best is not None
        memo[at] = best
        return best

    def _beside(self, rows: Rows, free: Ints, idle: Ints, after: Ints) -> list[tuple[str, Points]]:
        """The parts that the node's cores and memory decide."""
        cpu = free[:, CPU]
        left = cpu - self._cpu
        parts: list[tuple[str, Points]] = []
        if self._host_worth:
            kinds = self.valuation.nodes.kinds
            parts.append(("cores", np.array([self._host_worth[kinds[row]] for row in rows.tolist()])))
        if self._per_core:
            stranded = np.maximum(after - left * self._per_core, 0.0) - np.maximum(idle - cpu * self._per_core, 0.0)
            parts.append(("stranding", stranded * self._per_milli))
        if self._host:
            whole = np.maximum(self.fleet.allocatable[rows], 1)
            used = 1 - (left / whole[:, CPU] + (free[:, MEMORY] - self._memory) / whole[:, MEMORY]) / 2
            there = self.valuation.nodes.devices[rows] > 0
            parts.append(("host", used * (np.where(there, 1.0, HOST_ALONE) * self._host)))
        return parts
