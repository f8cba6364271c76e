"""What `tonnage mig plan` is given: demands as options, CSV and YAML, cards as options, clusters as manifests."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from tonnage.cli import files
from tonnage.errors import InputError, Problem, Where
from tonnage.facts import mig, names, prices
from tonnage.facts.tables import PIPED, is_csv
from tonnage.objects import apps, core, load, quantity, tree
from tonnage.partitioning import documents, mig_parted, notation
from tonnage.partitioning.documents import ConfigDocument
from tonnage.partitioning.fleet_plan import Demand, PlannedGpu
from tonnage.partitioning.inventory import cards, inventory
from tonnage.partitioning.layouts import card
from tonnage.units import MIB

_DEMAND_HINT = "demands are like 1g.10gb=20,3g.40gb=4, or 18Gi=3 and 18Gi/2=3 (memory, and compute slices)"
_GPUS_HINT = "GPUs are like h100=8,a30=4, or one layout h100:3g.40gb@4*,1g.10gb@0=2"
_NEED = re.compile(r"(?P<memory>\d+(?:\.\d+)?[KMGT]i?)(?:/(?P<compute>\d{1,9}))?")
_MOST = 100_000
_LIGHTEST, _HEAVIEST = 0.01, 100.0
"""Weights beyond these differ too much for one program: what is light would be lost in the solver's tolerance."""
_WHO = "a demand"
_EXPECTED = "expected a CSV, YAML or JSON file"


class DemandRow(msgspec.Struct, frozen=True, kw_only=True):
    """One demand of a file: a profile, or memory and compute slices."""

    name: str = ""
    profile: str = ""
    memory: str | int = ""
    compute: int = 0
    count: int = 1
    weight: float = 1.0
    gpu: str = ""


Place = Callable[[str], Where]
"""Where a field of a demand stands."""


@dataclass(slots=True)
class MigInput:
    """Cards and demands, and where each demand stands. ``wrong`` has to be fixed first, ``problems`` are warnings."""

    cards: list[PlannedGpu] = field(default_factory=list)
    demands: list[Demand] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    wrong: list[Problem] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, demand: Demand, at: Place) -> None:
        self.demands.append(demand)
        self.places.append(at)


def read(paths: Sequence[Path], gpus: Iterable[str], demands: Iterable[str]) -> MigInput:
    """Everything that was given. Raises InputError with every problem: unknown GPUs and profiles with near names,
    counts and weights out of range, memory that no card of the fleet has."""
    given = MigInput()
    manifests: list[Path] = []
    for path in paths:
        if _is_csv(path):
            _csv(given, path)
        elif path.is_dir() or not _yaml(given, path):
            manifests.append(path)
    if manifests:
        _cluster(given, manifests)
    _options(given, gpus, demands)
    _check(given)
    return given


def _is_csv(path: Path) -> bool:
    return is_csv(path, files.text(path, _EXPECTED) if path == PIPED else "")


def _cluster(given: MigInput, paths: Sequence[Path]) -> None:
    manifest = load.read(paths)
    given.problems += manifest.problems
    specs = []
    for one in manifest.of(core.ConfigMap):
        for text in (one.data or {}).values():
            if "mig-configs" in text:
                specs += [mig_parted.parse(document) for document in documents.read(text, one.origin.file)]
    book = prices.load()
    hourly = {name: book.on_demand(name) or 0 for name in book.by_type}
    found = inventory(manifest.of(core.Node), manifest.of(core.Pod), manifest.of(apps.Deployment), specs, hourly)
    given.cards += found.cards
    given.notes += found.notes
    for demand in found.demands:
        given.add(demand, partial(_named, demand.name))


def _named(name: str, _: str) -> Where:
    """The place of a demand that has no fields."""
    return Where(field=name)


