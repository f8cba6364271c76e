"""What the rules of all kinds share: where problems are noted, names, numbers, quantities, selectors.

Sources: kubernetes/kubernetes staging/src/k8s.io/apimachinery/pkg/util/validation/validation.go and
pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from tonnage.errors import Problem, Where
from tonnage.objects import quantity
from tonnage.objects.api.errors import INT32_MAX, FieldError, labels, said, selector
from tonnage.objects.api.placing import taints
from tonnage.objects.decode import show

Place: TypeAlias = Callable[[str], Where]

INT64_MAX = 2**63 - 1
LISTED = ("In", "NotIn")
UNLISTED = ("Exists", "DoesNotExist")

LARGEST_QUANTITY = 2**63 // 1000
"""In thousandths it still fits 64 bits."""


_MAP_KEY = re.compile(r"\[([^\[\]]*[^\[\]\d][^\[\]]*)\]")
_PATTERN = re.compile(r",? +regex used for validation is '.*'\)$")
_INDEX = re.compile(r"\[(\d+)\]\.?")
_HINTS = {
    'valid values: "OnFailure"': "a Job ends some day",
    "must be unique": "mount one of them elsewhere",
    "must be an integer": "share a GPU by time-slicing, MPS or MIG, or ask for a whole one",
    "non overcommitable": "add the same amount under limits",
    "standard resource": "extended resources have a domain, e.g. nvidia.com/gpu",
    "`selector` does not match": "give the template the labels that spec.selector wants",
    "empty selector": "select the labels of spec.template.metadata",
    "scaling to zero": "set minReplicas to 1, or use an External or Object metric",
    "cannot be both set": "remove one of them",
    "maximum allowed value": "what is above is Kubernetes' own",
    "more than 1 handler": "a probe asks in one way: remove one of them",
    "terminationGracePeriodSeconds (": "raise terminationGracePeriodSeconds",
    "exists in both matchLabelKeys": "remove the key from one of the two",
    "labelSelector is not set": "add one or remove it",
    "`value` is not empty": "remove one of them",
}
"""What helps, by a part of what is wrong."""


class Report:
    """The problems of one object. ``field`` is a path from the object's root in all methods."""

    def __init__(self, place: Place, lines: Mapping[str, int], written: Mapping[str, Any] | None = None) -> None:
        self.problems: list[Problem] = []
        self.written = written or {}
        self._place = place
        self._lines = lines

    def add(self, field: str, message: str, hint: str = "") -> None:
        self.problems.append(Problem(self._place(field), message, hint))

    def refused(self, errors: Iterable[FieldError]) -> None:
        """What kube-apiserver says, each at its field."""
        seen = {(problem.where.field, problem.message) for problem in self.problems}
        found = [(_MAP_KEY.sub(r".\1", error.path), error) for error in errors]
        of_written = {_said(error) for field, error in found if field in self._lines}
        for field, error in found:
            if field not in self._lines and error.why and _said(error) in of_written:
                continue  # a default that was taken from another field, of which the same is said
            written = self.at(field)
            message, hint = _worded(error, error.value if isinstance(written, dict | list | None) else written)
            if (field, message) not in seen:
                seen.add((field, message))
                self.add(field, message, hint)

    def refuse(self, field: str, value: Any, expected: str, hint: str = "") -> None:
        """The value that stands there, and what should."""
        self.add(field, f"{show(value)}: expected {expected}", hint)

    def required(self, field: str) -> None:
        """A field that has a default here and none in the API was not written."""
        if self._lines and field not in self._lines:
            self.add(field, "the field is missing", "the API server requires it")

    def is_written(self, field: str) -> bool:
        """Whether the field stands in the file, be it with its default or empty."""
        return field in self._lines

    def one_of(self, field: str, value: str, allowed: Iterable[str], hint: str = "") -> bool:
        names = tuple(allowed)
        if value not in names:
            lowered = {name.lower(): name for name in names}
            near = difflib.get_close_matches(value.lower(), lowered, 1)
            if near and not hint:
                hint = f"did you mean {lowered[near[0]]}?"
            self.refuse(field, value, f"one of {', '.join(names)}", hint)
        return value in names

    def within(self, field: str, value: int | None, low: int, high: int = INT32_MAX) -> None:
        """An integer between two bounds; None, which is absent, is fine."""
        if value is None or low <= value <= high:
            return
        expected = f"at least {low}" if high in (INT32_MAX, INT64_MAX) and value < low else f"{low} to {high}"
        self.refuse(field, value, expected)

    def matches(self, field: str, text: str, faults: Callable[[str], list[str]]) -> bool:
        """``faults``: what keeps a text from having the form, as in :mod:`tonnage.objects.api.errors`."""
        found = faults(text)
        self.refused(said(field, text, found))
        return not found

    def not_empty(self, field: str, text: str, hint: str = "") -> None:
        if not text:
            self.refuse(field, text, "a name", hint or "the API server requires it")

    def unique(self, field: str, names: Iterable[str], what: str) -> None:
        """``field`` has one ``{}`` for the index. Empty names do not count."""
        seen: dict[str, int] = {}
        for index, name in enumerate(names):
            if name and seen.setdefault(name, index) != index:
                self.add(field.format(index), f"{show(name)}: {what} appears twice", "rename or remove one")

    def quantity(self, field: str, written: str | int | float) -> Fraction | None:
        """A quantity that is not negative; None when it is none."""
        try:
            value = quantity.parse(written)
        except (ValueError, TypeError):  # a list or a mapping
            self.refuse(field, written, "a quantity, e.g. 500m, 8 or 32Gi", _near_quantity(str(written)))
            return None
        if value < 0:
            self.refuse(field, written, "a quantity of at least 0")
            return None
        if value > LARGEST_QUANTITY:
            self.refuse(field, written, f"a quantity of at most {LARGEST_QUANTITY}")
            return None
        return value

    def positive_quantity(self, field: str, written: str | int | float | None) -> None:
        if written is not None and self.quantity(field, written) == 0:
            self.refuse(field, written, "a quantity above 0")

    def labels(self, field: str) -> None:
        """The label map that stands there."""
        self.refused(labels(field, self.at(field)))

    def selector(self, field: str) -> None:
        """The label selector that stands there, if one does."""
        written = self.at(field)
        if isinstance(written, dict):
            self.refused(selector(field, written))

    def taints(self, *fields: str) -> None:
        """The taints that stand there, of which none may have the key and effect of another."""
        seen: set[tuple[Any, Any]] = set()
        for field in fields:
            self.refused(taints(field, self.at(field) or [], seen))

    def at(self, path: str) -> Any:
        """What stands at a path, whose keys may have dots; None where nothing does."""
        value: Any = self.written
        while path:
            if isinstance(value, dict):
                key = next((key for key in _heads(path) if key in value), None)
                if key is None:
                    return None
                value, path = value[key], path[len(key) :].removeprefix(".")
            elif isinstance(value, list) and (match := _INDEX.match(path)) and int(match[1]) < len(value):
                value, path = value[int(match[1])], path[match.end() :]
            else:
                return None
        return value


