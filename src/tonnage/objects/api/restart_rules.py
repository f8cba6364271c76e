"""What kube-apiserver refuses of a container's restartPolicyRules.

Source: kubernetes/kubernetes v1.36 pkg/apis/core/validation/validation.go, validateContainerRestartPolicy.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from tonnage.objects.api.device_names import too_many
from tonnage.objects.api.errors import FieldError, required, unsupported

JsonObject: TypeAlias = dict[str, Any]

_MOST_RULES, _MOST_CODES = 20, 255
_ACTIONS = ("Restart", "RestartAllContainers")
_OPERATORS = ("In", "NotIn")


def restart_rules(path: str, container: JsonObject) -> list[FieldError]:
    """The rules of the container at ``path``, and the restartPolicy that it must have beside them."""
    rules = container.get("restartPolicyRules") or []
    if not rules:
        return []
    found: list[FieldError] = []
    if container.get("restartPolicy") is None:
        found.append(required(f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used"))
    found += too_many(f"{path}.restartPolicyRules", len(rules), _MOST_RULES)
    for number, rule in enumerate(rules):
        here = f"{path}.restartPolicyRules[{number}]"
        action = rule.get("action") or ""
        if action not in _ACTIONS:
            found.append(unsupported(f"{here}.action", action, _ACTIONS))
        codes = rule.get("exitCodes")
        if codes is None:
            found.append(required(f"{here}.exitCodes", "must be specified"))
            continue
        operator = codes.get("operator") or ""
        if operator not in _OPERATORS:
            found.append(unsupported(f"{here}.exitCodes.operator", operator, _OPERATORS))
        found += too_many(f"{here}.exitCodes.values", len(codes.get("values") or []), _MOST_CODES)
    return found
