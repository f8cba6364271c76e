"""The status of a HorizontalPodAutoscaler after a pass of its controller, and the HPA that KEDA makes: as JSON.

Sources: kubernetes/kubernetes pkg/controller/podautoscaler/horizontal.go (setStatus, setStatusForResourceMetric and its
kin, setConditionInList), v1.36.3; kedacore/keda controllers/keda/hpa.go (newHPAForScaledObject), v2.21.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from tonnage.decisions import Scale
from tonnage.facts.labels import APP_NAME, SCALED_OBJECT_NAME
from tonnage.objects.quantity import format_cpu
from tonnage.scaling.behavior import SelectPolicy
from tonnage.scaling.conditions import Condition
from tonnage.scaling.hpa import HpaSpec, HpaState, Metric
from tonnage.scaling.replicas import Proposal, TargetKind

JsonObject: TypeAlias = dict[str, Any]
_GONE: JsonObject = {"type": ""}
"""What stands for a metric without a value."""


class HpaPass(Struct, frozen=True):
    """One pass: ``replicas`` that the target was to have before it, and the change that was decided, if any."""

    spec: HpaSpec
    state: HpaState
    replicas: int
    decision: Scale | None = None


def status(written: JsonObject, passed: HpaPass, at: str) -> JsonObject:
    """The status that the controller writes at ``at`` (RFC 3339) into the HPA that was ``written``.

    Without a value for the pods to come, as where no metric could be had, what the status said before stays."""
    before = written.get("status") or {}
    metrics = written["spec"].get("metrics") or ()
    decided = passed.decision.replicas if passed.decision is not None else _settled(passed, before)
    found: JsonObject = {
        "currentReplicas": passed.replicas,
        "desiredReplicas": decided,
        "currentMetrics": _current(metrics, passed) if passed.state.proposals else None,
        "conditions": _conditions(passed.state.conditions, before.get("conditions") or (), at),
    }
    scaled = at if passed.decision is not None else before.get("lastScaleTime")
    return found | ({"lastScaleTime": scaled} if scaled else {})


def _settled(passed: HpaPass, before: JsonObject) -> int:
    """The replicas that are to be there where nothing is changed."""
    active = passed.state.condition("ScalingActive")
    if active is None or active.status:
        return passed.replicas
    return 0 if active.reason == "ScalingDisabled" else int(before.get("desiredReplicas", 0))


def _current(metrics: Sequence[JsonObject], passed: HpaPass) -> list[JsonObject]:
    """``status.currentMetrics``: one entry a metric, in their order."""
    pairs = zip(passed.spec.metrics, passed.state.proposals, strict=True)
    return [_entry(metrics[at] if at < len(metrics) else {}, *pair) for at, pair in enumerate(pairs)]


def _entry(written: JsonObject, metric: Metric, proposal: Proposal) -> JsonObject:
    if proposal.replicas is None or proposal.current_milli is None:
        return dict(_GONE)
    part = _part(metric)
    named = {key: value for key, value in (written.get(part) or {"name": metric.name}).items() if key != "target"}
    shown = format_cpu(proposal.current_milli)
    current: JsonObject = {"averageValue": shown}
    if metric.target_kind is TargetKind.UTILIZATION and proposal.milli is not None:
        current["averageUtilization"] = proposal.milli // 1000
    elif metric.target_kind is TargetKind.VALUE:
        current = {"value": shown}
    return {"type": metric.kind, part: {**named, "current": current}}


def _part(metric: Metric) -> str:
    """The field of a metric that its type names."""
    return metric.kind[:1].lower() + metric.kind[1:]


def _conditions(now: Sequence[Condition], before: Sequence[JsonObject], at: str) -> list[JsonObject]:
    since = {(one.get("type"), one.get("status")): one.get("lastTransitionTime") for one in before}
    return [
        {
            "type": one.type,
            "status": said,
            "lastTransitionTime": since.get((one.type, said)) or at,
            "reason": one.reason,
            "message": one.message,
        }
        for one in now
        for said in ("True" if one.status else "False",)
    ]


def body_of_keda(spec: HpaSpec, scaled: JsonObject) -> JsonObject:
    """The HPA that KEDA makes for a ScaledObject (``scaled``: as the API has it), which owns it."""
    meta, written = scaled["metadata"], scaled["spec"]
    name, target = str(meta["name"]), written["scaleTargetRef"]
    labels = {
        "app.kubernetes.io/managed-by": "keda-operator",
        APP_NAME: spec.hpa.name,
        "app.kubernetes.io/part-of": name,
        SCALED_OBJECT_NAME: name,
    }
    owner = {"apiVersion": scaled["apiVersion"], "kind": scaled["kind"], "name": name, "uid": meta["uid"]}
    behavior = _behavior(spec, (written.get("advanced") or {}).get("horizontalPodAutoscalerConfig") or {})
    containers = {one["type"]: one["metadata"].get("containerName", "") for one in written["triggers"]}
    made: JsonObject = {
        "scaleTargetRef": {
            "apiVersion": target.get("apiVersion", "apps/v1"),
            "kind": spec.target.kind,
            "name": spec.target.name,
        },
        "minReplicas": spec.min_replicas,
        "maxReplicas": spec.max_replicas,
        "metrics": [_written(metric, name, containers) for metric in spec.metrics],
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": spec.hpa.kind,
        "metadata": {
            "name": spec.hpa.name,
            "namespace": spec.hpa.namespace,
            "labels": labels,
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": made | ({"behavior": behavior} if behavior else {}),
    }


def _behavior(spec: HpaSpec, config: JsonObject) -> JsonObject:
    """As the ScaledObject says it; a direction that an annotation pauses is disabled."""
    found = dict(config.get("behavior") or {})
    for field, rules in (("scaleUp", spec.behavior.up), ("scaleDown", spec.behavior.down)):
        if rules.select is SelectPolicy.DISABLED:
            found[field] = {**(found.get(field) or {}), "selectPolicy": rules.select.value}
    return found


def _written(metric: Metric, scaled_object: str, containers: Mapping[str, str]) -> JsonObject:
    kind = metric.target_kind
    target: JsonObject = {"type": kind.value}
    if kind is TargetKind.UTILIZATION:
        target["averageUtilization"] = metric.target
    else:
        target["value" if kind is TargetKind.VALUE else "averageValue"] = format_cpu(metric.target)
    source: JsonObject = {"name": metric.name, "target": target}
    if metric.kind == "External":
        selector = {"matchLabels": {SCALED_OBJECT_NAME: scaled_object}}
        source = {"metric": {"name": metric.name, "selector": selector}, "target": target}
    elif metric.kind == "ContainerResource":
        source["container"] = containers[metric.name]
    return {"type": metric.kind, _part(metric): source}