def _heads(path: str) -> list[str]:
    """The keys that a path may begin with, the shortest first."""
    ends = [match.start() for match in re.finditer(r"[.\[]", path) if match.start()]
    return [path[:end] for end in (*ends, len(path))]


def _said(error: FieldError) -> tuple[str, str, str]:
    return error.reason, str(error.value), error.why


def _worded(error: FieldError, value: Any) -> tuple[str, str]:
    """Message and hint of what kube-apiserver says of a field in which ``value`` stands."""
    hint = next((hint for part, hint in _HINTS.items() if part in error.why), "")
    why = _PATTERN.sub(")", error.why)
    match error.reason:
        case "FieldValueRequired":
            return why or "the field is missing", hint or ("" if why else "the API server requires it")
        case "FieldValueNotSupported":
            names = {name.lower(): name for name in error.supported}
            near = difflib.get_close_matches(str(value).lower(), names, 1)
            said = f"{show(value)}: expected one of {', '.join(error.supported)}"
            return said, f"did you mean {names[near[0]]}?" if near else hint
        case "FieldValueDuplicate":
            return f"{show(error.value)}: appears twice", "rename or remove one"
        case "FieldValueNotFound":
            there = f"there is {', '.join(error.supported)}" if error.supported else "there is none"
            return f"{show(value)}: not found", why or there
        case "FieldValueForbidden":
            return why, hint
        case _:
            return why if value is None else f"{show(value)}: {why}", hint


def _near_quantity(written: str) -> str:
    """What was probably meant."""
    meant = re.fullmatch(r"\s*([0-9.]+)\s*([KMGTPE]?)(i?)B?\s*", written, re.IGNORECASE)
    if meant is None:
        return ""
    number, unit, binary = meant[1], meant[2].upper(), meant[3].lower()
    suggestion = f"{number}{'k' if unit == 'K' and not binary else unit}{binary if unit else ''}"
    try:
        quantity.parse(suggestion)
    except ValueError:
        return ""
    return f"did you mean {suggestion}?"
