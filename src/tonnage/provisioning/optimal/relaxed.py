"""Pods without their rules about other pods, for a bound that holds wherever these pods stand.

Topology spread, pod affinity, host ports and parts of devices are left out: what costs less without them costs no more
than with them. Of pod anti-affinity one rule stays, which patterns express: of pods that keep away from others
like them on nodes, a node takes one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tonnage.decisions import Ref
from tonnage.objects import core, selectors
from tonnage.provisioning import labels
from tonnage.provisioning.optimal.classes import Classes
from tonnage.provisioning.plans import Plan
from tonnage.provisioning.pods import PendingPod, PodShape, uses_match_fields

_MOST_GROUPS = 32
"""Groups of pods that keep apart, the largest; each is one more dimension of the program."""

_Group = tuple[str, bytes]
"""A namespace, and the selector of a term."""


def without_rules(pods: Iterable[PendingPod]) -> list[PendingPod]:
    """The pods, asking for nothing that patterns do not express. Those that no new node takes are left out."""
    known: dict[int, tuple[PodShape, PodShape | None]] = {}
    found = []
    for pod in pods:
        if id(pod.shape) not in known:
            known[id(pod.shape)] = pod.shape, _bare(pod.shape)
        bare = known[id(pod.shape)][1]
        if bare is not None:
            found.append(msgspec.structs.replace(pod, shape=bare))
    return found


def _bare(shape: PodShape) -> PodShape | None:
    if shape.ask.refused or uses_match_fields(shape):
        return None
    return msgspec.structs.replace(
        shape, unplanned=(), spread=(), pod_affinity=None, pod_anti_affinity=None, host_ports=()
    )


def apart(pods: Sequence[PendingPod]) -> dict[Ref, tuple[int, ...]]:
    """By pod, in which groups it is of which a node takes one at most: pods that keep away from all pods that a
    selector selects on their node, and are among these."""
    encode = msgspec.json.Encoder(order="sorted").encode
    known: dict[tuple[int, str, tuple[tuple[str, str], ...]], tuple[_Group, ...]] = {}
    of: dict[Ref, tuple[_Group, ...]] = {}
    for pod in pods:
        if pod.shape.pod_anti_affinity is None:
            continue
        key = id(pod.shape.pod_anti_affinity), pod.ref.namespace, tuple(sorted(pod.labels.items()))
        if key not in known:
            selected = {encode(one.label_selector) for one in _own_terms(pod)}
            known[key] = tuple((pod.ref.namespace, one) for one in sorted(selected))
        of[pod.ref] = known[key]
    sizes = Counter(group for groups in of.values() for group in groups)
    largest = sorted((group for group, size in sizes.items() if size > 1), key=lambda one: (-sizes[one], one))
    number = {group: at for at, group in enumerate(largest[:_MOST_GROUPS])}
    found = {ref: tuple(number[group] for group in groups if group in number) for ref, groups in of.items()}
    return {ref: groups for ref, groups in found.items() if groups}


def _own_terms(pod: PendingPod) -> Iterator[core.PodAffinityTerm]:
    """The required terms by which a pod keeps away from pods like it on a node."""
    away = pod.shape.pod_anti_affinity
    for one in away.required_during_scheduling_ignored_during_execution if away is not None else ():
        here = one.namespace_selector is None and (not one.namespaces or pod.ref.namespace in one.namespaces)
        narrowed = one.match_label_keys or one.mismatch_label_keys
        if (
            here
            and not narrowed
            and one.topology_key == labels.HOSTNAME
            and selectors.matches(one.label_selector, pod.labels)
        ):
            yield one


def of(plan: Plan, classes: Classes) -> Plan:
    """The plan without pods that are not among the classes."""
    claims = [msgspec.structs.replace(one, pods=tuple(p for p in one.pods if classes.of(p))) for one in plan.claims]
    nominations = tuple(one for one in plan.nominations if classes.of(one.pod))
    return Plan((), tuple(one for one in claims if one.pods), nominations, (), {})
