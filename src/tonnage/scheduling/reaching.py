"""From which nodes the volumes of a shape can be reached (kube-scheduler's VolumeBinding and VolumeZone)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tonnage.fleet.state import Fleet
from tonnage.fleet.volumes import Reach
from tonnage.objects import selectors
from tonnage.scheduling.seen import Seen

Mask = NDArray[np.bool_]


class Reaching:
    """Judged once for all nodes that a volume cannot tell apart."""

    def __init__(self, fleet: Fleet, reach: Sequence[Reach]) -> None:
        self._fleet = fleet
        self._reach = [(one, Seen(fleet, one.nodes.node_selector_terms), list[bool]()) for one in reach]

    def refresh(self) -> list[tuple[str, Mask]]:
        """(why, nodes that are refused) of each, a node under the first that refuses it."""
        found: list[tuple[str, Mask]] = []
        left = self._fleet.alive.copy()
        for one, seen, known in self._reach:
            kinds, terms = seen.refresh(), one.nodes.node_selector_terms
            known += [selectors.any_matches(terms, labels, name) for labels, name in seen.examples[len(known) :]]
            refused = left & ~np.array(known or [False])[kinds]
            found.append((one.why, refused))
            left &= ~refused
        return found
