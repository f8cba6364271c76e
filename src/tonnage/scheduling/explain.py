"""Why no node takes a pod, in kube-scheduler's words: each node counted under the first filter that refuses it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from tonnage.decisions import Reason
from tonnage.fleet.state import PODS, Fleet
from tonnage.objects import selectors
from tonnage.scheduling.view import OPEN, OTHER_NAME, TAINTED, UNSCHEDULABLE, UNSELECTED, Mask, ShapeView

NO_NODES = "no nodes available to schedule pods"
_TEXTS = {
    UNSCHEDULABLE: "node(s) were unschedulable",
    OTHER_NAME: "node(s) didn't match the requested node name",
    UNSELECTED: "node(s) didn't match Pod's node affinity/selector",
}


def explain(fleet: Fleet, view: ShapeView, masks: Sequence[tuple[str, Mask]] = ()) -> Reason:
    """The verdict, and as evidence the nodes for each reason; a node short of several resources counts for each.

    ``masks``: (reason, nodes allowed) for each rule about other pods, in the order in which they are asked."""
    nodes = len(fleet.node_by_name)
    if not nodes:
        return Reason(NO_NODES)
    counts = Counter(dict(zip(_TEXTS.values(), (_count(fleet, view, why) for why in _TEXTS), strict=True)))
    for number, count in enumerate(np.bincount(fleet.taint_set[fleet.alive & (view.why == TAINTED)])):
        if count:
            taint = selectors.untolerated(fleet.taint_sets.rows[number], view.shape.tolerations, selectors.HARD_EFFECTS)
            assert taint is not None
            counts[f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"] += int(count)
    rows = np.flatnonzero(fleet.alive & (view.why == OPEN))
    short = fleet.free[rows][:, view.columns] < view.amounts
    for column, count in zip(view.columns, short.sum(axis=0), strict=True):
        counts["Too many pods" if column == PODS else f"Insufficient {fleet.resources[column]}"] += int(count)
    rows = rows[~short.any(axis=1)]
    for text, mask in masks:
        counts[text] += int((~mask[rows]).sum())
        rows = rows[mask[rows]]
    evidence = tuple(sorted((text, count) for text, count in counts.items() if count))
    parts = sorted(f"{count} {text}" for text, count in evidence)
    return Reason(f"0/{nodes} nodes are available: {', '.join(parts)}", evidence)


def _count(fleet: Fleet, view: ShapeView, why: int) -> int:
    return int((fleet.alive & (view.why == why)).sum())
