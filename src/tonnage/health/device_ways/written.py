"""Manifests as they are written, and what is said of them: also of those that no API server takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from tonnage.errors import Where
from tonnage.objects.base import DEFAULT_NAMESPACE


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
