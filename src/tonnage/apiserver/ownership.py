"""Who set which field: sets of fields in the form of FieldsV1, and the managers that own them.

A set is a tree of mappings. ``f:name`` is a field, ``k:{…}`` an item of a keyed list, ``v:…`` a member of a set, ``.``
the item itself; a node without children is owned as a whole.
Source: KEP-555; sigs.k8s.io/structured-merge-diff v6 fieldpath.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from tonnage.apiserver.schema import FieldSchema, Type, field, item_key

JsonObject: TypeAlias = dict[str, Any]
Tree: TypeAlias = dict[str, Any]

APPLY, UPDATE = "Apply", "Update"
_OWNED_META = ("labels", "annotations", "finalizers", "ownerReferences", "generateName")
_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode


def owned_part(obj: JsonObject) -> JsonObject:
    """What of an object can be owned: all but its identity and what the server keeps."""
    meta = {key: obj["metadata"][key] for key in _OWNED_META if key in obj["metadata"]}
    rest = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")}
    return {"metadata": meta, **rest} if meta else rest


def fields(of: Type, value: JsonObject) -> Tree:
    """The set of all fields of a mapping."""
    return {f"f:{key}": _tree(field(of, key), one) for key, one in value.items()}


def _tree(how: FieldSchema, value: Any) -> Tree:
    if how.atomic or not value:
        return {}
    if isinstance(value, dict):
        return fields(how.child, value)
    if isinstance(value, list):
        items = keyed(how, value)
        if items is not None:
            return {key: {".": {}, **fields(how.child, item)} for key, item in items.items()}
        if how.is_set:
            return {member(one): {} for one in value}
    return {}


def keyed(how: FieldSchema, items: list[Any]) -> dict[str, JsonObject] | None:
    """A list's items by their ``k:{…}``; None when the list is not a map or an item lacks its key."""
    if not how.keys:
        return None
    found: dict[str, JsonObject] = {}
    for item in items:
        values = item_key(how.keys, item)
        if values is None:
            return None
        found["k:" + _encode(dict(zip(how.keys, values, strict=True))).decode()] = item
    return found


def member(value: Any) -> str:
    """The name of a member of a set."""
    return "v:" + _encode(value).decode()


def duplicates(of: Type, value: JsonObject, path: str = "") -> Iterator[str]:
    """Every item of a keyed list or set that stands in it again, as kube-apiserver says it."""
    for name, one in value.items():
        yield from _duplicates(field(of, name), one, f"{path}.{name}")


def _duplicates(how: FieldSchema, value: Any, path: str) -> Iterator[str]:
    if how.atomic:
        return
    if isinstance(value, dict):
        yield from duplicates(how.child, value, path)
    elif isinstance(value, list):
        seen: set[str] = set()
        for item in value:
            shown = _shown_key(how, item)
            if shown and shown in seen:
                yield f"{path}: duplicate entries for key {shown}"
            seen.add(shown)
            if isinstance(item, dict):
                yield from duplicates(how.child, item, f"{path}{shown}")


def _shown_key(how: FieldSchema, item: Any) -> str:
    """``[name="a"]`` of a keyed list, ``[="a"]`` of a set; empty of any other."""
    if how.is_set:
        return f"[={_encode(item).decode()}]"
    values = item_key(how.keys, item) if how.keys else None
    if values is None:
        return ""
    pairs = (f"{key}={_encode(one).decode()}" for key, one in zip(how.keys, values, strict=True))
    return f"[{','.join(pairs)}]"


def compare(of: Type, old: JsonObject, new: JsonObject) -> tuple[Tree, Tree]:
    """(fields added or changed, fields removed) from one mapping to the other."""
    changed: Tree = {}
    removed: Tree = {}
    for key, value in new.items():
        if key not in old:
            changed[f"f:{key}"] = _tree(field(of, key), value)
        elif old[key] != value:
            _note(f"f:{key}", _compare(field(of, key), old[key], value), changed, removed)
    for key, value in old.items():
        if key not in new:
            removed[f"f:{key}"] = _tree(field(of, key), value)
    return changed, removed


def _note(name: str, found: tuple[Tree, Tree] | None, changed: Tree, removed: Tree) -> None:
    """``found`` None: the field changed as a whole."""
    if found is None:
        changed[name] = {}
        return
    if found[0]:
        changed[name] = found[0]
    if found[1]:
        removed[name] = found[1]


