"""What idle devices, stranded devices and scarce kinds of nodes are worth under a mix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tonnage.fleet.asks import FULL
from tonnage.scheduling.value.duals import price
from tonnage.scheduling.value.mix import Mix, NodeKind

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


MOST = 2 * FULL
"""A device is priced at no more than this, however scarce its kind."""


class Worth:
    """``device[k][m]``: the worth, in thousandths of a device, of ``m`` thousandths free of a device of kind ``k``;
    ``cpu[k]``, ``memory[k]``: of a millicore and a MiB there."""

    def __init__(self, device: Ints, cpu: Floats, memory: Floats) -> None:
        self.device: list[list[int]] = device.tolist()
        self.cpu = cpu
        self.memory = memory

    def of(self, kind: int, free: Sequence[int]) -> int:
        """The worth of a node's devices with so much free."""
        device = self.device[kind]
        return sum([device[milli] for milli in free])

    def host(self, cpu: int, memory: float) -> Floats:
        """By kind: the worth of this many millicores and MiB."""
        return cpu * self.cpu + memory * self.memory


def linear(kinds: int) -> Worth:
    """Idle devices are worth what they are: where nothing is known of the pods that come."""
    return Worth(np.tile(np.arange(FULL + 1), (kinds, 1)), np.zeros(kinds), np.zeros(kinds))


def priced(mix: Mix, kinds: Sequence[NodeKind]) -> Worth:
    """By the duals of the packing program, devices in whole thousandths; linear where no pod asks for devices."""
    if not any(ask.count for ask in mix.asks) or not any(kind.devices for kind in kinds):
        return linear(len(kinds))
    prices = price(mix.asks, kinds)
    if prices is None:
        return linear(len(kinds))
    by_milli = np.repeat(prices.device, prices.step, axis=1)[:, : FULL + 1]
    device = np.minimum(np.rint(by_milli).astype(np.int64), MOST)
    return Worth(device, np.round(prices.cpu, 6), np.round(prices.memory, 6))


def cores_per_device(mix: Mix, kinds: Sequence[NodeKind]) -> float:
    """Millicores that the mix asks for each device, the cores of pods without devices included, as far as these do not
    find room on nodes without devices when the devices are fully used; 0 where nothing asks for devices."""
    milli = sum(ask.weight * ask.count * ask.milli for ask in mix.asks)
    if not milli:
        return 0.0
    capacity = sum(kind.nodes * kind.devices * FULL for kind in kinds)
    scale = capacity / milli
    beside = scale * sum(ask.weight * ask.cpu for ask in mix.asks if not ask.count)
    elsewhere = sum(kind.nodes * kind.cpu for kind in kinds if not kind.devices)
    own = scale * sum(ask.weight * ask.cpu for ask in mix.asks if ask.count)
    return (own + max(0.0, beside - elsewhere)) * FULL / capacity if capacity else 0.0


def block_shares(mix: Mix) -> tuple[tuple[int, float], ...]:
    """For each number of whole devices above one that pods ask for: its share of all device demand."""
    total = sum(ask.weight * ask.count * ask.milli for ask in mix.asks)
    counts = sorted({ask.count for ask in mix.asks if ask.count > 1 and ask.milli == FULL})
    asked = [sum(a.weight * a.count * a.milli for a in mix.asks if (a.count, a.milli) == (k, FULL)) for k in counts]
    return tuple((count, demand / total) for count, demand in zip(counts, asked, strict=True))


def scarcity(mix: Mix, kinds: Sequence[NodeKind]) -> NDArray[np.float64]:
    """By kind: the share of its devices, at most 1, that pods tied to some kinds are expected to want when all devices
    are in use. Each spreads over the kinds that take it by their devices; what any kind may serve is tied to none."""
    capacity = np.array([kind.nodes * kind.devices * FULL for kind in kinds], np.float64)
    total = sum(ask.weight * ask.count * ask.milli for ask in mix.asks)
    wanted = np.zeros(len(kinds))
    if not total or not capacity.sum():
        return wanted
    scale = capacity.sum() / total
    for rule in range(len(mix.rules)):
        allowed = np.array([kind.admits[rule] and kind.devices > 0 for kind in kinds])
        asked = scale * sum(ask.weight * ask.count * ask.milli for ask in mix.asks if ask.rule == rule)
        if asked and allowed.any() and not allowed[capacity > 0].all():
            wanted[allowed] += asked * capacity[allowed] / capacity[allowed].sum()
    return np.minimum(wanted / np.maximum(capacity, 1.0), 1.0)
