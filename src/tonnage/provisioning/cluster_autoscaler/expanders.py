"""Which node group grows, of those that could: the Cluster Autoscaler's expanders.

GPUs and, but for the expander ``price``, prices have no say: least-waste counts CPU and memory alone. Where several
options are left one of them is chosen by a hash of what there is to choose from, so that runs can be repeated.

Source: kubernetes/autoscaler cluster-autoscaler expander/{waste,mostpods,leastnodes,price,priority,random}.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from tonnage.decisions import Ref
from tonnage.provisioning.cluster_autoscaler import options as named
from tonnage.provisioning.cluster_autoscaler.options import AutoscalingOptions
from tonnage.units import GIB, MIB

_CPU_PER_HOUR, _GIB_PER_HOUR, _GPU_PER_HOUR = 33_174, 4_446, 700_000
"""Micro-USD an hour that the price expander takes a pod's CPU, GiB of memory and GPU to be worth (cloudprovider/gce
gce_price.go; on other clouds the autoscaler has no prices)."""
_PREFERRED = ((2, 1), (6, 2), (20, 4), (60, 8), (200, 16))
"""Nodes of a cluster up to which nodes with so many CPUs are preferred; 32 beyond (expander/price/preferred.go)."""
_MOST_PREFERRED = 32
_GPU_UNFITNESS = 1000.0
"""How ill nodes with GPUs suit any cluster (gpuUnfitnessOverride)."""


@dataclass(frozen=True, slots=True)
class ExpansionOption:
    """``nodes`` more machines of ``group`` for ``pods``. ``capacity`` of one machine and ``requests`` of all pods: cpu
    in millicores, memory in bytes, all else in units. ``micro_usd_per_hour`` of one machine; None where not known."""

    group: str
    nodes: int
    pods: tuple[Ref, ...]
    capacity: Mapping[str, int]
    requests: Mapping[str, int]
    micro_usd_per_hour: int | None
    gpus: bool = False


def best(
    options: Sequence[ExpansionOption], settings: AutoscalingOptions, cluster_nodes: int, turn: int = 0
) -> ExpansionOption:
    """The option that the expanders leave. ``cluster_nodes``: nodes that there are; ``turn`` varies the draw."""
    left = sorted(options, key=lambda one: one.group)
    for name in settings.expanders:
        if name == named.RANDOM:
            break
        left = _FILTERS[name](left, settings, cluster_nodes)
        if len(left) == 1:
            return left[0]
    seed = f"{turn} " + " ".join(one.group for one in left)
    return left[int.from_bytes(blake2b(seed.encode(), digest_size=8).digest()) % len(left)]


def waste(option: ExpansionOption) -> float:
    """Share of CPU that stays idle, and that of memory, together: from 0 to 2."""
    return sum(1 - option.requests.get(name, 0) / (option.capacity[name] * option.nodes) for name in ("cpu", "memory"))


def _least(
    key: Callable[[ExpansionOption], float],
) -> Callable[[Sequence[ExpansionOption], AutoscalingOptions, int], list[ExpansionOption]]:
    def keep(
        options: Sequence[ExpansionOption], settings: AutoscalingOptions, cluster_nodes: int
    ) -> list[ExpansionOption]:
        least = min(map(key, options))
        return [one for one in options if key(one) == least]

    return keep


def _priority(
    options: Sequence[ExpansionOption], settings: AutoscalingOptions, cluster_nodes: int
) -> list[ExpansionOption]:
    """Those of the highest priority that has any; all where none is in any list."""
    for _, patterns in settings.priorities:
        found = [one for one in options if any(re.search(pattern, one.group) for pattern in patterns)]
        if found:
            return found
    return list(options)


def _cheapest(
    options: Sequence[ExpansionOption], settings: AutoscalingOptions, cluster_nodes: int
) -> list[ExpansionOption]:
    """The lowest score; options without a price are left out, unless none has one."""
    scores = {one.group: score(one, cluster_nodes) for one in options if one.micro_usd_per_hour is not None}
    if not scores:
        return list(options)
    least = min(scores.values())
    return [one for one in options if scores.get(one.group) == least]


def score(option: ExpansionOption, cluster_nodes: int) -> float:
    """What the price expander makes of an option with a price: the price of its nodes over what its pods are worth,
    times how ill such nodes suit a cluster of this size."""
    assert option.micro_usd_per_hour is not None
    steady = _worth({"cpu": 500, "memory": 500 * MIB})
    ratio = (option.micro_usd_per_hour * option.nodes + steady) / (_worth(option.requests) + steady)
    unfit = _GPU_UNFITNESS if option.gpus else _unfitness(option.capacity, cluster_nodes)
    return ratio * ((unfit - 1) * (1 - math.tanh((option.nodes - 1) / 15)) + 1)


def _unfitness(capacity: Mapping[str, int], cluster_nodes: int) -> float:
    cpus = next((cpus for most, cpus in _PREFERRED if cluster_nodes <= most), _MOST_PREFERRED)
    ratio = capacity["cpu"] / (1000 * cpus)
    return max(ratio, 1 / ratio)


def _worth(requests: Mapping[str, int]) -> float:
    gpus = sum(amount for name, amount in requests.items() if name.endswith("/gpu"))
    cpu, memory = requests.get("cpu", 0) / 1000, requests.get("memory", 0) / GIB
    return cpu * _CPU_PER_HOUR + memory * _GIB_PER_HOUR + gpus * _GPU_PER_HOUR


_FILTERS: Mapping[str, Callable[[Sequence[ExpansionOption], AutoscalingOptions, int], list[ExpansionOption]]] = {
    named.LEAST_WASTE: _least(waste),
    named.MOST_PODS: _least(lambda option: -len(option.pods)),
    named.LEAST_NODES: _least(lambda option: option.nodes),
    named.PRICE: _cheapest,
    named.PRIORITY: _priority,
}
