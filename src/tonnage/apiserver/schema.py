"""How the parts of an object merge: which lists are maps with keys, which are sets, what is replaced as a whole.

The table is ``merge_keys.csv``. What it does not name follows the rule of the API: a mapping merges key by key, a list
is replaced as a whole.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias

Type: TypeAlias = Mapping[str, "FieldSchema"]

_KEY_DEFAULTS: Mapping[str, Any] = {"protocol": "TCP", "containerPort": 0, "port": 0}
"""Of keys that are not texts, or not empty where nothing is written (``default`` in kube-apiserver's OpenAPI)."""


@dataclass(frozen=True, slots=True)
class FieldSchema:
    """How one field merges.

    ``keys``: of a list of mappings, what tells its items apart (server-side apply). ``is_set``: a list of scalars, each
    once. ``atomic``: always replaced whole. ``patch_key``: of a list, what tells its items apart in a strategic merge
    patch (one key). ``patch_merges``: such a list, or one of scalars, merges. ``retain``: $retainKeys is understood.
    """

    child: Type
    keys: tuple[str, ...] = ()
    is_set: bool = False
    atomic: bool = False
    patch_key: str = ""
    patch_merges: bool = False
    retain: bool = False


_PLAIN = FieldSchema({})


@cache
def _types() -> dict[str, dict[str, FieldSchema]]:
    text = files("tonnage.apiserver").joinpath("merge_keys.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
    types: dict[str, dict[str, FieldSchema]] = {row["type"]: {} for row in rows}
    for row in rows:
        strategy = row["patch_strategy"].split("+")
        types[row["type"]][row["field"]] = FieldSchema(
            child=types.get(row["child"], {}),
            keys=tuple(row["keys"].split("+")) if row["keys"] else (),
            is_set=row["merge"] == "set",
            atomic=row["merge"] == "atomic",
            patch_key=row["patch_key"],
            patch_merges="merge" in strategy,
            retain="retainKeys" in strategy,
        )
    return types


def root(kind: str) -> Type:
    """The fields of a kind. A kind that is not in the table has metadata like any other and no lists that merge."""
    types = _types()
    return types.get(kind) or {"metadata": FieldSchema(types["ObjectMeta"])}


def field(of: Type, name: str) -> FieldSchema:
    """How a field merges."""
    return of.get(name, _PLAIN)


def item_key(keys: tuple[str, ...], item: Any) -> tuple[Any, ...] | None:
    """What tells a list's item apart, by the defaults of its keys where it has none; None for another kind of item."""
    if not isinstance(item, dict):
        return None
    values = tuple(item.get(key, _KEY_DEFAULTS.get(key, "")) for key in keys)
    return None if any(value is None for value in values) else values
