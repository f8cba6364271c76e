"""What kube-apiserver refuses of affinities, tolerations, spread constraints and taints.

Source: kubernetes/kubernetes v1.36 pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from tonnage.objects.api.errors import (
    FieldError,
    forbidden,
    invalid_value,
    label_faults,
    one_of,
    placed,
    qualified_faults,
    required,
    said,
    selector,
    show,
    unsupported,
    value_faults,
)

JsonObject: TypeAlias = dict[str, Any]

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
BOTH = "exists in both matchLabelKeys and labelSelector"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def affinity(path: str, given: JsonObject) -> list[FieldError]:
    causes: list[FieldError] = []
    node = given.get("nodeAffinity") or {}
    needed = node.get(REQUIRED)
    if needed is not None:
        causes += node_selector(f"{path}.nodeAffinity.{REQUIRED}", needed)
    for index, wish in enumerate(node.get(PREFERRED) or ()):
        here = f"{path}.nodeAffinity.{PREFERRED}[{index}]"
        causes += _weight(here, wish)
        causes += _node_term(f"{here}.preference", wish.get("preference") or {})
    for name in ("podAffinity", "podAntiAffinity"):
        part = given.get(name) or {}
        for index, term in enumerate(part.get(REQUIRED) or ()):
            causes += _pod_term(f"{path}.{name}.{REQUIRED}[{index}]", term)
        for index, wish in enumerate(part.get(PREFERRED) or ()):
            here = f"{path}.{name}.{PREFERRED}[{index}]"
            causes += _weight(here, wish)
            causes += _pod_term(f"{here}.podAffinityTerm", wish.get("podAffinityTerm") or {})
    return causes


def node_selector(path: str, given: JsonObject) -> list[FieldError]:
    """A core/v1 NodeSelector."""
    terms, here = given.get("nodeSelectorTerms") or [], f"{path}.nodeSelectorTerms"
    causes = [] if terms else [required(here, "must have at least one node selector term")]
    for index, term in enumerate(terms):
        causes += _node_term(f"{here}[{index}]", term)
    return causes


def _weight(path: str, wish: JsonObject) -> list[FieldError]:
    weight = wish.get("weight", 0)
    return [] if 1 <= weight <= 100 else [invalid_value(f"{path}.weight", weight, "must be in the range 1-100")]


def _pod_term(path: str, term: JsonObject) -> list[FieldError]:
    causes: list[FieldError] = []
    for name in ("labelSelector", "namespaceSelector"):
        if term.get(name) is not None:
            causes += selector(f"{path}.{name}", term[name])
    causes += _label_keys(path, term)
    for index, namespace in enumerate(term.get("namespaces") or ()):
        own = said(f"{path}.namespace", namespace, label_faults(namespace))
        causes += placed(own, f"{path}.namespaces[{index}]")
    key = term.get("topologyKey") or ""
    if not key:
        causes.append(required(f"{path}.topologyKey", "can not be empty"))
    causes += said(f"{path}.topologyKey", key, qualified_faults(key))
    return causes


def _label_keys(path: str, term: JsonObject) -> list[FieldError]:
    """matchLabelKeys and mismatchLabelKeys of a pod affinity term or a spread constraint, whose selector has those
    keys already that the pod's labels have (:mod:`tonnage.objects.api.label_keys`)."""
    causes: list[FieldError] = []
    matched = term.get("matchLabelKeys") or []
    for name in ("matchLabelKeys", "mismatchLabelKeys"):
        keys = term.get(name) or []
        if keys and term.get("labelSelector") is None:
            causes.append(forbidden(f"{path}.{name}", "must not be specified when labelSelector is not set"))
            continue
        for index, key in enumerate(keys):
            causes += said(f"{path}.{name}[{index}]", key, qualified_faults(key))
    chosen = term.get("labelSelector") or {}
    number, seen = {key: index for index, key in enumerate(matched)}, set(chosen.get("matchLabels") or ())
    for wanted in chosen.get("matchExpressions") or ():
        key = wanted.get("key", "")
        if key in number and key in seen:
            at = f"{path}.matchLabelKeys[{number[key]}]"
            causes += placed([invalid_value(f"{path}[{number[key]}]", key, BOTH)], at)
        seen.add(key)
    for index, key in enumerate(matched):
        if key in (term.get("mismatchLabelKeys") or ()):
            why = "exists in both matchLabelKeys and mismatchLabelKeys"
            causes.append(invalid_value(f"{path}.matchLabelKeys[{index}]", key, why))
    return causes


