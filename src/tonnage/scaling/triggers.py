"""What a trigger will do, or never do: findings with the object and the line, before anything runs.

The value bounds of the query (:mod:`tonnage.scaling.bounds`) meet the target's arithmetic
(:mod:`tonnage.scaling.reach`): a trigger that can never scale beyond N, never fires or always fires is
told with the reason. Beside it stand the names that do not exist, settings without effect, queries with
several series, and labels that the scrape has renamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tonnage.decisions import Finding
from tonnage.errors import InputError
from tonnage.facts.labels import SCALED_OBJECT_NAME
from tonnage.metrics.promql import UnsupportedQuery
from tonnage.objects.autoscaling import ExternalMetricSource, HorizontalPodAutoscaler
from tonnage.objects.keda import ScaledObject
from tonnage.objects.monitoring import ServiceMonitor
from tonnage.scaling import keda
from tonnage.scaling.adapters import CUSTOM, EXTERNAL, AdapterMetrics
from tonnage.scaling.manifests import ref, trigger
from tonnage.scaling.trigger_checks import DCGM_EXPORTER, Subject, check, finding

NOBODY = AdapterMetrics()


def analyse(scaled_object: ScaledObject, *, honor_labels: Mapping[str, bool] | None = None) -> tuple[Finding, ...]:
    """Everything that can be told of a ScaledObject's triggers and timing fields.

    ``honor_labels`` says for an exporter ("dcgm-exporter") whether its scrape keeps the exporter's own labels
    (:func:`honored_labels`); an exporter that is not listed is not known.
    """
    findings = _dead_fields(scaled_object)
    for index, written in enumerate(scaled_object.spec.triggers):
        if written.type != "prometheus":
            continue
        try:
            subject = Subject.of(scaled_object, index)
        except UnsupportedQuery as error:
            findings += _problems(scaled_object, "trigger-not-analysed", "info", error)
        except InputError as error:
            findings += _problems(scaled_object, "trigger-query-invalid", "error", error)
        else:
            findings += check(subject, honor_labels or {})
    return tuple(findings)


def analyse_hpa(
    hpa: HorizontalPodAutoscaler, scaled_objects: Iterable[ScaledObject] = (), adapters: AdapterMetrics = NOBODY
) -> tuple[Finding, ...]:
    """Metrics of a plain HPA that no metrics API serves: neither one of the ``adapters`` among the objects, nor KEDA,
    which serves only the external metrics of its own generated HPAs.
    """
    scaled = tuple(scaled_objects)
    findings = []
    for index, metric in enumerate(hpa.spec.metrics):
        path = f"spec.metrics[{index}]"
        if metric.external is not None:
            found = _external(hpa, metric.external, f"{path}.external.metric.name", scaled, adapters)
            findings += [found] if found is not None else []
        for kind, source in (("pods", metric.pods), ("object", metric.object)):
            if source is not None and not adapters.has(CUSTOM, source.metric.name):
                name = source.metric.name
                why = "no rule of the adapter names it" if CUSTOM in adapters.apis else "there is no adapter"
                message = (
                    f"{kind} metric {name} is not served by any metrics API ({why}): "
                    f"FailedGet{kind.capitalize()}Metric, "
                    "ScalingActive is False, and only minReplicas and maxReplicas act"
                )
                findings.append(
                    finding("custom-metric-not-served", "error", hpa, f"{path}.{kind}.metric.name", message)
                )
    return tuple(findings)


def _external(
    hpa: HorizontalPodAutoscaler,
    source: ExternalMetricSource,
    path: str,
    scaled_objects: tuple[ScaledObject, ...],
    adapters: AdapterMetrics,
) -> Finding | None:
    served = {
        (owner.name, keda.metric_name(index, trigger(owner, index)))
        for owner in scaled_objects
        if owner.namespace == hpa.namespace
        for index, written in enumerate(owner.spec.triggers)
        if written.type == "prometheus" and not _broken(owner, index)
    }
    identifier = source.metric
    selector = identifier.selector.match_labels if identifier.selector else {}
    owner = selector.get(SCALED_OBJECT_NAME, "")
    if (owner and (owner, identifier.name) in served) or (not owner and adapters.has(EXTERNAL, identifier.name)):
        return None
    names = ", ".join(sorted(name for of, name in served if of == owner))
    known = f"KEDA serves {names} for {owner}" if names else "no ScaledObject here serves it"
    message = (
        f"external metric {identifier.name} is not served by any metrics API ({known}): FailedGetExternalMetric, "
        "ScalingActive is False, and only minReplicas and maxReplicas act"
    )
    return finding("external-metric-not-served", "error", hpa, path, message)


def honored_labels(monitors: Iterable[ServiceMonitor]) -> dict[str, bool]:
    """For each exporter that a ServiceMonitor names in its selector or its own name: whether all its
    endpoints set honorLabels.
    """
    found: dict[str, bool] = {}
    for monitor in monitors:
        words = [monitor.name, *monitor.spec.selector.match_labels.values()]
        if any(DCGM_EXPORTER in word for word in words):
            honored = all(endpoint.honor_labels for endpoint in monitor.spec.endpoints)
            found[DCGM_EXPORTER] = found.get(DCGM_EXPORTER, True) and honored
    return found


def _dead_fields(owner: ScaledObject) -> list[Finding]:
    """Fields that only act on the way to and from zero or idle, where that way does not exist."""
    spec = owner.spec
    if spec.min_replica_count == 0 or spec.idle_replica_count is not None:
        return []
    why = f"minReplicaCount is {spec.min_replica_count}, so KEDA never scales to zero or idle"
    findings = []
    cached = any(trigger.use_cached_metrics for trigger in spec.triggers)
    composite = spec.advanced is not None and spec.advanced.scaling_modifiers is not None
    if _written(owner, "spec.pollingInterval") and not cached and not composite:
        message = f"pollingInterval has no effect on scaling: {why}; the HPA asks every 15 s"
        findings.append(finding("polling-interval-dead", "warning", owner, "spec.pollingInterval", message))
    if _written(owner, "spec.cooldownPeriod"):
        message = f"cooldownPeriod has no effect: {why}; scale-in follows the HPA's behavior.scaleDown"
        findings.append(finding("cooldown-period-dead", "warning", owner, "spec.cooldownPeriod", message))
    for index, written in enumerate(spec.triggers):
        if "activationThreshold" in written.metadata:
            path = f"spec.triggers[{index}].metadata.activationThreshold"
            message = f"activationThreshold has no effect: {why}"
            findings.append(finding("activation-threshold-dead", "warning", owner, path, message))
    return findings


def _written(owner: ScaledObject, path: str) -> bool:
    """Whether a field stands in the file; of an object made by a program, whether it differs from the
    default.
    """
    if owner.lines:
        return path in owner.lines
    if path == "spec.pollingInterval":
        return owner.spec.polling_interval * 10**9 != keda.POLLING_INTERVAL_NS
    return owner.spec.cooldown_period * 10**9 != keda.COOLDOWN_NS


def _broken(owner: ScaledObject, index: int) -> bool:
    try:
        trigger(owner, index)
    except InputError:
        return True
    return False


def _problems(owner: ScaledObject, rule: str, severity: str, error: InputError) -> list[Finding]:
    return [
        Finding(
            rule,
            severity,
            ref(owner),
            problem.where,
            f"{problem.message} ({problem.hint})".removesuffix(" ()"),
        )
        for problem in error.problems
    ]
