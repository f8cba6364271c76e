"""The usage file of `tonnage savings`: a CSV with a row for nodes that are alike and ran at the same time."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from tonnage.costs.usage import NodeUsage, devices
from tonnage.documents import duration_ns
from tonnage.errors import InputError, Problem, Where
from tonnage.facts import instances, names
from tonnage.facts.price_book import CAPACITY_TYPES, OWNED, PriceBook
from tonnage.objects import quantity
from tonnage.units import MIB, NS_PER_HOUR, NS_PER_S, micro_usd

REQUIRED = ("start", "hours", "instance_type")
COLUMNS = (
    *REQUIRED,
    *("nodes", "capacity_type", "zone", "usd_per_hour", "workload"),
    *("gpus_used", "gpus_per_pod", "cpu_per_pod", "memory_per_pod"),
    *("interruptible", "off_hours", "training", "checkpoint", "write", "restart"),
)
_HINT = f"columns are {', '.join(COLUMNS)}"
_MOST_HOURS, _MOST_NODES = 100_000.0, 100_000
_YES, _NO = ("yes", "true", "1"), ("no", "false", "0")
T = TypeVar("T")


@dataclass(slots=True)
class _Row:
    file: str
    line: int
    cells: dict[str, str]
    problems: list[Problem]

    def read(self, column: str, parse: Callable[[str], T], default: T, expected: str) -> T:
        """The cell as a value; its default where there is none, or where it is wrong, which is noted."""
        text = self.cells.get(column, "")
        if not text:
            if column in REQUIRED:
                self.wrong(column, "is missing", expected)
            return default
        try:
            return parse(text)
        except (ValueError, OverflowError, ZeroDivisionError):
            self.wrong(column, f'"{text}", expected {expected}')
            return default

    def wrong(self, column: str, message: str, hint: str = "") -> None:
        self.problems.append(Problem(Where(self.file, self.line, column), message, hint))


def read(path: Path, book: PriceBook) -> list[NodeUsage]:
    """The usage of a file, at the prices that it says, or else at those of the book. Raises InputError with every
    problem: file, line and column, the value, and what was expected."""
    file = str(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError.at(f"cannot read the usage: {error.strerror}", file=file) from error
    except UnicodeDecodeError as error:
        raise InputError.at("cannot read the usage: not UTF-8 text", file=file) from error
    reader = csv.DictReader(text.splitlines(), restkey="", restval="")
    header = [(column or "").strip() for column in reader.fieldnames or ()]
    reader.fieldnames = header
    problems = [_unknown(column, Where(file, 1, column)) for column in header if column not in COLUMNS]
    missing = [column for column in REQUIRED if column not in header]
    problems += [Problem(Where(file, 1, column), "column is missing", _HINT) for column in missing]
    if problems:
        raise InputError(*problems)
    found = []
    try:
        for cells in reader:
            if "" in cells:
                where = Where(file, reader.line_num)
                problems.append(Problem(where, f"more than {len(header)} cells in the row", _HINT))
                continue
            row = _Row(file, reader.line_num, {key: value.strip() for key, value in cells.items()}, problems)
            usage = _usage(row, book)
            if usage is not None:
                found.append(usage)
    except csv.Error as error:
        raise InputError.at(f"not CSV: {error}", file=file, hint="check its quotes") from error
    if problems:
        raise InputError(*problems)
    if not found:
        raise InputError.at("no usage in it", file=file, hint=_HINT)
    return found


def _unknown(column: str, where: Where) -> Problem:
    return names.unknown("column", column, COLUMNS, where=where, hint=_HINT).problems[0]


def _usage(row: _Row, book: PriceBook) -> NodeUsage | None:
    before = len(row.problems)
    start = row.read("start", _time, 0, "a time like 2026-03-02T09:00:00Z, from 1971 to 2199")
    hours = row.read("hours", _positive(_MOST_HOURS), 0.0, f"hours above 0, at most {_MOST_HOURS:g}")
    name = row.cells["instance_type"]
    if name and not instances.known(name):
        row.problems.extend(instances.unknown(name, Where(row.file, row.line, "instance_type")).problems)
    elif not name:
        row.wrong("instance_type", "is missing", "name one, like g6e.12xlarge")
    nodes = row.read("nodes", _whole(_MOST_NODES), 1, f"a whole number from 1 to {_MOST_NODES}")
    kind = row.read("capacity_type", _one_of(CAPACITY_TYPES), "on-demand", f"one of {', '.join(CAPACITY_TYPES)}")
    dollars = row.read("usd_per_hour", _positive(1e6), 0.0, "USD per hour above 0")
    per_pod = row.read("gpus_per_pod", _whole(1024), 1, "a whole number from 1")
    used = row.read("gpus_used", _share_of, None, "a number from 0")
    cpu = row.read("cpu_per_pod", _not_negative(quantity.cpu_milli), 0, "CPUs like 6 or 500m")
    memory = row.read("memory_per_pod", _not_negative(quantity.bytes_), 0, "memory like 32Gi")
    more: dict[str, Any] = {
        column: row.read(column, _flag, default, "yes or no")
        for column, default in (("interruptible", False), ("off_hours", True), ("training", False))
    }
    more |= {f"{column}_s": row.read(column, _seconds, 0.0, "a duration like 15m or 90s") for column in _TIMES}
    if len(row.problems) > before:
        return None
    zone = row.cells.get("zone", "")
    price = micro_usd(dollars) if dollars else _price(book, name, zone, kind)
    if price is None:
        column = "zone" if zone and _price(book, name, "", kind) is not None else "instance_type"
        where = f" in {zone}" if column == "zone" else ""
        row.wrong(column, f"no {kind} price of {name}{where} is known", "give one in usd_per_hour, or with --prices")
        return None
    made = instances.get(name)
    gpus = devices(made)
    if gpus and per_pod > gpus:
        row.wrong("gpus_per_pod", f"{per_pod}, but {name} has {gpus} GPUs", "a pod is on one node")
        return None
    room = Fraction(nodes * gpus if gpus else nodes)
    of_node = (("cpu_per_pod", cpu, made.vcpu * 1000), ("memory_per_pod", memory, made.memory_mib * MIB))
    for column, asked, has in of_node:
        if asked > has:
            whole = f"{made.vcpu} CPUs" if column == "cpu_per_pod" else quantity.format_bytes(has)
            row.wrong(column, f"{row.cells[column]}, but {name} has {whole}", "a pod is on one node")
            return None
    if used is not None and used > room:
        row.wrong("gpus_used", f"{float(used):g}, but {nodes} × {name} have {room}")
        return None
    return NodeUsage(
        start_ns=start,
        end_ns=start + round(hours * NS_PER_HOUR),
        instance_type=name,
        price_micro_usd_per_hour=price,
        nodes=nodes,
        capacity_type=kind,
        zone=zone,
        workload=row.cells.get("workload", ""),
        gpus_used=room if used is None else used,
        gpus_per_pod=per_pod,
        cpu_milli_per_pod=cpu,
        memory_bytes_per_pod=memory,
        **more,
    )


_TIMES = ("checkpoint", "write", "restart")


def _price(book: PriceBook, name: str, zone: str, kind: str) -> int | None:
    if kind == OWNED:
        return book.owned(name, zone)
    offers = [o for o in book.offerings(name) if o.capacity_type == kind and zone in ("", o.zone)]
    return min((o.micro_usd_per_hour for o in offers), default=None)


def _time(text: str) -> int:
    at = datetime.fromisoformat(text)
    if not 1970 < at.year < 2200:  # a day beyond in every zone
        raise ValueError(text)
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return round(at.timestamp()) * NS_PER_S


def _positive(most: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = float(text)
        if not (math.isfinite(value) and 0 < value <= most):
            raise ValueError(text)
        return value

    return parse


def _whole(most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if not 1 <= value <= most:
            raise ValueError(text)
        return value

    return parse


def _share_of(text: str) -> Fraction | None:
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError(text)
    return Fraction(str(value))  # of the text itself, 1e-999999999 would have all its digits


def _not_negative(parse: Callable[[str], int]) -> Callable[[str], int]:
    def parse_it(text: str) -> int:
        value = parse(text)
        if value < 0:
            raise ValueError(text)
        return value

    return parse_it


def _one_of(known: tuple[str, ...]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in known:
            raise ValueError(text)
        return text

    return parse


def _flag(text: str) -> bool:
    if text.lower() in _YES:
        return True
    if text.lower() in _NO:
        return False
    raise ValueError(text)


def _seconds(text: str) -> float:
    return duration_ns(text) / NS_PER_S
