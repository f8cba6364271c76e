"""Pod templates, wherever they stand in an object: of a Deployment, a worker group, or a kind not read here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from tonnage.objects import core
from tonnage.objects.base import KubeObject, ObjectMeta, Unknown
from tonnage.objects.decode import without_nulls
from tonnage.objects.needs import PodNeeds


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """What pods are made from. ``field``: the path of the pod's spec in its object; ``needs``: what else it names."""

    field: str
    spec: core.PodSpec
    needs: PodNeeds
    metadata: ObjectMeta


def templates(obj: KubeObject) -> Iterator[PodTemplate]:
    """Every pod template of an object that was read from a file, in the order in which they stand. What cannot be read
    as a pod is left out: reading has said so."""
    content = without_nulls(obj.content) if isinstance(obj, Unknown) else obj.written
    for field, above, spec in pod_specs(content, "", {}):
        try:
            read = msgspec.convert(spec, core.PodSpec, strict=False)
            needs = msgspec.convert(spec, PodNeeds, strict=False)
            metadata = msgspec.convert(above.get("metadata") or {}, ObjectMeta, strict=False)
        except msgspec.ValidationError:
            continue
        yield PodTemplate(field, read, needs, metadata)


def mappings(value: Any) -> Iterator[dict[str, Any]]:
    """Every mapping in a value, the outer ones first."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from mappings(inner)


def pod_specs(value: Any, path: str, above: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(path, what it stands in, the spec) of every mapping that lists containers."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from pod_specs(item, f"{path}[{index}]", above)
    elif isinstance(value, dict):
        listed = value.get("containers")
        if isinstance(listed, list) and listed and all(isinstance(one, dict) for one in listed):
            yield path, above, value
            return
        for key, inner in value.items():
            if key not in ("metadata", "status"):
                yield from pod_specs(inner, f"{path}.{key}" if path else str(key), value)
