"""What admission looks at before a pod is stored: its account and classes, LimitRanges and ResourceQuotas.

The rules are those of :mod:`tonnage.workloads.admission`. Source of the order: kubernetes/kubernetes v1.36
pkg/kubeapiserver/options/plugins.go. The account ``default`` counts as there in every namespace: whoever makes it may
be slower than the first pod.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias, TypeVar

import msgspec

from tonnage.apiserver.status import forbidden
from tonnage.apiserver.store import Store
from tonnage.kube.resources import (
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_QUOTAS,
    RUNTIME_CLASSES,
    SERVICE_ACCOUNTS,
    Resource,
)
from tonnage.objects import core, quota
from tonnage.objects.api import label_keys
from tonnage.objects.base import KubeObject
from tonnage.objects.needs import PodNeeds
from tonnage.workloads.admission import limits, pod_security
from tonnage.workloads.admission.chain import Admission
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
        for why in known.over_quota(namespace, read, known.in_use(namespace, _running(store, namespace))):
            raise forbidden(PODS, name, why.said)


def _running(store: Store, namespace: str) -> list[core.PodSpec]:
    return specs_of(one.object for one in store.items(PODS, namespace)[0])


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
