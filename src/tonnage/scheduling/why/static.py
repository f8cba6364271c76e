"""What of a node keeps a pod off whatever is free there, as the edits that would lift it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tonnage.fleet.rows import FleetPod, NodeRow
from tonnage.fleet.state import HOSTNAME, Fleet
from tonnage.objects import core, selectors
from tonnage.scheduling.open_nodes import cordoned_for
from tonnage.scheduling.view import ShapeView
from tonnage.scheduling.why.changes import (
    DropAffinity,
    DropNodeName,
    DropRequirement,
    DropSelector,
    Edit,
    Tolerate,
    required_of,
)

Rows = NDArray[np.int64]


class Kin(Struct, frozen=True):
    """Nodes that differ in nothing that a pod alone can see but their room. ``ways``: the sets of edits of which one
    has to be made for each of these nodes, the smallest first; none where no edit helps. ``cordoned``: and each of the
    nodes has to be made schedulable."""

    rows: Rows
    ways: tuple[tuple[Edit, ...], ...]
    cordoned: bool


def kin(fleet: Fleet, pod: FleetPod, view: ShapeView, rows: Rows) -> list[Kin]:
    """The nodes in these rows by what they ask of the pod, in the order of their first rows."""
    spec = pod.spec
    cordoned = cordoned_for(fleet, spec.tolerations)[rows]
    out = ~view.opened.reached[rows] | ~view.opened.featured[rows]
    for at in np.flatnonzero(~fleet.schedulable[rows]).tolist():
        out[at] |= bool(fleet.node(int(rows[at])).shut)
    if view.opened.cuda:
        out |= np.array([bool(said) for said in view.opened.cuda])[fleet.label_set[rows]]
    named = rows == fleet.node_by_name.get(spec.node_name, -1)
    keys = view.opened.kinds[rows]
    for column in (fleet.taint_set[rows], cordoned, out, named):
        _, keys = np.unique(keys * (int(column.max(initial=0)) + 1) + column, return_inverse=True)
    found = []
    order = np.argsort(keys, kind="stable")
    groups = np.split(rows[order], np.flatnonzero(np.diff(keys[order])) + 1) if len(rows) else []
    at_row = dict(zip(rows.tolist(), range(len(rows)), strict=True))
    for members in sorted(groups, key=lambda group: at_row[int(group[0])]):
        first = int(members[0])
        node, at = fleet.node(first), at_row[first]
        ways = () if out[at] else _ways(spec, node, node.spec.name, node.labels)
        found.append(Kin(members, ways, bool(cordoned[at])))
    return found


def ways_of_new(spec: core.PodSpec, node: NodeRow, name: str) -> tuple[tuple[Edit, ...], ...]:
    """The same for a node that is to come, like ``node`` but for its name."""
    return _ways(spec, node, name, {**node.labels, HOSTNAME: name})


def _terms(spec: core.PodSpec) -> list[tuple[int, core.NodeSelectorTerm]]:
    required = required_of(spec)
    return list(enumerate(required.node_selector_terms)) if required else []


def _ways(spec: core.PodSpec, node: NodeRow, name: str, labels: Mapping[str, str]) -> tuple[tuple[Edit, ...], ...]:
    always: list[Edit] = []
    if spec.node_name and spec.node_name != name:
        always.append(DropNodeName(spec.node_name))
    always += [DropSelector(key, value) for key, value in spec.node_selector.items() if labels.get(key) != value]
    hard = (taint for taint in node.taints if taint.effect in selectors.HARD_EFFECTS)
    always += [Tolerate(taint) for taint in dict.fromkeys(hard) if not selectors.tolerates(spec.tolerations, taint)]
    return tuple((*always, *way) for way in _affinity(spec, labels, name))


def _affinity(spec: core.PodSpec, labels: Mapping[str, str], name: str) -> list[tuple[Edit, ...]]:
    """For each term what keeps it from matching, where something of it does match; nothing where a term matches as it
    is. Where nothing can be left of any term, all of the affinity."""
    if required_of(spec) is None:
        return [()]
    ways: list[tuple[Edit, ...]] = []
    terms = _terms(spec)
    for number, term in terms:
        failing: list[Edit] = []
        for field, requirements in ((False, term.match_expressions), (True, term.match_fields)):
            for index, requirement in enumerate(requirements):
                part = {"match_fields" if field else "match_expressions": [requirement]}
                if not selectors.term_matches(core.NodeSelectorTerm(**part), labels, name):
                    failing.append(DropRequirement(number, index, field, _about(requirement), len(terms)))
        asked = len(term.match_expressions) + len(term.match_fields)
        if asked and not failing:
            return [()]
        if len(failing) < asked:
            ways.append(tuple(failing))
    whole = DropAffinity(tuple(tuple(map(_about, (*t.match_expressions, *t.match_fields))) for _, t in terms))
    return sorted(ways, key=len) or [(whole,)]


def _about(requirement: core.NodeSelectorRequirement) -> str:
    values = ", ".join(requirement.values)
    match requirement.operator:
        case "In" | "NotIn":
            return f"{requirement.key} {'in' if requirement.operator == 'In' else 'not in'} ({values})"
        case "Exists":
            return f"{requirement.key} exists"
        case "DoesNotExist":
            return f"{requirement.key} does not exist"
        case _:
            return f"{requirement.key} {'>' if requirement.operator == 'Gt' else '<'} {values}"
