"""From which nodes the volumes of a shape can be reached (kube-scheduler's VolumeBinding and VolumeZone)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tonnage.fleet.state import HOSTNAME, Fleet
from tonnage.fleet.volumes import Reach
from tonnage.objects import core, selectors

Mask = NDArray[np.bool_]


class Reaching:
    """Judged once a label set, unless names of nodes count."""

    def __init__(self, fleet: Fleet, reach: Sequence[Reach]) -> None:
        self._fleet = fleet
        self._reach = reach
        self._holds: list[list[bool]] = [[] for _ in reach]

    def refresh(self) -> list[tuple[str, Mask]]:
        """(why, nodes that are refused) of each, a node under the first that refuses it."""
        found: list[tuple[str, Mask]] = []
        left = self._fleet.alive.copy()
        for one, known in zip(self._reach, self._holds, strict=True):
            refused = left & ~self._mask(one, known)
            found.append((one.why, refused))
            left &= ~refused
        return found

    def _mask(self, one: Reach, known: list[bool]) -> Mask:
        fleet, terms = self._fleet, one.nodes.node_selector_terms
        if by_name(terms):
            holds = np.zeros(len(fleet.alive), np.bool_)
            for row in fleet.node_by_name.values():
                node = fleet.node(row)
                holds[row] = selectors.any_matches(terms, node.labels, node.spec.name)
            return holds
        for labels in fleet.label_sets.rows[len(known) :]:
            known.append(selectors.any_matches(terms, labels, ""))
        return np.array(known or [False])[fleet.label_set]


def by_name(terms: Sequence[core.NodeSelectorTerm]) -> bool:
    """Whether the names of nodes count."""
    return any(term.match_fields or any(e.key == HOSTNAME for e in term.match_expressions) for term in terms)
