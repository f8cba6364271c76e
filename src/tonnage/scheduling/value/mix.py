"""The recent mix of pods and the kinds of nodes: what the worth of a device is worked out from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from tonnage.fleet import asks
from tonnage.fleet.asks import FULL
from tonnage.fleet.cards import NO_DEVICE
from tonnage.fleet.classes import Shape
from tonnage.fleet.devices import amounts
from tonnage.fleet.state import CPU, MEMORY, Fleet
from tonnage.scheduling.open_nodes import ByLabelSet, ByTaintSet
from tonnage.units import MIB

MOST_ASKS = 600
"""The most frequent asks that are looked at; the rest of a longer tail is left out."""
MOST_KINDS = 48
"""Nodes that differ little in cores and memory are one kind where there would be more kinds than this."""
_RULE = msgspec.json.Encoder(order="sorted").encode
"""Rules are told apart, and numbered, by what they say: not by which pod came first."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TypicalPod:
    """Pods that ask for the same: cores (milli), memory (MiB), ``count`` devices and ``milli`` thousandths of each.
    ``rule``: number of their rule in the mix; ``weight``: how many they are."""

    cpu: int
    memory: int
    count: int
    milli: int
    rule: int
    weight: int


class Mix(msgspec.Struct, frozen=True):
    """The pods seen, by what they ask for, most frequent first. ``rules``: one shape for each way to choose nodes
    (device resource, selector, affinity, tolerations). ``pods``, ``classes``: of the fleet when it was read."""

    asks: tuple[TypicalPod, ...] = ()
    rules: tuple[Shape, ...] = ()
    pods: int = 0
    classes: int = 0

    @staticmethod
    def of(fleet: Fleet) -> Mix:
        """All pods of the fleet, bound and pending, but those that belong to their nodes or name one."""
        found: Counter[int] = Counter()
        for pod in fleet.pods:
            if pod is not None and not pod.spec.daemon:
                found[fleet.classes.rows[pod.class_id].shape] += 1
        memory = _usual_memory(fleet)
        rules: dict[bytes, Shape] = {}
        weights: Counter[tuple[int, int, int, int, bytes]] = Counter()
        for shape_id, pods in found.items():
            shape = fleet.classes.shapes[shape_id]
            demand = _demand(shape.ask, memory)
            if shape.node_name or demand is None:
                continue
            rule = _RULE((shape.ask.resource, shape.node_selector, shape.node_affinity, shape.tolerations))
            rules[rule] = shape
            mib = -(-shape.requests.get("memory", 0) // MIB)
            weights[shape.requests.get("cpu", 0), mib, *demand, rule] += pods
        number = {rule: index for index, rule in enumerate(sorted(rules))}
        ranked = sorted(weights.items(), key=lambda item: (-item[1], item[0]))[:MOST_ASKS]
        return Mix(
            tuple(TypicalPod(cpu, mib, count, milli, number[rule], n) for (cpu, mib, count, milli, rule), n in ranked),
            tuple(rules[rule] for rule in number),
            len(fleet.pod_by_key),
            len(fleet.classes.rows),
        )


def _usual_memory(fleet: Fleet) -> int:
    """MiB of a device, the most frequent amount among the nodes; 0 where none is known."""
    known = fleet.cards.memory[: len(fleet.alive)][fleet.alive]
    counts = np.bincount(known[known > 0]) if (known > 0).any() else np.zeros(1, np.int64)
    return int(counts.argmax())


def _demand(ask: asks.Ask, memory: int) -> tuple[int, int] | None:
    """(devices, thousandths of each); (0, 0): none. None: MIG instances, or what no node can ever give."""
    if ask.refused or ask.kind is asks.Kind.MIG:
        return None
    if ask.kind is asks.Kind.WHOLE:
        return ask.count, FULL
    milli = share_of(ask, memory)
    return (ask.count, milli) if milli else (0, 0)


def share_of(ask: asks.Ask, memory: int) -> int:
    """Thousandths of a device with this many MiB that the ask takes up, by compute or memory, whichever is more; 0: it
    asks for no part of a device, or its share of this one is not known."""
    found = amounts(ask, memory) if ask.shares else None
    if found is None:
        return 0
    milli, mib = found
    return min(FULL, max(milli, mib * FULL // memory if memory else 0))


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Nodes that are alike: ``devices`` of them, cores (milli) and memory (MiB) of each, how many such ``nodes`` there
    are, and whether each rule of the mix admits them."""

    devices: int
    cpu: int
    memory: int
    nodes: int
    admits: tuple[bool, ...]

    def takes(self, ask: TypicalPod) -> bool:
        """Whether an empty node of this kind has room for one such pod."""
        return self.admits[ask.rule] and ask.cpu <= self.cpu and ask.memory <= self.memory and ask.count <= self.devices


def kinds_of(fleet: Fleet, rules: Sequence[Shape]) -> tuple[NDArray[np.int64], tuple[NodeKind, ...]]:
    """The kind of each node row (-1: no node there) and the kinds."""
    rows = np.flatnonzero(fleet.alive)
    devices = (fleet.cards.holder[rows] != NO_DEVICE).sum(axis=1)
    admits = (
        np.stack([_admits(fleet, rule)[rows] for rule in rules], axis=1) if rules else np.zeros((len(rows), 0), bool)
    )
    cpu, memory = fleet.allocatable[rows, CPU], fleet.allocatable[rows, MEMORY] // MIB
    whole = np.column_stack([devices, admits]).astype(np.int64)
    for sizes in _sizes(cpu, memory):
        alike, number, counts = np.unique(
            np.column_stack([sizes, whole]), axis=0, return_inverse=True, return_counts=True
        )
        if len(alike) <= MOST_KINDS:
            break
    kind_of = np.full(len(fleet.alive), -1, np.int64)
    kind_of[rows] = number.reshape(-1)
    kinds = (
        NodeKind(row[2], row[0], row[1], nodes, tuple(bit != 0 for bit in row[3:]))
        for row, nodes in zip(alike.tolist(), counts.tolist(), strict=True)
    )
    return kind_of, tuple(kinds)


def _sizes(cpu: Ints, memory: Ints) -> Iterable[Ints]:
    """Cores and memory as two columns: as they are, then rounded ever coarser, then what the smallest node has."""
    exact = np.column_stack([cpu, memory])
    yield exact
    for steps in (16, 8, 4, 2):
        yield np.exp(np.rint(np.log(np.maximum(exact, 1)) * steps) / steps).astype(np.int64)
    yield np.broadcast_to(exact.min(axis=0), exact.shape)


def _admits(fleet: Fleet, rule: Shape) -> NDArray[np.bool_]:
    """Whether each node row has the rule's device resource, selector and affinity, and no taint that it minds."""
    chosen, _ = ByLabelSet(fleet, rule).refresh()
    minded, _ = ByTaintSet(fleet, rule.tolerations).refresh()
    allowed = chosen & ~minded[fleet.taint_set]
    if rule.ask.count:
        allowed = allowed & (fleet.cards.unit[: len(allowed)] == fleet.resource(rule.ask.resource))
    return allowed & fleet.alive
