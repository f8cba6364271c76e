"""How much of a node's idle devices the typical pods cannot use: the fragment measure of FGD.

Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent"
(USENIX ATC 2023), and its simulator, hkust-adsl/kubernetes-scheduler-simulator pkg/utils/frag.go.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tonnage.fleet.asks import FULL
from tonnage.scheduling.value.mix import Kind, Mix

COVERED = 0.95
"""The typical pods are the most frequent asks, memory left aside, that make up so much of all pods."""
BEST_POINTS = 100
NEVER_ENOUGH = 1 << 30
"""The devices that a pod without devices counts as asking for: it uses none."""

Ints = NDArray[np.int64]


class Fragments:
    """The typical pods, and the fragment of a node's devices by the cores that it has free.

    Cores count only by the typical pods that they are enough for: ``bucket`` numbers the ranges between their asks.
    Amounts are thousandths of a device times ``weight``, the pods that the typical ones stand for, so all is integer.
    """

    def __init__(self, mix: Mix, kinds: Sequence[Kind]) -> None:
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
        self.cores = np.unique(cpu)
        self._last = np.searchsorted(cpu, self.cores, side="right") - 1
        self._count = np.array([what[1] or NEVER_ENOUGH for what, _ in typical], np.int64)
        self._pods = np.array([pods for _, pods in typical], np.int64)
        self._admits: NDArray[np.bool_] = np.array(
            [[kind.admits[what[3]] for what, _ in typical] for kind in kinds], np.bool_
        )
        free, milli = np.arange(FULL + 1)[:, None], np.array([what[2] for what, _ in typical], np.int64)
        self._by_free = np.stack([(free >= milli).astype(np.int64), np.where(free < milli, free, 0)], axis=1)
        self.steps = _steps(self.weight)
        rules: dict[tuple[bool, ...], int] = {}
        self._rule_of_kind = [rules.setdefault(tuple(row), len(rules)) for row in self._admits.tolist()]
        self._measured: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = {}

    def bucket(self, cpu: Ints) -> Ints:
        """The number of the range that so many free cores (milli) fall into."""
        return self.cores.searchsorted(cpu, side="right")

    def measure(self, kind: int, free: tuple[int, ...]) -> tuple[int, ...]:
        """By bucket: what the typical pods cannot use of devices with so many thousandths free.

        A pod that needs no device, or that the node cannot take, can use none of it; any other cannot use the devices
        that have less than it asks for of each."""
        at = self._rule_of_kind[kind], free
        known = self._measured.get(at)
        if known is None:
            known = self._measured[at] = tuple(self._measure(kind, free).tolist())
        return known

    def _measure(self, kind: int, free: tuple[int, ...]) -> Ints:
        total, idle = sum(free), list(free)
        at_worst = np.full(len(self.cores) + 1, self.weight * total, np.int64)
        if not total or not len(self.cores):
            return at_worst
        enough, small = np.add.reduce(self._by_free[idle])
        saved = self._pods * (total - small) * ((enough >= self._count) & self._admits[kind])
        at_worst[1:] -= saved.cumsum()[self._last]
        return at_worst


def _steps(weight: int) -> list[int]:
    """The least gain for 1, 2, … 99 of FGD's points, floor(100 · sigmoid(gain in devices)): a coarse score, so that
    equal gains consolidate by name."""
    return [math.ceil(weight * FULL * math.log(p / (BEST_POINTS - p)) - 1e-6) for p in range(1, BEST_POINTS)]
