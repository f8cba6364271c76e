"""Which share of a node's own devices claims hold, as the Cluster Autoscaler computes it.

Source: kubernetes/autoscaler cluster-autoscaler/docs/dra_support.md ("Node consolidation"), 1.36.
"""

from __future__ import annotations

from fractions import Fraction

from tonnage.dra.allocated import AllocatedState
from tonnage.dra.node_devices import NodeDevices
from tonnage.dra.pools import DevicePool
from tonnage.dra.slice_shapes import CounterKey


def utilization(on: NodeDevices, state: AllocatedState) -> Fraction | None:
    """Of the pools that the node alone reaches the largest share that is held: of devices, by their number; of
    partitions that share counters, the mean of the counter sets, each as its fullest counter. None: it has no such
    devices."""
    left, _ = on.counters_left(state)
    own = [
        (pool, rest)
        for pool, rest in zip(on.pools, left, strict=True)
        if pool.devices and all(one.slice.spec.node_name == on.node.name for one in pool.devices)
    ]
    return max(
        (_by_counters(pool, rest) if pool.counters else _by_number(pool, state) for pool, rest in own), default=None
    )


def _by_number(pool: DevicePool, state: AllocatedState) -> Fraction:
    return Fraction(sum(state.is_held(one.id) for one in pool.devices), len(pool.devices))


def _by_counters(pool: DevicePool, left: dict[CounterKey, int]) -> Fraction:
    sets: dict[str, Fraction] = {}
    for key, total in pool.counters.items():
        used = Fraction(total - left[key], total) if total else Fraction(0)
        sets[key[0]] = max(used, sets.get(key[0], Fraction(0)))
    return sum(sets.values(), Fraction(0)) / len(sets)
