"""Manifests as they are written, and what is said of them: also of those that no API server takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from tonnage.errors import Where
from tonnage.objects.base import DEFAULT_NAMESPACE
from tonnage.objects.templates import pod_specs


class Written(NamedTuple):
    """A document and where it begins."""

    content: dict[str, Any]
    where: Where

    @property
    def kind(self) -> str:
        """Its kind, empty where it has none."""
        return str(self.content.get("kind") or "")

    @property
    def version(self) -> str:
        """Its apiVersion, empty where it has none."""
        return str(self.content.get("apiVersion") or "")

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        meta = self.content.get("metadata")
        named = meta if isinstance(meta, dict) else {}
        return str(named.get("namespace") or DEFAULT_NAMESPACE), str(named.get("name") or "")

    @property
    def title(self) -> str:
        """As notes name it."""
        (namespace, name), written = self.key, inner(self.content, "metadata").get("namespace")
        if not name:
            return f"the {self.kind or 'document'}"
        return f"{self.kind} {namespace}/{name}" if written else f"{self.kind} {name}"

    def with_content(self, **fields: Any) -> Written:
        """The same with other fields of its content."""
        return Written({**self.content, **fields}, self.where)


class Note(Struct, frozen=True):
    """Something to know of a conversion. ``lost``: what was said is said no more, or could not be converted."""

    about: str
    where: Where
    text: str
    lost: bool = False


def inner(content: Mapping[str, Any], *path: str) -> dict[str, Any]:
    """The mapping at a path; empty where there is none."""
    value: Any = content
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return dict(value) if isinstance(value, Mapping) else {}


def listed(content: Any, name: str) -> list[dict[str, Any]]:
    """The mappings in the list of that name, themselves; none where there is no such list."""
    found = content.get(name) if isinstance(content, Mapping) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def word(content: Any, name: str) -> str:
    """The text of that name; empty where it is none."""
    found = content.get(name) if isinstance(content, Mapping) else None
    return found if isinstance(found, str) else ""


def part(content: dict[str, Any], name: str) -> dict[str, Any]:
    """The mapping of that name, itself: made where it is not there, or is none."""
    found = content.get(name)
    if not isinstance(found, dict):
        found = content[name] = {}
    return found


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value but mappings, with its path."""
    if not isinstance(value, Mapping):
        yield path, value
        return
    for name, one in value.items():
        yield from leaves(one, f"{path}.{name}" if path else str(name))


def without_owned(documents: Sequence[Written]) -> tuple[list[Written], list[Note]]:
    """The documents without pods, what makes pods, and claims that a controller made for another of them, as in a dump
    of a cluster: it recreates them. A note for each of those others."""
    known = {(one.kind, *one.key): one for one in documents}
    kept: list[Written] = []
    owned: dict[tuple[str, str, str], Counter[str]] = {}
    for one in documents:
        maker = _maker(one, known)
        if maker is None:
            kept.append(one)
            continue
        while (above := _maker(maker, known)) is not None:
            maker = above
        owned.setdefault((maker.kind, *maker.key), Counter())[one.kind] += 1
    notes = []
    for key, kinds in owned.items():
        made = ", ".join(f"{number} {kind}{'s' if number != 1 else ''}" for kind, number in sorted(kinds.items()))
        maker = known[key]
        notes.append(Note(maker.title, maker.where, f"what is made from it is left out, as it is recreated: {made}"))
    return kept, notes


def _maker(one: Written, known: Mapping[tuple[str, str, str], Written]) -> Written | None:
    """The document whose controller made this one; of what has neither pods nor devices none."""
    for owner in listed(inner(one.content, "metadata"), "ownerReferences"):
        maker = known.get((word(owner, "kind"), one.key[0], word(owner, "name"))) if owner.get("controller") else None
        if maker is not None and maker is not one and (one.kind == "ResourceClaim" or _has_pods(one)):
            uids = {word(owner, "uid"), word(inner(maker.content, "metadata"), "uid")} - {""}
            return maker if len(uids) < 2 else None
    return None


def _has_pods(one: Written) -> bool:
    return next(pod_specs(one.content, "", {}), None) is not None