def _compare(how: FieldSchema, old: Any, new: Any) -> tuple[Tree, Tree] | None:
    if how.atomic:
        return None
    if isinstance(old, dict) and isinstance(new, dict):
        return compare(how.child, old, new)
    if not isinstance(old, list) or not isinstance(new, list):
        return None
    if how.is_set:
        added: Tree = {member(one): {} for one in new if one not in old}
        gone: Tree = {member(one): {} for one in old if one not in new}
        return added, gone
    before, now = keyed(how, old), keyed(how, new)
    if before is None or now is None:
        return None
    changed: Tree = {}
    removed: Tree = {}
    for key, item in now.items():
        if key not in before:
            changed[key] = {".": {}, **fields(how.child, item)}
        elif before[key] != item:
            _note(key, compare(how.child, before[key], item), changed, removed)
    for key, item in before.items():
        if key not in now:
            removed[key] = {".": {}, **fields(how.child, item)}
    return changed, removed


def union(one: Tree, other: Tree) -> Tree:
    """Fields in either."""
    merged = dict(one)
    for key, sub in other.items():
        merged[key] = union(merged[key], sub) if key in merged else sub
    return merged


def difference(one: Tree, other: Tree) -> Tree:
    """Fields in the first and not in the other."""
    left: Tree = {}
    for key, sub in one.items():
        if key not in other:
            left[key] = sub
        elif sub and other[key]:
            if rest := difference(sub, other[key]):
                left[key] = rest
        elif sub or (other[key] and "." not in other[key]):
            left[key] = sub
    return left


def intersection(one: Tree, other: Tree) -> Tree:
    """Fields in both; a field owned as a whole meets any part of it."""
    both: Tree = {}
    for key in one.keys() & other.keys():
        if not one[key] or not other[key]:
            both[key] = {}
        elif found := intersection(one[key], other[key]):
            both[key] = found
    return both


def paths(tree: Tree, prefix: str = "") -> list[str]:
    """The fields of a set as text, sorted: ``.spec.containers[name="x"].image``."""
    found = []
    for key, sub in tree.items():
        if key == ".":
            found.append(prefix)
            continue
        kind, _, text = key.partition(":")
        if kind == "f":
            path = f"{prefix}.{text}"
        elif kind == "k":
            path = prefix + "[" + ",".join(f"{k}={_encode(v).decode()}" for k, v in _decode(text).items()) + "]"
        else:
            path = f"{prefix}[={text}]"
        found += paths(sub, path) if sub else [path]
    return sorted(found)


@dataclass(frozen=True, slots=True)
class Owner:
    """Who writes: an entry of metadata.managedFields without its set."""

    manager: str
    operation: str
    api_version: str
    subresource: str = ""

    def entry(self, owned: Tree, time: str) -> JsonObject:
        """The entry with a set."""
        entry: JsonObject = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": time,
            "fieldsType": "FieldsV1",
            "fieldsV1": owned,
        }
        return {**entry, "subresource": self.subresource} if self.subresource else entry

    def is_of(self, entry: JsonObject) -> bool:
        """Whether an entry is this owner's."""
        mine = (self.manager, self.operation, self.subresource)
        return mine == (entry.get("manager", ""), entry.get("operation"), entry.get("subresource", "")) and (
            self.operation == APPLY or entry.get("apiVersion") == self.api_version
        )


def updated(
    of: Type, entries: Sequence[JsonObject], old: JsonObject, new: JsonObject, owner: Owner, time: str
) -> list[JsonObject]:
    """managedFields after an update that made ``new`` of ``old`` (both as :func:`owned_part` gives them)."""
    changed, removed = compare(of, old, new)
    if not changed and not removed:
        return list(entries)
    touched = union(changed, removed)
    result, mine = [], {}
    for entry in entries:
        if owner.is_of(entry):
            mine = entry["fieldsV1"]
            continue
        left = difference(entry["fieldsV1"], touched)
        if left:
            result.append(entry if left == entry["fieldsV1"] else {**entry, "fieldsV1": left})
    own = union(difference(mine, removed), changed)
    return in_order([*result, owner.entry(own, time)] if own else result)


def in_order(entries: Sequence[JsonObject]) -> list[JsonObject]:
    """Entries in the order in which they are stored."""
    keys = ("operation", "time", "manager", "apiVersion", "subresource")
    return sorted(entries, key=lambda entry: tuple(str(entry.get(key, "")) for key in keys))
