"""What the checks of the server's looks share: objects from the recorded tables, changed at a path."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml_text
from tonnage.kube.resources import Resource, by_kind

JsonObject = dict[str, Any]
HERE = Path(__file__).parent


@cache
def recorded(name: str) -> tuple[JsonObject, ...]:
    """The lines of a table that was recorded from kube-apiserver v1.36.3."""
    return tuple(json.loads(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines())


@cache
def _bases() -> dict[str, JsonObject]:
    found: dict[str, JsonObject] = yaml_text.load((HERE / "bases.yaml").read_text(encoding="utf-8"))
    return found


def base(name: str, changes: JsonObject | None = None) -> JsonObject:
    """A good object of ``bases.yaml`` with these changes: a value by path, null to remove it."""
    obj = copy.deepcopy(_bases()[name])
    for path, value in (changes or {}).items():
        put(obj, path, value)
    return obj


def put(obj: Any, path: str, value: Any) -> None:
    """Set what stands at ``a.b.0.c``; None removes it."""
    *steps, last = path.split(".")
    for step in steps:
        obj = obj[int(step)] if isinstance(obj, list) else obj.setdefault(step, {})
    if isinstance(obj, list):
        obj[int(last) : int(last) + 1] = [value]
    elif value is None:
        obj.pop(last, None)
    else:
        obj[last] = value


def resource_of(obj: JsonObject) -> Resource:
    """The resource that serves an object."""
    found = by_kind(obj["apiVersion"], obj["kind"])
    assert found is not None, obj["kind"]
    return found


def named(case: JsonObject) -> str:
    """A case's name in test output."""
    return f"{case['of']}: {json.dumps(case['set'])}"
