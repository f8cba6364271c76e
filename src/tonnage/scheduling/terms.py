"""Who is selected by a rule about other pods, and how many of those stand on each node.

A tally counts, per node row, the bound pods of the classes that satisfy a condition. All tallies of a fleet are kept
current together from its journal, at the cost of the tallies that each change touches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from tonnage.fleet.classes import PodClass
from tonnage.fleet.columns import grow
from tonnage.fleet.namespaces import NamespaceLabels
from tonnage.fleet.state import Fleet
from tonnage.objects import core, selectors

ANY: Mapping[str, str] = {}
"""No label that all have."""


class Term(msgspec.Struct, frozen=True):
    """A pod (anti-)affinity term as it applies to the pods of one class: defaults and label keys filled in."""

    topology_key: str
    selector: core.LabelSelector | None
    namespaces: tuple[str, ...]
    namespace_selector: core.LabelSelector | None

    def matches(self, other: PodClass, namespaces: NamespaceLabels) -> bool:
        """Whether the term selects pods of that class, by the labels that namespaces have now."""
        if not selectors.matches(self.selector, other.labels):
            return False
        if other.namespace in self.namespaces:
            return True
        by = self.namespace_selector
        return by is not None and selectors.matches(by, namespaces.labels(other.namespace))

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels that all pods have which the term selects."""
        return self.selector.match_labels if self.selector is not None else ANY

    def widened(self) -> Term:
        """The term of a pod's own anti-affinity as kube-scheduler 1.36 applies it: where its namespaceSelector is
        satisfied by a namespace without labels (NotIn, DoesNotExist), to every namespace.

        Source: kubernetes/kubernetes v1.36 pkg/scheduler/framework/plugins/interpodaffinity/plugin.go
        (mergeAffinityTermNamespacesIfNotEmpty changes a copy of the term, and the selector is then asked about no
        labels). Affinity is not widened: pod affinity selects what it says."""
        by = self.namespace_selector
        if by is None or not selectors.matches(by, {}):
            return self
        return msgspec.structs.replace(self, namespace_selector=core.LabelSelector())


def resolve(term: core.PodAffinityTerm, pod_class: PodClass) -> Term:
    """The term of a pod of this class. Without namespaces and namespace selector it means the pod's own namespace."""
    own = term.namespace_selector is None and not term.namespaces
    selector = narrowed(term.label_selector, pod_class.labels, term.match_label_keys, "In")
    selector = narrowed(selector, pod_class.labels, term.mismatch_label_keys, "NotIn")
    namespaces = (pod_class.namespace,) if own else tuple(sorted(term.namespaces))
    return Term(term.topology_key, selector, namespaces, term.namespace_selector)


def narrowed(
    selector: core.LabelSelector | None, labels: Mapping[str, str], keys: Sequence[str], operator: str
) -> core.LabelSelector | None:
    """The selector with one more requirement for each of ``keys`` that the pod's own labels have (matchLabelKeys)."""
    if selector is None or not keys:
        return selector
    more = [
        core.LabelSelectorRequirement(key=key, operator=operator, values=[labels[key]]) for key in keys if key in labels
    ]
    return msgspec.structs.replace(selector, match_expressions=[*selector.match_expressions, *more])


class Tally:
    """How many bound pods of the classes that ``counts`` says yes to each node row holds."""

    __slots__ = ("counts", "per_node")

    def __init__(self, counts: Callable[[PodClass], bool], rows: int) -> None:
        self.counts = counts
        self.per_node: NDArray[np.int64] = np.zeros(rows, np.int64)


class Tallies:
    """All tallies of one fleet, by what they count."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._by_key: dict[bytes, Tally] = {}
        self._by_object: dict[int, tuple[object, Tally]] = {}  # which are kept, so that no other has their id
        self._followers: list[list[Tally]] = []  # by class: the tallies that count it
        self._labelled: dict[tuple[str, str], list[PodClass]] = {}  # the same classes by each of their labels
        self._cursor = fleet.journal.end

    def get(
        self, key: object, counts: Callable[[PodClass], bool], of: object = None, labels: Mapping[str, str] = ANY
    ) -> NDArray[np.int64]:
        """Pods per node row as of the last refresh. ``key`` identifies ``counts``: it is called once a class. ``of``:
        an object that alone identifies them too, and does not change. ``labels``: that all who count have."""
        if of is not None:
            known = self._by_object.get(id(of))
            if known is not None:
                return known[1].per_node
        encoded = msgspec.json.encode(key)
        tally = self._by_key.get(encoded)
        if tally is None:
            self.refresh()
            tally = self._by_key[encoded] = Tally(counts, len(self._fleet.alive))
            for pod_class in self._with(labels):
                if counts(pod_class):
                    self._followers[pod_class.id].append(tally)
                    self._count(tally, pod_class.id)
        if of is not None:
            self._by_object[id(of)] = of, tally
        return tally.per_node

    def _with(self, labels: Mapping[str, str]) -> Sequence[PodClass]:
        """Classes among which are all that have these labels."""
        for label in labels.items():
            return self._labelled.get(label, ())
        return self._fleet.classes.rows

    def refresh(self) -> None:
        """Follow the fleet: new classes, new node rows, and pods bound and unbound since the last call."""
        fleet = self._fleet
        size = len(fleet.alive)
        for tally in self._by_key.values():
            if len(tally.per_node) == size:
                break
            tally.per_node = grow(tally.per_node, (size,), 0)
        for pod_class in fleet.classes.rows[len(self._followers) :]:
            self._followers.append([t for t in self._by_key.values() if t.counts(pod_class)])
            for label in pod_class.labels.items():
                self._labelled.setdefault(label, []).append(pod_class)
        entries = fleet.journal.since(self._cursor)
        self._cursor = fleet.journal.end
        if entries is None:
            self._recount()
            return
        for sign, class_id, node_row in entries:
            for tally in self._followers[class_id]:
                tally.per_node[node_row] += sign

    def _recount(self) -> None:
        for tally in self._by_key.values():
            tally.per_node[:] = 0
        for class_id, followers in enumerate(self._followers):
            for tally in followers:
                self._count(tally, class_id)

    def _count(self, tally: Tally, class_id: int) -> None:
        for node_row, pods in self._fleet.bound.get(class_id, {}).items():
            tally.per_node[node_row] += pods
