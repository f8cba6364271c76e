"""What one prometheus trigger of a ScaledObject will do: its names, labels, series and reach.

Each check takes a :class:`Subject` and gives findings; :mod:`tonnage.scaling.triggers` runs them all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct

from tonnage.decisions import Finding, Scalar
from tonnage.facts import metric_names
from tonnage.metrics.promql import Query
from tonnage.metrics.syntax import Aggregate, Binary, Call, Node, Selector, Window, walk
from tonnage.objects.base import KubeObject
from tonnage.objects.keda import ScaledObject
from tonnage.objects.load import where
from tonnage.scaling import keda
from tonnage.scaling.bounds import Interval, additive, bounds, is_scalar, resolve, several_series
from tonnage.scaling.manifests import behavior, ref, trigger
from tonnage.scaling.reach import ReplicaRange, reach
from tonnage.scaling.replicas import TargetKind, Tolerance
from tonnage.scaling.words import replicas_text

DCGM_EXPORTER = "dcgm-exporter"


def finding(
    rule: str, severity: str, source: KubeObject, path: str, message: str, *evidence: tuple[str, Scalar]
) -> Finding:
    return Finding(rule, severity, ref(source), where(source, path), message, evidence)


class Subject(Struct, frozen=True):
    """One prometheus trigger of a ScaledObject, parsed."""

    owner: ScaledObject
    index: int
    trigger: keda.Trigger
    query: Query
    tolerance: Tolerance

    @classmethod
    def of(cls, owner: ScaledObject, index: int) -> Subject:
        parsed = trigger(owner, index)
        assert parsed.query is not None  # a prometheus trigger has one
        advanced = owner.spec.advanced
        config = advanced.horizontal_pod_autoscaler_config if advanced else None
        rules = behavior(config.behavior if config else None)
        return cls(owner, index, parsed, parsed.query, rules.tolerance)

    @property
    def min_replicas(self) -> int:
        return max(self.owner.spec.min_replica_count, 1)

    @property
    def max_replicas(self) -> int:
        return self.owner.spec.max_replica_count

    def finding(self, rule: str, severity: str, key: str, message: str, *evidence: tuple[str, Scalar]) -> Finding:
        """A finding at the trigger's metadata ``key``, or at the trigger itself when that is ""."""
        path = f"spec.triggers[{self.index}]" + (f".metadata.{key}" if key else "")
        return finding(rule, severity, self.owner, path, message, *evidence)


def check(subject: Subject, honor_labels: Mapping[str, bool]) -> list[Finding]:
    """All findings about one trigger: names and labels first, then series, reach and the rest."""
    findings = []
    for selector in dict.fromkeys(subject.query.selectors()):
        findings += _of_name(subject, selector)
        findings += _of_labels(subject, selector, honor_labels)
    findings += _of_series(subject)
    findings += _of_reach(subject)
    findings += _of_activation(subject)
    findings += _of_ratio(subject)
    findings += _of_null_values(subject)
    if "metricName" in subject.owner.spec.triggers[subject.index].metadata:
        served = keda.metric_name(subject.index, subject.trigger)
        message = f"metricName is ignored: the metric is served as {served}"
        findings.append(subject.finding("trigger-metricname-ignored", "info", "metricName", message))
    return findings


# Names ---------------------------------------------------------------------------------------------------


def _of_name(subject: Subject, selector: Selector) -> list[Finding]:
    name = selector.name
    metric = metric_names.find(name)
    if metric is None:
        return _unknown_name(subject, name)
    if metric.status == "removed":
        instead = f"it is {metric.replacement} now" if metric.replacement else "nothing took its place"
        message = f"{name} is no longer published by {metric.exporter}: {instead}; {_empty(subject)}"
        return [subject.finding("metric-removed", "error", "query", message)]
    if metric.type == "label":
        message = f"{name} is a label of other metrics, not a metric: {_empty(subject)}"
        return [subject.finding("metric-unknown", "error", "query", message)]
    if metric.status == "optional":
        message = f"{name} is not published by {metric.exporter} unless it is switched on: {_empty(subject)}"
        return [subject.finding("metric-not-collected", "warning", "query", message)]
    return []


