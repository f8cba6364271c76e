"""The fleet's bound pods as columns, for whoever looks at all of them. Only touched nodes are read again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tonnage.fleet.state import Fleet
from tonnage.objects.karpenter import DO_NOT_DISRUPT


class BoundPods:
    """Columns by pod row. ``node``: -1 for a row without a bound pod, whose other columns say nothing. ``daemon``: it
    belongs to its node. ``special``: it is marked do-not-disrupt, or of a gang."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._cursor = -1
        self._clear()

    def _clear(self) -> None:
        rows = 2 * len(self._fleet.pods) + 1
        self.node = np.full(rows, -1, np.int64)
        self.class_id = np.zeros(rows, np.int64)
        self.priority = np.zeros(rows, np.int64)
        self.daemon: NDArray[np.bool_] = np.zeros(rows, np.bool_)
        self.special: NDArray[np.bool_] = np.zeros(rows, np.bool_)

    def refresh(self) -> BoundPods:
        """Follow pods that were bound or unbound."""
        fleet = self._fleet
        entries = fleet.journal.since(self._cursor) if self._cursor >= 0 else None
        touched = None if entries is None else {node for _, _, node in entries}
        if touched is None or len(fleet.pods) > len(self.node) or len(touched) > len(fleet.node_by_name) // 4:
            self._clear()
            touched = set(fleet.node_by_name.values())
        elif touched:
            self.node[np.isin(self.node, list(touched))] = -1
        for node in touched:
            if fleet.nodes[node] is not None:
                for row in fleet.node(node).pods:
                    self._read(row, node)
        self._cursor = fleet.journal.end
        return self

    def _read(self, row: int, node: int) -> None:
        pod = self._fleet.pod(row)
        self.node[row], self.class_id[row], self.priority[row] = node, pod.class_id, pod.spec.priority
        self.daemon[row] = pod.spec.daemon
        self.special[row] = bool(pod.spec.gang) or pod.spec.annotations.get(DO_NOT_DISRUPT) == "true"
