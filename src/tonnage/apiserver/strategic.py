"""Strategic merge patch: a merge patch that knows which lists merge item by item.

Source of the rules: kubernetes/kubernetes v1.36 staging/src/k8s.io/apimachinery/pkg/util/strategicpatch, and the
contributor documentation of the directives $patch, $deleteFromPrimitiveList, $setElementOrder and $retainKeys.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from tonnage.apiserver.patches import PatchError
from tonnage.apiserver.schema import FieldSchema, Type, field

JsonObject: TypeAlias = dict[str, Any]

_PATCH, _RETAIN = "$patch", "$retainKeys"
_DELETE_PREFIX, _ORDER_PREFIX = "$deleteFromPrimitiveList/", "$setElementOrder/"


def merge(of: Type, target: Any, patch: JsonObject) -> JsonObject:
    """``target`` with the patch merged in; ``of`` says which lists merge. Neither is changed; parts may be shared.

    Raises PatchError for a directive or a list item that makes no sense.
    """
    directive = patch.get(_PATCH)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _PATCH}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise PatchError(f"unknown patch type found: {directive}")
    merged = dict(target) if isinstance(target, dict) else {}
    if _RETAIN in patch:
        merged = {key: value for key, value in merged.items() if key in patch[_RETAIN]}
    for key, value in patch.items():
        if key.startswith("$"):
            _lone_directive(of, merged, patch, key)
        elif value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = merge(field(of, key).child, merged.get(key), value)
        elif isinstance(value, list) and field(of, key).patch_merges:
            merged[key] = _merge_list(field(of, key), key, merged.get(key) or [], value, patch)
        else:
            merged[key] = value
    return merged


def _lone_directive(of: Type, merged: JsonObject, patch: JsonObject, directive: str) -> None:
    """Deletions from a list of scalars and orders of a list that the patch does not name otherwise."""
    prefix, _, name = directive.partition("/")
    if prefix + "/" not in (_DELETE_PREFIX, _ORDER_PREFIX):
        if directive not in (_PATCH, _RETAIN):
            raise PatchError(f"unknown directive in a strategic merge patch: {directive}")
        return
    if name in patch or not isinstance(merged.get(name), list):
        return
    merged[name] = _merge_list(field(of, name), name, merged[name], [], patch)


def _merge_list(how: FieldSchema, name: str, target: list[Any], items: list[Any], patch: JsonObject) -> list[Any]:
    order = patch.get(_ORDER_PREFIX + name)
    if not how.patch_key:
        gone = patch.get(_DELETE_PREFIX + name, [])
        kept = [one for one in target if one not in gone]
        merged = kept + [one for one in items if one not in kept]
        return _ordered(merged, items if order is None else order, target)
    for item in items:
        if not isinstance(item, dict):
            raise PatchError(f"the items of {name} must be objects")
    if any(item.get(_PATCH) == "replace" for item in items):
        return [item for item in items if item.get(_PATCH) != "replace"]
    key = how.patch_key
    named = [_key(one, key) for one in (items if order is None else order)]
    return _ordered(_merge_items(how, name, target, items), named, [_key(one, key) for one in target], key)


def _merge_items(how: FieldSchema, name: str, target: list[Any], items: list[JsonObject]) -> list[Any]:
    key, merged = how.patch_key, list(target)
    for item in items:
        if key not in item:
            raise PatchError(f"map: {item} does not contain declared merge key: {key}")
        same = [at for at, one in enumerate(merged) if _key(one, key) == item[key]]
        if item.get(_PATCH) == "delete":
            merged = [one for at, one in enumerate(merged) if at not in same]
        elif same:
            merged[same[0]] = merge(how.child, merged[same[0]], item)
        else:
            merged.append(merge(how.child, {}, item))
    return merged


def _key(item: Any, key: str) -> Any:
    return item.get(key) if isinstance(item, dict) else None


def _ordered(merged: list[Any], named: list[Any], before: list[Any], key: str = "") -> list[Any]:
    """The items in the order given by ``named``; others stay where they were, ``before``, relative to these."""

    def identity(item: Any) -> Any:
        return _key(item, key) if key else item

    given = sorted((item for item in merged if identity(item) in named), key=lambda item: named.index(identity(item)))
    others = [item for item in merged if identity(item) not in named]
    result: list[Any] = []
    while given and others:
        here, there = identity(others[0]), identity(given[0])
        first = here in before and there in before and before.index(here) < before.index(there)
        result.append((others if first else given).pop(0))
    return result + given + others
