"""What kube-apiserver v1.36 refuses of a Job.

Source: kubernetes/kubernetes v1.36 pkg/apis/batch/validation; the rules of podFailurePolicy and successPolicy are not
looked into.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from tonnage.objects import core, selectors
from tonnage.objects.api.errors import (
    FieldError,
    at_least_zero,
    invalid_value,
    labels,
    one_of,
    required,
    selector,
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
_MOST_AT_ONCE = 100_000
_UID = "batch.kubernetes.io/controller-uid"


def job(obj: JsonObject) -> list[FieldError]:
    """Everything that is wrong with a Job."""
    spec = obj.get("spec") or {}
    causes = _generated_selector(obj, spec)
    for name in _COUNTS:
        causes += at_least_zero(f"spec.{name}", spec.get(name))
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        causes.append(required("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    causes += _mode(spec)
    if spec.get("podFailurePolicy") is not None:
        policies: tuple[str, ...] = ("Failed",)
    else:
        policies = ("Failed", "TerminatingOrFailed")
    causes += one_of("spec.podReplacementPolicy", spec.get("podReplacementPolicy"), policies)
    return causes + _template(spec) + _selector(spec)


def _generated_selector(obj: JsonObject, spec: JsonObject) -> list[FieldError]:
    if spec.get("manualSelector"):
        return []
    uid = obj["metadata"].get("uid", "")
    wanted = ((spec.get("selector") or {}).get("matchLabels") or {}).get(_UID)
    why = "`selector` not auto-generated"
    return [] if wanted == uid else [invalid_value("spec.selector", spec.get("selector"), why)]


def _mode(spec: JsonObject) -> list[FieldError]:
    mode = spec.get("completionMode")
    causes = one_of("spec.completionMode", mode, ("NonIndexed", _INDEXED))
    if mode == _INDEXED:
        if spec.get("completions") is None:
            causes.append(required("spec.completions", f"when completion mode is {_INDEXED}"))
        if (spec.get("parallelism") or 0) > _MOST_AT_ONCE:
            why = f"must be less than or equal to {_MOST_AT_ONCE} when completion mode is {_INDEXED}"
            causes.append(invalid_value("spec.parallelism", spec["parallelism"], why))
        return causes
    for name in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
        if spec.get(name) is not None:
            causes.append(invalid_value(f"spec.{name}", spec[name], "requires indexed completion mode"))
    return causes


def _template(spec: JsonObject) -> list[FieldError]:
    template, path = spec.get("template") or {}, "spec.template.spec"
    inner = template.get("spec") or {}
    causes = labels("spec.template.labels", (template.get("metadata") or {}).get("labels"))
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
