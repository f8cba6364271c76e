"""Matching: label selectors, node selectors, taints and tolerations, by Kubernetes' rules.

Sources: kubernetes/kubernetes staging/src/k8s.io/apimachinery/pkg/labels/selector.go and
staging/src/k8s.io/component-helpers/scheduling/corev1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tonnage.objects.core import (
    LabelSelector,
    LabelSelectorRequirement,
    NodeAffinity,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodSpec,
    PreferredSchedulingTerm,
    Taint,
    Toleration,
)

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"0|-?[1-9][0-9]*")
"""How integers are written in taints and in tolerations that compare them: without a plus or leading zeros."""
_LONGEST = 253
"""More digits than any value may have."""


def matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether the labels satisfy every part. No selector selects nothing, an empty one everything."""
    if selector is None:
        return False
    for key, value in selector.match_labels.items():
        if labels.get(key) != value:
            return False
    more = selector.match_expressions
    return not more or all(_requirement(expression, labels) for expression in more)


def node_selector_matches(spec: PodSpec, labels: Mapping[str, str], name: str) -> bool:
    """Whether a node passes the pod's nodeSelector and required node affinity."""
    return selected(spec.node_selector, spec.affinity.node_affinity if spec.affinity else None, labels, name)


def selected(
    node_selector: Mapping[str, str], affinity: NodeAffinity | None, labels: Mapping[str, str], name: str
) -> bool:
    """The same by the two fields."""
    if any(labels.get(key) != value for key, value in node_selector.items()):
        return False
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return required is None or any_matches(required.node_selector_terms, labels, name)


def any_matches(terms: Iterable[NodeSelectorTerm], labels: Mapping[str, str], name: str) -> bool:
    """Whether one of the terms matches the node."""
    return any(term_matches(term, labels, name) for term in terms)


def term_matches(term: NodeSelectorTerm, labels: Mapping[str, str], name: str) -> bool:
    """Whether every expression and field holds; an empty term matches nothing."""
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": name}
    return all(_requirement(e, labels) for e in term.match_expressions) and all(
        _requirement(f, fields) for f in term.match_fields
    )


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether one of the tolerations covers the taint."""
    return any(_covers(toleration, taint) for toleration in tolerations)


def untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration], effects: Iterable[str]) -> Taint | None:
    """The first taint with one of these effects that nothing tolerates."""
    wanted, given = tuple(effects), tuple(tolerations)
    return next((taint for taint in taints if taint.effect in wanted and not tolerates(given, taint)), None)


HARD_EFFECTS = ("NoSchedule", "NoExecute")
"""Effects of taints that keep a pod off a node."""


def _covers(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "Gt" | "Lt":  # feature gate TaintTolerationComparisonOperators; without it no API server takes one
            written = taint.value, toleration.value
            return all(map(_DECIMAL.fullmatch, written)) and _compare(toleration.operator, written[0], [written[1]])
    return bool(toleration.key) and toleration.operator in ("", "Equal") and toleration.value == taint.value


def _requirement(wanted: LabelSelectorRequirement | NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    present = wanted.key in labels
    value = labels.get(wanted.key, "")
    match wanted.operator:
        case "In":
            return present and value in wanted.values
        case "NotIn":
            return not present or value not in wanted.values
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
        case "Gt" | "Lt":
            return present and _compare(wanted.operator, value, wanted.values)
    return False


def unreadable(terms: Iterable[PreferredSchedulingTerm]) -> str:
    """What kube-scheduler says of preferred node affinity whose Gt or Lt compares with no integer of 64 bits, empty
    where there is none: it gives the pod no score, and with a choice of nodes no node
    (k8s.io/component-helpers scheduling/corev1/nodeaffinity; plugin NodeAffinity, PreScore)."""
    wrong = [
        f'[{at}].matchExpressions[{number}].values[0]: Invalid value: "{one.values[0]}": '
        "for 'Gt', 'Lt' operators, the value must be an integer"
        for at, term in enumerate(terms)
        if term.weight
        for number, one in enumerate(term.preference.match_expressions)
        if one.operator in ("Gt", "Lt") and len(one.values) == 1 and _integer(one.values[0]) is None
    ]
    if not wrong:
        return ""
    listed = wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]"
    return f'running PreScore plugin "NodeAffinity": {listed}'


def _compare(operator: str, value: str, values: list[str]) -> bool:
    """Gt and Lt compare integers of 64 bits; anything else on either side matches nothing."""
    left = _integer(value)
    right = _integer(values[0]) if len(values) == 1 else None
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else left < right


def _integer(written: str) -> int | None:
    """What Go's strconv.ParseInt makes of it; None where that fails."""
    if len(written) > _LONGEST or not _INTEGER.fullmatch(written):
        return None
    value = int(written)
    return value if -(1 << 63) <= value < 1 << 63 else None