def _node_term(path: str, term: JsonObject) -> list[FieldError]:
    causes: list[FieldError] = []
    for index, wanted in enumerate(term.get("matchExpressions") or ()):
        here = f"{path}.matchExpressions[{index}]"
        operator, values = wanted.get("operator", ""), wanted.get("values") or []
        if operator in ("In", "NotIn"):
            if not values:
                causes.append(required(f"{here}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                causes.append(forbidden(f"{here}.values", why))
        elif operator in ("Gt", "Lt"):
            if len(values) != 1:
                why = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                causes.append(required(f"{here}.values", why))
        else:
            causes.append(invalid_value(f"{here}.operator", operator, "not a valid selector operator"))
        key = wanted.get("key") or ""
        causes += said(f"{here}.key", key, qualified_faults(key))
    for index, wanted in enumerate(term.get("matchFields") or ()):
        here = f"{path}.matchFields[{index}]"
        if wanted.get("operator") not in ("In", "NotIn"):
            causes.append(
                invalid_value(f"{here}.operator", wanted.get("operator", ""), "not a valid selector operator")
            )
        elif len(wanted.get("values") or ()) != 1:
            why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            causes.append(required(f"{here}.values", why))
        if wanted.get("key") != "metadata.name":
            causes.append(invalid_value(f"{here}.key", wanted.get("key", ""), "not a valid field selector key"))
    return causes


def tolerations(path: str, given: list[JsonObject]) -> list[FieldError]:
    causes: list[FieldError] = []
    for index, toleration in enumerate(given):
        here = f"{path}[{index}]"
        key, operator, value = (toleration.get(name) or "" for name in ("key", "operator", "value"))
        effect = toleration.get("effect") or ""
        if key:
            causes += said(f"{here}.key", key, qualified_faults(key))
        elif operator != "Exists":
            why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            causes.append(invalid_value(f"{here}.operator", operator, why))
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            causes.append(invalid_value(f"{here}.effect", effect, why))
        if operator in ("", "Equal"):
            causes += placed(said(f"{here}.operator", value, value_faults(value)), f"{here}.value")
        elif operator == "Exists":
            if value:
                wrong = invalid_value(f"{here}.operator", value, "value must be empty when `operator` is 'Exists'")
                causes += placed([wrong], f"{here}.value")
        else:
            known = ("Equal", "Exists", "Lt", "Gt") if operator in ("Lt", "Gt") else ("Equal", "Exists")
            causes.append(unsupported(f"{here}.operator", operator, known))
        if effect:
            causes += one_of(f"{here}.effect", effect, EFFECTS)
    return causes


def spread(path: str, given: list[JsonObject]) -> list[FieldError]:
    causes: list[FieldError] = []
    seen: set[tuple[Any, Any]] = set()
    for index, constraint in enumerate(given):
        here = f"{path}[{index}]"
        skew, key, when = (constraint.get(name) for name in ("maxSkew", "topologyKey", "whenUnsatisfiable"))
        if not skew or skew < 1:
            causes.append(invalid_value(f"{here}.maxSkew", skew or 0, "must be greater than zero"))
        if not key:
            causes.append(required(f"{here}.topologyKey", "can not be empty"))
        else:
            causes += said(f"{here}.topologyKey", key, qualified_faults(key))
        causes += one_of(f"{here}.whenUnsatisfiable", when or "", ("DoNotSchedule", "ScheduleAnyway"))
        if (key, when) in seen:
            pair = f"{{{key}, {when}}}"
            whole = f"{here}.{{topologyKey, whenUnsatisfiable}}"
            causes.append(FieldError("FieldValueDuplicate", f"Duplicate value: {show(pair)}", whole, pair, at=here))
        seen.add((key, when))
        domains = constraint.get("minDomains")
        if domains is not None:
            if domains < 1:
                causes.append(invalid_value(f"{here}.minDomains", domains, "must be greater than zero"))
            if when != "DoNotSchedule":
                why = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {when}"
                causes.append(invalid_value(f"{here}.minDomains", domains, why))
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            causes += one_of(f"{here}.{name}", constraint.get(name), ("Honor", "Ignore"))
        if constraint.get("labelSelector") is not None:
            causes += selector(f"{here}.labelSelector", constraint["labelSelector"])
        causes += _label_keys(here, constraint)
    return causes


def taints(path: str, given: list[JsonObject], seen: set[tuple[Any, Any]] | None = None) -> list[FieldError]:
    """A node's taints; kube-apiserver says metadata.taints for spec.taints. ``seen``: key and effect of others that
    stand beside them, to which these are added."""
    causes: list[FieldError] = []
    seen = set() if seen is None else seen
    for index, taint in enumerate(given):
        here = f"{path}[{index}]"
        key, value, effect = (taint.get(name) or "" for name in ("key", "value", "effect"))
        causes += said(f"{here}.key", key, qualified_faults(key))
        causes += said(f"{here}.value", value, value_faults(value))
        if not effect:
            causes.append(required(f"{here}.effect"))
        else:
            causes += one_of(f"{here}.effect", effect, EFFECTS)
        if (key, effect) in seen:
            shown = f'{{"Key":{show(key)},"Value":{show(value)},"Effect":{show(effect)},"TimeAdded":null}}'
            message = f"Duplicate value: {shown}: taints must be unique by key and effect pair"
            causes.append(FieldError("FieldValueDuplicate", message, here, f"{key}:{effect}"))
        seen.add((key, effect))
    return causes
