"""On which nodes the ResourceClaims of a class can be allocated, as masks over nodes.

Source of the texts: kubernetes/kubernetes v1.36 pkg/scheduler/framework/plugins/dynamicresources (Filter).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tonnage.fleet.device_claims import CANNOT_ALLOCATE
from tonnage.fleet.filters import UNFEATURED, Mask
from tonnage.fleet.state import Fleet
from tonnage.scheduling.view import NEVER, ShapeView


@dataclass(slots=True)
class _Known:
    """What was found for a class. ``why``: by node row, None: not asked yet."""

    position: int
    revision: int
    standing: list[object]
    why: list[str | None]


class ClaimMasks:
    """Answers, for what a class asks, which nodes have the devices. Nodes on which nothing of devices has changed are
    not asked again."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._known: dict[tuple[str, ...], _Known] = {}

    def masks(self, asks: tuple[str, ...], view: ShapeView) -> list[tuple[str, Mask]]:
        """(why not, nodes that it allows) for each reason, by its text, and at least one. Nodes that the view refuses
        are not asked, and count as allowed, but for those whose kubelet lacks a feature: that is asked after claims."""
        fleet = self._fleet
        known = self._followed(asks)
        refused: dict[str, list[int]] = {CANNOT_ALLOCATE: []}
        for row in np.flatnonzero((view.key != NEVER) | (view.why == UNFEATURED)).tolist():
            why = known.why[row]
            if why is None:
                why = known.why[row] = fleet.device_claims.refusal(asks, fleet.node_view(row), fleet.served(row))
            if why:
                refused.setdefault(why, []).append(row)
        found = []
        for why, rows in sorted(refused.items()):
            mask = np.ones(len(fleet.alive), np.bool_)
            mask[rows] = False
            found.append((why, mask))
        return found

    def _followed(self, asks: tuple[str, ...]) -> _Known:
        """What is known and holds still."""
        fleet, claims = self._fleet, self._fleet.device_claims
        known, standing = self._known.get(asks), claims.standing(asks)
        position, names = claims.changed_since(known.position if known is not None else 0)
        if (
            known is None
            or names is None
            or known.revision != fleet.topology_revision
            or len(known.why) != len(fleet.alive)
            or any(one is not other for one, other in zip(known.standing, standing, strict=True))
        ):
            known = _Known(position, fleet.topology_revision, standing, [None] * len(fleet.alive))
            self._known[asks] = known
            return known
        for name in names:
            row = fleet.node_by_name.get(name)
            if row is not None:
                known.why[row] = None
        known.position = position
        return known
