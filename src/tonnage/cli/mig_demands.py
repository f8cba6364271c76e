"""What `tonnage mig plan` is given: demands as options, CSV and YAML, cards as options, clusters as manifests."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tonnage.cli import files
from tonnage.errors import InputError, Problem, Where
from tonnage.facts import mig, names, prices
from tonnage.objects import apps, core, load, quantity, tree
from tonnage.partitioning import documents, mig_parted, notation
from tonnage.partitioning.documents import Document
from tonnage.partitioning.fleet_plan import Card, Demand
from tonnage.partitioning.inventory import cards, inventory
from tonnage.partitioning.layouts import card
from tonnage.units import MIB

_DEMAND_HINT = "demands are like 1g.10gb=20,3g.40gb=4, or 18Gi=3 and 18Gi/2=3 (memory, and compute slices)"
_GPUS_HINT = "GPUs are like h100=8,a30=4, or one layout h100:3g.40gb@4*,1g.10gb@0=2"
_NEED = re.compile(r"(?P<memory>\d+[KMGT]i?)(?:/(?P<compute>\d+))?")
_MOST = 100_000
_LIGHTEST, _HEAVIEST = 0.01, 100.0
"""Weights beyond these differ too much for one program: what is light would be lost in the solver's tolerance."""
_WHO = "a demand"
_EXPECTED = "expected a CSV, YAML or JSON file"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One demand of a file: a profile, or memory and compute slices."""

    name: str = ""
    profile: str = ""
    memory: str | int = ""
    compute: int = 0
    count: int = 1
    weight: float = 1.0
    gpu: str = ""


@dataclass(slots=True)
class Given:
    """Cards and demands, and where each demand stands."""

    cards: list[Card] = field(default_factory=list)
    demands: list[Demand] = field(default_factory=list)
    places: list[Where] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, demand: Demand, at: Where) -> None:
        self.demands.append(demand)
        self.places.append(at)


def read(paths: Sequence[Path], gpus: Iterable[str], demands: Iterable[str]) -> Given:
    """Everything that was given. Raises InputError with every problem: unknown GPUs and profiles with near names,
    counts and weights out of range, memory that no card of the fleet has."""
    given = Given()
    manifests: list[Path] = []
    for path in paths:
        if path.suffix == ".csv":
            _csv(given, path)
        elif path.is_dir() or not _yaml(given, path):
            manifests.append(path)
    if manifests:
        _cluster(given, manifests)
    _options(given, gpus, demands)
    _check(given)
    return given


def _cluster(given: Given, paths: Sequence[Path]) -> None:
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
        given.add(demand, Where(field=demand.name))


def _options(given: Given, gpus: Iterable[str], demands: Iterable[str]) -> None:
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
            given.add(demand, Where(field="--demand"))


def _counted(item: str, option: str, hint: str) -> tuple[str, int]:
    name, equals, written = item.strip().rpartition("=")
    count = int(written) if written.isascii() and written.isdigit() and len(written) < 10 else 0
    if not equals or not name or not 0 < count <= _MOST:
        raise InputError.at(
            f"{item.strip()!r}: expected NAME=COUNT, the count from 1 to {_MOST}", field=option, hint=hint
        )
    return name, count


def _csv(given: Given, path: Path) -> None:
    lines = csv.DictReader(io.StringIO(files.text(path, _EXPECTED)))
    known = Row.__struct_fields__
    for key in lines.fieldnames or ():
        if key not in known:
            raise names.unknown("column", key, known, where=Where(str(path), 1), hint=f"columns are {', '.join(known)}")
    for cells in lines:
        at = Where(str(path), lines.line_num)
        if None in cells:
            raise InputError(Problem(at, "more cells than columns", f"columns are {', '.join(lines.fieldnames or ())}"))
        try:
            row = msgspec.convert({k: v.strip() for k, v in cells.items() if v and v.strip()}, Row, strict=False)
        except msgspec.ValidationError as error:
            raise InputError(Problem(at, str(error), "count and compute are whole numbers, weight a number")) from error
        _row(given, row, at, len(given.demands) + 1)


def _yaml(given: Given, path: Path) -> bool:
    """Whether the file is a list of demands, which is read then."""
    trees = (
        list(tree.parse(files.text(path, _EXPECTED), str(path)))
        if path.suffix in (".yaml", ".yml") and path.exists()
        else []
    )
    if not trees or not all(isinstance(one.value, dict) and "demands" in one.value for one in trees):
        return False
    for document in map(Document, trees):
        rows = document.value.get("demands")
        wrong = [*document.tree.problems]
        if not isinstance(rows, list) or not rows:
            raise InputError(document.problem("demands", "expected a list with at least one demand"))
        for number, value in enumerate(rows):
            at = f"demands[{number}]"
            row: Any = documents.typed(document, value, Row, at, _WHO) if isinstance(value, dict) else None
            if row is None:
                wrong.append(document.problem(at, "expected a mapping", "with profile or memory, and count"))
            elif isinstance(row, list):
                wrong += row
            else:
                wrong += documents.unknown_fields(document, value, Row, at, "a demand has no such field")
                _row(given, row, document.where(at), number + 1)
        if wrong:
            raise InputError(*wrong)
    return True


def _row(given: Given, row: Row, at: Where, number: int) -> None:
    """A demand of a file. Raises InputError for one that asks for nothing, or both ways at once."""
    try:
        mib = -(-quantity.bytes_(row.memory) // MIB) if row.memory != "" else 0
    except ValueError as error:
        raise InputError(Problem(at, str(error), "memory is like 18Gi")) from error
    if bool(row.profile) == bool(mib or row.compute):
        raise InputError(Problem(at, "expected a profile, or memory and compute", "profile: 1g.10gb, or memory: 18Gi"))
    name = row.name or row.profile or f"demand {number}"
    gpu = card(row.gpu).gpu if row.gpu else ""
    given.add(Demand(name, row.count, row.profile, mib, row.compute, gpu, row.weight), at)


def _check(given: Given) -> None:
    """That every demand makes sense for some GPU, and its memory for one of the fleet."""
    problems = []
    known = {one.name for gpu in mig.with_profiles() for one in mig.profiles(gpu, plain=False)}
    resources = {one.resource for gpu in mig.with_profiles() for one in mig.profiles(gpu, plain=False)}
    largest = max((one.on for one in given.cards), key=lambda on: (on.memory_mib, on.gpu), default=None)
    for demand, at in zip(given.demands, given.places, strict=True):
        if not 0 < demand.count <= _MOST:
            problems.append(Problem(at, f"count {demand.count}: expected 1 to {_MOST}"))
        if not _LIGHTEST <= demand.weight <= _HEAVIEST:
            problems.append(Problem(at, f"weight {demand.weight:g}: expected {_LIGHTEST:g} to {_HEAVIEST:g}"))
        if demand.memory_mib < 0 or demand.compute < 0:
            problems.append(Problem(at, "memory and compute cannot be below 0"))
        if demand.profile and demand.profile not in known | resources:
            hint = "profiles are like 1g.10gb; tonnage mig layouts GPU lists them"
            near = {slot.name for one in given.cards for slot in one.on.slots.values()} or known
            problems += names.unknown("MIG profile", demand.profile, near, where=at, hint=hint).problems
        if largest and demand.memory_mib > largest.memory_mib:
            message = f"{demand.memory_mib} MiB is more than any card of the fleet has"
            problems.append(Problem(at, message, f"the largest is {largest.gpu} with {largest.memory_mib} MiB"))
    if not given.cards:
        problems.append(Problem(Where(), "no GPU that can be cut", "give --gpus h100=8, or files with the nodes"))
    if not given.demands:
        problems.append(
            Problem(Where(), "nothing is asked for", "give --demand 1g.10gb=20, or files with demands or pods")
        )
    if problems:
        raise InputError(*problems)
