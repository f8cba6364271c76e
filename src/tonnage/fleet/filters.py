"""Whether a node lets a pod in, whatever room there is: the scheduler's filters that look at one node alone, and what
the scheduler answers to those who decide below it.

The order is kube-scheduler's: NodeUnschedulable, NodeName, TaintToleration, NodeAffinity, volumes, declared features
(kubernetes/kubernetes pkg/scheduler/apis/config/v1/default_plugins.go). One of our own stands before volumes: CUDA,
which refuses a node only where its labels and the pod's images say that it cannot run them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tonnage.cuda_fit import host as cuda_host
from tonnage.cuda_fit import pods as cuda_pods
from tonnage.facts.labels import UNSCHEDULABLE_TAINT
from tonnage.fleet.classes import ClassTable, PodClass, Shape
from tonnage.fleet.rows import NodeRow
from tonnage.fleet.volumes import UNKNOWN, Reach, VolumeNeed
from tonnage.objects import core, selectors

Mask = NDArray[np.bool_]

OPEN, UNSCHEDULABLE, OTHER_NAME, TAINTED, UNSELECTED, NO_CUDA, UNREACHED, UNFEATURED = range(8)
"""The first filter that refuses a node whatever is free on it; OPEN: none."""

CORDON = core.Taint(key=UNSCHEDULABLE_TAINT, effect="NoSchedule")
"""The taint of a cordoned node; who tolerates it may stand there."""
NO_FEATURE = "node(s) didn't match Pod's required features"
FOREIGN_CUDA = "node(s) cannot run the image's CUDA"
"""How these filters say it; the others' words are in :mod:`tonnage.scheduling.explain`."""


class Filters(Protocol):
    """What the scheduler answers about one fleet (:class:`tonnage.scheduling.filters.SchedulerFilters`), for rooms
    that may not know it. By node row; nothing is changed, and what was changed in the fleet since the last
    answer counts."""

    def admit(self, pod_class: PodClass) -> Mask:
        """The nodes that let the pods in whatever room there is."""

    def rules(self, pod_class: PodClass) -> Mask | None:
        """The nodes that rules about other pods leave, as things stand; None: no rule says anything."""

    def take(self, pod_class: PodClass) -> Mask:
        """The nodes on which such a pod could be bound now."""


def refusal(shape: Shape, node: NodeRow, *, schedulable: bool = True) -> int:
    """The first filter that refuses this node; :class:`tonnage.scheduling.view.ShapeView` says the same of all nodes of
    a fleet at once. ``schedulable``: the node is neither cordoned nor still to be initialised."""
    name = node.spec.name
    if cordoned(shape, schedulable=schedulable):
        return UNSCHEDULABLE
    if shape.node_name and shape.node_name != name:
        return OTHER_NAME
    if selectors.untolerated(node.taints, shape.tolerations, selectors.HARD_EFFECTS) is not None:
        return TAINTED
    if not selectors.selected(shape.node_selector, shape.node_affinity, node.labels, name):
        return UNSELECTED
    if cuda_refusal(shape, node.labels):
        return NO_CUDA
    if not reaches(shape.reach, node.labels, name):
        return UNREACHED
    return OPEN if declares(shape, node.spec.features) else UNFEATURED


def cordoned(shape: Shape, *, schedulable: bool) -> bool:
    """Whether the first filter refuses a node: it is not ``schedulable``, and the shape does not tolerate a cordon."""
    return not (schedulable or selectors.tolerates(shape.tolerations, CORDON))


def reaches(reach: Iterable[Reach], labels: Mapping[str, str], name: str) -> bool:
    """Whether all of these volumes can be reached from a node."""
    return all(selectors.any_matches(one.nodes.node_selector_terms, labels, name) for one in reach)


def declares(shape: Shape, features: Sequence[str]) -> bool:
    """Whether a kubelet that declares these features has all that the shape needs."""
    return set(shape.features) <= set(features)


def cuda_refusal(shape: Shape, labels: Mapping[str, str]) -> str:
    """Why a node with these labels cannot run the shape's images; empty where it can or it is not known."""
    return cuda_pods.refusal(shape.cuda, cuda_host.of_labels(labels)) if shape.cuda else ""


def shape_of(spec: core.PodSpec, annotations: Mapping[str, str], volumes: VolumeNeed = UNKNOWN) -> Shape:
    """What pods made from a template ask of a node, of which no fleet knows."""
    table = ClassTable()
    return table.shapes[table.rows[table.intern("", {}, spec, annotations, volumes)].shape]
