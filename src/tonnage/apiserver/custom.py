"""What the CRDs of custom kinds do: fill in defaults, and refuse what their schemas and rules do not allow.

Field rules are ``api_rules.csv``, worded as kube-openapi's validation words them. What CRDs say in CEL, and what
Karpenter's and KEDA's webhooks refuse, :mod:`tonnage.objects.validate` knows.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from tonnage.apiserver import definitions
from tonnage.errors import Problem, Where
from tonnage.kube.resources import CRDS, Resource
from tonnage.objects import karpenter, keda, monitoring
from tonnage.objects.api.errors import FieldError
from tonnage.objects.api.fields import SCALARS, FieldType, structs
from tonnage.objects.base import KubeObject, Origin
from tonnage.objects.decode import without_nulls
from tonnage.objects.validate import check

JsonObject: TypeAlias = dict[str, Any]

_KINDS: dict[str, type[KubeObject]] = {
    "NodePool": karpenter.NodePool,
    "NodeClaim": karpenter.NodeClaim,
    "EC2NodeClass": karpenter.EC2NodeClass,
    "ScaledObject": keda.ScaledObject,
    "ServiceMonitor": monitoring.ServiceMonitor,
}
_HAS_CEL = frozenset({"NodePool", "NodeClaim", "EC2NodeClass", "ScaledObject"})
_STRUCTURAL = frozenset({"FieldValueRequired", "FieldValueNotSupported", "FieldValueTypeInvalid"})
_SKIPPED = FieldError(
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
    "<nil>",
)
_JSON_TYPES = {
    "string": (str,),
    "time": (str,),
    "bytes": (str,),
    "int32": (int,),
    "int64": (int,),
    "bool": (bool,),
    "double": (int, float),
    "int-or-string": (int, str),
}
_OPENAPI = {
    "int32": "integer",
    "int64": "integer",
    "bool": "boolean",
    "double": "number",
    "int-or-string": "integer,string",
}
_NAMES = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array"), (dict, "object"))


def fill_in(resource: Resource, obj: JsonObject) -> None:
    """The defaults of the CRD's schema, in place."""
    _fill(obj, resource.struct)


def _fill(value: JsonObject, struct: str) -> None:
    for name, known in structs().get(struct, {}).items():
        own = known.rules.get("", {})
        if value.get(name) is None and "default" in own:
            value[name] = copy.deepcopy(own["default"])
        if name in value and known.of not in SCALARS and known.of != "ObjectMeta":
            for item in _leaves(value[name], known.shape):
                if isinstance(item, dict):
                    _fill(item, known.of)


def _leaves(value: Any, shape: tuple[str, ...]) -> Iterator[Any]:
    if not shape:
        yield value
    elif isinstance(value, list | dict):
        for item in value if isinstance(value, list) else value.values():
            yield from _leaves(item, shape[1:])


def refused(resource: Resource, obj: JsonObject) -> list[FieldError]:
    """What the schema refuses; when it refuses nothing, what the rules beyond it refuse."""
    if resource.open:
        return definitions.refused(obj) if resource == CRDS else []
    causes = list(_struct(obj, resource.kind, ""))
    if not causes:
        return _beyond(resource, obj)
    skipped = resource.kind in _HAS_CEL and any(cause.reason in _STRUCTURAL for cause in causes)
    return [*causes, _SKIPPED] if skipped else causes


def _struct(value: JsonObject, struct: str, path: str) -> Iterator[FieldError]:
    fields = structs()[struct]
    for name, known in fields.items():
        here = f"{path}.{name}" if path else name
        if name not in value:
            if known.required:
                yield FieldError("FieldValueRequired", "Required value", here)
        elif known.of != "ObjectMeta":
            yield from _value(value[name], known, "", here)


