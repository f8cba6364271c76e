"""What an update may not change.

Source: kubernetes/kubernetes v1.36 pkg/apis/{core,apps,batch,scheduling}/validation; kubernetes-sigs/karpenter v1.14
CRDs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeAlias

from tonnage.objects.api.errors import FieldError, forbidden, invalid_value

JsonObject: TypeAlias = dict[str, Any]

_IMMUTABLE = "field is immutable"
_POD_WORDS = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def changed(kind: str, obj: JsonObject, old: JsonObject) -> list[FieldError]:
    """The causes for everything that differs from ``old`` and may not."""
    rule = _BY_KIND.get(kind)
    return rule(obj, old) if rule is not None else []


def _spec(obj: JsonObject) -> JsonObject:
    found: JsonObject = obj.get("spec") or {}
    return found


def _selector(obj: JsonObject, old: JsonObject) -> list[FieldError]:
    given = _spec(obj).get("selector")
    return [] if given == _spec(old).get("selector") else [invalid_value("spec.selector", given, _IMMUTABLE)]


def _unchanged_spec(obj: JsonObject, old: JsonObject) -> list[FieldError]:
    """What a claim asks for stays."""
    return [] if _spec(obj) == _spec(old) else [invalid_value("spec", _spec(obj), _IMMUTABLE)]


def _resource_slice(obj: JsonObject, old: JsonObject) -> list[FieldError]:
    """A slice keeps its driver, its pool and its node."""
    new, before = _spec(obj), _spec(old)
    kept = {name: (new.get(name), before.get(name)) for name in ("driver", "nodeName")}
    kept["pool.name"] = ((new.get("pool") or {}).get("name"), (before.get("pool") or {}).get("name"))
    return [invalid_value(f"spec.{name}", one, _IMMUTABLE) for name, (one, other) in kept.items() if one != other]


def _job(obj: JsonObject, old: JsonObject) -> list[FieldError]:
    """A Job's pods stay as they are; of a suspended one what places them may change, of an Indexed one its size."""
    new, before = _spec(obj), _spec(old)
    causes = _selector(obj, old)
    if new.get("completions") != before.get("completions"):
        indexed = new.get("completionMode") == "Indexed" and before.get("completions") is not None
        if not indexed or new.get("completions") != new.get("parallelism"):
            causes.append(invalid_value("spec.completions", new.get("completions"), _IMMUTABLE))
    template = new.get("template") or {}
    if template != before.get("template") and not before.get("suspend"):
        shown = {**(template.get("metadata") or {}), "spec": template.get("spec")}  # in the form of its own struct
        causes.append(invalid_value("spec.template", shown, _IMMUTABLE))
    for name in ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"):
        if new.get(name) != before.get(name):
            causes.append(invalid_value(f"spec.{name}", new.get(name), _IMMUTABLE))
    return causes


def _pod(obj: JsonObject, old: JsonObject) -> list[FieldError]:
    new, before = copy.deepcopy(_spec(obj)), copy.deepcopy(_spec(old))
    causes = _tolerations(new.pop("tolerations", []), before.pop("tolerations", []))
    causes += _gates(new, before)
    causes += _deadline(new.pop("activeDeadlineSeconds", None), before.pop("activeDeadlineSeconds", None))
    for spec in (new, before):
        for part in ("containers", "initContainers"):
            for container in spec.get(part) or ():
                container.pop("image", None)
    if before.get("terminationGracePeriodSeconds", 0) < 0:
        before["terminationGracePeriodSeconds"] = new.get("terminationGracePeriodSeconds")
    if new != before:
        fields = sorted(key for key in {**new, **before} if new.get(key) != before.get(key))
        causes.append(forbidden("spec", f"{_POD_WORDS}\nchanged: {', '.join(f'spec.{field}' for field in fields)}"))
    return causes


def _tolerations(new: list[JsonObject], before: list[JsonObject]) -> list[FieldError]:
    """Tolerations may be added; of those that stand only tolerationSeconds may change."""

    def key(toleration: JsonObject) -> JsonObject:
        return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}

    kept = [key(toleration) for toleration in new]
    if all(key(toleration) in kept for toleration in before):
        return []
    why = "existing toleration can not be modified except its tolerationSeconds"
    return [forbidden("spec.tolerations", why)]


def _gates(new: JsonObject, before: JsonObject) -> list[FieldError]:
    """Gates may only go; while one stands, the selectors may be narrowed."""
    gates, stood = (spec.pop("schedulingGates", None) or [] for spec in (new, before))
    names = {gate.get("name") for gate in stood}
    added = [gate.get("name") for gate in gates if gate.get("name") not in names]
    if stood and not gates:
        new.pop("nodeSelector", None), before.pop("nodeSelector", None)
    elif stood:
        for name in ("nodeSelector", "affinity"):
            new.pop(name, None), before.pop(name, None)
    if not added:
        return []
    why = f"only deletion is allowed, but found new scheduling gate '{added[0]}'"
    index = next(i for i, gate in enumerate(gates) if gate.get("name") == added[0])
    return [forbidden(f"spec.schedulingGates[{index}].name", why)]


