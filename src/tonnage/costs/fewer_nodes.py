"""Nodes that are alike at the same time, as few as their pods need: GPUs, CPU and memory of a pod are on one node."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import ceil

from msgspec.structs import replace

from tonnage.costs.usage import NodeUsage
from tonnage.facts import instances
from tonnage.units import MIB

_Parts = tuple[Fraction, Fraction, Fraction]
"""Of a node: its GPUs, its allocatable CPU, its allocatable memory."""
_WHOLE: _Parts = (Fraction(1), Fraction(1), Fraction(1))
_Alike = tuple[int, _Parts, tuple[tuple[int, int], ...]]
"""How many nodes, what is free on each, and the pods on each: (row, how many)."""


def packed(alike: Sequence[NodeUsage]) -> Iterator[NodeUsage]:
    """The same pods, first-fit decreasing by GPUs, on nodes of the same kind; as they were where that takes no fewer.

    ``alike``: rows of one instance type and one time. Where pods of several rows share a node, what is on it counts as
    one pod of the first of them from then on. Nodes that nothing is on are left out."""
    needs = [_needs(one) for one in alike]
    nodes: list[_Alike] = []
    for row in sorted(range(len(alike)), key=lambda row: (-alike[row].gpus_per_pod, -max(needs[row]), row)):
        nodes = _with(nodes, row, alike[row].pods, needs[row])
    if sum(count for count, _, _ in nodes) >= sum(one.nodes for one in alike):
        yield from alike
        return
    alone: dict[int, Counter[str]] = defaultdict(Counter)
    for count, left, pods in nodes:
        if len(pods) == 1:
            alone[pods[0][0]].update(nodes=count, pods=count * pods[0][1])
        else:
            yield _together(alike, count, left, pods)
    for row, of in sorted(alone.items()):
        one = alike[row]
        yield replace(one, nodes=of["nodes"], gpus_used=Fraction(of["pods"] * (one.gpus_per_pod if one.gpus else 1)))


def _needs(one: NodeUsage) -> _Parts:
    """What a pod takes of its node. Where its CPU or memory is not known, the part that its GPUs are."""
    made = instances.get(one.instance_type)
    gpus = Fraction(one.gpus_per_pod, one.gpus) if one.gpus else Fraction(1)
    cpu, memory = one.cpu_milli_per_pod, one.memory_bytes_per_pod
    return (
        gpus,
        min(Fraction(1), Fraction(cpu, made.allocatable_cpu_milli)) if cpu else gpus,
        min(Fraction(1), Fraction(memory, made.allocatable_memory_mib * MIB)) if memory else gpus,
    )


def _with(nodes: list[_Alike], row: int, pods: int, needs: _Parts) -> list[_Alike]:
    """The nodes with more pods, each on the first that has room; new ones for those that none has room for."""
    found: list[_Alike] = []
    for count, left, on in nodes:
        room = min(free // need for free, need in zip(left, needs, strict=True))
        for some, each in _shared_out(count, room, pods):
            found.append((some, _less(left, needs, each), (*on, (row, each))) if each else (some, left, on))
            pods -= some * each
    room = min(free // need for free, need in zip(_WHOLE, needs, strict=True))
    new = _shared_out(ceil(Fraction(pods, room)), room, pods)
    return found + [(some, _less(_WHOLE, needs, each), ((row, each),)) for some, each in new]


def _shared_out(count: int, room: int, pods: int) -> list[tuple[int, int]]:
    """How many of ``count`` nodes get how many pods, in order: full ones, one with what is over, ones that get none."""
    if not room or not pods:
        return [(count, 0)] if count else []
    full = min(count, pods // room)
    over = pods - full * room if full < count else 0
    shares = [(full, room), (1 if over else 0, over), (count - full - (1 if over else 0), 0)]
    return [(some, each) for some, each in shares if some]


def _less(left: _Parts, needs: _Parts, pods: int) -> _Parts:
    gpus, cpu, memory = (free - pods * need for free, need in zip(left, needs, strict=True))
    return gpus, cpu, memory


def _together(alike: Sequence[NodeUsage], count: int, left: _Parts, pods: tuple[tuple[int, int], ...]) -> NodeUsage:
    """Nodes with pods of several rows; these stay together."""
    rows = [alike[row] for row, _ in pods]
    made = instances.get(rows[0].instance_type)
    gpus = sum(each * alike[row].gpus_per_pod for row, each in pods)
    cpu, memory = (
        ceil((1 - free) * whole)
        for free, whole in zip(left[1:], (made.allocatable_cpu_milli, made.allocatable_memory_mib * MIB), strict=True)
    )
    return replace(
        rows[0],
        nodes=count,
        gpus_used=Fraction(count * gpus),
        gpus_per_pod=gpus,
        cpu_milli_per_pod=cpu if any(one.cpu_milli_per_pod for one in rows) else 0,
        memory_bytes_per_pod=memory if any(one.memory_bytes_per_pod for one in rows) else 0,
    )
