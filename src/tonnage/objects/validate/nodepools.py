"""Karpenter's NodePools and EC2NodeClasses.

Sources: kubernetes-sigs/karpenter pkg/apis/v1/nodepool.go, nodeclaim.go, labels.go (v1.14) and
aws/karpenter-provider-aws pkg/apis/v1/ec2nodeclass.go (v1.14), whose markers are the rules of the CRDs.
"""

from __future__ import annotations

import csv
import re
from functools import cache
from importlib import resources

from tonnage.facts.labels import HOSTNAME
from tonnage.objects.api.errors import qualified_faults, value_faults
from tonnage.objects.karpenter import (
    Budget,
    Disruption,
    EC2NodeClass,
    NodeClaimTemplateSpec,
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
_ALIAS = re.compile(r"(al2|al2023|bottlerocket)@.+|(windows2019|windows2022|windows2025)@latest")
_VOLUME_TYPES = ("standard", "io1", "io2", "gp2", "sc1", "st1", "gp3")
_MAX_REQUIREMENTS = 100
_MAX_BUDGETS = 50
_MAX_MIN_VALUES = 50
_MAX_TERMS = 30


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


def _requirement(path: str, requirement: NodeRequirement, report: Report) -> None:
    if report.matches(f"{path}.key", requirement.key, qualified_faults):
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


def ec2_node_class(obj: EC2NodeClass, report: Report) -> None:
    spec = obj.spec
    terms = (
        ("amiSelectorTerms", len(spec.ami_selector_terms)),
        ("subnetSelectorTerms", len(spec.subnet_selector_terms)),
        ("securityGroupSelectorTerms", len(spec.security_group_selector_terms)),
    )
    for name, count in terms:
        if not 1 <= count <= _MAX_TERMS:
            report.add(f"spec.{name}", f"{count} terms: expected 1 to {_MAX_TERMS}", "name what to select")
    if bool(spec.role) == bool(spec.instance_profile):
        report.add("spec.role", "expected either role or instanceProfile", "set exactly one of them")
    for index, term in enumerate(spec.ami_selector_terms):
        if term.alias:
            path = f"spec.amiSelectorTerms[{index}].alias"
            _matches(path, term.alias, _ALIAS, "family@version, e.g. al2023@latest", report)
            if len(spec.ami_selector_terms) > 1:
                report.add(path, "an alias is combined with other terms", "an alias must be the only term")
    if not spec.ami_family and not any(term.alias for term in spec.ami_selector_terms):
        report.add("spec.amiFamily", "the field is missing", "it is needed without an alias")
    for index, mapping in enumerate(spec.block_device_mappings):
        if mapping.ebs is not None:
            path = f"spec.blockDeviceMappings[{index}].ebs"
            report.one_of(f"{path}.volumeType", mapping.ebs.volume_type, _VOLUME_TYPES)
            report.positive_quantity(f"{path}.volumeSize", mapping.ebs.volume_size)
    if spec.instance_store_policy:
        report.one_of("spec.instanceStorePolicy", spec.instance_store_policy, ("RAID0",))
