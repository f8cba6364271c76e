"""Objects to YAML: camelCase, defaults left out, the same text for equal objects."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec
import yaml

from tonnage.objects.base import KubeObject, Unknown
from tonnage.objects.tree import scalar

_ALWAYS = {
    "Budget": frozenset({"nodes"}),
    "Disruption": frozenset({"consolidateAfter"}),
    "TopologySpreadConstraint": frozenset({"whenUnsatisfiable"}),
}
"""Fields with a default here that the API server has none for."""


def dump(objects: Iterable[KubeObject]) -> str:
    """The objects as YAML documents, in their order, fields in the order of their types, maps sorted by key.

    Fields that are not read here (``data/unread_fields.csv``) are not written either.
    """
    return written(obj.content if isinstance(obj, Unknown) else plain(obj) for obj in objects)


def written(contents: Iterable[Any], flow: bool | None = False) -> str:
    """What is already dicts, lists and scalars, as YAML documents that Kubernetes' tooling reads as the same. ``flow``
    None: lists and maps of scalars alone stand on one line."""
    return "---\n".join(
        yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1 << 20, default_flow_style=flow)
        for content in contents
    )


def plain(value: Any) -> Any:
    """The value as dicts, lists and scalars, without what is default."""
    if isinstance(value, msgspec.Struct):
        return _struct(value)
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in sorted(value.items())}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def _struct(value: msgspec.Struct) -> dict[str, Any]:
    always = _ALWAYS.get(type(value).__name__, frozenset())
    found = {}
    for attribute, name, default in _fields(type(value)):
        inner = getattr(value, attribute)
        if inner is not None and (inner != default or name in always):
            found[name] = plain(inner)
    return found


@cache
def _fields(type_: type[msgspec.Struct]) -> tuple[tuple[str, str, Any], ...]:
    """(attribute, name in YAML, default) of each field; NODEFAULT equals nothing."""
    return tuple((field.name, field.encode_name, _default(field)) for field in msgspec.structs.fields(type_))


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Quotes every string that Kubernetes' tooling would read as something else, and writes scripts as blocks."""


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    if not isinstance(scalar(text), str):
        style = '"'
    elif "\n" in text and text.replace("\n", "").isprintable() and text.isascii():
        style = "|"
    else:
        style = None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _string)
