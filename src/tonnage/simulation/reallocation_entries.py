"""Reallocations as a scenario has them, and what they cannot mean."""

from __future__ import annotations

import msgspec

from tonnage.documents import Document, Strict, duration_ns
from tonnage.errors import Problem
from tonnage.simulation.fault_entries import duration_problems


class ReallocationEntry(Strict, frozen=True, kw_only=True):
    """``gpus`` GPUs of the workload ``from`` are given to ``to``, as `tonnage realloc` does it: ``at`` a time, for good
    or ``until`` another."""

    at: str
    source: str = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    gpus: int
    until: str = ""


def reallocation_problems(field: str, entry: ReallocationEntry, duration: str, document: Document) -> list[Problem]:
    """What is wrong with a reallocation, the field ``field`` of a scenario of this duration."""
    found = duration_problems(f"{field}.at", entry.at, document, positive=False)
    if entry.until:
        found += duration_problems(f"{field}.until", entry.until, document)
    if entry.gpus < 1:
        found.append(document.problem(f"{field}.gpus", f"{entry.gpus} GPUs, expected at least 1"))
    if found or duration_problems("duration", duration, document):
        return found
    if duration_ns(entry.at) >= duration_ns(duration):
        text = f'"{entry.at}" is not before the end of the run, {duration}: it would never come'
        found.append(document.problem(f"{field}.at", text))
    if entry.until and duration_ns(entry.until) <= duration_ns(entry.at):
        found.append(document.problem(f"{field}.until", f'"{entry.until}" is not after {entry.at}'))
    return found
