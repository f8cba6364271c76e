"""Which nodes are open to pods that ask the same of nodes, resources aside: the filters whose answer holds until nodes
change."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from tonnage.cuda_fit import host as cuda_host
from tonnage.fleet.classes import Shape
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
from tonnage.fleet.state import Fleet
from tonnage.objects import core, selectors
from tonnage.scheduling.reaching import Reaching
from tonnage.scheduling.seen import Seen

PREFERENCE_WEIGHT = 20
"""Points for one point of a preference (1 to 100 each, as in Kubernetes): what the user prefers comes before
packing."""
SOFT_TAINT_PENALTY = 500

Ints = NDArray[np.int64]


def asked_of_nodes(shape: Shape) -> bytes:
    """The same for shapes to which the same nodes are open, whatever resources these have."""
    own = shape.node_name, shape.node_selector, shape.node_affinity, shape.tolerations, shape.features
    return msgspec.json.encode((*own, shape.cuda, shape.reach))


class OpenNodes:
    """``why[n]`` is the first filter that refuses the node, resources aside; where it is not ``able``, the shape never
    fits. ``selected`` and ``untainted`` say whether node selector and affinity hold, and whether every hard taint is
    tolerated, that of a cordon included. ``cuda`` says why the nodes of a label set cannot run the shape's images, by
    number of the set; empty where they can or it is not known. ``featured``: the nodes whose kubelet has what the shape
    needs. ``unreached``: (why, nodes from which a volume of the shape cannot be reached), each node once. ``points``:
    for preferences and soft taints. All as of the last refresh, and not to be changed."""

    def __init__(self, fleet: Fleet, shape: Shape) -> None:
        self.fleet = fleet
        self.shape = shape
        self.why: NDArray[np.int8] = np.zeros(0, np.int8)
        self.able: Mask = np.zeros(0, np.bool_)
        self.able_of = b""
        """``able``, a byte for each node."""
        self.selected: Mask = np.zeros(0, np.bool_)
        self.untainted: Mask = np.zeros(0, np.bool_)
        self.featured: Mask = np.zeros(0, np.bool_)
        self.unreached: list[tuple[str, Mask]] = []
        self.points: Ints = np.zeros(0, np.int64)
        self.cuda: list[str] = []
        self._cuda_of: dict[tuple[str | None, ...], str] = {}
        self._taints = ByTaintSet(fleet, shape.tolerations)
        self._labels = ByLabelSet(fleet, shape)
        self._reach = Reaching(fleet, shape.reach)
        self._topology_revision = -1

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

    def refresh(self) -> OpenNodes:
        """Follow nodes that came, went or changed."""
        if self._topology_revision != self.fleet.topology_revision:
            self._topology_revision = self.fleet.topology_revision
            self._judge()
        return self

    def _judge(self) -> None:
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
        self.able_of = self.able.tobytes()
        self.points = PREFERENCE_WEIGHT * preferred - SOFT_TAINT_PENALTY * soft[fleet.taint_set]

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