def _options(given: MigInput, gpus: Iterable[str], demands: Iterable[str]) -> None:
    counted: dict[str, int] = {}
    for text in gpus:
        for item in [text] if ":" in text else text.split(","):
            name, count = _counted(item, "--gpus", _GPUS_HINT)
            typed = notation.layout(name if ":" in name else f"{name}:none", field="--gpus")
            on = typed.on
            given.cards += cards(on, count, typed.layout, typed.busy, counted.get(on.gpu, 0))
            counted[on.gpu] = counted.get(on.gpu, 0) + count
    for text in demands:
        for item in text.split(","):
            name, count = _counted(item, "--demand", _DEMAND_HINT)
            need = _NEED.fullmatch(name)
            if need is None:
                demand = Demand(name, count, name)
            else:
                mib = -(-quantity.bytes_(need["memory"]) // MIB)
                demand = Demand(name, count, memory_mib=mib, compute=int(need["compute"] or 0))
                if not mib or need["compute"] == "0":
                    message = f"{item.strip()!r}: memory and compute slices are above 0"
                    raise InputError.at(message, field="--demand", hint=_DEMAND_HINT)
            given.add(demand, partial(_named, "--demand"))


def _counted(item: str, option: str, hint: str) -> tuple[str, int]:
    name, equals, written = item.strip().rpartition("=")
    count = int(written) if written.isascii() and written.isdigit() and len(written) < 10 else 0
    if not equals or not name or not 0 < count <= _MOST:
        raise InputError.at(
            f"{item.strip()!r}: expected NAME=COUNT, the count from 1 to {_MOST}", field=option, hint=hint
        )
    return name, count


def _csv(given: MigInput, path: Path) -> None:
    try:
        number = 0
        for number, (line, cells) in enumerate(_cells(path), 1):
            _record(given, cells, partial(Where, str(path), line), number)
    except csv.Error as error:
        raise InputError.at(f"not valid CSV: {error}", file=str(path), hint="check the quotes") from error
    if not number:
        hint = f"expected a row for each demand below the columns {', '.join(DemandRow.__struct_fields__)}"
        given.wrong.append(Problem(Where(str(path)), "no demand in it", hint))


def _cells(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, cells that are not empty, by column) of each row.

    Raises InputError for columns and rows that cannot be, csv.Error for what is not CSV."""
    lines = csv.DictReader(io.StringIO(files.text(path, _EXPECTED)), strict=True)
    known, columns = DemandRow.__struct_fields__, lines.fieldnames or ()
    for number, key in enumerate(columns):
        at = Where(str(path), 1)
        if key not in known:
            raise names.unknown("column", key, known, where=at, hint=f"columns are {', '.join(known)}")
        if key in columns[:number]:
            raise InputError(Problem(at, f"two columns {key}", "keep one"))
    for cells in lines:
        if None in cells:
            at = Where(str(path), lines.line_num)
            raise InputError(Problem(at, "more cells than columns", f"columns are {', '.join(columns)}"))
        yield lines.line_num, {key: cell.strip() for key, cell in cells.items() if cell and cell.strip()}


def _record(given: MigInput, cells: dict[str, str], at: Place, number: int) -> None:
    try:
        _row(given, msgspec.convert(cells, DemandRow, strict=False), at, number)
    except msgspec.ValidationError as error:
        key = str(error).rpartition("$.")[2].rstrip("`")
        hint = "count and compute are whole numbers, weight a number"
        given.wrong.append(Problem(at(key), f"{cells[key]!r}: it cannot be read", hint))


def _yaml(given: MigInput, path: Path) -> bool:
    """Whether the file is a list of demands, which is read then."""
    trees = (
        list(tree.parse(files.text(path, _EXPECTED), str(path)))
        if path == PIPED or (path.suffix in (".yaml", ".yml") and path.exists())
        else []
    )
    if not trees or not all(isinstance(one.value, dict) and "demands" in one.value for one in trees):
        return False
    for document in map(ConfigDocument, trees):
        rows = document.value.get("demands")
        given.wrong += document.tree.problems
        if not isinstance(rows, list) or not rows:
            raise InputError(document.problem("demands", "expected a list with at least one demand"))
        for number, value in enumerate(rows):
            at = f"demands[{number}]"
            row: Any = documents.typed(document, value, DemandRow, at, _WHO) if isinstance(value, dict) else None
            if row is None:
                given.wrong.append(document.problem(at, "expected a mapping", "with profile or memory, and count"))
                continue
            given.wrong += documents.unknown_fields(document, value, DemandRow, at, "a demand has no such field")
            if isinstance(row, list):
                given.wrong += row
            else:
                _row(given, row, partial(_inside, document, at), number + 1)
    return True


def _inside(document: ConfigDocument, at: str, key: str) -> Where:
    return document.where(f"{at}.{key}" if key else at)


def _row(given: MigInput, row: DemandRow, at: Place, number: int) -> None:
    """A demand of a file; wrong is one that asks for nothing, or both ways at once."""
    try:
        mib = -(-quantity.bytes_(row.memory) // MIB) if row.memory != "" else 0
    except ValueError as error:
        given.wrong.append(Problem(at("memory"), str(error), "memory is like 18Gi"))
        return
    if bool(row.profile) == bool(mib or row.compute):
        message, hint = "expected a profile, or memory and compute", "profile: 1g.10gb, or memory: 18Gi"
        given.wrong.append(Problem(at(""), message, hint))
        return
    try:
        gpu = card(row.gpu).gpu if row.gpu else ""
    except InputError as error:
        given.wrong += [replace(problem, where=at("gpu")) for problem in error.problems]
        return
    name = row.name or row.profile or f"demand {number}"
    given.add(Demand(name, row.count, row.profile, mib, row.compute, gpu, row.weight), at)


def _check(given: MigInput) -> None:
    """That every demand makes sense for some GPU, and its memory for one of the fleet."""
    problems = given.wrong
    known = {one.name for gpu in mig.with_profiles() for one in mig.profiles(gpu, plain=False)}
    resources = {one.resource for gpu in mig.with_profiles() for one in mig.profiles(gpu, plain=False)}
    largest = max((one.on for one in given.cards), key=lambda on: (on.memory_mib, on.gpu), default=None)
    for demand, at in zip(given.demands, given.places, strict=True):
        if not 0 < demand.count <= _MOST:
            problems.append(Problem(at("count"), f"{demand.count}: expected 1 to {_MOST}"))
        if not _LIGHTEST <= demand.weight <= _HEAVIEST:
            problems.append(Problem(at("weight"), f"{demand.weight:g}: expected {_LIGHTEST:g} to {_HEAVIEST:g}"))
        for key, value in (("memory", demand.memory_mib), ("compute", demand.compute)):
            if value < 0:
                problems.append(Problem(at(key), f"{value}: expected 0 or more"))
        if demand.profile and demand.profile not in known | resources:
            hint = "profiles are like 1g.10gb; tonnage mig layouts GPU lists them"
            near = {slot.name for one in given.cards for slot in one.on.slots.values()} or known
            problems += names.unknown("MIG profile", demand.profile, near, where=at("profile"), hint=hint).problems
        if largest and demand.memory_mib > largest.memory_mib:
            message = f"{demand.memory_mib} MiB is more than any card of the fleet has"
            problems.append(
                Problem(at("memory"), message, f"the largest is {largest.gpu} with {largest.memory_mib} MiB")
            )
    if not given.cards:
        problems.append(
            Problem(Where(), "no GPU that can be partitioned", "give --gpus h100=8, or files with the nodes")
        )
    if not given.demands and not given.wrong:
        problems.append(
            Problem(Where(), "nothing is asked for", "give --demand 1g.10gb=20, or files with demands or pods")
        )
    if problems:
        raise InputError(*sorted(problems, key=lambda one: (one.where.file, one.where.line)))
