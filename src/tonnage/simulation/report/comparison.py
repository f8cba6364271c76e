"""Runs side by side: one row a figure, one column a run, the best value marked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec

from tonnage.simulation.report import formats
from tonnage.simulation.report.headline import Headline, TrainingHeadline, headline, labels
from tonnage.simulation.result import Result, ServiceResult

Better = Literal["higher", "lower", ""]
"""Which end is good; "" where neither is."""


class ComparisonRow(msgspec.Struct, frozen=True):
    """One figure of every run. ``group`` is the service, or "" for the whole run."""

    group: str
    label: str
    values: tuple[float | None, ...]
    texts: tuple[str, ...]
    best: tuple[bool, ...]


class Comparison(msgspec.Struct, frozen=True):
    """Column names and rows; services in the order of the first run that has them."""

    columns: tuple[str, ...]
    rows: tuple[ComparisonRow, ...]


_ServiceFigure = tuple[str, Callable[[ServiceResult], float | None], Callable[[float | None], str], Better]
_RunFigure = tuple[str, Callable[[Result, Headline], float | None], Callable[[float | None], str], Better]

_OF_SERVICE: tuple[_ServiceFigure, ...] = (
    ("SLO met outside grace", lambda service: service.overall.share, formats.percent, "higher"),
    ("In grace (what the surge cost)", lambda service: service.grace.share, formats.percent, "higher"),
    ("TTFT p50", lambda service: service.ttft_ms.p50, formats.milliseconds, "lower"),
    ("TTFT p99", lambda service: service.ttft_ms.p99, formats.milliseconds, "lower"),
    ("TPOT p99", lambda service: service.tpot_ms.p99, formats.milliseconds, "lower"),
    ("Fewest ready replicas", lambda service: service.min_ready_replicas, formats.count, "higher"),
)


def _routing(service: ServiceResult, figure: str) -> float | None:
    if isinstance(service.routing, msgspec.UnsetType):
        return None
    value: float | None = getattr(service.routing, figure)
    return value


def _transfer(service: ServiceResult) -> float | None:
    return None if isinstance(service.routing, msgspec.UnsetType) else service.routing.transfer_ms.p99


_OF_ROUTING: tuple[_ServiceFigure, ...] = (
    ("Prompt tokens found in cache", lambda service: _routing(service, "reuse"), formats.percent, "higher"),
    ("Tokens from lower tiers", lambda service: _routing(service, "tier_tokens"), formats.count, ""),
    ("Requests to another zone", lambda service: _routing(service, "cross_zone"), formats.percent, "lower"),
    ("Prefills by prefill pods", lambda service: _routing(service, "remote_prefills"), formats.count, ""),
    ("KV transfer p99", _transfer, formats.milliseconds, "lower"),
)
"""Shown where a run knows of them."""

_TrainingFigure = tuple[str, Callable[[TrainingHeadline], float | None], Callable[[float | None], str], Better]

_OF_TRAINING: tuple[_TrainingFigure, ...] = (
    ("Workloads done", lambda work: work.done, formats.count, "higher"),
    ("Workloads failed", lambda work: work.failed, formats.count, "lower"),
    ("Last one done after", lambda work: work.finished_s, formats.clock, "lower"),
    ("Mean time to done", lambda work: work.mean_makespan_s, formats.clock, "lower"),
    ("Mean queue wait", lambda work: work.mean_wait_s, formats.clock, "lower"),
    ("Longest queue wait", lambda work: work.worst_wait_s, formats.clock, "lower"),
    ("GPU-hours useful", lambda work: work.gpu_hours.useful, formats.hours, "higher"),
    ("GPU-hours lost", lambda work: work.gpu_hours.lost, formats.hours, "lower"),
    ("GPU-hours for checkpoints", lambda work: work.gpu_hours.checkpoints, formats.hours, "lower"),
    (
        "GPU-hours starting or waiting",
        lambda work: work.gpu_hours.starting + work.gpu_hours.broken,
        formats.hours,
        "lower",
    ),
    ("GPU-hours of partial gangs", lambda work: work.gpu_hours.half, formats.hours, "lower"),
    ("Communication factor", lambda work: work.communication_factor, formats.factor, "lower"),
    ("Restarts", lambda work: work.restarts, formats.count, "lower"),
    ("Evictions", lambda work: work.evictions, formats.count, "lower"),
)
"""Shown where a run has training work."""

TRAINING = "Training"
"""The group of its rows."""

_OF_RUN: tuple[_RunFigure, ...] = (
    ("GPU-hours paid", lambda result, _: result.gpu_hours.paid, formats.hours, "lower"),
    ("GPU-hours allocated", lambda result, _: result.gpu_hours.allocated, formats.hours, ""),
    ("Cost", lambda result, _: result.cost.total_micro_usd, formats.dollars, "lower"),
    ("Cost per million tokens", lambda _, head: head.micro_usd_per_million_tokens, formats.dollars, "lower"),
    ("Most nodes at once", lambda _, head: head.max_nodes, formats.count, ""),
    ("Nodes launched", lambda _, head: head.nodes_bought, formats.count, ""),
    ("Nodes terminated", lambda _, head: head.nodes_returned, formats.count, ""),
    ("Findings", lambda result, _: len(result.findings), formats.count, "lower"),
)


def compare(results: Sequence[Result]) -> Comparison:
    """The figures of ``results`` side by side. A service that a run lacks is "no data" there."""
    names = labels(results)
    heads = [headline(result, name) for result, name in zip(results, names, strict=True)]
    holds = tuple(holds_slo(result) for result in results)
    rows: list[ComparisonRow] = []
    for service in dict.fromkeys(service.name for result in results for service in result.services):
        found = [_find(result, service) for result in results]
        for label, figure, text, better in _OF_SERVICE:
            values = tuple(None if one is None else figure(one) for one in found)
            rows.append(_row(service, label, values, text, better, holds))
        for label, figure, text, better in _OF_ROUTING:
            values = tuple(None if one is None else figure(one) for one in found)
            if any(value is not None for value in values):
                rows.append(_row(service, label, values, text, better, holds))
    rows += _training_rows(heads, holds)
    for label, of_run, text, better in _OF_RUN:
        values = tuple(of_run(result, head) for result, head in zip(results, heads, strict=True))
        if all(value is None for value in values):
            continue
        rows.append(_row("", label, values, text, better, holds))
    return Comparison(tuple(names), tuple(rows))


def _training_rows(heads: Sequence[Headline], holds: tuple[bool, ...]) -> Iterator[ComparisonRow]:
    if all(head.training is None for head in heads):
        return
    for label, figure, text, better in _OF_TRAINING:
        values = tuple(None if head.training is None else figure(head.training) for head in heads)
        if any(value is not None for value in values):
            yield _row(TRAINING, label, values, text, better, holds)


HOLDS = 0.99
"""Share of a service's requests within the SLO from which a run holds it: to be cheap below that is no merit."""


