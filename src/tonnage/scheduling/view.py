"""One pod shape against all nodes: what fits, and how good each node is. Kept current by re-scoring only touched nodes.

The filters are those of :func:`tonnage.fleet.filters.refusal`, here for all nodes at once, and NodeResourcesFit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tonnage.cuda_fit import host as cuda_host
from tonnage.fleet.asks import Kind
from tonnage.fleet.classes import Shape
from tonnage.fleet.columns import Latest
from tonnage.fleet.filters import (
    CORDON,
    NO_CUDA,
    OPEN,
    OTHER_NAME,
    TAINTED,
    UNFEATURED,
    UNREACHED,
    UNSCHEDULABLE,
    UNSELECTED,
    Mask,
    cuda_refusal,
    declares,
)
from tonnage.fleet.fits import fits
from tonnage.fleet.state import CPU, MEMORY, Fleet
from tonnage.objects import core, selectors
from tonnage.scheduling.reaching import Reaching
from tonnage.scheduling.seen import Seen

PER_MILLE = 1_000
"""Points for a node whose devices are all in use: packing GPUs comes before packing CPU and memory."""
HOST_DIVISOR = 20
"""CPU and memory in use, in per mille each, divided by this: up to 100 points."""
STRANDING_PENALTY = 2_000
"""A pod without devices takes a node with devices only when no other fits, so that it strands none."""
PREFERENCE_WEIGHT = 20
"""Points for one point of a preference (1 to 100 each, as in Kubernetes): what the user prefers comes before
packing."""
SOFT_TAINT_PENALTY = 500

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

    ``key[n]`` is NEVER where the shape does not fit, else score × 2²⁰ + tie-break: one argmax chooses. ``why[n]`` is
    the first filter that refuses the node before resources are looked at; where it is not ``able``, the shape never
    fits. ``selected`` and ``untainted`` say whether node selector and affinity hold, and whether every hard taint is
    tolerated, that of a cordon included. ``cuda`` says why the nodes of a label set cannot run the shape's images, by
    number of the set; empty where they can or it is not known. ``pack`` is +1 to fill nodes and -1 to spread over them.
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
        self.why: NDArray[np.int8] = np.zeros(0, np.int8)
        self.able: Mask = np.zeros(0, np.bool_)
        self.selected: Mask = np.zeros(0, np.bool_)
        self.untainted: Mask = np.zeros(0, np.bool_)
        self.key: Ints = np.zeros(0, np.int64)
        self.cuda: list[str] = []
        self._cuda_of: dict[tuple[str | None, ...], str] = {}
        self.featured: Mask = np.zeros(0, np.bool_)
        """The nodes whose kubelet has what the shape needs."""
        self.unreached: list[tuple[str, Mask]] = []
        """(why, nodes from which a volume of the shape cannot be reached), each node once."""
        self._static_score: Ints = np.zeros(0, np.int64)
        self._taints = ByTaintSet(fleet, shape.tolerations)
        self._labels = ByLabelSet(fleet, shape)
        self._reach = Reaching(fleet, shape.reach)
        self._topology_revision = -1
        self._cursor = 0

    @property
    def reached(self) -> Mask:
        """The nodes from which all volumes of the shape can be reached."""
        there = np.ones(len(self.fleet.alive), np.bool_)
        for _, rows in self.unreached:
            there &= ~rows
        return there

    @property
    def kinds(self) -> NDArray[np.intp]:
        """By node row, equal numbers for nodes that node selector and affinity cannot tell apart."""
        return self._labels.kinds

    @property
    def judged(self) -> int:
        """As of which ``topology_revision`` of the fleet ``why``, ``selected`` and ``untainted`` are."""
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
            else:
                self._touch({node for _, _, node in entries})
        self._cursor = journal.end
        return self.key

    def _judge(self) -> None:
        """All that holds until the topology changes."""
        fleet = self.fleet
        hard, soft = self._taints.refresh()
        self.selected, preferred = self._labels.refresh()
        self.unreached = self._reach.refresh()
        cordoned = cordoned_for(fleet, self.shape.tolerations)
        tainted = hard[fleet.taint_set]
        said = cordoned.copy()
        for row in np.flatnonzero(cordoned & fleet.alive).tolist():
            said[row] = not fleet.node(row).bare
        self.untainted = ~(said | tainted)
        self.featured = self._declares()
        why = np.where(self._runs_cuda(), OPEN, NO_CUDA)
        why[(why == OPEN) & ~self.featured] = UNFEATURED
        why[((why == OPEN) | (why == UNFEATURED)) & ~self.reached] = UNREACHED
        why[~self.selected] = UNSELECTED
        why[tainted] = TAINTED
        if self.shape.node_name:
            named = np.zeros(len(why), np.bool_)
            named[fleet.node_by_name.get(self.shape.node_name, [])] = True
            why[~named] = OTHER_NAME
        why[cordoned | ~fleet.alive] = UNSCHEDULABLE
        self.why = why.astype(np.int8)
        self.able = self.why == OPEN
        device_column = self.nodes.device_column
        stranding = (device_column >= 0) & (self.shape.ask.kind <= Kind.WHOLE)
        for column in self.columns.tolist():
            stranding &= device_column != column
        self._static_score = (
            PREFERENCE_WEIGHT * preferred - SOFT_TAINT_PENALTY * soft[fleet.taint_set] - STRANDING_PENALTY * stranding
        )
        self.key = np.full(len(fleet.alive), NEVER, np.int64)

    def _declares(self) -> Mask:
        """Whether each node's kubelet declares what the shape needs."""
        fleet, shape = self.fleet, self.shape
        there = np.ones(len(fleet.alive), np.bool_)
        for row in fleet.node_by_name.values() if shape.features else ():
            there[row] = declares(shape, fleet.node(row).spec.features)
        return there

    def _runs_cuda(self) -> Mask:
        """Whether each node runs the shape's images, as far as is known; worked out once a label set."""
        fleet = self.fleet
        if not self.shape.cuda:
            return np.ones(len(fleet.alive), np.bool_)
        said = self._cuda_of
        for labels in fleet.label_sets.rows[len(self.cuda) :]:
            seen = tuple([labels.get(key) for key in cuda_host.LABELS])
            if seen not in said:
                said[seen] = cuda_refusal(self.shape, labels)
            self.cuda.append(said[seen])
        return np.array([not reason for reason in self.cuda] or [True])[fleet.label_set]

    def _touch(self, nodes: set[int]) -> None:
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


