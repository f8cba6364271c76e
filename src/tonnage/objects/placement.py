"""A pod of a cluster as schedulers count it, where that is not as its spec stands there.

Sources: kubernetes/kubernetes v1.36 staging/src/k8s.io/component-helpers/resource/helpers.go (a pod that is being
resized), pkg/registry/core/pod/strategy.go (label keys of affinity, which the API server merges into selectors).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from tonnage.objects import core, quantity

RESIZE_PENDING, INFEASIBLE = "PodResizePending", "Infeasible"
"""Condition of a pod whose resize waits, and its reason where the node can never grant it."""

Quantities = Mapping[str, str | int | float]


def as_counted(pod: core.Pod) -> core.PodSpec:
    """The spec with what the pod's containers request as it counts on its node, and without the label keys that the
    API server has merged already. The spec itself where that is the same."""
    spec = _merged(pod.spec) if pod.metadata.uid and pod.spec.affinity is not None else pod.spec
    return _resized(spec, pod.status) if spec.node_name else spec


# ---- resizing ----


def _resized(spec: core.PodSpec, status: core.PodStatus) -> core.PodSpec:
    """The largest of what is asked for, what the node has granted and what is in force; what is asked for does not
    count where the node can never grant it."""
    known = {
        one.name: one
        for one in (*status.container_statuses, *status.init_container_statuses)
        if one.resources is not None
    }
    if not known and status.resources is None:
        return spec
    pending = next((one.reason for one in status.conditions if one.type == RESIZE_PENDING), "")
    asked = pending != INFEASIBLE
    containers = [_container(one, known.get(one.name), asked=asked) for one in spec.containers]
    starting = [
        _container(one, known.get(one.name), asked=asked) if one.restart_policy == "Always" else one
        for one in spec.init_containers
    ]
    whole = spec.resources
    if whole is not None and whole.requests and status.resources is not None:
        in_force, own = status.resources.requests, {k: q for k, q in whole.requests.items() if core.is_pod_level(k)}
        largest = _largest(*([own] if asked else []), in_force, status.allocated_resources)
        counted = {name: largest.get(name, "0") for name in own}
        if core.amounts(counted) != core.amounts(own):
            whole = msgspec.structs.replace(whole, requests={**whole.requests, **counted})
    parts = [(*spec.containers, *spec.init_containers), (*containers, *starting)]
    if whole is spec.resources and all(a is b for a, b in zip(*parts, strict=True)):
        return spec
    return msgspec.structs.replace(spec, containers=containers, init_containers=starting, resources=whole)


def _container(one: core.Container, status: core.ContainerStatus | None, *, asked: bool) -> core.Container:
    if status is None or status.resources is None:
        return one
    own = one.resources.requests
    counted = _largest(*([own] if asked else []), status.resources.requests, status.allocated_resources)
    if core.amounts(counted) == core.amounts(own):
        return one
    return msgspec.structs.replace(one, resources=core.ResourceRequirements(requests=counted))


def _largest(*lists: Quantities) -> dict[str, str | int | float]:
    found: dict[str, str | int | float] = {}
    for quantities in lists:
        for name, written in quantities.items():
            if name not in found or quantity.amount(name, written) > quantity.amount(name, found[name]):
                found[name] = written
    return found


# ---- label keys of affinity ----


def _merged(spec: core.PodSpec) -> core.PodSpec:
    affinity = spec.affinity
    assert affinity is not None
    changes: dict[str, core.PodAffinity | core.PodAntiAffinity] = {}
    for field, group in (("pod_affinity", affinity.pod_affinity), ("pod_anti_affinity", affinity.pod_anti_affinity)):
        if group is not None and any(_has_keys(term) for term in _terms(group)):
            changes[field] = _plain(group)
    if not changes:
        return spec
    return msgspec.structs.replace(spec, affinity=msgspec.structs.replace(affinity, **changes))


def _terms(group: core.PodAffinity | core.PodAntiAffinity) -> Iterator[core.PodAffinityTerm]:
    yield from group.required_during_scheduling_ignored_during_execution
    for wish in group.preferred_during_scheduling_ignored_during_execution:
        yield wish.pod_affinity_term


def _has_keys(term: core.PodAffinityTerm) -> bool:
    return bool(term.match_label_keys or term.mismatch_label_keys)


def _plain(group: core.PodAffinity | core.PodAntiAffinity) -> core.PodAffinity | core.PodAntiAffinity:
    def bare(term: core.PodAffinityTerm) -> core.PodAffinityTerm:
        return msgspec.structs.replace(term, match_label_keys=[], mismatch_label_keys=[])

    wishes = group.preferred_during_scheduling_ignored_during_execution
    return msgspec.structs.replace(
        group,
        required_during_scheduling_ignored_during_execution=[
            bare(term) for term in group.required_during_scheduling_ignored_during_execution
        ],
        preferred_during_scheduling_ignored_during_execution=[
            msgspec.structs.replace(wish, pod_affinity_term=bare(wish.pod_affinity_term)) for wish in wishes
        ],
    )
