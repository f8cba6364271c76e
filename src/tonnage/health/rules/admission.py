"""Pods that the API server's admission refuses, by what they name, by LimitRanges and by ResourceQuotas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import groupby

from msgspec import Struct

from tonnage.errors import Where
from tonnage.health.blocker import REFUSED, Blocker
from tonnage.health.rules.naming import remedy
from tonnage.health.setting import Pods, Setting
from tonnage.objects import core
from tonnage.objects.base import where
from tonnage.objects.quantity import parse
from tonnage.objects.quota import ResourceQuota
from tonnage.workloads.admission import quotas
from tonnage.workloads.admission.refused import (
    LIMIT_RANGER,
    PRIORITY,
    QUOTA,
    RUNTIME_CLASS,
    SERVICE_ACCOUNT,
    VALIDATION,
    AdmissionRefusal,
)

FAILED_CREATE = "FailedCreate"
"""The event of a controller whose pods are refused."""

_KINDS = {SERVICE_ACCOUNT: "ServiceAccount", PRIORITY: "PriorityClass", RUNTIME_CLASS: "RuntimeClass"}


def refused(setting: Setting) -> Iterator[Blocker]:
    """Pods of which none is ever admitted."""
    for pods in setting.pods:
        seen: set[tuple[str, str]] = set()
        for one in setting.admission.refusals(pods.namespace, pods.spec):
            key = _rule(one), one.by
            if key not in seen:
                seen.add(key)
                yield _blocker(setting, pods, one)


def _rule(one: AdmissionRefusal) -> str:
    rule = {
        SERVICE_ACCOUNT: "service-account-missing",
        PRIORITY: "priority-class-missing",
        RUNTIME_CLASS: "runtime-class-missing",
        LIMIT_RANGER: "limit-range-refuses",
        VALIDATION: "limit-range-refuses",
        QUOTA: "quota-needs-requests" if one.said.startswith("failed quota") else "quota-below-one-pod",
    }
    return rule[one.plugin]


def _blocker(setting: Setting, pods: Pods, one: AdmissionRefusal) -> Blocker:
    message, help_ = _in_words(setting, pods, one)
    return Blocker(_rule(one), REFUSED, pods.ref, pods.where(one.field), message, help_, *said_of(pods, one))


def said_of(pods: Pods, one: AdmissionRefusal) -> tuple[str, str]:
    """(reason, message) that kubectl shows: an event of the controller, or the answer to whoever makes a bare pod."""
    if isinstance(pods.object, core.Pod):
        return "Forbidden", one.sentence(pods.object.name)
    prefix = f"{pods.object.name}-"
    return FAILED_CREATE, f"Error creating: {one.sentence(prefix, prefix)}"


def _in_words(setting: Setting, pods: Pods, one: AdmissionRefusal) -> tuple[str, str]:
    """(the cause, what helps)."""
    kind = _KINDS.get(one.plugin)
    if kind is not None:
        namespace = pods.namespace if kind == "ServiceAccount" else ""
        within = f" in namespace {namespace}" if namespace else ""
        message = f"{kind} {one.by} does not exist{within}: the API server refuses the pods"
        return message, remedy(setting.inventory, kind, one.by, namespace)
    if one.plugin == QUOTA:
        quota = _named(setting, pods, "ResourceQuota", one.by)
        if one.said.startswith("failed quota"):
            lacking = one.said.partition("must specify ")[2]
            message = f"{quota} counts what the containers do not ask for, so that no pod is admitted: {lacking}"
            return message, f"give these containers {_asked(lacking)}, or a LimitRange with defaults to the namespace"
        return f"{quota} is below one pod: {one.said.partition(', ')[2]}", _raised(one, pods.spec)
    bound = _named(setting, pods, "LimitRange", one.by)
    if one.plugin == VALIDATION:
        message = f"{bound} gives a default limit below the request, so that the pods are invalid: {one.said}"
        return message, "give the container a limit of its own that is at least its request, or raise the default"
    message = f"{bound} refuses the pods: {one.said}"
    return message, f"ask for what it allows, or change {one.by}"


def _named(setting: Setting, pods: Pods, kind: str, name: str) -> str:
    """The object that is in the way, and where it stands."""
    found = setting.inventory.find(kind, name, pods.namespace)
    at = where(found, "spec.hard" if kind == "ResourceQuota" else "spec.limits") if found is not None else Where()
    return f"{kind} {name} of namespace {pods.namespace} ({at.file}:{at.line})"


def _asked(lacking: str) -> str:
    names = sorted({part.partition(" for: ")[0] for part in lacking.split("; ")})
    return ", ".join(
        f"{'limits' if name.startswith('limits.') else 'requests'} of {name.rpartition('.')[2]}" for name in names
    )


def _raised(one: AdmissionRefusal, spec: core.PodSpec) -> str:
    requested = one.said.partition("requested: ")[2].partition(", used")[0]
    return f"raise the quota to at least {requested} for one pod, or ask for less"


def some_over_quota(setting: Setting) -> Iterator[Blocker]:
    """Quotas that admit some of the pods of the set, and not all."""
    for namespace in sorted({pods.namespace for pods in setting.pods}):
        for quota in setting.admission.quotas(namespace):
            yield from _some_over(setting, namespace, quota)


def _some_over(setting: Setting, namespace: str, quota: ResourceQuota) -> Iterator[Blocker]:
    """In the order of the files, as they are made."""
    used: quotas.Usage = {}
    there = [one for one in setting.pods if one.namespace == namespace and not one.is_daemon]
    for _, group in groupby(there, key=lambda one: id(one.object)):
        counted = [one for one in (_Counted.of(setting, quota, pods) for pods in group) if one is not None]
        if first := _beyond_one_group(quota, counted):
            pods, refused = first
            yield _partly(setting, pods, quota, refused, "one group of pods that only runs together", some=False)
            continue
        for one in counted:
            fit = _fitting(quota, one.each, used, one.pods.counted.pods)
            full = quotas.added(used, one.each, fit)
            beyond = quotas.refusal(quota, one.spec, full)
            if fit < one.pods.counted.pods and beyond is not None:
                yield _partly(setting, one.pods, quota, beyond, f"{one.pods.counted.pods} pods", some=True, fit=fit)
            used = full


class _Counted(Struct, frozen=True):
    """Pods that a quota counts, and of which it admits one."""

    pods: Pods
    spec: core.PodSpec
    each: quotas.Usage

    @classmethod
    def of(cls, setting: Setting, quota: ResourceQuota, pods: Pods) -> _Counted | None:
        spec = setting.admission.completed(pods.namespace, pods.spec)
        if not quotas.counts(quota, spec) or quotas.refusal(quota, spec, {}) is not None:
            return None
        return cls(pods, spec, quotas.usage_of(spec))


def _beyond_one_group(quota: ResourceQuota, counted: Sequence[_Counted]) -> tuple[Pods, AdmissionRefusal] | None:
    """The pods at which a group that only runs together meets the quota, and what it says then; None where it fits."""
    used: quotas.Usage = {}
    for one in counted:
        together = one.pods.counted.together
        fit = _fitting(quota, one.each, used, together)
        used = quotas.added(used, one.each, fit)
        if fit < together and (refused := quotas.refusal(quota, one.spec, used)):
            return one.pods, refused
    return None


def _partly(
    setting: Setting,
    pods: Pods,
    quota: ResourceQuota,
    refused: AdmissionRefusal,
    wanted: str,
    *,
    some: bool,
    fit: int | None = None,
) -> Blocker:
    lets = "does not admit" if fit is None else f"admits {fit} of"
    named = _named(setting, pods, "ResourceQuota", quota.name)
    return Blocker(
        "quota-below-replicas",
        REFUSED,
        pods.ref,
        pods.where(refused.field),
        f"{named} {lets} {wanted}: {refused.said.partition(', ')[2]}",
        f"raise the quota to what {wanted} ask for, or run fewer",
        *said_of(pods, refused),
        some=some,
    )


def _fitting(quota: ResourceQuota, each: quotas.Usage, used: quotas.Usage, wanted: int) -> int:
    """How many more such pods the quota admits, of those wanted."""
    fit = wanted
    for name, hard in quota.spec.hard.items():
        if amount := each.get(name):
            fit = min(fit, max(0, int((parse(hard) - used.get(name, Fraction(0))) // amount)))
    return fit
