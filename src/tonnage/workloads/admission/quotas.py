"""ResourceQuotas: which pods count, what they count as, and when one more is too much.

Sources: kubernetes/kubernetes v1.36 pkg/quota/v1/evaluator/core/pods.go and
staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from tonnage.objects import core, quantity
from tonnage.objects.api.containers import STANDARD
from tonnage.objects.quota import ResourceQuota, ScopeRequirement
from tonnage.workloads.admission.limits import only
from tonnage.workloads.admission.refused import QUOTA, AdmissionRefusal

Usage = dict[str, Fraction]
"""Amounts by the names that quotas use: cores, bytes, units."""

_NAMED = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
"""Of these every container has to say how much, where a quota counts them."""
POD_COUNTS = ("pods", "count/pods")
NOTHING = Fraction(0)


def usage_of(spec: core.PodSpec) -> Usage:
    """What a pod counts as. A limit without a request counts as the request."""
    found: Usage = dict.fromkeys(POD_COUNTS, Fraction(1))
    for name, amount in _exact(core.pod_requests(spec)).items():
        if name in STANDARD or name.startswith("hugepages-"):
            found[name] = amount
        found[f"requests.{name}"] = amount
    for name, amount in _exact(core.pod_requests(only(spec, "limits"))).items():
        if name in STANDARD:
            found[f"limits.{name}"] = amount
    return found


def counts(quota: ResourceQuota, spec: core.PodSpec) -> bool:
    """Whether the pod is in all of the quota's scopes."""
    selector = quota.spec.scope_selector
    terms = [ScopeRequirement(scope_name=name) for name in quota.spec.scopes]
    return all(_in_scope(term, spec) for term in (*terms, *(selector.match_expressions if selector else ())))


def refusal(quota: ResourceQuota, spec: core.PodSpec, used: Mapping[str, Fraction]) -> AdmissionRefusal | None:
    """Why the quota refuses one more such pod where ``used`` is in use; None where it does not or does not count it."""
    if not counts(quota, spec):
        return None
    hard = {name: quantity.parse(written) for name, written in quota.spec.hard.items()}
    if lacking := _unnamed(hard, spec):
        said = "; ".join(f"{name} for: {','.join(sorted(names))}" for name, names in sorted(lacking.items()))
        first = min(names[0] for names in lacking.values())
        index = next((i for i, one in enumerate(spec.containers) if one.name == first), 0)
        return AdmissionRefusal(
            QUOTA, f"failed quota: {quota.name}: must specify {said}", f"containers[{index}].resources", quota.name
        )
    said, over = exceeded(quota, usage_of(spec), used)
    return AdmissionRefusal(QUOTA, said, field_of(spec, over[0]), quota.name) if over else None


def exceeded(quota: ResourceQuota, asked: Usage, used: Mapping[str, Fraction]) -> tuple[str, list[str]]:
    """What of the quota is exceeded where ``asked`` comes to what is ``used``, as the API server says it, and the names
    of it; empty: nothing."""
    hard = {name: quantity.parse(limit) for name, limit in quota.spec.hard.items()}
    over = sorted(n for n in hard if asked.get(n) and used.get(n, NOTHING) + asked[n] > hard[n])
    if not over:
        return "", over
    shown = [",".join(f"{n}={written(n, amounts.get(n, NOTHING))}" for n in over) for amounts in (asked, used)]
    limited = ",".join(f"{name}={quota.spec.hard[name]}" for name in over)
    return f"exceeded quota: {quota.name}, requested: {shown[0]}, used: {shown[1]}, limited: {limited}", over


def added(total: Mapping[str, Fraction], more: Mapping[str, Fraction], times: int = 1) -> Usage:
    """Both together."""
    return {name: total.get(name, Fraction(0)) + times * more.get(name, Fraction(0)) for name in {**total, **more}}


def written(name: str, amount: Fraction) -> str:
    """An amount as a quantity: ``requests.memory`` 34359738368 is ``32Gi``."""
    resource = name.removeprefix("requests.").removeprefix("limits.")
    if resource == "cpu":
        return quantity.format_cpu(int(amount * 1000))
    if resource in quantity.BYTES or resource.startswith("hugepages-"):
        return quantity.format_bytes(int(amount))
    return str(int(amount))


def field_of(spec: core.PodSpec, name: str) -> str:
    """Where in the pod's spec what counts under this name is asked for: of the container that asks most."""
    if name in POD_COUNTS:
        return "containers"
    part = "limits" if name.startswith("limits.") else "requests"
    resource = name.removeprefix("requests.").removeprefix("limits.")

    def amount(index: int) -> Fraction:
        resources = spec.containers[index].resources
        return quantity.parse({**resources.limits, **resources.requests}.get(resource, 0))

    index = max(range(len(spec.containers)), key=lambda i: (amount(i), -i))
    resources = spec.containers[index].resources
    if resource not in getattr(resources, part) or resource not in (*STANDARD, *resources.requests):
        part = "limits" if resource in resources.limits else "requests"
    return f"containers[{index}].resources.{part}.{resource}"


def _exact(amounts: Mapping[str, int]) -> Usage:
    return {name: Fraction(amount, 1000 if name == "cpu" else 1) for name, amount in amounts.items()}


def _unnamed(hard: Iterable[str], spec: core.PodSpec) -> dict[str, list[str]]:
    """By name of what the quota counts, the containers that do not say how much."""
    required = [name for name in _NAMED if name in hard]
    lacking: dict[str, list[str]] = {}
    for container in (*spec.containers, *spec.init_containers):
        resources = container.resources
        requests = {**resources.limits, **resources.requests}
        for name in required:
            bare = name.removeprefix("requests.").removeprefix("limits.")
            if bare not in (resources.limits if name.startswith("limits.") else requests):
                pod = spec.resources
                whole = {} if pod is None else pod.limits if name.startswith("limits.") else pod.limits | pod.requests
                if bare not in whole:
                    lacking.setdefault(name, []).append(container.name)
    return lacking


def _in_scope(term: ScopeRequirement, spec: core.PodSpec) -> bool:
    match term.scope_name:
        case "Terminating":
            return spec.active_deadline_seconds is not None
        case "NotTerminating":
            return spec.active_deadline_seconds is None
        case "BestEffort":
            return _best_effort(spec)
        case "NotBestEffort":
            return not _best_effort(spec)
        case "PriorityClass":
            return _chosen(term, spec.priority_class_name)
        case "CrossNamespacePodAffinity":
            return _crosses_namespaces(spec)
    return False


def _chosen(term: ScopeRequirement, name: str) -> bool:
    match term.operator:
        case "In":
            return name in term.values
        case "NotIn":
            return name not in term.values
        case "DoesNotExist":
            return not name
    return bool(name)


def _best_effort(spec: core.PodSpec) -> bool:
    """Whether no container asks for CPU or memory."""
    pod = {**spec.resources.limits, **spec.resources.requests} if spec.resources is not None else {}
    named = [pod, *({**c.resources.limits, **c.resources.requests} for c in (*spec.containers, *spec.init_containers))]
    return not any(quantity.parse(one.get(name, 0)) for one in named for name in ("cpu", "memory"))


def _crosses_namespaces(spec: core.PodSpec) -> bool:
    if spec.affinity is None:
        return False
    terms = [
        term
        for group in (spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity)
        if group is not None
        for term in (
            *group.required_during_scheduling_ignored_during_execution,
            *(w.pod_affinity_term for w in group.preferred_during_scheduling_ignored_during_execution),
        )
    ]
    return any(term.namespaces or term.namespace_selector is not None for term in terms)
