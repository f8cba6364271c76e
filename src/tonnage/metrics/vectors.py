"""What PromQL answers: scalars and vectors, and what is done with the labels of their elements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct

from tonnage.errors import InputError
from tonnage.metrics.store import NAME


class QueryError(InputError):
    """A query that parses but cannot be answered: two series fall on one label set, or it reaches too far
    back.
    """


class Sample(Struct, frozen=True):
    """One element of a vector: its labels (the metric's name under ``__name__``, if it has one) and its
    value.
    """

    labels: Mapping[str, str]
    value: float


class Scalar(Struct, frozen=True):
    """A number without labels."""

    value: float


class Vector(Struct, frozen=True):
    """Samples at one instant. Empty means "no data"."""

    samples: tuple[Sample, ...] = ()

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.samples)

    def __len__(self) -> int:
        return len(self.samples)

    def value(self) -> float | None:
        """The value of the only sample; None for "no data". Raises ValueError when there are several."""
        if len(self.samples) > 1:
            raise ValueError(f"{len(self.samples)} series where one was expected")
        return self.samples[0].value if self.samples else None


Result: TypeAlias = Vector | Scalar
LabelKey: TypeAlias = tuple[tuple[str, str], ...]


def key(labels: Iterable[tuple[str, str]]) -> LabelKey:
    """Labels as something to compare and to look up."""
    return tuple(sorted(labels))


def nameless(labels: Mapping[str, str]) -> Mapping[str, str]:
    """The labels without the metric's name."""
    return {label: value for label, value in labels.items() if label != NAME} if NAME in labels else labels


def kept(labels: Mapping[str, str], listed: frozenset[str], *, without: bool) -> Iterable[tuple[str, str]]:
    """The labels that stay under by(listed), or under without(listed), which drops the name too."""
    if without:
        return ((label, value) for label, value in labels.items() if label not in listed and label != NAME)
    return ((label, labels[label]) for label in listed if label in labels)
