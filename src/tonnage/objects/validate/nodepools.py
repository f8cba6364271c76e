"""Karpenter's NodePools and NodeOverlays.

Sources: kubernetes-sigs/karpenter pkg/apis/v1/nodepool.go, nodeclaim.go, labels.go and pkg/apis/v1alpha1/nodeoverlay.go
(v1.14), whose markers are the rules of the CRDs.
"""

from __future__ import annotations

import csv
import re
from functools import cache
from importlib import resources

from tonnage.facts.labels import HOSTNAME, NODE_POOL
from tonnage.objects.api.errors import qualified_faults, value_faults
from tonnage.objects.karpenter import (
    Budget,
    Disruption,
    NodeClaimTemplateSpec,
    NodeOverlay,
    NodePool,
    NodeRequirement,
)
from tonnage.objects.validate.common import INT64_MAX, LISTED, UNLISTED, Report

_POLICIES = ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced")
_REASONS = ("Underutilized", "Empty", "Drifted")
_BOUNDS = ("Gt", "Lt", "Gte", "Lte")
RESTRICTED_DOMAINS = ("karpenter.sh", "karpenter.k8s.aws")

_WAIT = re.compile(r"([0-9]+(s|m|h))+|Never")
_GRACE = re.compile(r"([0-9]+(s|m|h))+")
NODES = re.compile(r"(100|[0-9]{1,2})%|[0-9]+")
_CRON_NAME = re.compile(r"@(annually|yearly|monthly|weekly|daily|midnight|hourly)")
_BUDGET_DURATION = re.compile(r"([0-9]+h|[0-9]+m|[0-9]+h[0-9]+m)(0s)?")
_PRICE = re.compile(r"[0-9]+(\.[0-9]+)?")
_ADJUSTMENT = re.compile(r"[+-][0-9]*\.?[0-9]+|\+[0-9]*\.?[0-9]+%|-[0-9]{1,2}(\.[0-9]+)?%|-100%")
_NOT_OF_OVERLAYS = tuple(
    f"karpenter.k8s.aws/{name}" for name in ("instance-tenancy", "capacity-reservation-", "placement-group-")
)
"""How labels begin that a NodePool may ask for and a NodeOverlay may not."""
_OWN_RESOURCES = ("cpu", "memory", "ephemeral-storage", "pods")
_MAX_REQUIREMENTS = 100
_MAX_BUDGETS = 50
_MAX_MIN_VALUES = 50


def node_pool(obj: NodePool, report: Report) -> None:
    spec = obj.spec
    report.within("spec.weight", spec.weight, 1, 100)
    report.within("spec.replicas", spec.replicas, 0, INT64_MAX)
    for name, written in spec.limits.items():
        report.quantity(f"spec.limits.{name}", written)
    if spec.replicas is not None:
        if spec.weight is not None:
            report.add(
                "spec.weight", "weight is set together with replicas", "a static NodePool has no weight: remove it"
            )
        for name in spec.limits:
            if name != "nodes":
                report.add(f"spec.limits.{name}", "a static NodePool can only limit nodes", "use limits.nodes")
    labels = spec.template.metadata.labels
    report.labels("spec.template.metadata.labels")
    for key in labels:
        _restricted(f"spec.template.metadata.labels.{key}", key, report)
    _template(spec.template.spec, report)
    _disruption(spec.disruption, report)


def _template(template: NodeClaimTemplateSpec, report: Report) -> None:
    path = "spec.template.spec"
    count = len(template.requirements)
    if count > _MAX_REQUIREMENTS:
        report.add(
            f"{path}.requirements",
            f"{count} requirements: expected at most {_MAX_REQUIREMENTS}",
            "merge some",
        )
    for index, requirement in enumerate(template.requirements):
        _requirement(f"{path}.requirements[{index}]", requirement, report)
    report.taints(f"{path}.taints", f"{path}.startupTaints")
    reference = template.node_class_ref
    for name, value in (("group", reference.group), ("kind", reference.kind), ("name", reference.name)):
        report.not_empty(f"{path}.nodeClassRef.{name}", value)
    if "/" in reference.group:
        hint = "the version is left out"
        report.refuse(f"{path}.nodeClassRef.group", reference.group, "a group, e.g. karpenter.k8s.aws", hint)
    _matches(f"{path}.expireAfter", template.expire_after, _WAIT, "e.g. 720h, 30m or Never", report)
    if template.termination_grace_period is not None:
        grace = template.termination_grace_period
        _matches(f"{path}.terminationGracePeriod", grace, _GRACE, "e.g. 48h or 30m", report)


def _requirement(path: str, requirement: NodeRequirement, report: Report, *, pool_too: bool = False) -> None:
    """``pool_too``: the label of the NodePool may be named as well."""
    named = pool_too and requirement.key == NODE_POOL
    if report.matches(f"{path}.key", requirement.key, qualified_faults) and not named:
        _restricted(f"{path}.key", requirement.key, report)
    operator, values = requirement.operator, requirement.values
    if report.one_of(f"{path}.operator", operator, (*LISTED, *UNLISTED, *_BOUNDS)):
        if operator == "In" and not values:
            report.add(f"{path}.values", "In needs at least one value", "list the values")
        elif operator in _BOUNDS and (len(values) != 1 or not re.fullmatch("[0-9]+", values[0])):
            expected = "one whole number of at least 0, as a string"
            report.refuse(f"{path}.values", values, expected, 'e.g. values: ["4"]')
    for index, value in enumerate(values):
        report.matches(f"{path}.values[{index}]", value, value_faults)
    report.within(f"{path}.minValues", requirement.min_values, 1, _MAX_MIN_VALUES)
    if operator == "In" and requirement.min_values is not None and len(values) < requirement.min_values:
        expected = f"at most the number of values, {len(values)}"
        report.refuse(f"{path}.minValues", requirement.min_values, expected, "list more values")


