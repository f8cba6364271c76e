"""Fields that Kubernetes knows and that are not read here (data/unread_fields.csv): no reason for a warning."""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources


@cache
def table() -> dict[str, frozenset[str]]:
    """Known fields without an attribute, by struct."""
    text = resources.files("tonnage.objects").joinpath("data/unread_fields.csv").read_text(encoding="utf-8")
    return {row["struct"]: frozenset(row["fields"].split()) for row in csv.DictReader(text.splitlines())}


def unread(struct: str) -> frozenset[str]:
    """Known fields of this struct that have no attribute."""
    return table().get(struct, frozenset())
