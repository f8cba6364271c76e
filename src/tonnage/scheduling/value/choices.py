"""The best choice of a node's devices for what a pod takes of them, and its points: what weighs how much."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from tonnage.fleet.asks import FULL
from tonnage.scheduling.value.states import DeviceDemand, States

PRECISION = 1_000
"""A key counts thousandths of a point."""


class Weights(Struct, frozen=True):
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


class Best(NamedTuple):
    """A choice of devices: its points but for cores and memory, the points of FGD among them, thousandths free before
    on the device to take (0: no device is seen to give it), and the state that follows."""

    points: float
    fragment: int
    taken: int
    state: int


Option: TypeAlias = tuple[float, int, int]
"""What a state can become: its points but for fragments and for what all options share, the thousandths free, before,
of the tightest device taken, and its number."""

NOWHERE = -1e12
"""The points where no device gives what is asked: fewer than any others."""


class Choices(dict[int, float]):
    """The points of the best choice for one demand, each worked out when it is first asked for: by the place of a node
    (:class:`NodeStates`) × buckets + the bucket of the cores left.

    ``packing``: points for all devices idle; ``prices``: points by kind of node. Where states do not show a device that
    can be taken, it is NOWHERE if they are ``complete``; else (MIG instances, replicas) nothing is seen to change."""

    def __init__(
        self,
        demand: DeviceDemand,
        states: States,
        weights: Weights,
        packing: float,
        prices: list[float],
        *,
        complete: bool,
    ) -> None:
        self.demand, self._total = demand, demand.total
        self.packing = packing
        self.prices = prices
        self._states = states
        self._complete = complete
        self._buckets, self._steps = states.fragments.buckets, states.fragments.steps
        self._worth, self._block = PRECISION * weights.worth / FULL, PRECISION * weights.block
        self._fragment = PRECISION * weights.fragment
        self._options: dict[int, tuple[Option, ...]] = {}

    def __missing__(self, at: int) -> float:
        best = self.best(at)
        points = self[at] = best.points if best.taken or not self._complete else NOWHERE
        return points

    def best(self, at: int) -> Best:
        """The choice itself, worked out again; of equals the tightest."""
        place, bucket_after = divmod(at, self._buckets)
        number, bucket = divmod(place, self._buckets)
        states = self._states.rows
        now = states[number]
        options = self._options.get(number)
        if options is None:
            options = self._options[number] = self._list(number)
        fragment, steps, weight = now.fragment[bucket], self._steps, self._fragment
        after = now.idle - self._total
        beside = after / max(len(now.free) * FULL, 1) * self.packing + self.prices[now.kind]
        best = None
        for points, taken, following in options:
            step = bisect_right(steps, fragment - states[following].fragment[bucket_after])
            points += step * weight + beside
            if best is None or points > best[0]:
                best = points, step, taken, following
        assert best is not None
        return Best(*best)

    def _list(self, number: int) -> tuple[Option, ...]:
        rows = self._states.rows
        now = rows[number]
        options = []
        for following, taken in self._states.following(number, self.demand) or ((number, 0),):
            state = rows[following]
            points = (state.excess - now.excess) * self._worth + (state.blocks - now.blocks) * self._block
            options.append((points, taken, following))
        return tuple(options)
