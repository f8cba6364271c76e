"""Samples with their times, read from text: Prometheus' exposition format or OpenMetrics.

The first has Unix milliseconds after the value (prometheus.io/docs/instrumenting/exposition_formats), the second, told
by its last line ``# EOF``, Unix seconds (OpenMetrics 1.0; ``promtool tsdb dump-openmetrics`` writes it). The name may
also stand among the labels, as ``promtool tsdb dump`` has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation

from tonnage.errors import InputError, Problem, Where
from tonnage.metrics.store import NAME, RETENTION_NS, Key, Series, SeriesStore, key_of
from tonnage.units import NS_PER_MS, NS_PER_S

MOST_PROBLEMS = 3
_LINE = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)?\s*"
    r'(?:\{(?P<labels>(?:[^"{}]|"(?:[^"\\]|\\.)*")*)\})?'
    r"\s+(?P<value>\S+)(?:\s+(?P<at>[^\s#]\S*))?\s*(?:\s#.*)?"  # an exemplar may follow
)
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPED = re.compile(r"\\(.)")
_END = "# EOF"

Timed = tuple[int, Key, float]
"""Unix ns, series, value."""


def read(text: str, file: str = "") -> list[Timed]:
    """The samples of a text, in the order in which they stand.

    Raises InputError for lines that are none, and for samples without a time: they are no history."""
    lines = text.splitlines()
    unit = NS_PER_S if any(line.strip() == _END for line in lines[-2:]) else NS_PER_MS
    found: list[Timed] = []
    problems: list[Problem] = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            found.append(_sample(line, unit))
        except ValueError as error:
            hint = 'expected NAME{LABEL="VALUE",…} VALUE TIME, as `promtool tsdb dump-openmetrics` writes it'
            problems.append(Problem(Where(file, number), str(error), hint))
            if len(problems) == MOST_PROBLEMS:
                break
    if problems:
        raise InputError(*problems)
    return found


def stored(samples: Iterable[Timed], series: Iterable[Series] = ()) -> SeriesStore:
    """All samples in a store that forgets nothing; of several of one series and time the first counts."""
    everything = list(samples)
    for one in series:
        key = key_of(one.labels.get(NAME, ""), one.labels)
        everything += [(at, key, value) for at, value in zip(one.times, one.values, strict=True)]
    everything.sort(key=lambda sample: (sample[0], sample[1]))
    span = everything[-1][0] - everything[0][0] if everything else 0
    store = SeriesStore(2 * span + RETENTION_NS)
    before: set[tuple[int, Key]] = set()
    for at_ns, key, value in everything:
        if (at_ns, key) not in before:
            before.add((at_ns, key))
            store.append_to(key, at_ns, value)
    return store


def _sample(line: str, unit: int) -> Timed:
    match = _LINE.fullmatch(line.strip())
    labels = _labels(match["labels"] or "") if match is not None else {}
    name = (match["name"] or labels.get(NAME)) if match is not None else None
    if match is None or not name:
        raise ValueError(f"{line.strip()[:80]!r} is no sample")
    if match["at"] is None:
        raise ValueError(f"{name}: the sample has no time")
    try:
        value, at = float(match["value"]), Decimal(match["at"])
    except (ValueError, InvalidOperation):
        raise ValueError(f"{name}: {match['value']!r} or {match['at']!r} is not a number") from None
    if not at.is_finite() or not 0 <= at * unit < 1 << 62:
        raise ValueError(f"{name}: {match['at']!r} is not a time")
    return int(at * unit), key_of(name, labels), value


def _labels(text: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    at = 0
    while text[at:].strip():
        match = _LABEL.match(text, at)
        if match is None:
            raise ValueError(f"the labels cannot be read from {text[at:][:40]!r} on")
        labels[match[1]] = _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], match[2])
        at = match.end()
    return labels
