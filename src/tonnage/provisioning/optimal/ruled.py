"""Pods that patterns do not express: because of what they ask for, or because rules of other pods are about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tonnage.decisions import Ref
from tonnage.objects import core, selectors
from tonnage.provisioning.plans import PlanSettings
from tonnage.provisioning.pods import PendingPod, PodShape, uses_match_fields

SHARES = "parts of devices"
"""What a pod is said to carry that asks for a share or for memory of a device."""
SELECTED = "what rules of other pods select"
"""What a pod is said to be that spread or pod affinity of another pod counts."""


class _Rule(NamedTuple):
    """Which pods a rule is about; ``namespaces`` are all where a selector of namespaces says which."""

    selector: core.LabelSelector | None
    namespaces: frozenset[str] | None


def not_weighed(pods: Sequence[PendingPod], settings: PlanSettings) -> dict[Ref, tuple[str, ...]]:
    """By pod, what keeps it where Karpenter's order puts it; pods that patterns express are left out."""
    rules = _rules(pods, settings)
    known: dict[tuple[int, str, tuple[tuple[str, str], ...]], tuple[str, ...]] = {}
    found = {}
    for pod in pods:
        key = (id(pod.shape), pod.ref.namespace, tuple(sorted(pod.labels.items())) if rules else ())
        if key not in known:
            own = _own(pod.shape)
            known[key] = own or ((SELECTED,) if any(_is_about(one, pod) for one in rules) else ())
        if known[key]:
            found[pod.ref] = known[key]
    return found


def _own(shape: PodShape) -> tuple[str, ...]:
    said = (
        ("topologySpreadConstraints", shape.spread),
        ("podAffinity", shape.pod_affinity),
        ("podAntiAffinity", shape.pod_anti_affinity),
        ("hostPort", shape.host_ports),
        (SHARES, shape.ask.shares),
        ("what no new node gives", shape.ask.refused or uses_match_fields(shape)),
    )
    return (*shape.unplanned, *(name for name, there in said if there))


def _is_about(rule: _Rule, pod: PendingPod) -> bool:
    there = rule.namespaces is None or pod.ref.namespace in rule.namespaces
    return there and selectors.matches(rule.selector, pod.labels)


def _rules(pods: Sequence[PendingPod], settings: PlanSettings) -> list[_Rule]:
    """All rules of pending pods, and those of pods on nodes that keep others away."""
    found: list[_Rule] = []
    seen = set()
    for pod in pods:
        key = (id(pod.shape), pod.ref.namespace)
        if key not in seen:
            seen.add(key)
            shape = pod.shape
            found += [_Rule(one.label_selector, frozenset((pod.ref.namespace,))) for one in shape.spread]
            found += _of_terms(_terms(shape.pod_affinity), pod.ref.namespace)
            found += _of_terms(_terms(shape.pod_anti_affinity), pod.ref.namespace)
    for bound in settings.bound:
        found += _of_terms(_terms(bound.pod_anti_affinity), bound.namespace)
    return found


def _of_terms(terms: Iterable[core.PodAffinityTerm], namespace: str) -> Iterator[_Rule]:
    for one in terms:
        if one.namespace_selector is not None:
            yield _Rule(one.label_selector, None)
        else:
            yield _Rule(one.label_selector, frozenset(one.namespaces or (namespace,)))


def _terms(affinity: core.PodAffinity | core.PodAntiAffinity | None) -> Iterator[core.PodAffinityTerm]:
    if affinity is not None:
        yield from affinity.required_during_scheduling_ignored_during_execution
        for one in affinity.preferred_during_scheduling_ignored_during_execution:
            yield one.pod_affinity_term
