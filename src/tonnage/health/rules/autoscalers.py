"""Autoscalers that never scale: no target, no metric, nothing to compare the metric with.

Sources: kubernetes/kubernetes pkg/controller/podautoscaler (horizontal.go, replica_calculator.go: calculateRequests);
kedacore/keda apis/keda/v1alpha1/scaledobject_webhook.go (verifyCPUMemoryScalers).
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.decisions import Finding
from tonnage.health.blocker import NO_EFFECT, Blocker
from tonnage.health.inventory import DEFAULT, content
from tonnage.health.setting import Pods, Setting
from tonnage.objects import core
from tonnage.objects.autoscaling import HorizontalPodAutoscaler, MetricSpec
from tonnage.objects.base import KubeObject, where
from tonnage.objects.keda import ScaledObject
from tonnage.scaling.adapters import served
from tonnage.scaling.admission import apply_in_order, target_missing
from tonnage.scaling.manifests import ref
from tonnage.scaling.triggers import analyse_hpa

MEASURED = ("cpu", "memory")
"""What metrics.k8s.io serves."""
_WITHOUT_SCALE = ("Pod", "DaemonSet", "Job", "CronJob", "JobSet", "Service")
_HELP = {
    "external-metric-not-served": "let KEDA make the HPA, or add the adapter with a rule for the metric",
    "custom-metric-not-served": "scale by a ScaledObject of KEDA, or add prometheus-adapter with a rule for the metric",
}


def autoscalers(setting: Setting) -> Iterator[Blocker]:
    """HPAs and ScaledObjects that never follow what they are to follow."""
    admitted = apply_in_order(setting.objects)
    adapters = served(setting.objects)
    for hpa in admitted.hpas:
        missing = target_missing(hpa, setting.objects)
        if missing is not None:
            yield _blocker(missing, missing.help or "", "FailedGetScale")
            continue
        for found in analyse_hpa(hpa, admitted.scaled_objects, adapters):
            yield _blocker(found, _HELP[found.rule], "FailedGetExternalMetric")
        if hpa.spec.scale_target_ref.kind in _WITHOUT_SCALE:
            yield _not_scalable(hpa)
            continue
        yield from _resources(setting, hpa)
    for scaled in admitted.scaled_objects:
        missing = target_missing(scaled, setting.objects)
        if missing is not None:
            yield _blocker(missing, missing.help or "", "ScaledObjectCheckFailed")
            continue
        yield from _triggers(setting, scaled)


def _blocker(found: Finding, help_: str, reason: str) -> Blocker:
    some = found.severity != "error"
    return Blocker(found.rule, NO_EFFECT, found.object, found.where, found.message, help_, reason, some=some)


def _not_scalable(hpa: HorizontalPodAutoscaler) -> Blocker:
    target = hpa.spec.scale_target_ref
    return Blocker(
        "hpa-target-not-scalable",
        NO_EFFECT,
        ref(hpa),
        where(hpa, "spec.scaleTargetRef.kind"),
        f"{target.kind} {target.name} has no scale subresource: FailedGetScale, and nothing scales",
        "name a Deployment, a StatefulSet or another object that can be scaled",
        "FailedGetScale",
        "the server could not find the requested resource",
    )


def _resources(setting: Setting, hpa: HorizontalPodAutoscaler) -> Iterator[Blocker]:
    """Resource metrics that are not measured, or not to be compared with a request."""
    default = [] if hpa.spec.metrics else [("cpu", "", True, "spec")]
    for resource, container, relative, field in (*default, *_asked(hpa.spec.metrics)):
        if resource not in MEASURED:
            yield Blocker(
                "hpa-resource-not-measured",
                NO_EFFECT,
                ref(hpa),
                where(hpa, field),
                f"metrics.k8s.io has cpu and memory only, not {resource}: FailedGetResourceMetric, and nothing scales",
                "scale by a metric of the engine or of DCGM, with a ScaledObject of KEDA",
                "FailedGetResourceMetric",
                f"unable to get metrics for resource {resource}: no metrics returned from resource metrics API",
            )
        elif relative:
            yield from _without_request(setting, hpa, resource, container, field)


def _asked(metrics: list[MetricSpec]) -> Iterator[tuple[str, str, bool, str]]:
    """(resource, container or empty for all, whether the target is a share of the request, field) of each metric."""
    for index, metric in enumerate(metrics):
        path = f"spec.metrics[{index}]"
        if metric.resource is not None:
            relative = metric.resource.target.average_utilization is not None
            yield metric.resource.name, "", relative, f"{path}.resource.name"
        if metric.container_resource is not None:
            source = metric.container_resource
            relative = source.target.average_utilization is not None
            yield source.name, source.container, relative, f"{path}.containerResource.name"


def _triggers(setting: Setting, scaled: ScaledObject) -> Iterator[Blocker]:
    for index, trigger in enumerate(scaled.spec.triggers):
        path = f"spec.triggers[{index}]"
        kind = trigger.metadata.get("type", trigger.metric_type)
        if trigger.type in MEASURED and kind == "Utilization":
            container = trigger.metadata.get("containerName", "")
            yield from _without_request(setting, scaled, trigger.type, container, f"{path}.type")
        reference = trigger.authentication_ref
        if reference is None:
            continue
        namespace = (scaled.namespace or DEFAULT) if reference.kind == "TriggerAuthentication" else ""
        if not setting.inventory.has(reference.kind, reference.name, namespace):
            near = setting.inventory.near(reference.kind, reference.name, namespace)
            yield Blocker(
                "trigger-authentication-missing",
                NO_EFFECT,
                ref(scaled),
                where(scaled, f"{path}.authenticationRef.name"),
                f"{reference.kind} {reference.name} does not exist: the ScaledObject is not Ready, and nothing scales",
                f"did you mean {near}?" if near else f"add {reference.kind} {reference.name} to the files",
                "ScaledObjectCheckFailed",
            )


def _without_request(
    setting: Setting, owner: HorizontalPodAutoscaler | ScaledObject, resource: str, container: str, field: str
) -> Iterator[Blocker]:
    """A share of the request where a container requests nothing."""
    for pods in _target(setting, owner):
        if _defaulted(setting, pods.namespace, resource):
            continue
        spec = pods.spec
        if not container and spec.resources and resource in {**spec.resources.limits, **spec.resources.requests}:
            continue
        sidecars = [one for one in spec.init_containers if one.restart_policy == "Always"]
        counted = [one for one in (*spec.containers, *sidecars) if container in ("", one.name)]
        lacking = [one.name for one in counted if not core.container_requests(one).get(resource)]
        if counted and not lacking:
            continue
        names = ", ".join(one.name for one in spec.containers)
        why = f"container {lacking[0]} requests no {resource}" if lacking else f"there is no container {container}"
        yield Blocker(
            "hpa-metric-without-request",
            NO_EFFECT,
            ref(owner),
            where(owner, field),
            f"{why}, of which the utilization would be a share: FailedGetResourceMetric, and nothing scales",
            f"add resources.requests.{resource} to container {lacking[0]}" if lacking else f"name one of {names}",
            "FailedGetResourceMetric",
            f"failed to get {resource} utilization: missing request for {resource} in container "
            f"{lacking[0] if lacking else container} of Pod {pods.object.name}",
        )


def _target(setting: Setting, owner: HorizontalPodAutoscaler | ScaledObject) -> Iterator[Pods]:
    target, namespace = owner.spec.scale_target_ref, owner.namespace or DEFAULT
    for pods in setting.pods:
        if (pods.object.kind, pods.object.name, pods.namespace) == (target.kind, target.name, namespace):
            yield pods


def _defaulted(setting: Setting, namespace: str, resource: str) -> bool:
    """Whether a LimitRange of the namespace gives containers a request."""
    return any(
        resource in defaults
        for one in setting.inventory.of_kind("LimitRange", namespace)
        for defaults in _defaults(one)
    )


def _defaults(limit_range: KubeObject) -> Iterator[dict[str, object]]:
    spec = content(limit_range).get("spec")
    limits = spec.get("limits") if isinstance(spec, dict) else None
    for one in limits if isinstance(limits, list) else ():
        if isinstance(one, dict) and one.get("type") == "Container":
            yield from (value for key in ("default", "defaultRequest") if isinstance(value := one.get(key), dict))