def _unknown_name(subject: Subject, name: str) -> list[Finding]:
    if name.startswith("vllm_"):
        meant = resolve(name)
        hint = f"did you mean {meant.name}?" if meant else "vLLM's metrics begin with vllm: and a colon"
        message = f"{name} does not exist, vLLM's names have a colon: {hint} {_empty(subject).capitalize()}"
        return [subject.finding("vllm-metric-name", "error", "query", message)]
    if name.startswith(("vllm:", "DCGM_")):
        near = ", ".join(metric_names.near(name))
        hint = f"near names: {near}; " if near else ""
        message = f"{name} is not a known metric of its exporter: {hint}{_empty(subject)}"
        return [subject.finding("metric-unknown", "warning", "query", message)]
    return []


def _empty(subject: Subject) -> str:
    """What an answer without data does."""
    if subject.trigger.ignore_null_values:
        return "the answer is empty and counts as 0, so the trigger never fires"
    return "the answer is empty, which is an error of the trigger"


# Labels and series -----------------------------------------------------------------------------------------


def _of_labels(subject: Subject, selector: Selector, honor_labels: Mapping[str, bool]) -> list[Finding]:
    """A GPU exporter's series carry the exporter's own ``pod`` unless its scrape sets honorLabels."""
    metric = resolve(selector.name)
    if metric is None or metric.exporter != DCGM_EXPORTER or honor_labels.get(DCGM_EXPORTER):
        return []
    missed = [m for m in selector.matchers if m.label == "pod" and not m.matches(f"{DCGM_EXPORTER}-x7k2p")]
    if not missed:
        return []
    if DCGM_EXPORTER in honor_labels:
        message = (
            f"the scrape of {DCGM_EXPORTER} does not set honorLabels: pod is the exporter's own there, the "
            f"workload's is exported_pod, so {missed[0]} matches nothing; {_empty(subject)}"
        )
        return [subject.finding("exported-pod-label", "error", "query", message)]
    message = (
        f"{missed[0]} compares the exporter's own pod unless its scrape sets honorLabels, which its chart "
        "does not: use exported_pod, or set honorLabels"
    )
    return [subject.finding("exported-pod-label", "warning", "query", message)]


def _of_series(subject: Subject) -> list[Finding]:
    root = subject.query.root
    if is_scalar(root):
        message = "the query gives a scalar: KEDA reads a vector with one element, wrap it in vector()"
        return [subject.finding("trigger-scalar", "error", "query", message)]
    if not several_series(root):
        return []
    if isinstance(root, Call) and root.function == "histogram_quantile":
        cause, cure = "a quantile per series", "sum by (le) (rate(…)) inside histogram_quantile"
    else:
        cause, cure = "one series per pod or GPU", "an aggregation such as sum() around it"
    message = f"the query gives {cause}: as soon as there are two the trigger is in error; use {cure}"
    return [subject.finding("trigger-several-series", "error", "query", message)]


# Reach -----------------------------------------------------------------------------------------------------


def _of_reach(subject: Subject) -> list[Finding]:
    root, made = subject.query.root, subject.trigger
    values = bounds(root)
    low, high = subject.min_replicas, subject.max_replicas
    found = reach(
        values,
        made.target_kind,
        made.threshold,
        min_replicas=low,
        max_replicas=high,
        tolerance=subject.tolerance,
    )
    evidence: list[tuple[str, Scalar]] = [
        ("highest value", None if math.isinf(values.high) else values.high),
        ("threshold", made.threshold),
        ("target", made.target_kind.value),
        ("never beyond", found.highest),
        ("maxReplicaCount", high),
    ]
    if found.lowest > low and values.low > 0:
        message = f"always fires: the query is never below {values.low:g}, which asks for {_asks(made, values.low)}"
        return [subject.finding("trigger-always-fires", "warning", "threshold", message, *evidence)]
    if found.highest >= high or high <= low:
        return _divided(subject, values)
    return [_limited(subject, values, found, evidence)]


def _limited(subject: Subject, values: Interval, found: ReplicaRange, evidence: list[tuple[str, Scalar]]) -> Finding:
    """The trigger stops short of maxReplicaCount."""
    made, low = subject.trigger, subject.min_replicas
    fallback = subject.owner.spec.fallback
    if fallback is not None and fallback.replicas > found.highest:
        evidence.append(("fallback replicas", fallback.replicas))
    why = f"the query is at most {values.high:g}{_range(subject)}, which asks for {_asks(made, values.high)}"
    if values.high <= 1 < made.threshold:
        cure = "the metric is a share from 0 to 1, not a percentage"
    elif made.target_kind is TargetKind.AVERAGE_VALUE and not additive(subject.query.root):
        cure = "AverageValue divides the value among the pods: use metricType Value, or a sum"
    else:
        cure = "lower the threshold"
    if values.high <= made.threshold and found.highest <= low:
        message = f"never fires: {why}; the threshold {made.threshold:g} is out of reach ({cure})"
        return subject.finding("trigger-never-fires", "error", "threshold", message, *evidence)
    if found.highest <= low:
        message = f"never scales out beyond {replicas_text(low)}: {why} ({cure})"
        return subject.finding("trigger-never-scales-out", "error", "threshold", message, *evidence)
    message = f"never scales beyond {found.highest} of {subject.max_replicas} replicas: {why} ({cure})"
    return subject.finding("trigger-limited", "warning", "threshold", message, *evidence)


