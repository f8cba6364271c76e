"""What the cluster accepts: KEDA's webhook for ScaledObjects, and what happens when two autoscalers share a
workload.

Source: kedacore/keda v2.21 apis/keda/v1alpha1/scaledobject_webhook.go; kubernetes/kubernetes
pkg/controller/podautoscaler/horizontal.go (validateAndParseSelector).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

import msgspec

from tonnage.decisions import Finding
from tonnage.objects import apps, core, quantity, quota
from tonnage.objects.autoscaling import HorizontalPodAutoscaler
from tonnage.objects.base import KubeObject
from tonnage.objects.keda import ScaledObject
from tonnage.objects.load import where
from tonnage.scaling.manifests import ref

TRANSFER_OWNERSHIP = "scaledobject.keda.sh/transfer-hpa-ownership"
HPA_OWNERSHIP = "validations.keda.sh/hpa-ownership"

_SCALED = ("Deployment", "StatefulSet", "LeaderWorkerSet")
"""Kinds that are usually scaled."""

_Autoscaler = HorizontalPodAutoscaler | ScaledObject
_Target = tuple[str, str, str, str]


class Admitted(msgspec.Struct, frozen=True):
    """The autoscalers that exist after a set of objects was applied in order.

    ``ambiguous`` maps ``namespace/name`` of an HPA (a generated one too) to the other HPAs on the same
    workload: neither reads metrics any more.
    """

    hpas: tuple[HorizontalPodAutoscaler, ...]
    scaled_objects: tuple[ScaledObject, ...]
    ambiguous: dict[str, tuple[str, ...]]
    findings: tuple[Finding, ...]


def hpa_name(scaled_object: ScaledObject) -> str:
    """The name of the HPA that KEDA makes."""
    advanced = scaled_object.spec.advanced
    config = advanced.horizontal_pod_autoscaler_config if advanced else None
    return (config.name if config else "") or f"keda-hpa-{scaled_object.name}"


def admit(scaled_object: ScaledObject, existing: Iterable[KubeObject]) -> Finding | None:
    """Why KEDA's webhook refuses the ScaledObject beside the ``existing`` objects, autoscalers, its workload and
    LimitRanges among them; None when it is accepted.
    """
    existing = list(existing)
    refused = _resource_triggers(scaled_object) or _without_requests(scaled_object, existing)
    for other in existing:
        if refused is not None:
            break
        if isinstance(other, HorizontalPodAutoscaler):
            refused = _other_hpa(scaled_object, other)
        elif isinstance(other, ScaledObject):
            refused = _other_scaled_object(scaled_object, other)
    return refused


def apply_in_order(objects: Sequence[KubeObject]) -> Admitted:
    """Apply objects one after another, as ``kubectl apply`` does, and tell what came of the autoscalers."""
    hpas: list[HorizontalPodAutoscaler] = []
    scaled: list[ScaledObject] = []
    findings: list[Finding] = []
    others = [item for item in objects if isinstance(item, apps.Deployment | apps.StatefulSet | quota.LimitRange)]
    for item in objects:
        if isinstance(item, HorizontalPodAutoscaler):
            hpas.append(item)
        elif isinstance(item, ScaledObject):
            refused = admit(item, [*hpas, *scaled, *others])
            if refused is None:
                scaled.append(item)
            else:
                findings.append(refused)
    ambiguous = _ambiguous(hpas, scaled)
    findings += _double(hpas, scaled)
    return Admitted(tuple(hpas), tuple(scaled), ambiguous, tuple(findings))


def target_missing(autoscaler: _Autoscaler, objects: Iterable[KubeObject]) -> Finding | None:
    """A finding when the scale target is not among ``objects``; None when it is."""
    _, kind, namespace, name = _target(autoscaler)
    others = [(item.kind, item.name, _namespace(item)) for item in objects]
    if (kind, name, namespace) in others:
        return None
    if isinstance(autoscaler, ScaledObject):
        rule = "scaledobject-target-missing"
        effect = "the ScaledObject is not Ready (ScaledObjectCheckFailed), no HPA is made and nothing scales"
    else:
        rule = "hpa-target-missing"
        effect = "the HPA is not AbleToScale (FailedGetScale) and nothing scales"
    message = f"{kind} {name} is not in namespace {namespace}: {effect}"
    near = difflib.get_close_matches(name, [of for what, of, at in others if (what, at) == (kind, namespace)], 1)
    same = [f"{what} {of} in namespace {at}" for what, of, at in others if of == name and what in _SCALED]
    help_ = f"did you mean {near[0] if near else same[0]}?" if near or same else f"add {kind} {name} to the files"
    found = _finding(rule, autoscaler, "spec.scaleTargetRef.name", message)
    return msgspec.structs.replace(found, help=help_)


def _resource_triggers(item: ScaledObject) -> Finding | None:
    if item.spec.min_replica_count > 0 or any(t.type not in ("cpu", "memory") for t in item.spec.triggers):
        return None
    message = "refused: cpu and memory triggers alone cannot scale to zero, minReplicaCount must be at least 1"
    return _finding("scaledobject-refused", item, "spec.minReplicaCount", message)


def _without_requests(item: ScaledObject, existing: Sequence[KubeObject]) -> Finding | None:
    """A cpu or memory trigger is a share of requests, which each container that counts has to have."""
    target = item.spec.scale_target_ref
    workload = next(
        (
            one
            for one in existing
            if isinstance(one, apps.Deployment | apps.StatefulSet)
            and (one.kind, one.name, _namespace(one)) == (target.kind, target.name, _namespace(item))
        ),
        None,
    )
    if workload is None:
        return None
    pod = workload.spec.template.spec
    for index, trigger in enumerate(item.spec.triggers):
        if trigger.type not in ("cpu", "memory") or _defaulted(trigger.type, _namespace(item), existing):
            continue
        only = trigger.metadata.get("containerName", "")
        if not only and pod.resources is not None and _is_set(pod.resources, trigger.type):
            continue
        for container in pod.containers:
            if container.name == (only or container.name) and not _is_set(container.resources, trigger.type):
                where_ = f"container {container.name} of {target.kind} {target.name}"
                message = f"refused: a {trigger.type} trigger, but {where_} has no {trigger.type} request"
                return _finding("scaledobject-refused", item, f"spec.triggers[{index}].type", message)
    return None


def _is_set(resources: core.ResourceRequirements, name: str) -> bool:
    """Whether there is a request or a limit above 0."""
    return any(
        name in amounts and quantity.parse(amounts[name]) > 0 for amounts in (resources.requests, resources.limits)
    )


def _defaulted(name: str, namespace: str, existing: Sequence[KubeObject]) -> bool:
    """Whether a LimitRange of the namespace gives containers a request or a limit."""
    items = [
        limit
        for one in existing
        if isinstance(one, quota.LimitRange) and _namespace(one) == namespace
        for limit in one.spec.limits
    ]
    return any(
        limit.type == "Container" and name in amounts and quantity.parse(amounts[name]) > 0
        for limit in items
        for amounts in (limit.default, limit.default_request)
    )


def _other_hpa(item: ScaledObject, hpa: HorizontalPodAutoscaler) -> Finding | None:
    if _target(hpa) != _target(item) or hpa.metadata.annotations.get(HPA_OWNERSHIP) == "false":
        return None
    owners = hpa.metadata.owner_references
    if any(owner.kind == "ScaledObject" and owner.name == item.name for owner in owners):
        return None
    if item.metadata.annotations.get(TRANSFER_OWNERSHIP) == "true":
        if hpa_name(item) == hpa.name:
            return None
        path = "spec.advanced.horizontalPodAutoscalerConfig.name"
        message = f"refused: to take over the HPA {hpa.name}, name it in {path}"
        return _finding("scaledobject-refused", item, path, message)
    target = item.spec.scale_target_ref
    managed = f"{target.kind} {target.name} is already managed by the HPA {hpa.name}"
    message = f"refused: {managed}; the ScaledObject is not created"
    return _finding("double-autoscaler", item, "spec.scaleTargetRef.name", message)


def _other_scaled_object(item: ScaledObject, other: ScaledObject) -> Finding | None:
    if other.name == item.name or _namespace(other) != _namespace(item):
        return None
    if _target(other) == _target(item):
        target = item.spec.scale_target_ref
        message = f"refused: {target.kind} {target.name} is already managed by the ScaledObject {other.name}"
        return _finding("double-autoscaler", item, "spec.scaleTargetRef.name", message)
    if hpa_name(other) == hpa_name(item):
        message = f"refused: the HPA {hpa_name(item)} is already managed by the ScaledObject {other.name}"
        path = "spec.advanced.horizontalPodAutoscalerConfig.name"
        return _finding("double-autoscaler", item, path, message)
    return None


def _ambiguous(hpas: Sequence[HorizontalPodAutoscaler], scaled: Sequence[ScaledObject]) -> dict[str, tuple[str, ...]]:
    by_target: dict[_Target, list[str]] = {}
    autoscalers: list[_Autoscaler] = [*hpas, *scaled]
    for autoscaler in autoscalers:
        name = hpa_name(autoscaler) if isinstance(autoscaler, ScaledObject) else autoscaler.name
        names = by_target.setdefault(_target(autoscaler), [])
        if name not in names:  # an HPA whose ownership KEDA has taken over is one HPA
            names.append(name)
    return {
        f"{target[2]}/{name}": tuple(other for other in names if other != name)
        for target, names in by_target.items()
        for name in names
        if len(names) > 1
    }


def _double(hpas: Sequence[HorizontalPodAutoscaler], scaled: Sequence[ScaledObject]) -> list[Finding]:
    """The HPA that was accepted beside another autoscaler: nothing refuses it, and both stop."""
    findings = []
    first: dict[_Target, str] = {_target(item): hpa_name(item) for item in scaled}
    for hpa in hpas:
        other = first.setdefault(_target(hpa), hpa.name)
        if other == hpa.name:
            continue
        target = hpa.spec.scale_target_ref
        message = (
            f"accepted beside HPA {other} on {target.kind} {target.name}: both become AmbiguousSelector and "
            "stop following their metrics; only minReplicas and maxReplicas still act"
        )
        findings.append(_finding("double-autoscaler", hpa, "spec.scaleTargetRef.name", message))
    return findings


def _target(item: _Autoscaler) -> _Target:
    target = item.spec.scale_target_ref
    return (target.api_version or "apps/v1", target.kind or "Deployment", _namespace(item), target.name)


def _namespace(item: KubeObject) -> str:
    return item.namespace or "default"


def _finding(rule: str, item: KubeObject, path: str, message: str) -> Finding:
    return Finding(rule, "error", ref(item), where(item, path), message)
