"""The recorded prints: one file for each scenario or kind, a line for each case."""

from __future__ import annotations

import json
from pathlib import Path

from digests.prints import Record

FOLDER = Path(__file__).with_name("recorded")


def file_of(name: str) -> Path:
    """The file that holds a case: the first two parts of its name for examples, else the first."""
    first, second, *_ = name.split("/")
    return FOLDER / (f"{first}-{second}.json" if first == "examples" else f"{first}.json")


def read(name: str) -> Record | None:
    """What is recorded of a case; None where nothing is."""
    return _read(file_of(name)).get(name)


def recorded() -> set[str]:
    """The names of all cases that are recorded."""
    return {name for path in FOLDER.glob("*.json") for name in _read(path)}


def write(records: dict[str, Record]) -> None:
    """Record these, and keep what else there is."""
    for path in {file_of(name) for name in records}:
        _save(path, _read(path) | {name: one for name, one in records.items() if file_of(name) == path})


def forget(names: set[str]) -> None:
    """Remove these."""
    for path in {file_of(name) for name in names}:
        _save(path, {name: one for name, one in _read(path).items() if name not in names})


def _read(path: Path) -> dict[str, Record]:
    found: dict[str, Record] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def _save(path: Path, records: dict[str, Record]) -> None:
    if not records:
        path.unlink(missing_ok=True)
        return
    lines = (f"{json.dumps(name)}: {json.dumps(one, separators=(',', ':'))}" for name, one in sorted(records.items()))
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
