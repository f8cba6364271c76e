"""Time series in memory: compact columns per series, a label index, staleness and a bounded past.

Times are integer nanoseconds, values are floats. "No data" is never a number: a series without a live
sample at an instant is absent from the answer.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from msgspec import Struct

from tonnage.errors import InputError
from tonnage.units import NS_PER_HOUR, NS_PER_S

LOOKBACK_NS = 300 * NS_PER_S
"""How old the newest sample may be for an instant query (Prometheus ``--query.lookback-delta``, default 5
min).
"""

RETENTION_NS = 6 * NS_PER_HOUR
"""How much of the past a store keeps unless told otherwise; it bounds memory, not what is true."""

NAME = "__name__"
"""The label that holds the name of the metric."""

_COMPACT_FROM = 256  # expired samples of a series that are worth moving the rest for


class MatchOp(Enum):
    """How a matcher compares; regular expressions must match the whole value."""

    EQUAL = "="
    NOT_EQUAL = "!="
    REGEX = "=~"
    NOT_REGEX = "!~"


class Matcher(Struct, frozen=True):
    """One condition on a label. A label that a series lacks has the value ``""``."""

    label: str
    op: MatchOp
    value: str

    def matches(self, value: str) -> bool:
        """Whether a label with this value satisfies the condition.

        Raises InputError for a regular expression that cannot be read."""
        if self.op is MatchOp.EQUAL:
            return value == self.value
        if self.op is MatchOp.NOT_EQUAL:
            return value != self.value
        found = _compiled(self.value).fullmatch(value) is not None
        return found if self.op is MatchOp.REGEX else not found

    def __str__(self) -> str:
        return f'{self.label}{self.op.value}"{self.value}"'


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    """RE2's defaults in Prometheus: anchored at both ends, ``.`` matches a line end, classes are ASCII."""
    try:
        return re.compile(pattern, re.DOTALL | re.ASCII)
    except re.error as error:
        raise InputError.at(
            f"the regular expression {pattern!r} cannot be read: {error}",
            hint="use RE2 syntax without look-around and back-references",
        ) from error


@dataclass(slots=True, eq=False)
class Series:
    """One series. ``times`` (ns, strictly rising) and ``values`` are parallel columns; ``stale_at`` are
    stale markers.
    """

    labels: Mapping[str, str]  # with __name__, without empty values
    times: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    stale_at: array[int] = field(default_factory=lambda: array("q"))

    def append(self, t_ns: int, value: float) -> None:
        """Add a sample. Raises ValueError unless it is later than everything the series has."""
        if t_ns <= self.last_ns:
            raise ValueError(f"{_show(self.labels)}: sample at {t_ns} ns is not later than {self.last_ns} ns")
        self.times.append(t_ns)
        self.values.append(value)

    def mark_stale(self, t_ns: int) -> None:
        """Say that the series has ended at ``t_ns``: from then on an instant query does not see it."""
        if t_ns <= self.last_ns:
            raise ValueError(f"{_show(self.labels)}: stale marker at {t_ns} ns is not later than {self.last_ns} ns")
        self.stale_at.append(t_ns)

    @property
    def last_ns(self) -> int:
        """The time of the newest sample or marker; -2^63 when there is none."""
        newest = self.times[-1] if self.times else _NEVER
        return max(newest, self.stale_at[-1]) if self.stale_at else newest

    def at(self, at_ns: int, lookback_ns: int = LOOKBACK_NS, *, left_open: bool = True) -> float | None:
        """The newest value in (at − lookback, at], or [at − lookback, at]; None if there is none or it is
        stale.
        """
        found = self.sample_at(at_ns, lookback_ns, left_open=left_open)
        return None if found is None else found[1]

    def sample_at(
        self, at_ns: int, lookback_ns: int = LOOKBACK_NS, *, left_open: bool = True
    ) -> tuple[int, float] | None:
        """Like :meth:`at`, with the sample's time before its value."""
        index = bisect_right(self.times, at_ns) - 1
        if index < 0:
            return None
        t_ns = self.times[index]
        oldest = at_ns - lookback_ns
        if t_ns < oldest or (left_open and t_ns == oldest):
            return None
        marker = bisect_right(self.stale_at, at_ns) - 1
        if marker >= 0 and self.stale_at[marker] > t_ns:
            return None
        return t_ns, self.values[index]

    def window(self, start_ns: int, end_ns: int, *, left_open: bool = True) -> tuple[Sequence[int], Sequence[float]]:
        """The samples in (start, end], or [start, end]; stale markers do not count."""
        low = bisect_right(self.times, start_ns if left_open else start_ns - 1)
        high = bisect_right(self.times, end_ns)
        return self.times[low:high], self.values[low:high]

    def drop_before(self, oldest_ns: int) -> None:
        """Forget samples older than ``oldest_ns``, once there are enough of them to be worth the move."""
        expired = bisect_right(self.times, oldest_ns - 1)
        if expired >= _COMPACT_FROM and 2 * expired >= len(self.times):
            del self.times[:expired]
            del self.values[:expired]
            del self.stale_at[: bisect_right(self.stale_at, oldest_ns - 1)]


