"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386)."""

from __future__ import annotations

from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]


class PatchError(Exception):
    """A patch that cannot be read."""


class PatchRefused(PatchError):
    """A patch that can be read and not done: a test does not hold, or it points at what is not there."""


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386: ``target`` with the patch merged in. Parts of both may be shared by the result; neither is changed."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def apply_json_patch(document: Any, operations: Any) -> Any:
    """RFC 6902, all operations or none. ``document`` is the caller's own and is used up.

    Raises PatchError for what is not a patch, PatchRefused when a test fails or a path does not exist.
    """
    if not isinstance(operations, list):
        raise PatchError("a JSON patch is a list of operations")
    for operation in operations:
        if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
            raise PatchError("each operation of a JSON patch is an object with op and path")
        document = _operate(document, operation)
    return document


def _operate(document: Any, operation: JsonObject) -> Any:
    op, path = operation.get("op"), _pointer(operation["path"])
    if op in ("add", "replace", "test") and "value" not in operation:
        raise PatchError(f"a JSON patch operation {op} has no value")
    if op == "add":
        return _add(document, path, operation["value"])
    if op == "remove":
        return _remove(document, path)
    if op == "replace":
        _get(document, path)
        return _set(document, path, operation["value"])
    if op == "test":
        try:
            found = _get(document, path)
        except PatchRefused:
            found = None  # as evanphx/json-patch: what is missing equals null
        if not _same(found, operation["value"]):
            raise PatchRefused(f"testing path {operation['path']} failed")
        return document
    if op in ("move", "copy"):
        if not isinstance(operation.get("from"), str):
            raise PatchError(f"a JSON patch operation {op} has no from")
        source = _pointer(operation["from"])
        value = _get(document, source)
        if op == "copy":
            return _add(document, path, _copy(value))
        if path[: len(source)] == source and len(path) > len(source):
            raise PatchRefused("a value cannot be moved into itself")
        return _add(_remove(document, source), path, value)
    raise PatchRefused(f"unknown JSON patch operation {op!r}")


def _pointer(text: str) -> list[str]:
    if not text:
        return []
    if not text.startswith("/"):
        raise PatchError(f"{text!r} is not a JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _get(document: Any, path: list[str]) -> Any:
    for part in path:
        if isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, list):
            document = document[_index(part, len(document) - 1)]
        else:
            raise PatchRefused(f"there is nothing at {part!r}")
    return document


def _index(part: str, highest: int) -> int:
    """A position in a list. RFC 6901 allows no sign and no leading zeros."""
    if not part.isdigit() or (len(part) > 1 and part[0] == "0") or int(part) > highest:
        raise PatchRefused(f"there is no position {part!r} in the list")
    return int(part)


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _get(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else _index(last, len(parent)), value)
    else:
        raise PatchRefused(f"nothing can be added at {last!r}")
    return document


def _set(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _get(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    else:
        parent[_index(last, len(parent) - 1)] = value
    return document


def _remove(document: Any, path: list[str]) -> Any:
    _get(document, path)
    if not path:
        return None
    parent, last = _get(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        del parent[last]
    else:
        del parent[_index(last, len(parent) - 1)]
    return document


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(one) for key, one in value.items()}
    return [_copy(one) for one in value] if isinstance(value, list) else value


def _same(one: Any, other: Any) -> bool:
    """Equality of JSON: true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
