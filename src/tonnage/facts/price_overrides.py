"""A person's own prices, from a CSV or YAML file, on top of the bundled ones.

A CSV file has a header with the columns ``instance_type``, ``usd_per_hour`` and, if wanted, ``zone``,
``capacity_type`` and ``as_of``. A YAML file is a list of mappings with the same keys. ``capacity_type`` is
on-demand unless said. A row of the capacity type reserved is a capacity reservation of EC2: its id in ``reservation``,
how many instances in ``count``, and in ``ends`` when a capacity block ends; it has a zone and no price. By ``tags``
(``team=ml;env=prod``), ``owner`` and ``match`` an EC2NodeClass may select it.

The first row of an instance type that is not known here describes it: ``vcpu``, ``memory_gib``, and where it has GPUs
``gpu`` and ``gpu_count`` (:mod:`tonnage.facts.own_types`).

Without a zone, the price holds in each zone where that capacity type is offered, or in
the default zones if nowhere yet. Later rows win over earlier ones.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tonnage.errors import InputError, Problem, Where
from tonnage.facts import instances, names, own_types, price_book, tables
from tonnage.units import from_rfc3339, micro_usd

_REQUIRED = ("instance_type", "usd_per_hour")
_OF_RESERVATIONS = ("reservation", "count", "ends", "tags", "owner", "match")
_MATCHES = ("open", "targeted")
_COLUMNS = (*_REQUIRED, "zone", "capacity_type", "as_of", *_OF_RESERVATIONS, *own_types.COLUMNS)
_ZONE = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]+[a-z]")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_RESERVATION = re.compile(r"cr-[0-9a-z]+")
_ACCOUNT = re.compile(r"[0-9]{12}")
_COUNT = re.compile(r"[1-9][0-9]{0,5}")


class _Row(Struct, frozen=True):
    """Text of the cells by column, and the line of each (CSV: one line for all)."""

    file: str
    line: int
    cells: dict[str, str]
    lines: dict[str, int]

    def where(self, field: str) -> Where:
        return Where(self.file, self.lines.get(field, self.line), field)


class _Override(Struct, frozen=True):
    name: str
    zone: str
    capacity_type: str
    micro_usd_per_hour: int
    as_of: str
    source: str


def apply(bundled: price_book.PriceBook, path: Path) -> price_book.PriceBook:
    """``bundled`` with the prices of ``path`` in place of, or in addition to, its own.

    Raises :class:`~tonnage.errors.InputError` with a problem (file, line, field) for each value that cannot
    be used.
    """
    problems: list[Problem] = []
    try:
        rows = list(_rows(path, problems))
        own = _own_types(rows, problems)
        kept = [row for row in rows if row.cells.get("instance_type", "") not in own or own[row.cells["instance_type"]]]
        found = [one for row in kept if not _is_reserved(row) and (one := _checked(row, own, problems)) is not None]
        reserved = [
            held for row in kept if _is_reserved(row) and (held := _reservation(row, own, problems)) is not None
        ]
    except csv.Error as error:
        raise InputError.at(f"not CSV: {error}", file=str(path), hint="check its quotes") from error
    if problems:
        raise InputError(*problems)
    types = [one for one in own.values() if one is not None]
    region = _region([*(one.zone for one in found), *(one.zone for one in reserved)], bundled.region, path)
    if region != bundled.region:
        mine = [(o.name, _offering(o, o.zone)) for o in found]
        as_of = max((o.as_of for o in found), default="")
        return price_book.book(as_of, region, mine, reserved, types)
    offers = {
        (name, offer.zone, offer.capacity_type): offer
        for name, offerings in bundled.by_type.items()
        for offer in offerings
    }
    for override in found:
        for zone in _zones(override, offers, bundled.region):
            offers[override.name, zone, override.capacity_type] = _offering(override, zone)
    pairs = [(name, offer) for (name, _, _), offer in offers.items()]
    return price_book.book(bundled.as_of, bundled.region, pairs, (*bundled.reservations, *reserved), types)


def _region(zones: list[str], bundled: str, path: Path) -> str:
    """The region that the rows are of: the bundled one, or one other if every row names a zone there."""
    regions = {instances.region_of(zone) if zone else bundled for zone in zones}
    if len(regions) > 1:
        names = ", ".join(sorted(regions))
        hint = f"a file holds the prices of one region; a row without a zone is of {bundled}"
        raise InputError.at(f"prices of several regions: {names}", file=str(path), field="zone", hint=hint)
    return regions.pop() if regions else bundled


def _offering(override: _Override, zone: str) -> price_book.Offering:
    return price_book.Offering(
        zone,
        override.capacity_type,
        override.micro_usd_per_hour,
        override.as_of,
        instances.region_of(zone),
        override.source,
    )


def _zones(
    override: _Override, offers: dict[tuple[str, str, str], price_book.Offering], region: str
) -> tuple[str, ...]:
    if override.zone:
        return (override.zone,)
    offered = tuple(zone for name, zone, kind in offers if name == override.name and kind == override.capacity_type)
    return offered or price_book.default_zones(region)


def _is_reserved(row: _Row) -> bool:
    return row.cells.get("capacity_type", "") == price_book.RESERVED


_OwnTypes = dict[str, instances.InstanceType | None]
"""By name; None: its description cannot be used."""


def _own_types(rows: list[_Row], problems: list[Problem]) -> _OwnTypes:
    """The types that rows describe, each by the first that does."""
    found: _OwnTypes = {}
    for row in rows:
        name = row.cells.get("instance_type", "")
        columns = list(own_types.described(row.cells))
        if not name or not columns:
            continue
        if instances.known(name):
            message = f"{name} is known, and so is its {columns[0]}"
            problems.append(
                Problem(row.where(columns[0]), message, "leave it empty, or give the type a name of its own")
            )
        elif name not in found:
            found[name] = own_types.read(name, row.cells, row.where, f"{row.file}:{row.line}", problems)
        elif found[name] is not None:
            first = found[name]
            again = own_types.read(name, row.cells, row.where, "", problems)
            if again is not None and first is not None and again != replace(first, source=""):
                message = f"{name} is described in another way in line {first.source.rpartition(':')[2]}"
                problems.append(Problem(row.where(columns[0]), message, "describe it once"))
    return found


def _reservation(row: _Row, own: _OwnTypes, problems: list[Problem]) -> price_book.Reservation | None:
    before = len(problems)
    name, zone = _machine(row, own, problems)
    if not zone:
        problems.append(Problem(row.where("zone"), "a reservation without a zone", "it is of one, like us-east-1a"))
    if row.cells.get("usd_per_hour", ""):
        message = "a reservation has no price here: it is paid for whether it is used or not"
        problems.append(Problem(row.where("usd_per_hour"), message, "leave it empty"))
    id_, count, ends, tags, owner, match = (row.cells.get(column, "") for column in _OF_RESERVATIONS)
    if not _RESERVATION.fullmatch(id_):
        problems.append(Problem(row.where("reservation"), f"{id_!r} is not the id of one", "ids are like cr-0123abc"))
    if not _COUNT.fullmatch(count):
        problems.append(Problem(row.where("count"), f"{count!r} is not a number of instances", "a number above 0"))
    ends_ns = None
    if ends:
        try:
            ends_ns = from_rfc3339(ends)
        except ValueError:
            hint = "write it as 2026-12-01T11:30:00Z"
            problems.append(Problem(row.where("ends"), f"{ends!r} is not a time", hint))
    pairs = [tuple(part.strip() for part in one.split("=", 1)) for one in tags.split(";") if one.strip()]
    if any(len(pair) != 2 or not pair[0] for pair in pairs):
        problems.append(Problem(row.where("tags"), f"{tags!r} are not tags", "write them as team=ml;env=prod"))
    if owner and not _ACCOUNT.fullmatch(owner):
        problems.append(Problem(row.where("owner"), f"{owner!r} is not the id of an account", "it has twelve digits"))
    if match and match not in _MATCHES:
        problems.append(Problem(row.where("match"), f"unknown match {match!r}", f"it is {' or '.join(_MATCHES)}"))
    if len(problems) > before:
        return None
    own_tags = tuple(sorted((pair[0], pair[1]) for pair in pairs))
    source = f"{row.file}:{row.line}"
    return price_book.Reservation(id_, name, zone, int(count), ends_ns, source, own_tags, owner, match)


def _machine(row: _Row, own: _OwnTypes, problems: list[Problem]) -> tuple[str, str]:
    """The instance type and the zone of a row, checked; the zone may be missing."""
    name = row.cells.get("instance_type", "")
    if not name:
        problems.append(Problem(row.where("instance_type"), "no instance type", "name one, like g6e.12xlarge"))
    elif not instances.known(name) and name not in own:
        problems.extend(instances.unknown(name, row.where("instance_type")).problems)
    zone = row.cells.get("zone", "")
    if zone and not _ZONE.fullmatch(zone):
        problems.append(
            Problem(row.where("zone"), f"{zone!r} is not an availability zone", "zones are like us-east-1a")
        )
    return name, zone


def _checked(row: _Row, own: _OwnTypes, problems: list[Problem]) -> _Override | None:
    before = len(problems)
    name, zone = _machine(row, own, problems)
    price = _price(row, problems)
    for column in _OF_RESERVATIONS:
        if row.cells.get(column, ""):
            message = f"{column} is of reservations: the capacity type is not reserved"
            problems.append(Problem(row.where(column), message, "set capacity_type: reserved, or leave it empty"))
    kind = row.cells.get("capacity_type", "") or price_book.ON_DEMAND
    if kind not in price_book.CAPACITY_TYPES:
        problems.append(
            Problem(
                row.where("capacity_type"),
                f"unknown capacity type {kind!r}",
                "it is on-demand (the default), spot, owned or reserved",
            )
        )
    as_of = row.cells.get("as_of", "")
    if as_of and not _DATE.fullmatch(as_of):
        problems.append(Problem(row.where("as_of"), f"{as_of!r} is not a date", "write it as YYYY-MM-DD"))
    if len(problems) > before or price is None:
        return None
    return _Override(name, zone, kind, price, as_of, f"{row.file}:{row.line}")


LEAST_USD, MOST_USD = 1e-6, 1e6
"""An hour of anything costs at least a micro-dollar and less than a million dollars."""


def _price(row: _Row, problems: list[Problem]) -> int | None:
    text = row.cells.get("usd_per_hour", "")
    try:
        dollars = float(text)
    except ValueError:
        dollars = math.nan
    if math.isfinite(dollars) and LEAST_USD <= dollars <= MOST_USD:
        return micro_usd(dollars)
    message = f"{text!r} is not a price" if text else "no price"
    problems.append(
        Problem(row.where("usd_per_hour"), message, "give USD per hour above 0 (at most a million), like 1.861")
    )
    return None


def _rows(path: Path, problems: list[Problem]) -> Iterator[_Row]:
    file = str(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError.at(
            f"cannot read the price file: {error.strerror}", file=file, hint="give a .csv or .yaml file"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError.at("cannot read the price file: not UTF-8 text", file=file) from error
    if tables.is_csv(path, text):
        yield from _csv_rows(file, text, problems)
    elif path.suffix.lower() in (".yaml", ".yml") or path == tables.PIPED:
        yield from _yaml_rows(file, text, problems)
    else:
        raise InputError.at(
            f"cannot tell what a {path.suffix or 'nameless'} file holds",
            file=file,
            hint="give a .csv or .yaml file",
        )


def _csv_rows(file: str, text: str, problems: list[Problem]) -> Iterator[_Row]:
    reader = csv.DictReader(text.splitlines(), restkey="", restval="")
    header = [(column or "").strip() for column in reader.fieldnames or ()]
    reader.fieldnames = header
    for column in header:
        problems.extend(_column_problems(column, Where(file, 1, column)))
    for column in _REQUIRED:
        if column not in header:
            problems.append(Problem(Where(file, 1, column), "column is missing", f"columns are {', '.join(_COLUMNS)}"))
    if problems:
        return
    for cells in reader:
        if "" in cells:
            problems.append(Problem(Where(file, reader.line_num), f"more than {len(header)} cells in the row"))
            continue
        yield _Row(file, reader.line_num, {key: value.strip() for key, value in cells.items()}, {})


def _yaml_rows(file: str, text: str, problems: list[Problem]) -> Iterator[_Row]:
    import yaml  # only whoever has a YAML price file pays for the import

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 0
        raise InputError.at(f"not YAML: {getattr(error, 'problem', error)}", file=file, line=line) from error
    if root is None:
        return
    if not isinstance(root, yaml.SequenceNode):
        raise InputError.at(
            "expected a list of prices",
            file=file,
            line=1,
            hint=f"each a mapping with the keys {', '.join(_COLUMNS)}",
        )
    for item in root.value:
        line = item.start_mark.line + 1
        if not isinstance(item, yaml.MappingNode):
            problems.append(Problem(Where(file, line), "expected a mapping", f"with the keys {', '.join(_COLUMNS)}"))
            continue
        cells: dict[str, str] = {}
        lines: dict[str, int] = {}
        for key, value in item.value:
            column, at = str(key.value), key.start_mark.line + 1
            problems.extend(_column_problems(column, Where(file, at, column)))
            cells[column] = value.value.strip() if isinstance(value, yaml.ScalarNode) else "<nested>"
            lines[column] = at
        yield _Row(file, line, cells, lines)


def _column_problems(column: str, where: Where) -> tuple[Problem, ...]:
    if column in _COLUMNS:
        return ()
    return names.unknown("column", column, _COLUMNS, where=where, hint=f"columns are {', '.join(_COLUMNS)}").problems
