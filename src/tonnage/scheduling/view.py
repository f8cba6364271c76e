"""One pod shape against all nodes: what fits, and how good each node is. Kept current by re-scoring only touched nodes.

The filters are those of :func:`tonnage.fleet.filters.refusal`, here for all nodes at once, and NodeResourcesFit.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tonnage.fleet.asks import Kind
from tonnage.fleet.classes import Shape
from tonnage.fleet.columns import Latest
from tonnage.fleet.filters import Mask
from tonnage.fleet.fits import fits
from tonnage.fleet.state import CPU, MEMORY, Fleet
from tonnage.scheduling.open_nodes import OpenNodes, asked_of_nodes

PER_MILLE = 1_000
"""Points for a node whose devices are all in use: packing GPUs comes before packing CPU and memory."""
HOST_DIVISOR = 20
"""CPU and memory in use, in per mille each, divided by this: up to 100 points."""
STRANDING_PENALTY = 2_000
"""A pod without devices takes a node with devices only when no other fits, so that it strands none."""

NEWS_ONE_BY_ONE = 48
"""This many changes of bindings are followed from the journal; more, by looking which nodes changed. Speed only."""

TIE_BITS = 20
NEVER = np.iinfo(np.int64).min
"""The key of a node that does not take the pod."""

Ints = NDArray[np.int64]


@dataclass(slots=True)
class NodeTable:
    """What scores need of each node row beside the fleet's columns. ``tie``: the earlier the name, the higher.

    ``device_column``: the column of the node's device resource, -1 for none. ``revision``: the fleet's
    ``topology_revision`` as of which they are."""

    fleet: Fleet
    tie: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    device_column: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    _changed: Ints = field(
        default_factory=lambda: np.zeros(0, np.int64)
    )  # the journal's position after the last change
    revision: int = -1
    _cursor: int = 0
    _read: Latest[tuple[Ints, Ints]] = field(init=False)
    _open_to: dict[bytes, OpenNodes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._read = Latest(self._columns)

    def refresh(self) -> None:
        """Follow nodes that came or went."""
        revision = self.fleet.topology_revision
        if self.revision != revision:
            self.revision = revision
            self.tie, self.device_column = self._read.at(revision)

    def _columns(self) -> tuple[Ints, Ints]:
        fleet = self.fleet
        tie, device_column = np.zeros(len(fleet.alive), np.int64), np.full(len(fleet.alive), -1, np.int64)
        rows = fleet.node_rows()
        tie[rows] = np.arange(len(rows), 0, -1)
        named = [node.spec.device_resource for row in rows if (node := fleet.nodes[row]) is not None]
        columns = {name: fleet.resource(name) if name else -1 for name in dict.fromkeys(named)}
        device_column[rows] = [columns[name] for name in named]
        return tie, device_column

    def open_to(self, shape: Shape) -> OpenNodes:
        """Which nodes are open to the shape, one table for all shapes that ask the same of nodes but for resources."""
        key = asked_of_nodes(shape)
        known = self._open_to.get(key)
        if known is None:
            known = self._open_to[key] = OpenNodes(self.fleet, shape)
        return known

    def changed_since(self, position: int) -> NDArray[np.intp]:
        """The nodes on which pods were bound or unbound since that position of the journal."""
        journal = self.fleet.journal
        entries = journal.since(self._cursor)
        if entries is None or len(self._changed) != len(self.fleet.alive):
            self._changed = np.full(len(self.fleet.alive), journal.end, np.int64)
        else:
            for after, (_, _, node) in enumerate(entries, self._cursor + 1):
                self._changed[node] = after
        self._cursor = journal.end
        return np.flatnonzero(self._changed > position)


class ShapeView:
    """Feasibility and score of every node row for one shape.

    ``key[n]`` is NEVER where the shape does not fit, else score × 2²⁰ + tie-break: one argmax chooses. ``why`` and
    ``able``: those of ``opened``, as of the last refresh. ``pack`` is +1 to fill nodes and -1 to spread over them.
    ``scale``: what one point of a preference is worth in the view's own points.
    """

    scale = 1

    def __init__(self, fleet: Fleet, shape: Shape, nodes: NodeTable, pack: int = 1) -> None:
        self.fleet = fleet
        self.shape = shape
        self.nodes = nodes
        self.pack = pack
        requests = fleet.requests(shape.id)
        self.columns = np.array([column for column, _ in requests], np.int64)
        self.amounts = np.array([amount for _, amount in requests], np.int64)
        self._opened = nodes.open_to(shape)
        self.why: NDArray[np.int8] = np.zeros(0, np.int8)
        self.able: Mask = np.zeros(0, np.bool_)
        self.key: Ints = np.zeros(0, np.int64)
        self._static_score: Ints = np.zeros(0, np.int64)
        self._topology_revision = -1
        self._cursor = 0

    @property
    def opened(self) -> OpenNodes:
        """Which nodes are open to the shape now."""
        return self._opened.refresh()

    @property
    def judged(self) -> int:
        """As of which ``topology_revision`` of the fleet ``why`` and ``able`` are."""
        return self._topology_revision

    def refresh(self) -> Ints:
        """The current keys."""
        fleet = self.fleet
        journal, revision = fleet.journal, fleet.topology_revision
        if self.nodes.revision != revision:
            self.nodes.refresh()
        if self._topology_revision != revision:
            self._topology_revision = revision
            self._judge()
            self._score(np.flatnonzero(self.able))
        elif self._cursor != journal.end:
            few = journal.end - self._cursor <= NEWS_ONE_BY_ONE
            entries = journal.since(self._cursor) if few else None
            if entries is None:
                touched = self.nodes.changed_since(self._cursor)
                self._score(touched[self.able[touched]])
            elif len(entries) == 1:
                self._touch((entries[0][2],))
            else:
                self._touch({node for _, _, node in entries})
        self._cursor = journal.end
        return self.key

    def _judge(self) -> None:
        """All that holds until the topology changes."""
        fleet, opened = self.fleet, self.opened
        self.why, self.able = opened.why, opened.able
        device_column = self.nodes.device_column
        stranding = (device_column >= 0) & (self.shape.ask.kind <= Kind.WHOLE)
        for column in self.columns.tolist():
            stranding &= device_column != column
        self._static_score = opened.points - STRANDING_PENALTY * stranding
        self.key = np.full(len(fleet.alive), NEVER, np.int64)

    def _touch(self, nodes: Collection[int]) -> None:
        touched = np.array(sorted(nodes), np.int64)
        self._score(touched[self.able[touched]])

    def _score(self, rows: NDArray[np.intp]) -> None:
        if len(rows):
            self._put(rows, fits(self.fleet, rows, self.shape), self._points(rows))

    def _put(self, rows: NDArray[np.intp], there: Mask, points: Ints) -> None:
        score = points + self.scale * self._static_score[rows]
        self.key[rows] = np.where(there, (score << TIE_BITS) + self.nodes.tie[rows], NEVER)

    def _points(self, rows: NDArray[np.intp]) -> Ints:
        fleet = self.fleet
        free, allocatable = fleet.free[rows], fleet.allocatable[rows]
        used: Ints = np.where(allocatable > 0, allocatable - free, 0) * PER_MILLE // np.maximum(allocatable, 1)
        packed = (used[:, CPU] + used[:, MEMORY]) // HOST_DIVISOR
        column = self.nodes.device_column[rows]
        packed += np.where(column >= 0, used[np.arange(len(rows)), column], 0)
        points: Ints = self.pack * packed
        return points

    def devices(self, node: int) -> tuple[int, ...] | None:
        """The devices that a pod of this shape takes on the node; None: those that the fleet chooses."""
        return None

    def score(self, key: int) -> float:
        """The score that a key of this view stands for, in points: the sum of :meth:`parts`, pod affinity included."""
        return float(key >> TIE_BITS)

    def parts(self, node: int) -> tuple[tuple[str, float], ...]:
        """What the score of a node is made of, by name."""
        return ("packing", float(self._points(np.array([node]))[0])), ("preferred", float(self._static_score[node]))
