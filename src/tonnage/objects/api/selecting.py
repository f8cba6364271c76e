"""What kube-apiserver refuses of the selector of a workload, beside the labels of its pod template."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from tonnage.objects import core, selectors
from tonnage.objects.api.errors import FieldError, invalid_value, required, selector

JsonObject: TypeAlias = dict[str, Any]


def selector_of_template(spec: JsonObject, empty: str, *, needed: bool) -> list[FieldError]:
    """The selector, and whether the template's labels match it."""
    given = spec.get("selector")
    template = spec.get("template") or {}
    worn = (template.get("metadata") or {}).get("labels")
    mismatch = invalid_value("spec.template.metadata.labels", worn, "`selector` does not match template `labels`")
    if given is None:
        return [required("spec.selector"), mismatch] if needed else [mismatch]
    causes = selector("spec.selector", given)
    if not given.get("matchLabels") and not given.get("matchExpressions"):
        causes.append(invalid_value("spec.selector", given, empty))
    if causes:
        faulty = any(cause.field.startswith("spec.selector.") for cause in causes)
        return [*causes, invalid_value("spec.selector", given, "invalid label selector")] if faulty else causes
    wanted = msgspec.convert(given, core.LabelSelector)
    return [] if selectors.matches(wanted, worn or {}) else [mismatch]
