"""One factor for the estimates of a person's own engine, from measurements of it.

What an estimate does not know (flags, versions, drivers, the network) makes its times too short or too long by much the
same factor wherever that engine is measured. With r the natural logarithms of measured over estimated times, each time
to first token counting a quarter of a time per output token, the factor is exp(m · w): their weighted median m, pulled
to none by what is known beforehand, ::

    w = n / (n + (spread / prior)²)          n: rows, prior: 0.25

and what the band loses in width is what the rows say of the spread: it is never narrower than a quarter of what it was,
nor wider.

A file has a header and the columns ``gpu``, ``concurrency``, ``input_tokens``, ``output_tokens``, and ``tpot_ms`` or
``ttft_ms`` or both; ``tensor_parallel``, ``pipeline_parallel`` and ``data_parallel`` are 1 where there is no such
column, ``precision`` and ``framework`` those of what is sized.
"""

from __future__ import annotations

import csv
import io
from math import exp, isfinite, log
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec.structs import replace

from tonnage.errors import InputError, Problem, Where
from tonnage.facts import gpus
from tonnage.inference.estimate.case import Load
from tonnage.inference.estimate.points import Estimate, estimate
from tonnage.inference.estimate.replica import Replica

if TYPE_CHECKING:
    from collections.abc import Sequence

REQUIRED = ("gpu", "concurrency", "input_tokens", "output_tokens")
TIMES = ("ttft_ms", "tpot_ms")
OPTIONAL = ("tensor_parallel", "pipeline_parallel", "data_parallel", "precision", "framework")
_PRIOR = 0.25
"""Standard deviation of the logarithm of the factor before anything is measured: models left out are off by that."""
_LEAST_SPREAD = 0.05
_TTFT_WEIGHT = 0.25
_NARROWEST = 0.25
_ROBUST = 1.4826
"""Standard deviation of a normal distribution over the median of its absolute deviations."""
_NORMAL = 1.645
"""Ends of a 90 % interval of a normal distribution, in standard deviations."""


class MeasuredLatency(msgspec.Struct, frozen=True):
    """What was measured of ``replica`` under ``load``, in seconds; None where it was not. ``line`` of its file."""

    replica: Replica
    load: Load
    ttft_s: float | None = None
    tpot_s: float | None = None
    line: int = 0


class Calibration(msgspec.Struct, frozen=True):
    """``factor`` on both times; ``spread``: standard deviation of the logarithms that is left; ``rows`` it is from,
    ``source`` their file or server, ``model`` whose."""

    factor: float
    spread: float
    rows: int
    model: str
    source: str


def fit(readings: Sequence[MeasuredLatency], source: str) -> Calibration:
    """The factor of ``readings``, which are of one model.

    Raises InputError: no readings, several models, and as :func:`estimate` where a reading cannot be estimated."""
    models = sorted({reading.replica.shape.name for reading in readings})
    if len(models) != 1:
        found = ", ".join(models) or "none"
        raise InputError.at(f"measurements of {found}", file=source, hint="expected rows of one model")
    logs: list[float] = []
    weights: list[float] = []
    for reading in readings:
        try:
            said = estimate(reading.replica, reading.load)
        except InputError as error:
            problems = [_placed(problem, source, reading.line) for problem in error.problems]
            raise InputError(*problems) from error
        for measured, estimated, weight in (
            (reading.tpot_s, said.tpot_s, 1.0),
            (reading.ttft_s, said.ttft_s, _TTFT_WEIGHT),
        ):
            if measured is not None:
                logs.append(log(measured / estimated))
                weights.append(weight)
    middle = _median(np.array(logs), np.array(weights))
    spread = max(_ROBUST * _median(np.abs(np.array(logs) - middle), np.array(weights)), _LEAST_SPREAD)
    share = len(readings) / (len(readings) + (spread / _PRIOR) ** 2)
    return Calibration(exp(middle * share), spread, len(readings), models[0], source)


def apply(found: Estimate, calibration: Calibration) -> Estimate:
    """``found`` with both times multiplied by the factor, their bands about them as narrow as the rows allow."""
    return replace(
        found,
        ttft_s=found.ttft_s * calibration.factor,
        tpot_s=found.tpot_s * calibration.factor,
        ttft_band_s=_narrowed(found.ttft_s, found.ttft_band_s, calibration),
        tpot_band_s=_narrowed(found.tpot_s, found.tpot_band_s, calibration),
        requests_per_s=found.requests_per_s / calibration.factor,
        output_tokens_per_s=found.output_tokens_per_s / calibration.factor,
        output_tokens_per_s_band=_rates(found, calibration),
        total_tokens_per_s=found.total_tokens_per_s / calibration.factor,
        notes=(*found.notes, f"times {calibration.factor:.3g}, from {calibration.rows} rows of {calibration.source}"),
    )


