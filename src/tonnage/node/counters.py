"""Which metrics an exporter serves: dcgm-exporter's default counters, or a file of counters as dcgm-exporter reads it.

A line of the file is ``field, type, help``; lines that begin with ``#`` and empty ones are skipped
(NVIDIA/dcgm-exporter etc/default-counters.csv).
"""

from __future__ import annotations

import csv
from typing import NamedTuple

from tonnage.errors import InputError, Problem, Where
from tonnage.facts import dcgm_fields, metric_names, names

LABEL = "label"
TYPES = ("gauge", "counter", "histogram", "summary", LABEL)
"""What a line may say of a field; a label is published with every other metric, as its value."""


class DcgmCounter(NamedTuple):
    """A field that is served: ``type`` is one of :data:`TYPES`, ``help`` what # HELP says, word for word."""

    field: str
    type: str
    help: str


def default_counters() -> list[DcgmCounter]:
    """The counters that dcgm-exporter serves as it comes, by name."""
    fields = dcgm_fields.all()
    return [
        DcgmCounter(one.name, one.type, fields[one.name].help)
        for one in metric_names.all()
        if one.name in fields and one.status == "default"
    ]


def read_counters(text: str, file: str) -> list[DcgmCounter]:
    """The counters of such a file, in its order.

    Raises :class:`~tonnage.errors.InputError` with every line that dcgm-exporter would refuse: not three fields, an
    unknown type, a field that does not exist, a field twice."""
    found: dict[str, DcgmCounter] = {}
    problems = []

    def wrong(number: int, field: str, message: str, hint: str) -> None:
        problems.append(Problem(Where(file, number, field), message, hint))

    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        cells = [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True))]
        if len(cells) != 3:
            hint = "write field, type, help; a help text with a comma is put in double quotes"
            wrong(number, "", f"{len(cells)} fields, expected 3", hint)
            continue
        name, type_, help_ = cells
        if type_ not in TYPES:
            wrong(number, "type", f'"{type_}", expected one of {", ".join(TYPES)}', "correct the second field")
        elif name in found:
            wrong(number, "field", f"{name} is there twice", "remove one of the lines")
        elif name not in dcgm_fields.all():
            near = names.near(name, dcgm_fields.all())
            hint = f"did you mean {' or '.join(near)}?" if near else "remove the line"
            wrong(number, "field", f"unknown field {name}", hint)
        else:
            found[name] = DcgmCounter(name, type_, help_)
    if problems:
        raise InputError(*problems)
    return list(found.values())
