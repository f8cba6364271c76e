"""Reads the CSV files in ``data/``."""

from __future__ import annotations

import csv
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

PIPED = Path("/dev/stdin")
"""Standard input as a file, which has no name to go by."""


def rows(file: str) -> list[dict[str, str]]:
    """The rows of ``data/<file>``, cells by column name, keys in the column ``source`` spelt out."""
    table = _read(file)
    spelt_out = _sources()
    for row in table:
        row["source"] = spelt_out.get(row["source"], row["source"])
    return table


def whole(cell: str) -> int | None:
    """An integer cell; None where the cell is empty, which is "not known" or "does not apply"."""
    return int(cell) if cell else None


def scaled(cell: str, unit: float) -> float | None:
    """A decimal cell times ``unit``; None where the cell is empty."""
    return float(cell) * unit if cell else None


@lru_cache(maxsize=1)
def _sources() -> dict[str, str]:
    return {row["key"]: row["citation"] for row in _read("sources.csv")}


def is_csv(path: Path, text: str) -> bool:
    """Whether a user's file is CSV: by its name; what is piped by its first line, which has commas and no colon."""
    if path != PIPED:
        return path.suffix.lower() == ".csv"
    first = next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
    return "," in first and ":" not in first


def _read(file: str) -> list[dict[str, str]]:
    text = (files("tonnage.facts") / "data" / file).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
