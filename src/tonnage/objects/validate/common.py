"""What the rules of all kinds share: where problems are noted, names, numbers, quantities, selectors.

Sources: kubernetes/kubernetes staging/src/k8s.io/apimachinery/pkg/util/validation/validation.go and
pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from fractions import Fraction
from typing import Any, TypeAlias

from tonnage.errors import Problem, Where
from tonnage.objects import quantity
from tonnage.objects.core import LabelSelector, Taint
from tonnage.objects.decode import show

Place: TypeAlias = Callable[[str], Where]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
PROTOCOLS = ("TCP", "UDP", "SCTP")
LISTED = ("In", "NotIn")
UNLISTED = ("Exists", "DoesNotExist")

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"

LARGEST_QUANTITY = 2**63 // 1000
"""In thousandths it still fits 64 bits."""


class Rule(Enum):
    """A form that a name must have: pattern, longest length, in words."""

    LABEL = (_LABEL, 63, "at most 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit")
    SUBDOMAIN = (
        rf"{_LABEL}(\.{_LABEL})*",
        253,
        "at most 253 of a-z, 0-9, '-' and '.', beginning and ending with a letter or digit",
    )
    QUALIFIED = (
        rf"({_LABEL}(\.{_LABEL})*/)?(?=.{{1,63}}$)(?!.*/){_NAME}",
        317,
        "an optional domain and '/', then at most 63 of A-Z, a-z, 0-9, '-', '_' and '.'",
    )
    LABEL_VALUE = (
        f"({_NAME})?",
        63,
        "at most 63 of A-Z, a-z, 0-9, '-', '_' and '.', beginning and ending with a letter or digit",
    )
    PORT_NAME = (
        r"(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]*[a-z0-9])?",
        15,
        "at most 15 of a-z, 0-9 and '-', with a letter, without '--'",
    )
    CONFIG_KEY = (r"(?!\.\.?$)(?!\.\.)[-._a-zA-Z0-9]+", 253, "at most 253 of A-Z, a-z, 0-9, '-', '_' and '.'")

    def __init__(self, pattern: str, longest: int, words: str) -> None:
        self.pattern = re.compile(pattern)
        self.longest = longest
        self.words = words

    def holds(self, text: str) -> bool:
        return len(text) <= self.longest and self.pattern.fullmatch(text) is not None


class Report:
    """The problems of one object. ``field`` is a path from the object's root in all methods."""

    def __init__(self, place: Place, lines: Mapping[str, int]) -> None:
        self.problems: list[Problem] = []
        self._place = place
        self._lines = lines

    def add(self, field: str, message: str, hint: str = "") -> None:
        self.problems.append(Problem(self._place(field), message, hint))

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

    def matches(self, field: str, text: str, rule: Rule) -> bool:
        if rule.holds(text):
            return True
        self.refuse(field, text, rule.words)
        return False

    def not_empty(self, field: str, text: str, hint: str = "") -> None:
        if not text:
            self.refuse(field, text, "a name", hint or "the API server requires it")

    def labels(self, field: str, labels: Mapping[str, str]) -> None:
        for key, value in labels.items():
            if not Rule.QUALIFIED.holds(key) or not Rule.LABEL_VALUE.holds(value):
                self.matches(f"{field}.{key}", key, Rule.QUALIFIED)
                self.matches(f"{field}.{key}", value, Rule.LABEL_VALUE)

    def unique(self, field: str, names: Iterable[str], what: str) -> None:
        """``field`` has one ``{}`` for the index. Empty names do not count."""
        seen: dict[str, int] = {}
        for index, name in enumerate(names):
            if name and seen.setdefault(name, index) != index:
                self.add(field.format(index), f"{show(name)}: {what} stands twice", "rename or remove one")

    def quantity(self, field: str, written: str | int | float) -> Fraction | None:
        """A quantity that is not negative; None when it is none."""
        try:
            value = quantity.parse(written)
        except ValueError:
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

    def selector(self, field: str, selector: LabelSelector | None) -> None:
        if selector is None:
            return
        self.labels(f"{field}.matchLabels", selector.match_labels)
        for index, wanted in enumerate(selector.match_expressions):
            path = f"{field}.matchExpressions[{index}]"
            self.matches(f"{path}.key", wanted.key, Rule.QUALIFIED)
            if self.one_of(f"{path}.operator", wanted.operator, (*LISTED, *UNLISTED)):
                self.operator_values(path, wanted.operator, wanted.values)
            for place, value in enumerate(wanted.values):
                self.matches(f"{path}.values[{place}]", value, Rule.LABEL_VALUE)

    def operator_values(self, path: str, operator: str, values: list[str]) -> None:
        """The number of values that a selector's operator takes."""
        if operator in LISTED and not values:
            self.add(f"{path}.values", f"{operator} needs at least one value", "list the values")
        elif operator in UNLISTED and values:
            self.add(f"{path}.values", f"{operator} takes no values", "remove them or use In")
        elif operator not in (*LISTED, *UNLISTED) and len(values) != 1:
            self.add(
                f"{path}.values",
                f"{operator} takes exactly one value, not {len(values)}",
                'e.g. values: ["4"]',
            )

    def taints(self, field: str, taints: list[Taint], seen: set[tuple[str, str]]) -> None:
        """Keys, values and effects; ``seen`` holds the (key, effect) of taints that stand beside these."""
        for index, taint in enumerate(taints):
            path = f"{field}[{index}]"
            self.matches(f"{path}.key", taint.key, Rule.QUALIFIED)
            self.matches(f"{path}.value", taint.value, Rule.LABEL_VALUE)
            self.one_of(f"{path}.effect", taint.effect, TAINT_EFFECTS)
            if (taint.key, taint.effect) in seen:
                self.add(path, f"the taint {taint.key}:{taint.effect} stands twice", "remove one of them")
            seen.add((taint.key, taint.effect))


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
