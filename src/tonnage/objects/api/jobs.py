"""What kube-apiserver v1.36 refuses of a Job.

Source: kubernetes/kubernetes v1.36 pkg/apis/batch/validation.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, TypeAlias

import msgspec

from tonnage.facts.labels import JOB_UID
from tonnage.objects import core, selectors
from tonnage.objects.api.errors import (
    FieldError,
    at_least_zero,
    duplicate,
    invalid_value,
    one_of,
    qualified_faults,
    required,
    said,
    selector,
    show,
    subdomain_faults,
    template_metadata,
    unsupported,
)
from tonnage.objects.api.pods import pod_spec

JsonObject: TypeAlias = dict[str, Any]

_COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_ENDS = ("OnFailure", "Never")
_INDEXED = "Indexed"
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_MOST_AT_ONCE = 100_000


def job(obj: JsonObject) -> list[FieldError]:
    """Everything that is wrong with a Job."""
    spec = obj.get("spec") or {}
    return _generated_selector(obj, spec) + job_spec("spec", spec) + _selector(spec)


def job_spec(path: str, spec: JsonObject) -> list[FieldError]:
    """Everything below a Job's ``spec``, which stands at ``path``, but for its selector."""
    causes: list[FieldError] = []
    for name in _COUNTS:
        causes += at_least_zero(f"{path}.{name}", spec.get(name))
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        causes.append(required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    if spec.get("managedBy") is not None:
        causes += _manager(f"{path}.managedBy", spec["managedBy"])
    causes += _mode(path, spec)
    policy = spec.get("podFailurePolicy")
    if policy is not None:
        for index, rule in enumerate(policy.get("rules") or ()):
            causes += _failure(f"{path}.podFailurePolicy.rules[{index}]", rule, spec)
    if spec.get("successPolicy") is not None:
        causes += _success(f"{path}.successPolicy.rules", spec)
    replacing: tuple[str, ...] = ("Failed", "TerminatingOrFailed") if policy is None else ("Failed",)
    causes += one_of(f"{path}.podReplacementPolicy", spec.get("podReplacementPolicy"), replacing)
    return causes + _template(path, spec)


def _manager(path: str, name: str) -> list[FieldError]:
    domain, _, rest = name.partition("/")
    if domain and rest and not subdomain_faults(domain):
        return []
    return [invalid_value(path, name, 'must be a domain-prefixed path (such as "acme.io/foo")')]


def _listed(path: str, value: Any, names: tuple[str, ...]) -> list[FieldError]:
    if value:
        return one_of(path, value, names)
    quoted = " ".join(f'"{name}"' for name in names)
    return [required(path, f"valid values: [{quoted}]")]


def _failure(path: str, rule: JsonObject, spec: JsonObject) -> list[FieldError]:
    action, codes, conditions = rule.get("action"), rule.get("onExitCodes"), rule.get("onPodConditions") or []
    causes = _listed(f"{path}.action", action, _ACTIONS)
    if action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        causes.append(invalid_value(f"{path}.action", action, "requires the backoffLimitPerIndex to be set"))
    if codes is not None:
        causes += _exit_codes(f"{path}.onExitCodes", codes, spec)
    for index, condition in enumerate(conditions):
        here, kind = f"{path}.onPodConditions[{index}]", condition.get("type") or ""
        causes += said(f"{here}.type", kind, qualified_faults(kind))
        causes += _listed(f"{here}.status", condition.get("status"), ("False", "True", "Unknown"))
    if (codes is not None) == bool(conditions):
        both = "specifying both OnExitCodes and OnPodConditions is not supported"
        why = both if conditions else "specifying one of OnExitCodes and OnPodConditions is required"
        causes.append(FieldError("FieldValueInvalid", f"Invalid value: {why}", path, rule, why))
    return causes


def _exit_codes(path: str, codes: JsonObject, spec: JsonObject) -> list[FieldError]:
    causes = _listed(f"{path}.operator", codes.get("operator"), ("In", "NotIn"))
    inner = (spec.get("template") or {}).get("spec") or {}
    names = [one.get("name") for part in ("containers", "initContainers") for one in inner.get(part) or ()]
    name, values = codes.get("containerName"), codes.get("values") or []
    if name is not None and name not in names:
        why = "must be one of the container or initContainer names in the pod template"
        causes.append(invalid_value(f"{path}.containerName", name, why))
    if not values:
        causes.append(invalid_value(f"{path}.values", values, "at least one value is required"))
    seen: set[int] = set()
    for index, value in enumerate(values):
        if value in seen:
            causes.append(duplicate(f"{path}.values[{index}]", value))
        elif codes.get("operator") == "In" and value == 0:
            causes.append(invalid_value(f"{path}.values[{index}]", value, "must not be 0 for the In operator"))
        seen.add(value)
    if list(values) != sorted(values):
        causes.append(invalid_value(f"{path}.values", values, "must be ordered"))
    return causes


def _success(path: str, spec: JsonObject) -> list[FieldError]:
    """The rules by which a Job has succeeded early."""
    rules = spec["successPolicy"].get("rules") or []
    if not rules:
        return [required(path, "at least one rules must be specified when the successPolicy is specified")]
    causes: list[FieldError] = []
    for index, rule in enumerate(rules):
        here, count = f"{path}[{index}]", rule.get("succeededCount")
        if count is None and rule.get("succeededIndexes") is None:
            why = "at least one of succeededCount or succeededIndexes must be specified"
            causes.append(required(here, why))
        listed = rule.get("succeededIndexes")
        if listed:
            number, wrong = _indexes(listed, spec.get("completions"))
            if wrong:
                why = f"error parsing succeededIndexes: {wrong}"
                causes.append(invalid_value(f"{here}.succeededIndexes", listed, why))
            elif count is not None and count > number:
                why = f"must be less than or equal to {number} (the number of indexes in the specified "
                causes.append(invalid_value(f"{here}.succeededCount", count, f"{why}succeededIndexes field)"))
        if count is not None and spec.get("completions") is not None and count > spec["completions"]:
            why = f"must be less than or equal to {spec['completions']} (the number of specified completions)"
            causes.append(invalid_value(f"{here}.succeededCount", count, why))
    return causes


def _indexes(text: str, completions: int | None) -> tuple[int, str]:
    """How many indexes a list such as ``0,2-4`` has, and what is wrong with it, empty for nothing."""
    number, last = 0, -1
    for fragment in text.split(","):
        parts = fragment.split("-")
        if len(parts) > 2:
            rule = "violates the requirement that an index interval can have at most two parts separated by '-'"
            return 0, f'the fragment "{fragment}" {rule}'
        ends: list[int] = []
        for part in parts:
            if not re.fullmatch(r"\+?[0-9]+", part):
                return 0, f'cannot convert string to integer for index: "{part}"'
            index = int(part)
            if completions is not None and index >= completions:
                return 0, f'too large index: "{part}"'
            if index <= last:
                return 0, f"non-increasing order, previous: {last}, current: {index}"
            ends.append(index)
            last = index
        number += ends[-1] - ends[0] + 1
    return number, ""


def _generated_selector(obj: JsonObject, spec: JsonObject) -> list[FieldError]:
    if spec.get("manualSelector"):
        return []
    uid = obj["metadata"].get("uid", "")
    wanted = ((spec.get("selector") or {}).get("matchLabels") or {}).get(JOB_UID)
    why = "`selector` not auto-generated"
    return [] if wanted == uid else [invalid_value("spec.selector", spec.get("selector"), why)]


def _mode(path: str, spec: JsonObject) -> list[FieldError]:
    mode = spec.get("completionMode")
    causes = one_of(f"{path}.completionMode", mode, ("NonIndexed", _INDEXED))
    if mode == _INDEXED:
        if spec.get("completions") is None:
            causes.append(required(f"{path}.completions", f"when completion mode is {_INDEXED}"))
        if (spec.get("parallelism") or 0) > _MOST_AT_ONCE:
            why = f"must be less than or equal to {_MOST_AT_ONCE} when completion mode is {_INDEXED}"
            causes.append(invalid_value(f"{path}.parallelism", spec["parallelism"], why))
        most = spec.get("maxFailedIndexes")
        if most is not None and spec.get("completions") is not None and most > spec["completions"]:
            why = "must be less than or equal to completions"
            causes.append(invalid_value(f"{path}.maxFailedIndexes", most, why))
        return causes
    for name in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
        if spec.get(name) is not None:
            wrong = invalid_value(f"{path}.{name}", spec[name], "requires indexed completion mode")
            shown = _rules_shown(spec[name]) if name == "successPolicy" else show(spec[name])
            causes.append(replace(wrong, message=f"Invalid value: {shown}: {wrong.why}"))
    return causes


def _rules_shown(policy: JsonObject) -> str:
    """A success policy in the form of kube-apiserver's own struct."""
    names = ("SucceededIndexes", "SucceededCount")
    rules = [{name: rule.get(f"s{name[1:]}") for name in names} for rule in policy.get("rules") or ()]
    return json.dumps({"Rules": rules}, separators=(",", ":"))


def _template(above: str, spec: JsonObject) -> list[FieldError]:
    template, path = spec.get("template") or {}, f"{above}.template.spec"
    inner = template.get("spec") or {}
    causes = template_metadata(f"{above}.template.metadata", template.get("metadata") or {}, short=True)
    causes += pod_spec(path, inner)
    policy = inner.get("restartPolicy", "Always")
    if policy == "Always":
        valid = ", ".join(f'"{one}"' for one in _ENDS)
        causes.append(required(f"{path}.restartPolicy", f"valid values: {valid}"))
    elif policy not in _ENDS:
        causes.append(unsupported(f"{path}.restartPolicy", policy, _ENDS))
    elif spec.get("podFailurePolicy") is not None and policy != "Never":
        why = 'only "Never" is supported when podFailurePolicy is specified'
        causes.append(invalid_value(f"{path}.restartPolicy", policy, why))
    return causes


def _selector(spec: JsonObject) -> list[FieldError]:
    given = spec.get("selector")
    causes = [required("spec.selector")] if given is None else selector("spec.selector", given)
    worn = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    fits = given is not None and (causes or selectors.matches(msgspec.convert(given, core.LabelSelector), worn))
    if not fits:
        why = "`selector` does not match template `labels`"
        causes.append(invalid_value("spec.template.metadata.labels", worn, why))
    return causes
