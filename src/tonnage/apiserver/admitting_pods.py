"""What admission looks at before a pod is stored: its account and classes, LimitRanges and ResourceQuotas.

The rules are those of :mod:`tonnage.workloads.admission`. Source of the order: kubernetes/kubernetes v1.36
pkg/kubeapiserver/options/plugins.go. The account ``default`` counts as there in every namespace: whoever makes it may
be slower than the first pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

from tonnage.apiserver.status import forbidden
from tonnage.apiserver.store import Store
from tonnage.kube.resources import (
    DEVICE_CLASSES,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RUNTIME_CLASSES,
    SERVICE_ACCOUNTS,
    Resource,
)
from tonnage.objects import core, dra, quota
from tonnage.objects.api import label_keys
from tonnage.objects.base import KubeObject
from tonnage.objects.dra import EXTENDED_CLAIM
from tonnage.objects.needs import PodNeeds
from tonnage.workloads.admission import limits, pod_security
from tonnage.workloads.admission.chain import Admission
from tonnage.workloads.admission.claim_quotas import ClaimQuotas
from tonnage.workloads.admission.quotas import Usage, added, usage_of
from tonnage.workloads.admission.refused import LIMIT_RANGER, PRIORITY
from tonnage.workloads.admission.topology import bound_labels

JsonObject: TypeAlias = dict[str, Any]
Kind = TypeVar("Kind", bound=KubeObject)


def prepare(store: Store, resource: Resource, namespace: str, pod: JsonObject) -> None:
    """Fill in what LimitRanges, the pod's runtime and its node say, and merge its label keys. Raises Refusal (403) for
    an account or a runtime that does not exist; a PriorityClass is looked for with the other defaults."""
    read = _spec(pod) if resource is PODS else None
    if read is None:
        return
    label(store, pod)
    label_keys.merge(pod)
    account, runtime = read.service_account_name or read.service_account, read.runtime_class_name
    named = bool(account and account != "default") or bool(runtime)
    ranges = _of(store, LIMIT_RANGES, quota.LimitRange, namespace)
    if not named and not ranges:
        return
    known = Admission([*ranges, *_named(store, namespace, account, runtime)])
    meta = pod["metadata"]
    for why in known.unknown(namespace, read):
        if why.plugin != PRIORITY:
            raise forbidden(PODS, str(meta.get("generateName") or meta["name"]), why.said)
    completed = known.completed(namespace, read)
    _write(pod["spec"], read, completed)


def label(store: Store, pod: JsonObject) -> None:
    """Give a pod that has a node the node's labels of zone and region."""
    node = store.get(NODES, "", pod["spec"].get("nodeName") or "")
    labels = bound_labels(node.object["metadata"].get("labels") or {}) if node is not None else {}
    if labels:
        pod["metadata"]["labels"] = {**(pod["metadata"].get("labels") or {}), **labels}


def _named(store: Store, namespace: str, account: str, runtime: str) -> list[KubeObject]:
    """The account and the runtime of those names, where they are there."""
    found: list[KubeObject] = []
    stands = store.get(SERVICE_ACCOUNTS, namespace, account) if account else None
    if stands is not None:
        found.append(_as(quota.ServiceAccount, stands.object))
    stands = store.get(RUNTIME_CLASSES, "", runtime) if runtime else None
    if stands is not None:
        found.append(_as(quota.RuntimeClass, stands.object))
    return found


def admit(store: Store, resource: Resource, namespace: str, pod: JsonObject) -> None:
    """Raises Refusal (403) for a pod, whose defaults are filled in, that a LimitRange, the Pod Security
    Standard of its namespace or a ResourceQuota forbids."""
    if resource is RESOURCE_CLAIMS:
        _admit_claim(store, namespace, pod)
    read = _spec(pod) if resource is PODS else None
    if read is None:
        return
    name = pod["metadata"]["name"]
    ranges = _of(store, LIMIT_RANGES, quota.LimitRange, namespace)
    broken = [one.said for one in limits.refusals(read, ranges) if one.plugin == LIMIT_RANGER]
    if broken:
        raise forbidden(PODS, name, broken[0] if len(broken) == 1 else f"[{', '.join(broken)}]")
    space = store.get(NAMESPACES, "", namespace)
    level = pod_security.level_of(space.object["metadata"].get("labels") or {}) if space is not None else ""
    refused = pod_security.refusal(level, read, msgspec.convert(pod["spec"], PodNeeds, strict=False)) if level else None
    if refused is not None:
        raise forbidden(PODS, name, refused.said)
    given = _of(store, RESOURCE_QUOTAS, quota.ResourceQuota, namespace)
    if given:
        known = Admission(given)
        for why in known.over_quota(namespace, read, _in_use(store, namespace, given)):
            raise forbidden(PODS, name, why.said)