def holds_slo(result: Result) -> bool:
    """Whether every Service of the run met its SLO with this many of its requests."""
    return all(s.overall.share is None or s.overall.share >= HOLDS for s in result.services)


def _find(result: Result, name: str) -> ServiceResult | None:
    return next((service for service in result.services if service.name == name), None)


def _row(
    group: str,
    label: str,
    values: tuple[float | None, ...],
    text: Callable[[float | None], str],
    better: Better,
    among: tuple[bool, ...],
) -> ComparisonRow:
    """``among``: the runs that may be best."""
    texts = tuple(text(value) for value in values)
    return ComparisonRow(group, label, values, texts, _best(values, texts, better, among))


def _best(
    values: tuple[float | None, ...], texts: tuple[str, ...], better: Better, among: tuple[bool, ...]
) -> tuple[bool, ...]:
    """Marks the best value and those that read the same; none where all do, or where neither end is good."""
    known = [value for value, may in zip(values, among, strict=True) if may and value is not None]
    compared = sum(value is not None for value in values)
    if not better or compared < 2 or not known or len(set(texts)) == 1:
        return (False,) * len(values)
    top = max(known) if better == "higher" else min(known)
    shown = texts[values.index(top)]
    return tuple(may and text == shown for text, may in zip(texts, among, strict=True))
