"""Server-side apply: what a manager applies is merged in, what it no longer applies is taken out, conflicts are named.

Source: KEP-555; sigs.k8s.io/structured-merge-diff v6 merge; messages of
kubernetes/kubernetes v1.36 staging/src/k8s.io/apimachinery/pkg/util/managedfields/internal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from tonnage.apiserver import ownership
from tonnage.apiserver.ownership import Owner, Tree
from tonnage.apiserver.schema import FieldSchema, Type, field
from tonnage.apiserver.status import StatusError

JsonObject: TypeAlias = dict[str, Any]


def apply(
    of: Type,
    live: JsonObject,
    entries: Sequence[JsonObject],
    config: JsonObject,
    owner: Owner,
    time: str,
    force: bool,
) -> tuple[JsonObject, list[JsonObject]]:
    """(the merged object, its managedFields); ``live`` is empty for an object to be made.

    ``live`` and ``config`` are without identity (:func:`ownership.owned_part`). Raises Refusal (409) with the conflicts
    unless ``force``.
    """
    wanted = ownership.fields(of, config)
    merged = _merge(of, live, config)
    changed, _ = ownership.compare(of, live, merged)
    others = [entry for entry in entries if not owner.is_of(entry)]
    before = next((entry for entry in entries if owner.is_of(entry)), None)
    clashes = [(entry, found) for entry in others if (found := ownership.intersection(entry["fieldsV1"], changed))]
    if clashes and not force:
        raise _conflict(clashes)
    kept = []
    for entry in others:
        left = ownership.difference(entry["fieldsV1"], changed)
        if left:
            kept.append({**entry, "fieldsV1": left})
    given_up = ownership.difference(before["fieldsV1"], wanted) if before else {}
    if given_up:
        held: Tree = wanted
        for entry in kept:
            held = ownership.union(held, entry["fieldsV1"])
        merged = _prune(of, merged, ownership.difference(given_up, held), held)
    if not wanted:
        return merged, kept
    since = before["time"] if before and before["fieldsV1"] == wanted and merged == live else time
    return merged, ownership.in_order([*kept, owner.entry(wanted, since)])


def _merge(of: Type, live: JsonObject, config: JsonObject) -> JsonObject:
    merged = dict(live)
    for key, value in config.items():
        merged[key] = _merge_field(field(of, key), live.get(key), value)
    return merged


def _merge_field(how: FieldSchema, live: Any, value: Any) -> Any:
    if how.atomic or live is None:
        return value
    if isinstance(value, dict) and isinstance(live, dict):
        return _merge(how.child, live, value)
    if isinstance(value, list) and isinstance(live, list):
        if how.is_set:
            return live + [one for one in value if one not in live]
        here, there = ownership.keyed(how, value), ownership.keyed(how, live)
        if here is not None and there is not None:
            joined = [_merge(how.child, item, here[key]) if key in here else item for key, item in there.items()]
            return joined + [item for key, item in here.items() if key not in there]
    return value


def _prune(of: Type, value: JsonObject, gone: Tree, held: Tree) -> JsonObject:
    """The mapping without the fields of ``gone``; mappings that lose all their fields go too."""
    result = dict(value)
    for name, sub in gone.items():
        key = name[2:]
        if not name.startswith("f:") or key not in result:
            continue
        if not sub:
            del result[key]
            continue
        left = _prune_field(field(of, key), result[key], sub, held.get(name, {}))
        if left:
            result[key] = left
        else:
            del result[key]
    return result


def _prune_field(how: FieldSchema, value: Any, gone: Tree, held: Tree) -> Any:
    if isinstance(value, dict):
        return _prune(how.child, value, gone, held)
    if not isinstance(value, list):
        return value
    items = ownership.keyed(how, value)
    if items is None:
        return [one for one in value if ownership.member(one) not in gone]
    left = []
    for key, item in items.items():
        if key not in gone:
            left.append(item)
        elif "." not in gone[key] or key in held:
            left.append(_prune(how.child, item, gone[key], held.get(key, {})))
    return left


def _conflict(clashes: Sequence[tuple[JsonObject, Tree]]) -> StatusError:
    causes: list[JsonObject] = []
    by_owner: dict[str, list[str]] = {}
    for entry, tree in clashes:
        who = f'"{entry.get("manager", "")}"'
        if entry.get("subresource"):
            who += f' with subresource "{entry["subresource"]}"'
        if entry["operation"] == ownership.UPDATE:
            who += f" using {entry['apiVersion']}"
        found = ownership.paths(tree)
        by_owner.setdefault(who, []).extend(found)
        why = f"conflict with {who}"
        causes += [{"reason": "FieldManagerConflict", "message": why, "field": path} for path in found]
    if len(causes) == 1:
        text = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        parts = [
            f"conflicts with {who}:\n" + "\n".join(f"- {one}" for one in by_owner[who]) for who in sorted(by_owner)
        ]
        text = f"Apply failed with {len(causes)} conflicts: " + "\n".join(parts)
    return StatusError(409, "Conflict", text, {"causes": causes})