def _asks(made: keda.Trigger, value: float) -> str:
    threshold = made.threshold
    if made.target_kind is TargetKind.AVERAGE_VALUE:
        return f"ceil({value:g} / {threshold:g}) = {replicas_text(math.ceil(value / threshold))} whatever runs now"
    return f"{value / threshold:.3g} times the ready replicas"


def _range(subject: Subject) -> str:
    """Where the bound comes from, when the query has one known metric with a range."""
    names = {selector.name for selector in subject.query.selectors()}
    metric = resolve(next(iter(names))) if len(names) == 1 else None
    if metric is None or metric.minimum is None or metric.maximum is None:
        return ""
    return f" ({metric.name}: {metric.minimum:g} to {metric.maximum:g} {metric.unit}".rstrip() + ")"


def _divided(subject: Subject, values: Interval) -> list[Finding]:
    """A latency or an average divided among the pods: more pods do not bring the value down to a target."""
    root, made = subject.query.root, subject.trigger
    known = any(resolve(selector.name) is not None for selector in subject.query.selectors())
    if made.target_kind is not TargetKind.AVERAGE_VALUE or additive(root) or not known:
        return []
    if not _is_level(root):
        return []
    message = (
        f"AverageValue asks for ceil(value / {made.threshold:g}) replicas whatever runs now, but the query "
        "is a level (average, extreme or quantile), not a total: use metricType Value, or a sum"
    )
    return [subject.finding("averagevalue-divides-level", "warning", "", message)]


def _is_level(node: Node) -> bool:
    if isinstance(node, Aggregate):
        return node.op in ("avg", "min", "max")
    return isinstance(node, Call) and node.function in (
        "histogram_quantile",
        "avg_over_time",
        "max_over_time",
    )


def _of_activation(subject: Subject) -> list[Finding]:
    """From zero or idle the workload wakes only above the activation threshold."""
    spec, highest = subject.owner.spec, bounds(subject.query.root).high
    if spec.min_replica_count > 0 and spec.idle_replica_count is None:
        return []
    if highest > subject.trigger.activation_threshold:
        return []
    message = (
        f"never activates the workload: the query is at most {highest:g}{_range(subject)}, and only values above "
        f"{subject.trigger.activation_threshold:g} activate"
    )
    key = "activationThreshold"
    return [subject.finding("trigger-never-activates", "error", key, message, ("highest value", highest))]


def _of_ratio(subject: Subject) -> list[Finding]:
    """Used divided by free memory: not a share, and without bound."""
    for node in walk(subject.query.root):
        if not (isinstance(node, Binary) and node.op == "/"):
            continue
        if (_metric_of(node.lhs), _metric_of(node.rhs)) != ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"):
            continue
        share = subject.trigger.threshold / (1 + subject.trigger.threshold)
        message = (
            f"used / free is not a share of memory: {subject.trigger.threshold:g} is reached at {share:.0%} "
            "used; use used / (used + free). Engines that preallocate memory stay above it for ever"
        )
        return [subject.finding("memory-ratio", "error", "query", message, ("share used", share))]
    return []


def _metric_of(node: Node) -> str:
    if isinstance(node, Selector):
        return node.name
    if isinstance(node, Window):
        return node.selector.name
    if isinstance(node, Aggregate):
        return _metric_of(node.expr)
    return ""


def _of_null_values(subject: Subject) -> list[Finding]:
    if "ignoreNullValues" in subject.owner.spec.triggers[subject.index].metadata:
        return []
    message = "no data counts as 0 (ignoreNullValues is true by default): a dead exporter scales in"
    if subject.owner.spec.fallback is not None:
        message += "; the fallback acts only while Prometheus itself does not answer"
    return [subject.finding("trigger-no-data-is-zero", "info", "", message)]