def _restricted(field: str, key: str, report: Report) -> None:
    """Labels that Karpenter keeps for itself."""
    domain = key.partition("/")[0] if "/" in key else ""
    reserved = any(domain == one or domain.endswith(f".{one}") for one in RESTRICTED_DOMAINS)
    if key == HOSTNAME or (reserved and key not in _well_known()):
        hint = "use a well-known label or a domain of your own"
        report.refuse(field, key, "a label that Karpenter does not keep for itself", hint)


@cache
def _well_known() -> frozenset[str]:
    text = resources.files("tonnage.objects").joinpath("data/karpenter_labels.csv").read_text(encoding="utf-8")
    return frozenset(row["key"] for row in csv.DictReader(text.splitlines()))


def _disruption(disruption: Disruption, report: Report) -> None:
    path = "spec.disruption"
    if report.is_written(path):
        report.required(f"{path}.consolidateAfter")
    policy = disruption.consolidation_policy
    hint = "v1beta1's WhenUnderutilized is WhenEmptyOrUnderutilized in v1" if policy == "WhenUnderutilized" else ""
    report.one_of(f"{path}.consolidationPolicy", policy, _POLICIES, hint)
    _matches(f"{path}.consolidateAfter", disruption.consolidate_after, _WAIT, "e.g. 30s, 1h30m or Never", report)
    if len(disruption.budgets) > _MAX_BUDGETS:
        message = f"{len(disruption.budgets)} budgets: expected at most {_MAX_BUDGETS}"
        report.add(f"{path}.budgets", message, "merge some")
    for index, budget in enumerate(disruption.budgets):
        _budget(f"{path}.budgets[{index}]", budget, report)


def _budget(path: str, budget: Budget, report: Report) -> None:
    _matches(f"{path}.nodes", budget.nodes, NODES, '"10%" up to "100%", or a number as "5"', report)
    for index, reason in enumerate(budget.reasons):
        report.one_of(f"{path}.reasons[{index}]", reason, _REASONS)
    if (budget.schedule is None) != (budget.duration is None):
        given, other = ("schedule", "duration") if budget.duration is None else ("duration", "schedule")
        report.add(f"{path}.{given}", f"{given} without {other}", "set both or neither")
    if budget.schedule is not None and not _CRON_NAME.fullmatch(budget.schedule):
        fields = budget.schedule.split()
        if len(fields) != 5 or fields[0].startswith(("TZ=", "CRON_TZ=", "@")):
            expected = "the 5 fields of cron or one of @hourly, @daily, @weekly, @monthly, @yearly"
            report.refuse(f"{path}.schedule", budget.schedule, expected, 'e.g. "0 9 * * 1-5"; times are UTC')
    if budget.duration is not None:
        _matches(
            f"{path}.duration",
            budget.duration,
            _BUDGET_DURATION,
            "hours and minutes, e.g. 8h or 1h30m",
            report,
        )


def _matches(field: str, text: str, pattern: re.Pattern[str], expected: str, report: Report) -> None:
    if not pattern.fullmatch(text):
        report.refuse(field, text, expected)


def node_overlay(obj: NodeOverlay, report: Report) -> None:
    spec = obj.spec
    if len(spec.requirements) > _MAX_REQUIREMENTS:
        message = f"{len(spec.requirements)} requirements: expected at most {_MAX_REQUIREMENTS}"
        report.add("spec.requirements", message, "merge some")
    for index, requirement in enumerate(spec.requirements):
        path = f"spec.requirements[{index}]"
        _requirement(path, requirement, report, pool_too=True)
        if requirement.key.startswith(_NOT_OF_OVERLAYS):
            report.refuse(f"{path}.key", requirement.key, "a label that a NodeOverlay may select on")
        if requirement.operator == "NotIn" and not requirement.values:
            report.add(f"{path}.values", "NotIn needs at least one value", "list the values")
    if spec.price is not None and spec.price_adjustment is not None:
        report.add("spec.priceAdjustment", "price is given too", "set one of them")
    if spec.price is not None:
        _matches("spec.price", spec.price, _PRICE, 'an amount as a string, e.g. "1.25"', report)
    if spec.price_adjustment is not None:
        _matches(
            "spec.priceAdjustment", spec.price_adjustment, _ADJUSTMENT, 'e.g. "+0.5", "-0.5", "+10%" or "-15%"', report
        )
    for name, written in spec.capacity.items():
        if name in _OWN_RESOURCES:
            report.refuse(f"spec.capacity.{name}", name, "an extended resource", "what machines have cannot be changed")
        report.quantity(f"spec.capacity.{name}", written)
    report.within("spec.weight", spec.weight, 1, 10_000)