def parse(text: str, file: str, plain: Replica) -> list[MeasuredLatency]:
    """The readings of a CSV file; what a row does not say is that of ``plain``. Raises InputError with a problem for
    each cell that cannot be used."""
    table = csv.DictReader(io.StringIO(text), restval="")
    columns = [name.strip() for name in table.fieldnames or ()]
    missing = [name for name in REQUIRED if name not in columns]
    if missing or not set(TIMES) & set(columns):
        wanted = missing or ["tpot_ms or ttft_ms"]
        raise InputError.at(
            f"no column {', '.join(wanted)}",
            file=file,
            line=1,
            hint=f"expected {', '.join(REQUIRED)}, and {' or '.join(reversed(TIMES))}, or both",
        )
    table.fieldnames = columns
    problems: list[Problem] = []
    found = []
    try:
        for cells in table:
            row = _Row({name: (cells.get(name) or "").strip() for name in columns}, file, table.line_num, problems)
            before = len(problems)
            reading = row.reading(plain)
            if len(problems) == before:
                found.append(reading)
    except csv.Error as error:
        raise InputError.at(f"not CSV: {error}", file=file, line=table.line_num, hint="check its quotes") from error
    if problems:
        raise InputError(*problems)
    if not found:
        raise InputError.at("no row", file=file, hint="give at least one measurement")
    return found


class _Row:
    """The cells of one line."""

    def __init__(self, cells: dict[str, str], file: str, line: int, problems: list[Problem]) -> None:
        self._cells, self._file, self._line, self._problems = cells, file, line, problems

    def reading(self, plain: Replica) -> MeasuredLatency:
        """What the line says. Problems are noted, and their cells left as those of ``plain``."""
        gpu = plain.gpu
        try:
            gpu = gpus.get(self._cells["gpu"])
        except InputError as error:
            self._problems += [_placed(problem, self._file, self._line, "gpu") for problem in error.problems]
        counts = {name: int(self._number(name, 1, whole=True)) for name in OPTIONAL[:3]}
        replica = replace(
            plain,
            gpu=gpu,
            precision=self._cells.get("precision") or plain.precision,
            framework=self._cells.get("framework") or plain.framework,
            **counts,
        )
        concurrency, prompt, output = (self._number(name, None) for name in REQUIRED[1:])
        load = Load(concurrency, prompt, output)
        times = [self._number(name, 0.0, least=0.0) / 1e3 or None for name in TIMES]
        if times == [None, None]:
            self._refuse("tpot_ms", "no time is given", "give tpot_ms or ttft_ms")
        return MeasuredLatency(replica, load, times[0], times[1], self._line)

    def _number(self, name: str, default: float | None, *, least: float = 1.0, whole: bool = False) -> float:
        text = self._cells.get(name, "")
        if not text and default is not None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not (isfinite(value) and value >= least and (not whole or value == int(value))):
            kind = "whole number" if whole else "number"
            self._refuse(
                name, f"{text!r} is not a {kind} of {least:g} or more", f"write a {kind}, like {least or 12:g}"
            )
            return 1.0
        return value

    def _refuse(self, field: str, message: str, hint: str) -> None:
        self._problems.append(Problem(Where(self._file, self._line, field), message, hint))


def _placed(problem: Problem, file: str, line: int, field: str = "") -> Problem:
    return Problem(Where(file, line, field or problem.where.field), problem.message, problem.hint)


def _median(values: np.ndarray, weights: np.ndarray) -> float:
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[order]) - weights[order] / 2
    return float(np.interp(weights.sum() / 2, sums, values[order]))


def _narrowed(value: float, band: tuple[float, float], calibration: Calibration) -> tuple[float, float]:
    low, high = (log(end / value) for end in band)
    half = _NORMAL * calibration.spread * (1 + 1 / calibration.rows) ** 0.5
    share = min(1.0, max(_NARROWEST, half / ((high - low) / 2)))
    at = value * calibration.factor
    return at * exp(low * share), at * exp(high * share)


def _rates(found: Estimate, calibration: Calibration) -> tuple[float, float]:
    """The band of the throughput: as far from it as before, by what that of the time per token has narrowed."""
    low, high = found.output_tokens_per_s_band
    old = log(found.tpot_band_s[1] / found.tpot_band_s[0])
    new = log(_ratio(_narrowed(found.tpot_s, found.tpot_band_s, calibration)))
    at = found.output_tokens_per_s
    ends = (at / calibration.factor * exp(log(end / at) * new / old) for end in (low, high))
    return next(ends), next(ends)


def _ratio(band: tuple[float, float]) -> float:
    return band[1] / band[0]
