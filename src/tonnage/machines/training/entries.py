"""What a scenario says about training work, as written: how much there is, when it arrives, how it is saved."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tonnage.documents import Document, Strict, duration_ns
from tonnage.errors import Problem
from tonnage.objects import quantity

MOST_COPIES = 10_000


class WorkEntry(Strict, frozen=True, kw_only=True):
    """How much there is to do, in one of three ways: ``gpu_hours``; a ``duration`` with all pods; or this many
    ``steps`` of ``step`` each with all pods. ``allreduce``: bytes that every step sums over all GPUs, on top of
    ``step``."""

    gpu_hours: float | None = None
    duration: str = ""
    steps: int | None = None
    step: str = ""
    allreduce: str = ""


class CheckpointEntry(Strict, frozen=True, kw_only=True):
    """Work is saved ``every`` interval of this length, which takes ``write``; to go on from there takes ``load``."""

    every: str
    write: str = "0s"
    load: str = "0s"


class TrainingEntry(Strict, frozen=True, kw_only=True):
    """The work of each gang of ``workload`` (namespace/kind/name), and of each of its pods that is in none.

    ``arrival``: when it is created; of two times each seed has one at random between them. ``copies``: this many of it,
    each of which draws its own.
    """

    workload: str
    work: WorkEntry | None = None
    arrival: str | tuple[str, str] = "0s"
    checkpoint: CheckpointEntry | None = None
    copies: int = 1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Times in ns."""

    every_ns: int
    write_ns: int
    load_ns: int


@dataclass(frozen=True, slots=True)
class TrainingWork:
    """One of ``gpu_hours`` and ``duration_ns`` (with all pods) is above 0. ``step_ns``: of each of its steps;
    ``allreduce_bytes``: what a step sums over all GPUs."""

    gpu_hours: float = 0.0
    duration_ns: int = 0
    step_ns: int = 0
    allreduce_bytes: int = 0


def work_of(entry: WorkEntry) -> TrainingWork:
    """The entry in numbers. Raises ValueError for what cannot be read."""
    if entry.steps is None:
        return TrainingWork(entry.gpu_hours or 0.0, duration_ns(entry.duration) if entry.duration else 0)
    step = duration_ns(entry.step)
    moved = quantity.bytes_(entry.allreduce) if entry.allreduce else 0
    return TrainingWork(duration_ns=entry.steps * step, step_ns=step, allreduce_bytes=moved)


def checkpoint_of(entry: CheckpointEntry) -> Checkpoint:
    """The entry in numbers. Raises ValueError for what cannot be read."""
    return Checkpoint(duration_ns(entry.every), duration_ns(entry.write), duration_ns(entry.load))


def arrival_of(entry: TrainingEntry) -> tuple[int, int]:
    """(earliest, latest) arrival in ns. Raises ValueError for what cannot be read."""
    first, last = (entry.arrival, entry.arrival) if isinstance(entry.arrival, str) else entry.arrival
    return duration_ns(first), duration_ns(last)


def training_problems(field: str, entry: TrainingEntry, document: Document) -> Iterator[Problem]:
    """What is wrong with one entry of the scenario's training; ``field`` is its place."""
    for name, message in (*_own(entry), *problems_of_work(entry.work), *_checkpoint(entry.checkpoint)):
        yield document.problem(f"{field}.{name}", message)


def _own(entry: TrainingEntry) -> Iterator[tuple[str, str]]:
    if entry.workload.count("/") != 2 or not all(entry.workload.split("/")):
        yield "workload", f'"{entry.workload}", expected namespace/kind/name, such as ml/pytorchjob/bert'
    if not 1 <= entry.copies <= MOST_COPIES:
        yield "copies", f"{entry.copies}, expected 1 to {MOST_COPIES}"
    for text in (entry.arrival,) if isinstance(entry.arrival, str) else entry.arrival:
        if problem := _duration(text):
            yield "arrival", problem
            return
    first, last = arrival_of(entry)
    if first > last:
        yield "arrival", f"from {entry.arrival[0]} to {entry.arrival[1]}, expected the earlier time first"


def problems_of_work(entry: WorkEntry | None) -> Iterator[tuple[str, str]]:
    """(field, what is wrong with it) of how much there is to do."""
    if entry is None:
        return
    given = [name for name, there in (("gpuHours", entry.gpu_hours is not None), ("duration", bool(entry.duration)),
                                      ("steps", entry.steps is not None)) if there]  # fmt: skip
    if len(given) != 1:
        found = " and ".join(given) or "none"
        yield "work", f"{found} of gpuHours, duration and steps, expected one"
    if entry.gpu_hours is not None and not 0 < entry.gpu_hours < math.inf:
        yield "work.gpuHours", f"{entry.gpu_hours}, expected a finite number above 0"
    if entry.steps is not None and entry.steps < 1:
        yield "work.steps", f"{entry.steps}, expected at least 1"
    if bool(entry.step) != (entry.steps is not None):
        yield "work", "expected steps together with the duration of a step"
    for name, text in (("duration", entry.duration), ("step", entry.step)):
        if text and (problem := _duration(text, above=0)):
            yield f"work.{name}", problem
    if entry.allreduce:
        if entry.steps is None:
            yield "work.allreduce", "bytes of a step, expected steps and step beside it"
        if _bytes(entry.allreduce) <= 0:
            yield "work.allreduce", f'"{entry.allreduce}" is not a number of bytes above 0, expected e.g. 14Gi'


def _checkpoint(entry: CheckpointEntry | None) -> Iterator[tuple[str, str]]:
    if entry is None:
        return
    for name, text, above in (("every", entry.every, 0), ("write", entry.write, -1), ("load", entry.load, -1)):
        if problem := _duration(text, above=above):
            yield f"checkpoint.{name}", problem


def _duration(text: str, above: int = -1) -> str:
    """What is wrong with a duration; empty if nothing is."""
    try:
        value = duration_ns(text)
    except ValueError:
        return f'"{text}" is not a duration, expected e.g. 10m, 1h30m or 30s'
    return "" if value > above else f'"{text}" is not above 0'


def _bytes(text: str) -> int:
    try:
        return quantity.bytes_(text)
    except ValueError:
        return 0
