"""The labels that a pod gets with its node.

Source: kubernetes/kubernetes v1.36 plugin/pkg/admission/podtopologylabels (on from 1.35): copied from the Node to a pod
that is bound, or made with a node, over what the pod has; a node that is not there gives none.
"""

from __future__ import annotations

from collections.abc import Mapping

from tonnage.facts.labels import REGION, ZONE

BOUND_LABELS = frozenset({ZONE, REGION})
"""Zone and region of its node."""


def bound_labels(node: Mapping[str, str]) -> dict[str, str]:
    """What a pod gets of these labels of its node."""
    return {key: value for key, value in node.items() if key in BOUND_LABELS}


def own_labels(pod: dict[str, str], node_name: str) -> dict[str, str]:
    """The labels of a pod without those that it got with its node: pods of one template stay one class wherever they
    stand."""
    if not node_name or BOUND_LABELS.isdisjoint(pod):
        return pod
    return {key: value for key, value in pod.items() if key not in BOUND_LABELS}