def _admit_claim(store: Store, namespace: str, claim: JsonObject) -> None:
    """Raises Refusal (403) for a ResourceClaim that a ResourceQuota forbids."""
    given = _of(store, RESOURCE_QUOTAS, quota.ResourceQuota, namespace)
    if not given:
        return
    known = _claim_quotas(store)
    pods = [one.object for one in store.items(PODS, namespace)[0]]
    try:
        asked = known.usage_of(_as(dra.ResourceClaim, claim), own_usage(claim, pods))
    except msgspec.ValidationError:
        return  # it has a field of the wrong type: the schema says so
    used = _in_use(store, namespace, given)
    for one in given:
        if why := known.refusal(one, asked, used[one.name]):
            raise forbidden(RESOURCE_CLAIMS, claim["metadata"]["name"], why)


def _in_use(store: Store, namespace: str, given: Sequence[quota.ResourceQuota]) -> dict[str, Usage]:
    """What pods and claims use of each quota, by its name."""
    pods, claims = ([one.object for one in store.items(of, namespace)[0]] for of in (PODS, RESOURCE_CLAIMS))
    by_pods = Admission(given).in_use(namespace, specs_of(pods))
    if not claims:
        return by_pods
    known = _claim_quotas(store)
    used = claims_in_use(known, claims, pods)
    return {one.name: added(by_pods[one.name], known.counted(one, used)) for one in given}


def _claim_quotas(store: Store) -> ClaimQuotas:
    return ClaimQuotas(classes_of(one.object for one in store.items(DEVICE_CLASSES, "")[0]))


def classes_of(written: Iterable[JsonObject]) -> list[dra.DeviceClass]:
    """Those that can be read."""
    found = []
    for one in written:
        try:
            found.append(_as(dra.DeviceClass, one))
        except msgspec.ValidationError:
            continue
    return found


def claims_in_use(known: ClaimQuotas, claims: Iterable[JsonObject], pods: Sequence[JsonObject]) -> Usage:
    """What the claims of a namespace count as together, whose pods these are."""
    found: Usage = {}
    for one in claims:
        try:
            found = added(found, known.usage_of(_as(dra.ResourceClaim, one), own_usage(one, pods)))
        except msgspec.ValidationError:
            continue
    return found


def own_usage(claim: JsonObject, pods: Iterable[JsonObject]) -> Usage:
    """What the pod counts as for whose extended resources the claim was made."""
    meta = claim["metadata"]
    if (meta.get("annotations") or {}).get(EXTENDED_CLAIM) != "true":
        return {}
    owners = {one.get("uid") for one in meta.get("ownerReferences") or () if one.get("controller")}
    for one in pods:
        said = (one.get("status") or {}).get("extendedResourceClaimStatus") or {}
        if one["metadata"].get("uid") in owners and said.get("resourceClaimName", meta["name"]) == meta["name"]:
            spec = _spec(one)
            return usage_of(spec) if spec is not None else {}
    return {}


def specs_of(pods: Iterable[JsonObject]) -> list[core.PodSpec]:
    """Of the pods that quotas count: those that have not ended."""
    specs = (_spec(pod) for pod in pods if (pod.get("status") or {}).get("phase") not in core.FINISHED)
    return [spec for spec in specs if spec is not None]


def _of(store: Store, resource: Resource, kind: type[Kind], namespace: str) -> list[Kind]:
    found = []
    for one in store.items(resource, namespace)[0]:
        try:
            found.append(_as(kind, one.object))
        except msgspec.ValidationError:
            continue  # it has a field of the wrong type, which limits nothing
    return found


def _as(kind: type[Kind], obj: JsonObject) -> Kind:
    return msgspec.convert(obj, kind, strict=False)


def _spec(pod: JsonObject) -> core.PodSpec | None:
    try:
        return msgspec.convert(pod.get("spec") or {}, core.PodSpec, strict=False)
    except msgspec.ValidationError:
        return None


def _write(spec: JsonObject, before: core.PodSpec, after: core.PodSpec) -> None:
    """What was filled in, in the spec as it was sent."""
    for part, old, new in (
        ("containers", before.containers, after.containers),
        ("initContainers", before.init_containers, after.init_containers),
    ):
        for written, was, is_ in zip(spec.get(part) or (), old, new, strict=True):
            if was.resources != is_.resources:
                resources = written.setdefault("resources", {})
                resources["limits"] = dict(is_.resources.limits)
                resources["requests"] = dict(is_.resources.requests)
    if before.overhead != after.overhead:
        spec["overhead"] = dict(after.overhead)
    if before.node_selector != after.node_selector:
        spec["nodeSelector"] = dict(after.node_selector)
    if len(before.tolerations) != len(after.tolerations):
        more = after.tolerations[len(before.tolerations) :]
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *(msgspec.to_builtins(one) for one in more)]