_NEVER = -(1 << 63)
Key = tuple[tuple[str, str], ...]
"""The labels of a series in order, with ``__name__`` and without empty values."""


class SeriesStore:
    """The series of one Prometheus server, found by their labels."""

    def __init__(self, retention_ns: int = RETENTION_NS) -> None:
        self.retention_ns = retention_ns
        self._series: dict[Key, Series] = {}
        self._postings: dict[tuple[str, str], dict[Key, Series]] = {}
        self._newest_ns = _NEVER
        self._swept_ns = _NEVER

    def __len__(self) -> int:
        return len(self._series)

    def __iter__(self) -> Iterator[Series]:
        return iter(self._series.values())

    def append(self, name: str, labels: Mapping[str, str], t_ns: int, value: float) -> None:
        """Add one sample; labels with an empty value do not exist.

        Raises ValueError when the sample is not later than the last of its series."""
        self.append_to(key_of(name, labels), t_ns, value)

    def append_to(self, key: Key, t_ns: int, value: float) -> None:
        """Like :meth:`append`, to the series with this key."""
        found = self._series.get(key)
        if found is None:
            found = self._series[key] = Series(dict(key))
            for pair in key:
                self._postings.setdefault(pair, {})[key] = found
        found.append(t_ns, value)
        found.drop_before(t_ns - self.retention_ns)
        self._sweep(t_ns)

    def mark_stale(self, name: str, labels: Mapping[str, str], t_ns: int) -> None:
        """Say that a series has ended at ``t_ns``, as Prometheus does when a target or a series vanishes."""
        self.mark_stale_of(key_of(name, labels), t_ns)

    def mark_stale_of(self, key: Key, t_ns: int) -> None:
        """Like :meth:`mark_stale`, of the series with this key."""
        series = self._series.get(key)
        if series is not None:
            series.mark_stale(t_ns)
            self._sweep(t_ns)

    def last_ns(self, key: Key) -> int:
        """The time of the newest sample or stale marker of a series; -2^63 where there is none."""
        series = self._series.get(key)
        return _NEVER if series is None else series.last_ns

    def select(self, matchers: Iterable[Matcher]) -> list[Series]:
        """The series that satisfy all matchers, in the order in which they first appeared."""
        wanted = list(matchers)
        exact = [m for m in wanted if m.op is MatchOp.EQUAL and m.value]
        rest = [m for m in wanted if not (m.op is MatchOp.EQUAL and m.value)]
        if exact:
            postings = [self._postings.get((m.label, m.value), {}) for m in exact]
            smallest = min(postings, key=len)
            candidates = [s for key, s in smallest.items() if all(key in other for other in postings)]
        else:
            candidates = list(self._series.values())
        return [s for s in candidates if all(m.matches(s.labels.get(m.label, "")) for m in rest)]

    def _sweep(self, t_ns: int) -> None:
        """Once per retention period, forget the series whose last sample has expired."""
        self._newest_ns = max(self._newest_ns, t_ns)
        if self._swept_ns == _NEVER:
            self._swept_ns = self._newest_ns
        if self._newest_ns - self._swept_ns < self.retention_ns:
            return
        self._swept_ns = self._newest_ns
        oldest = self._newest_ns - self.retention_ns
        for key in [key for key, series in self._series.items() if series.last_ns < oldest]:
            del self._series[key]
            for pair in key:
                del self._postings[pair][key]
                if not self._postings[pair]:
                    del self._postings[pair]


def key_of(name: str, labels: Mapping[str, str]) -> Key:
    """What a series is found by: its labels in order, with its name and without empty values."""
    pairs = [(label, value) for label, value in labels.items() if value and label != NAME]
    pairs.append((NAME, name))
    return tuple(sorted(pairs))


def _show(labels: Mapping[str, str]) -> str:
    rest = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()) if label != NAME)
    return f"{labels.get(NAME, '')}{{{rest}}}"