def cordoned_for(fleet: Fleet, tolerations: list[core.Toleration]) -> Mask:
    """The nodes, by row, that a cordon closes to pods with these tolerations."""
    return ~fleet.schedulable & (not selectors.tolerates(tolerations, CORDON))


class ByTaintSet:
    """Whether the tolerations leave a hard or a soft taint of each taint set; worked out once a set."""

    def __init__(self, fleet: Fleet, tolerations: list[core.Toleration]) -> None:
        self._sets = fleet.taint_sets.rows
        self._tolerations = tolerations
        self._hard: list[bool] = []
        self._soft: list[bool] = []

    def refresh(self) -> tuple[Mask, Mask]:
        """(untolerated NoSchedule or NoExecute, untolerated PreferNoSchedule), by taint set."""
        for taints in self._sets[len(self._hard) :]:
            self._hard.append(selectors.untolerated(taints, self._tolerations, selectors.HARD_EFFECTS) is not None)
            self._soft.append(selectors.untolerated(taints, self._tolerations, ("PreferNoSchedule",)) is not None)
        return np.array(self._hard or [False]), np.array(self._soft or [False])


class ByLabelSet:
    """Node selector and affinity on each node, worked out once for all nodes that they cannot tell apart. ``kinds``: by
    node row, equal numbers for those; as of the last refresh."""

    def __init__(self, fleet: Fleet, shape: Shape) -> None:
        affinity = shape.node_affinity
        required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
        self._selector, self._affinity = shape.node_selector, affinity
        self._preferred = affinity.preferred_during_scheduling_ignored_during_execution if affinity else []
        terms = [*(required.node_selector_terms if required else ()), *(p.preference for p in self._preferred)]
        self._seen = Seen(fleet, terms, self._selector)
        self._holds: list[bool] = []
        self._points: list[int] = []
        self.kinds: NDArray[np.intp] = np.zeros(0, np.intp)

    def refresh(self) -> tuple[Mask, Ints]:
        """(selector and required affinity hold, points of preferred affinity), by node row."""
        self.kinds = self._seen.refresh()
        for labels, name in self._seen.examples[len(self._holds) :]:
            holding, worth = self._judge(labels, name)
            self._holds.append(holding)
            self._points.append(worth)
        holds, points = np.array(self._holds or [False]), np.array(self._points or [0], np.int64)
        return holds[self.kinds], points[self.kinds]

    def _judge(self, labels: Mapping[str, str], name: str) -> tuple[bool, int]:
        holds = selectors.selected(self._selector, self._affinity, labels, name)
        worth = sum(p.weight for p in self._preferred if selectors.term_matches(p.preference, labels, name))
        return holds, worth