def _deadline(new: int | None, before: int | None) -> list[FieldError]:
    path = "spec.activeDeadlineSeconds"
    if before is None or new == before:
        return []
    if new is None:
        return [invalid_value(path, None, "must not update from a positive integer to nil value")]
    if new > before:
        return [invalid_value(path, new, f"must be less than or equal to previous value {before}")]
    return []


def _service(obj: JsonObject, old: JsonObject) -> list[FieldError]:
    new, before = _spec(obj), _spec(old)
    if "ExternalName" in (new.get("type"), before.get("type")):
        return []
    address, stood = new.get("clusterIP"), before.get("clusterIP")
    if stood and address != stood:
        why = "may not change once set"
        return [invalid_value("spec.clusterIPs[0]", [address], why)]
    return []


def _priority_class(obj: JsonObject, old: JsonObject) -> list[FieldError]:
    causes = []
    for name in ("value", "preemptionPolicy"):
        if obj.get(name) != old.get(name):
            text = "may not be changed in an update." if name == "value" else _IMMUTABLE
            cause = forbidden(name, text) if name == "value" else invalid_value(name, obj.get(name), text)
            causes.append(cause)
    return causes


def _config_map(obj: JsonObject, old: JsonObject) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    why = "field is immutable when `immutable` is set"
    causes = [] if obj.get("immutable") else [forbidden("immutable", why)]
    return causes + [forbidden(part, why) for part in ("data", "binaryData") if obj.get(part) != old.get(part)]


def _node(obj: JsonObject, old: JsonObject) -> list[FieldError]:
    causes = []
    ranges, now = _spec(old).get("podCIDRs"), _spec(obj).get("podCIDRs")
    if ranges and (now != ranges or _spec(obj).get("podCIDR") != _spec(old).get("podCIDR")):
        why = 'node updates may not change podCIDR except from "" to valid'
        causes.append(forbidden("spec.podCIDRs", why))
    stood, given = _spec(old).get("providerID"), _spec(obj).get("providerID")
    if stood and given != stood:
        why = 'node updates may not change providerID except from "" to valid'
        causes.append(forbidden("spec.providerID", why))
    return causes


def _node_pool(obj: JsonObject, old: JsonObject) -> list[FieldError]:
    def reference(of: JsonObject) -> JsonObject:
        found: JsonObject = ((_spec(of).get("template") or {}).get("spec") or {}).get("nodeClassRef") or {}
        return found

    path = "spec.template.spec.nodeClassRef"
    new, before = reference(obj), reference(old)
    causes = [
        FieldError("FieldValueInvalid", f"Invalid value: nodeClassRef.{name} is immutable", path)
        for name in ("group", "kind")
        if before.get(name) and new.get(name) != before.get(name)
    ]
    if ("replicas" in _spec(obj)) != ("replicas" in _spec(old)):
        why = "Cannot transition NodePool between static (replicas set) and dynamic (replicas unset) provisioning modes"
        causes.append(FieldError("FieldValueInvalid", f"Invalid value: {why}", "spec"))
    return causes


def _node_claim(obj: JsonObject, old: JsonObject) -> list[FieldError]:
    if _spec(obj) == _spec(old):
        return []
    return [FieldError("FieldValueInvalid", "Invalid value: spec is immutable", "spec")]


_STATEFUL_SET_CHANGES = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)


def _stateful_set(obj: JsonObject, old: JsonObject) -> list[FieldError]:
    def rest(of: JsonObject) -> JsonObject:
        return {name: value for name, value in _spec(of).items() if name not in _STATEFUL_SET_CHANGES}

    if rest(obj) == rest(old):
        return []
    listed = ", ".join(f"'{name}'" for name in _STATEFUL_SET_CHANGES[:-1])
    why = f"updates to statefulset spec for fields other than {listed} and 'minReadySeconds' are forbidden"
    return [forbidden("spec", why)]


_BY_KIND: dict[str, Callable[[JsonObject, JsonObject], list[FieldError]]] = {
    "Pod": _pod,
    "Deployment": _selector,
    "ReplicaSet": _selector,
    "DaemonSet": _selector,
    "StatefulSet": _stateful_set,
    "Job": _job,
    "Service": _service,
    "PriorityClass": _priority_class,
    "ConfigMap": _config_map,
    "Node": _node,
    "NodePool": _node_pool,
    "NodeClaim": _node_claim,
    "ResourceClaim": _unchanged_spec,
    "ResourceClaimTemplate": _unchanged_spec,
    "ResourceSlice": _resource_slice,
}