def _value(value: Any, known: FieldType, place: str, path: str) -> Iterator[FieldError]:
    depth = place.count("[]") + place.count("{}")
    shape = known.shape[depth:]
    wanted = "array" if shape[:1] == ("[]",) else "object" if shape or known.of not in SCALARS else ""
    if known.of == "raw" and not shape:
        return
    fits = isinstance(value, {"array": list, "object": dict}[wanted]) if wanted else _is_a(value, known.of)
    if not fits:
        found = next((name for type_, name in _NAMES if isinstance(value, type_)), "null")
        expected = wanted or _OPENAPI.get(known.of, "string")
        message = f'Invalid value: "{found}": {path} in body must be of type {expected}: "{found}"'
        yield FieldError("FieldValueTypeInvalid", message, path)
        return
    yield from _by_rules(value, known.rules.get(place, {}), path)
    if shape:
        inner = place + shape[0]
        items = (
            [(f"{path}[{i}]", one) for i, one in enumerate(value)]
            if isinstance(value, list)
            else [(f"{path}.{key}", one) for key, one in value.items()]
        )
        for here, one in items:
            yield from _value(one, known, inner, here)
    elif isinstance(value, dict):
        yield from _struct(value, known.of, path)


def _is_a(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "bool"
    if isinstance(value, float) and value.is_integer() and kind in ("int32", "int64"):
        return True
    return isinstance(value, _JSON_TYPES.get(kind, (object,)))


def _by_rules(value: Any, rules: Any, path: str) -> Iterator[FieldError]:
    for rule, bound in rules.items():
        text = _broken(value, rule, bound)
        if rule == "enum" and isinstance(value, str) and value not in bound:
            supported = ", ".join(f'"{one}"' for one in bound)
            message = f'Unsupported value: "{value}": supported values: {supported}'
            yield FieldError("FieldValueNotSupported", message, path)
        elif text:
            shown = len(value) if isinstance(value, list | dict) else json.dumps(value)
            yield FieldError("FieldValueInvalid", f"Invalid value: {shown}: {path} in body should {text}", path)


def _broken(value: Any, rule: str, bound: Any) -> str:
    """What the value should do and does not; empty when it keeps the rule."""
    if rule == "pattern":
        return f"match '{bound}'" if isinstance(value, str) and not _pattern(bound).search(value) else ""
    if rule not in _BOUNDS:
        return ""
    types, is_broken, text = _BOUNDS[rule]
    if isinstance(value, bool) or not isinstance(value, types):
        return ""
    return text.format(bound) if is_broken(value, bound) else ""


_BOUNDS: dict[str, tuple[tuple[type, ...], Callable[[Any, Any], bool], str]] = {
    "minimum": ((int, float), lambda value, bound: bool(value < bound), "be greater than or equal to {}"),
    "maximum": ((int, float), lambda value, bound: bool(value > bound), "be less than or equal to {}"),
    "minLength": ((str,), lambda value, bound: len(value) < bound, "be at least {} chars long"),
    "maxLength": ((str,), lambda value, bound: len(value) > bound, "be at most {} chars long"),
    "minItems": ((list,), lambda value, bound: len(value) < bound, "have at least {} items"),
    "maxItems": ((list,), lambda value, bound: len(value) > bound, "have at most {} items"),
    "maxProperties": ((dict,), lambda value, bound: len(value) > bound, "have at most {} properties"),
}


@lru_cache(maxsize=1024)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def _beyond(resource: Resource, obj: JsonObject) -> list[FieldError]:
    kind = _KINDS[resource.kind]
    try:
        decoded = msgspec.convert(without_nulls(obj), kind)
    except msgspec.ValidationError as error:
        return [FieldError("FieldValueInvalid", f"Invalid value: {error}", "spec")]
    decoded.remember(Origin(), dict.fromkeys(_paths(obj, ""), 1))
    return [problem_as_cause(problem) for problem in check(decoded, lambda field: Where(field=field))]


def problem_as_cause(problem: Problem) -> FieldError:
    """A problem of ours in the form of a cause."""
    missing = problem.message == "the field is missing"
    text = "Required value" if missing else f"Invalid value: {problem.message}"
    reason = "FieldValueRequired" if missing else "FieldValueInvalid"
    return FieldError(reason, f"{text} ({problem.hint})" if problem.hint else text, problem.where.field)


def _paths(value: Any, path: str) -> Iterator[str]:
    """The path of everything that is written."""
    if isinstance(value, dict):
        for key, inner in value.items():
            here = f"{path}.{key}" if path else key
            yield here
            yield from _paths(inner, here)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield f"{path}[{index}]"
            yield from _paths(inner, f"{path}[{index}]")
