"""Why no node takes a pod, in kube-scheduler's words: each node counted under the first filter that refuses it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from tonnage.decisions import Reason
from tonnage.fleet.state import PODS, Fleet
from tonnage.objects import core, selectors
from tonnage.scheduling.view import NO_CUDA, OPEN, OTHER_NAME, TAINTED, UNSCHEDULABLE, UNSELECTED, Mask, ShapeView

NO_NODES = "no nodes available to schedule pods"
NOT_NAMED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
"""Nodes that are not looked at, because every term of the pod's required node affinity names others."""
CONFLICT = "pod affinity terms conflict"
"""Every term names two different nodes."""
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
    counts: Counter[str] = Counter()
    among = fleet.alive
    names = _named(view.shape.node_affinity)
    if names is not None:
        if not names:
            return Reason(f"0/{nodes} nodes are available: {CONFLICT}", ((CONFLICT, nodes),))
        among = np.zeros_like(among)
        among[[fleet.node_by_name[name] for name in names if name in fleet.node_by_name]] = True
        counts[NOT_NAMED] = nodes - int(among.sum())
    for why, text in _TEXTS.items():
        counts[text] = int((among & (view.why == why)).sum())
    for number, count in enumerate(np.bincount(fleet.taint_set[among & (view.why == TAINTED)])):
        if count:
            taint = selectors.untolerated(fleet.taint_sets.rows[number], view.shape.tolerations, selectors.HARD_EFFECTS)
            assert taint is not None
            counts[f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"] += int(count)
    for number, count in enumerate(np.bincount(fleet.label_set[among & (view.why == NO_CUDA)])):
        if count:
            counts[f"node(s) cannot run the image's CUDA: {view.cuda[number]}"] += int(count)
    rows = np.flatnonzero(among & (view.why == OPEN))
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
