"""How much of a node's idle devices the typical pods cannot use: the fragment measure of FGD.

Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent"
(USENIX ATC 2023), and its simulator, hkust-adsl/kubernetes-scheduler-simulator pkg/utils/frag.go.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tonnage.fleet.asks import FULL
from tonnage.fleet.columns import distinct
from tonnage.scheduling.value.mix import Mix, NodeKind

COVERED = 0.95
"""The typical pods are the most frequent asks, memory left aside, that make up so much of all pods."""
BEST_POINTS = 100

Ints = NDArray[np.int64]


class Fragments:
    """The typical pods, and the fragment of a node's devices by the cores that it has free.

    Cores count only by the typical pods that they are enough for: ``bucket`` numbers the ranges between their asks.
    Amounts are thousandths of a device times ``weight``, the pods that the typical ones stand for, so all is integer.
    """

    def __init__(self, mix: Mix, kinds: Sequence[NodeKind]) -> None:
        popular: Counter[tuple[int, int, int, int]] = Counter()
        for ask in mix.asks:
            popular[ask.cpu, ask.count, ask.milli, ask.rule] += ask.weight
        wanted = COVERED * popular.total()
        typical: list[tuple[tuple[int, int, int, int], int]] = []
        self.weight = 0
        for what, pods in sorted(popular.items(), key=lambda item: (-item[1], item[0])):
            if self.weight >= wanted:
                break
            typical.append((what, pods))
            self.weight += pods
        typical.sort(key=lambda one: one[0])
        cpu = np.array([what[0] for what, _ in typical], np.int64)
        self.cores = np.array(distinct(cpu), np.int64)
        self.buckets = len(self.cores) + 1
        self._last = np.searchsorted(cpu, self.cores, side="right") - 1
        self._count = np.array([what[1] for what, _ in typical], np.int64)
        self._milli = np.array([what[2] for what, _ in typical], np.int64)
        admitted = [[many if kind.admits[what[3]] else 0 for what, many in typical] for kind in kinds]
        self._pods = np.array(admitted, np.int64).reshape(len(kinds), len(typical))
        self.steps = _steps(self.weight)
        self._all_pods = np.full(self.buckets, self.weight, np.int64)
        alike: dict[tuple[int, ...], int] = {}
        self._like = [alike.setdefault(tuple(row), kind) for kind, row in enumerate(admitted)]
        self._several = [self._of_several(kind) for kind in range(len(kinds))]
        self._useful: dict[tuple[int, int], Ints] = {}
        self._measured: dict[tuple[int, tuple[int, ...]], array[int]] = {}

    def bucket(self, cpu: Ints) -> Ints:
        """The number of the range that this many free cores (milli) fall into."""
        return self.cores.searchsorted(cpu, side="right")

    def measure(self, kind: int, free: tuple[int, ...]) -> array[int]:
        """By bucket: what the typical pods cannot use of devices with this many thousandths free.

        A pod that needs no device, or that the node cannot take, can use none of it; any other cannot use the devices
        that have less than it asks for of each."""
        at = self._like[kind], free
        known = self._measured.get(at)
        if known is None:
            known = self._measured[at] = array("q", self._measure(*at).tobytes())
        return known

    def _measure(self, kind: int, free: tuple[int, ...]) -> Ints:
        useless = self._all_pods * sum(free)
        for milli in free:
            if milli:
                useless -= self._useful_to_one(kind, milli)
        for count, milli, pods in self._several[kind]:
            room = [one for one in free if one >= milli]
            if len(room) >= count:
                useless -= sum(room) * pods
        return useless

    def _useful_to_one(self, kind: int, free: int) -> Ints:
        """By bucket: what typical pods of one device use of a device with this many thousandths free."""
        known = self._useful.get((kind, free))
        if known is None:
            known = self._useful[kind, free] = free * self._by_bucket(kind, (self._count == 1) & (self._milli <= free))
        return known

    def _of_several(self, kind: int) -> list[tuple[int, int, Ints]]:
        """(devices, thousandths of each, how many typical pods by bucket) for what asks for several devices."""
        asked = {(count, milli) for count, milli in zip(self._count.tolist(), self._milli.tolist(), strict=True)}
        return [
            (count, milli, self._by_bucket(kind, (self._count == count) & (self._milli == milli)))
            for count, milli in sorted(asked)
            if count > 1
        ]

    def _by_bucket(self, kind: int, which: NDArray[np.bool_]) -> Ints:
        """How many of these typical pods the kind admits and the bucket has the cores for."""
        pods = np.zeros(self.buckets, np.int64)
        pods[1:] = (self._pods[kind] * which).cumsum()[self._last]
        return pods


def _steps(weight: int) -> list[int]:
    """The least gain for 1, 2, … 99 of FGD's points, floor(100 · sigmoid(gain in devices)): a coarse score, so that
    equal gains consolidate by name."""
    return [math.ceil(weight * FULL * math.log(p / (BEST_POINTS - p)) - 1e-6) for p in range(1, BEST_POINTS)]
