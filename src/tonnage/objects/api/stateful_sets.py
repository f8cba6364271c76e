"""What kube-apiserver refuses of StatefulSets.

Source: kubernetes/kubernetes v1.36 pkg/apis/apps/validation/validation.go (ValidateStatefulSetSpec).
"""

from __future__ import annotations

from typing import Any, TypeAlias

from tonnage.objects.api.errors import (
    FieldError,
    at_least_zero,
    count_or_percent,
    forbidden,
    invalid_value,
    one_of,
    show,
    template_metadata,
    unsupported,
)
from tonnage.objects.api.pods import pod_spec
from tonnage.objects.api.selecting import selector_of_template

JsonObject: TypeAlias = dict[str, Any]

_RETENTION = ("Retain", "Delete")


def stateful_set(obj: JsonObject) -> list[FieldError]:
    """Everything that is wrong with a StatefulSet."""
    spec = obj.get("spec") or {}
    order = spec.get("podManagementPolicy")
    causes: list[FieldError] = []
    if order not in (None, "OrderedReady", "Parallel"):
        causes.append(invalid_value("spec.podManagementPolicy", order, "must be 'OrderedReady' or 'Parallel'"))
    causes += _update(spec.get("updateStrategy") or {})
    retention = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    for name in ("whenDeleted", "whenScaled"):
        causes += one_of(f"spec.persistentVolumeClaimRetentionPolicy.{name}", retention.get(name), _RETENTION)
    causes += at_least_zero("spec.replicas", spec.get("replicas"))
    causes += at_least_zero("spec.minReadySeconds", spec.get("minReadySeconds"))
    causes += at_least_zero("spec.ordinals.start", (spec.get("ordinals") or {}).get("start"))
    causes += selector_of_template(spec, "empty selector is invalid for statefulset", needed=True)
    return causes + _template(spec)


def _template(spec: JsonObject) -> list[FieldError]:
    template, path = spec.get("template") or {}, "spec.template.spec"
    inner = template.get("spec") or {}
    names = (claim.get("metadata") or {} for claim in spec.get("volumeClaimTemplates") or ())
    claimed = frozenset(str(name["name"]) for name in names if name.get("name"))
    causes = template_metadata("spec.template.metadata", template.get("metadata") or {})
    causes += pod_spec(path, inner, claimed=claimed)
    restart = inner.get("restartPolicy")
    if restart not in (None, "Always"):
        causes.append(unsupported(f"{path}.restartPolicy", restart, ("Always",)))
    if inner.get("activeDeadlineSeconds") is not None:
        why = "activeDeadlineSeconds in StatefulSet is not Supported"
        causes.append(forbidden(f"{path}.activeDeadlineSeconds", why))
    return causes


def _update(strategy: JsonObject) -> list[FieldError]:
    """kube-apiserver shows the whole strategy in the form of its own struct."""
    path, kind, rolling = "spec.updateStrategy", strategy.get("type") or "RollingUpdate", strategy.get("rollingUpdate")
    if kind not in ("RollingUpdate", "OnDelete"):
        why = "must be 'RollingUpdate' or 'OnDelete'"
        shown = f'{{"Type":{show(kind)},"RollingUpdate":null}}'
        return [FieldError("FieldValueInvalid", f"Invalid value: {shown}: {why}", path, kind, why, at=f"{path}.type")]
    if rolling is None:
        return []
    if kind == "OnDelete":
        why = "only allowed for updateStrategy 'RollingUpdate'"
        shown = (
            f'{{"Partition":{rolling.get("partition") or 0},"MaxUnavailable":{show(rolling.get("maxUnavailable"))}}}'
        )
        return [
            FieldError("FieldValueInvalid", f"Invalid value: {shown}: {why}", f"{path}.rollingUpdate", rolling, why)
        ]
    causes = at_least_zero(f"{path}.rollingUpdate.partition", rolling.get("partition"))
    return causes + count_or_percent(
        f"{path}.rollingUpdate.maxUnavailable", rolling.get("maxUnavailable"), at_most_all=True
    )
