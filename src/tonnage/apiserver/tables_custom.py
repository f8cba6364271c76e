"""Cells of custom kinds, by the paths of their columns.

Source: kubernetes/kubernetes v1.36 apiextensions-apiserver/pkg/registry/customresource/tableconvertor.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from tonnage.apiserver.ages import since

JsonObject: TypeAlias = dict[str, Any]

_LAST = "last"
_STEP = re.compile(r"((?:\\.|[^.\\\[])+)(?:\[(\w+)\])?(?:\.|$)")


def cells(obj: JsonObject, columns: Sequence[tuple[str, str]], now_s: float) -> list[Any]:
    """One cell for each (path, type); an empty path is the object's name. What is not there is null."""
    return [_cell(_find(obj, path), type_, now_s) if path else _name(obj) for path, type_ in columns]


def _name(obj: JsonObject) -> str:
    return str(obj.get("metadata", {}).get("name", ""))


@lru_cache(maxsize=1024)
def _steps(path: str) -> tuple[tuple[str, str], ...]:
    """``a.b[Ready].c`` as (key, type of the condition to pick, or ``last``)."""
    return tuple((match[1].replace("\\", ""), match[2] or "") for match in _STEP.finditer(path))


def _find(value: Any, path: str) -> Any:
    for key, picked in _steps(path):
        value = value.get(key) if isinstance(value, dict) else None
        if picked:
            items = value if isinstance(value, list) else []
            named = items[-1:] if picked == _LAST else [item for item in items if item.get("type") == picked]
            value = named[0] if named else None
    return value


def _cell(value: Any, type_: str, now_s: float) -> Any:
    if value is None:
        return None
    if type_ == "date":
        return since(value, now_s) if isinstance(value, str) else None
    if type_ == "integer":
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"))
