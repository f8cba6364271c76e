"""Karpenter's algebra of node requirements: which values a label may have, how two requirements combine, when they
can both hold.

A requirement on one label key is a set of the label's values. Operators In and DoesNotExist give finite sets; NotIn,
Exists, Gt, Gte, Lt and Lte give complements of finite sets, perhaps with integer bounds. Whether a node without the
label will do follows from the set as it stands, not from what it was made of: a finite set without values is
DoesNotExist and a complement with excluded values NotIn, which both let the label be missing. So two requirements
that contradict each other come out as DoesNotExist; :meth:`Requirement.is_empty` remembers that nothing meets them.

Source: kubernetes-sigs/karpenter pkg/scheduling/requirement.go, requirements.go.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass, field, replace
from typing import Any

from tonnage.errors import InputError
from tonnage.provisioning import labels as known_labels

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Gte", "Lt", "Lte")
_BOUNDS = ("Gt", "Gte", "Lt", "Lte")


@dataclass(frozen=True, slots=True)
class Requirement:
    """Allowed values of the label ``key``.

    ``complement`` False: exactly ``values``. True: every value but ``values`` that lies within the
    inclusive bounds ``gte`` and ``lte``; with a bound, only integers lie within. ``min_values``: at least this many
    different values must remain among the instance types to choose from. ``unlabelled``: a node without the label meets
    all that this was made of; it plays no part in what is compatible.
    """

    key: str
    complement: bool
    values: frozenset[str] = frozenset()
    gte: int | None = None
    lte: int | None = None
    min_values: int | None = None
    unlabelled: bool = field(default=False, compare=False)

    @classmethod
    def of(cls, key: str, operator: str, values: Iterable[str] = (), min_values: int | None = None) -> Requirement:
        """A requirement as written in a NodePool or a node affinity term. Old label keys are brought up to
        date.

        Raises :class:`InputError` for an unknown operator, In without values, or a bound that is not one
        integer ≥ 0.
        """
        key = known_labels.normalise(key)
        listed = tuple(values)
        if operator in _BOUNDS:
            bound = _bound(key, operator, listed)
            gte = {"Gt": bound + 1, "Gte": bound}.get(operator)
            lte = {"Lt": bound - 1, "Lte": bound}.get(operator)
            return cls(key, complement=True, gte=gte, lte=lte, min_values=min_values)
        if operator == "In":
            if not listed:
                raise InputError.at(f"operator In on {key!r} has no values", field=key, hint="list at least one")
            return cls(key, complement=False, values=frozenset(listed), min_values=min_values)
        if operator == "NotIn":
            return cls(key, complement=True, values=frozenset(listed), min_values=min_values, unlabelled=True)
        if operator == "Exists":
            return cls(key, complement=True, min_values=min_values)
        if operator == "DoesNotExist":
            return cls(key, complement=False, min_values=min_values, unlabelled=True)
        near = difflib.get_close_matches(operator, OPERATORS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(OPERATORS)}"
        raise InputError.at(f"unknown operator {operator!r} on {key!r}", field=key, hint=hint)

    @property
    def absent(self) -> bool:
        """Whether a node without the label will do: Karpenter's operators NotIn and DoesNotExist."""
        return bool(self.values) == self.complement

    def has(self, value: str | None) -> bool:
        """Whether the label may have this value; ``None`` asks for a node without the label."""
        if value is None:
            return self.absent
        if not self.complement:
            return value in self.values
        return value not in self.values and _within(value, self.gte, self.lte)

    def any(self) -> str | None:
        """An allowed value, the least one: by name of a finite set, by number of a complement. ``None`` if
        there is none.
        """
        if not self.complement:
            return min(self.values, default=None)
        low = max(self.gte or 0, 0)
        high = low + len(self.values) if self.lte is None else min(self.lte, low + len(self.values))
        if high < low:
            return None
        # Finitely many values are excluded, so a number with enough leading zeros is free.
        for zeros in itertools.count():
            for number in range(low, high + 1):
                value = "0" * zeros + str(number)
                if value not in self.values:
                    return value
        raise AssertionError("unreachable: the loop over leading zeros does not end")

    def has_values(self) -> bool:
        """Whether some value is allowed. Label values do not start with a sign, so none lies below zero."""
        if not self.complement:
            return bool(self.values)
        return self.lte is None or self.lte >= max(self.gte or 0, 0)

    def is_empty(self) -> bool:
        """Whether no node at all can meet all that this was made of, whatever Karpenter makes of it."""
        return not self.unlabelled and not self.has_values()

    def intersection(self, other: Requirement) -> Requirement:
        """What both allow. ``min_values`` is the larger one. Both must be on the same key."""
        gte = _tighter(self.gte, other.gte, max)
        lte = _tighter(self.lte, other.lte, min)
        min_values = _tighter(self.min_values, other.min_values, max)
        unlabelled = self.unlabelled and other.unlabelled
        if gte is not None and lte is not None and gte > lte:
            return Requirement(self.key, False, min_values=min_values, unlabelled=unlabelled)
        if self.complement and other.complement:
            excluded = frozenset(value for value in self.values | other.values if _within(value, gte, lte))
            return Requirement(self.key, True, excluded, gte, lte, min_values, unlabelled)
        finite, test = (other, self) if self.complement else (self, other)
        values = frozenset(value for value in finite.values if test.has(value))
        return Requirement(self.key, False, values, min_values=min_values, unlabelled=unlabelled)

    def intersects(self, other: Requirement) -> bool:
        """Whether both can hold: some value is in both sets, or the label may be missing for either."""
        return (self.absent and other.absent) or self._shares_a_value(other)

    def _shares_a_value(self, other: Requirement) -> bool:
        gte = _tighter(self.gte, other.gte, max)
        lte = _tighter(self.lte, other.lte, min)
        if gte is not None and lte is not None and gte > lte:
            return False
        if self.complement and other.complement:
            return True
        finite, test = (other, self) if self.complement else (self, other)
        return any(test.has(value) for value in finite.values)

    @property
    def operators(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The requirement as operators with their values, as a NodePool would write it."""
        if not self.complement:
            if self.values:
                return (("In", tuple(sorted(self.values))),)
            return (("DoesNotExist", ()),)
        terms: list[tuple[str, tuple[str, ...]]] = []
        if self.gte is not None:
            terms.append(("Gte", (str(self.gte),)))
        if self.lte is not None:
            terms.append(("Lte", (str(self.lte),)))
        if self.values:
            terms.append(("NotIn", tuple(sorted(self.values))))
        if not terms:
            terms.append(("Exists", ()))
        return tuple(terms)

    def __str__(self) -> str:
        terms = []
        for operator, values in self.operators:
            if operator in _BOUNDS:
                terms.append(f"{operator} {values[0]}")
            elif operator in ("In", "NotIn"):
                terms.append(f"{operator} [{_shortened(values)}]")
            else:
                terms.append(operator)
        return f"{self.key} {' and '.join(terms)}"


class Requirements(Mapping[str, Requirement]):
    """Requirements by label key, at most one a key. Immutable; a label that is not named may have any
    value.
    """

    __slots__ = ("_by_key",)

    def __init__(self, requirements: Iterable[Requirement] = ()) -> None:
        """Requirements on the same key are intersected."""
        self._by_key: dict[str, Requirement] = {}
        for requirement in requirements:
            known = self._by_key.get(requirement.key)
            self._by_key[requirement.key] = known.intersection(requirement) if known else requirement

    @classmethod
    def of_labels(cls, labels: Mapping[str, str]) -> Requirements:
        """Each label must have exactly its value: a nodeSelector, or the labels of a node."""
        return cls(Requirement.of(key, "In", (value,)) for key, value in labels.items())

    def __getitem__(self, key: str) -> Requirement:
        return self._by_key[key]

    def get(self, key: str, default: Any = None) -> Any:
        """The requirement on a label, or ``default`` where there is none."""
        return self._by_key.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def items(self) -> ItemsView[str, Requirement]:
        """Label keys with the requirements on them."""
        return self._by_key.items()

    def values(self) -> ValuesView[Requirement]:
        """The requirements."""
        return self._by_key.values()

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)

    def __eq__(self, other: object) -> bool:
        return self._by_key == other._by_key if isinstance(other, Requirements) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def merged(self, other: Requirements) -> Requirements:
        """Both hold: requirements on the same key are intersected. The same object where that changes nothing."""
        if all(key in self._by_key and self._by_key[key] == one for key, one in other._by_key.items()):
            return self
        return Requirements(itertools.chain(self._by_key.values(), other._by_key.values()))

    def changed(self, before: Requirements) -> Requirements:
        """Those that are not as they were before."""
        old = before._by_key
        return Requirements(one for key, one in self._by_key.items() if old.get(key) != one)

    def without(self, keys: Collection[str]) -> Requirements:
        """Those on other labels."""
        return Requirements(one for key, one in self._by_key.items() if key not in keys)

    def with_min_values(self, found: Mapping[str, int]) -> Requirements:
        """The same with ``minValues`` of some labels set to what was found."""
        if not found:
            return self
        return Requirements(
            replace(one, min_values=found[key]) if key in found else one for key, one in self._by_key.items()
        )

    def allows(self, key: str, value: str) -> bool:
        """Whether the label may have this value; a label without a requirement may."""
        requirement = self._by_key.get(key)
        return requirement is None or requirement.has(value)

    def conflicts(self, incoming: Requirements, allow_undefined: Collection[str] = frozenset()) -> list[str]:
        """Why a node under these requirements cannot satisfy ``incoming`` too; empty when it can.

        A label that only ``incoming`` names must be in ``allow_undefined``, unless ``incoming`` is content
        without it.
        """
        problems = []
        for key, wanted in incoming.items():
            own = self._by_key.get(key)
            if own is None:
                if key not in allow_undefined and not wanted.absent:
                    problems.append(f'label "{key}" does not have known values{self._hint(key, allow_undefined)}')
            elif not own.intersects(wanted):
                problems.append(f"{wanted}, but {own}")
        return problems

    def compatible(self, incoming: Requirements, allow_undefined: Collection[str] = frozenset()) -> bool:
        """Whether a node under these requirements can satisfy ``incoming`` too; see :meth:`conflicts`."""
        return not self.conflicts(incoming, allow_undefined)

    def has_min_values(self) -> bool:
        """Whether any requirement carries ``minValues``."""
        return any(requirement.min_values is not None for requirement in self._by_key.values())

    def labels(self) -> dict[str, str]:
        """Labels that a node made from these requirements gets beside the well-known ones: one allowed
        value each, where the label may not be missing.
        """
        found = {}
        for key, requirement in self._by_key.items():
            value = None if requirement.absent else requirement.any()
            if value is not None and key not in known_labels.well_known():
                found[key] = value
        return found

    def __str__(self) -> str:
        return ", ".join(str(self._by_key[key]) for key in sorted(self._by_key))

    def _hint(self, key: str, allow_undefined: Collection[str]) -> str:
        near = difflib.get_close_matches(key, sorted({*allow_undefined, *self._by_key}), n=1, cutoff=0.85)
        return f" (did you mean {near[0]}?)" if near else ""


def _bound(key: str, operator: str, values: Sequence[str]) -> int:
    if len(values) == 1 and values[0].isascii() and values[0].isdigit():
        return int(values[0])
    raise InputError.at(
        f"operator {operator} on {key!r} has values {list(values)}",
        field=key,
        hint='exactly one integer ≥ 0 as a string, such as ["4"]',
    )


def _within(value: str, gte: int | None, lte: int | None) -> bool:
    """Whether the bounds allow the value; with a bound, only integers are allowed."""
    if gte is None and lte is None:
        return True
    if not (value.isascii() and value.isdigit()):
        return False
    number = int(value)
    return (gte is None or number >= gte) and (lte is None or number <= lte)


def _tighter(left: int | None, right: int | None, choose: Callable[[int, int], int]) -> int | None:
    if left is None or right is None:
        return right if left is None else left
    return choose(left, right)


def _shortened(values: Sequence[str], shown: int = 5) -> str:
    text = ", ".join(values[:shown])
    return f"{text} and {len(values) - shown} more" if len(values) > shown else text
