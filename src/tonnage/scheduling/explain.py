"""Why no node is feasible for a pod, in kube-scheduler's words: each node counted under the first filter that refuses
it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tonnage.decisions import Reason
from tonnage.fleet.columns import distinct
from tonnage.fleet.filters import (
    FOREIGN_CUDA,
    NO_CUDA,
    NO_FEATURE,
    OPEN,
    OTHER_NAME,
    TAINTED,
    UNFEATURED,
    UNREACHED,
    UNSCHEDULABLE,
    UNSELECTED,
    Mask,
)
from tonnage.fleet.fits import lack
from tonnage.fleet.ports import NO_PORTS
from tonnage.fleet.state import PODS, Fleet
from tonnage.objects import core, selectors
from tonnage.scheduling.topology import IN_USE_ALONE, NO_DISK, TOO_MANY_VOLUMES
from tonnage.scheduling.view import ShapeView

Rows = NDArray[np.intp]

NO_NODES = "no nodes available to schedule pods"
NOT_NAMED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
"""Nodes that are not looked at, because every term of the pod's required node affinity names others."""
CONFLICT = "pod affinity terms conflict"
"""Every term names two different nodes."""
_TEXTS = {
    UNSCHEDULABLE: "node(s) were unschedulable",
    OTHER_NAME: "node(s) didn't match the requested node name",
}
UNSELECTED_TEXT = "node(s) didn't match Pod's node affinity/selector"


def explain(fleet: Fleet, view: ShapeView, masks: Sequence[tuple[str, Mask]] = ()) -> Reason:
    """The verdict, and as evidence the number of nodes for each reason of :func:`refusals`."""
    nodes = len(fleet.node_by_name)
    if not nodes:
        return Reason(NO_NODES)
    counts: Counter[str] = Counter()
    for text, rows in refusals(fleet, view, masks):
        counts[text] += len(rows)
    evidence = tuple(sorted((text, count) for text, count in counts.items() if count))
    parts = sorted(text if text == CONFLICT else f"{count} {text}" for text, count in evidence)
    return Reason(f"0/{nodes} nodes are available: {', '.join(parts)}", evidence)


def refusals(fleet: Fleet, view: ShapeView, masks: Sequence[tuple[str, Mask]] = ()) -> Iterator[tuple[str, Rows]]:
    """(reason, rows of the nodes) in the order in which the filters are asked: a node counts for the first that refuses
    it, and one that is short of several resources for each.

    ``masks``: (reason, nodes allowed) for each rule about other pods, in the order in which they are asked."""
    among = fleet.alive
    names = _named(view.shape.node_affinity)
    if names is not None:
        if not names:
            yield CONFLICT, np.flatnonzero(among)
            return
        among = np.zeros_like(among)
        among[[fleet.node_by_name[name] for name in names if name in fleet.node_by_name]] = True
        yield NOT_NAMED, np.flatnonzero(fleet.alive & ~among)
    for why, text in _TEXTS.items():
        found = np.flatnonzero(among & (view.why == why))
        if why == UNSCHEDULABLE:
            shut = np.array([bool(fleet.node(row).shut) for row in found.tolist()], np.bool_)
            for row in found[shut]:
                yield fleet.node(int(row)).shut, np.array([row])
            found = found[~shut]
        yield text, found
    tainted = np.flatnonzero(among & (view.why == TAINTED))
    for number in distinct(fleet.taint_set[tainted]):
        taint = selectors.untolerated(fleet.taint_sets.rows[number], view.shape.tolerations, selectors.HARD_EFFECTS)
        assert taint is not None
        text = f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
        yield text, tainted[fleet.taint_set[tainted] == number]
    yield UNSELECTED_TEXT, np.flatnonzero(among & (view.why == UNSELECTED))
    without = np.flatnonzero(among & (view.why == NO_CUDA))
    by_text: dict[str, list[int]] = {}
    for number in distinct(fleet.label_set[without]):
        by_text.setdefault(view.opened.cuda[number], []).append(number)
    for said, sets in by_text.items():
        yield f"{FOREIGN_CUDA}: {said}", without[np.isin(fleet.label_set[without], sets)]
    rows = np.flatnonzero(among & np.isin(view.why, (OPEN, UNREACHED, UNFEATURED)))
    for text, mask in masks:
        if text == NO_PORTS:
            yield text, rows[~mask[rows]]
            rows = rows[mask[rows]]
    short = fleet.free[rows][:, view.columns] < view.amounts
    for column, is_short in zip(view.columns, short.T, strict=True):
        yield "Too many pods" if column == PODS else f"Insufficient {fleet.resources[column]}", rows[is_short]
    scarce = short.any(axis=1)
    counted = fleet.cards.numbers[rows] if view.shape.ask.plain >= 0 else np.zeros(len(rows), np.bool_)
    given, lacking = lack(fleet, rows[~scarce | counted], view.shape.ask)
    yield from lacking.items()
    rows = given[~np.isin(given, rows[scarce])]
    for text, mask in masks:
        if text in (NO_DISK, IN_USE_ALONE, TOO_MANY_VOLUMES):
            yield text, rows[~mask[rows]]
            rows = rows[mask[rows]]
    for text, refused in view.opened.unreached:
        yield text, rows[refused[rows]]
        rows = rows[~refused[rows]]
    for text, mask in masks:
        if text not in (NO_PORTS, NO_DISK, IN_USE_ALONE, TOO_MANY_VOLUMES):
            yield text, rows[~mask[rows]]
            rows = rows[mask[rows]]
    yield NO_FEATURE, rows[~view.opened.featured[rows]]


def _named(affinity: core.NodeAffinity | None) -> set[str] | None:
    """The nodes that required node affinity names; None when a term names none, so that any node may match.

    Source: kubernetes/kubernetes pkg/scheduler/framework/plugins/nodeaffinity (PreFilter)."""
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None or not required.node_selector_terms:
        return None
    named: set[str] = set()
    for term in required.node_selector_terms:
        fields = [set(f.values) for f in term.match_fields if (f.key, f.operator) == ("metadata.name", "In")]
        if not fields:
            return None
        named |= set.intersection(*fields)
    return named
