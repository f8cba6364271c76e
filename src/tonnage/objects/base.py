"""What all Kubernetes objects have in common, and how their fields are spelt."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Self

import msgspec

from tonnage.errors import Where

POD_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"

_LAST_STEP = re.compile(r"(?:^|\.)[^.\[\]]+$|\[\d+\]$")


DEFAULT_NAMESPACE = "default"
"""Of objects that name none."""


class Field(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Part of an object: camelCase in YAML and JSON, snake_case here.

    ``gc=False``: these are trees, read once and never tied into a cycle, and a cluster has a million of them.
    """


class OwnerReference(Field, frozen=True, kw_only=True):
    """Who made this object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(Field, frozen=True, kw_only=True):
    """Name, namespace, labels and the rest of ``metadata`` that is read here."""

    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []

    @property
    def deletion_cost(self) -> int:
        """How dear the pod is to its ReplicaSet, by its annotation; 0 without one that is a number."""
        try:
            return int(self.annotations.get(POD_DELETION_COST, "0"))
        except ValueError:
            return 0


class Origin(msgspec.Struct, frozen=True):
    """The file and line at which an object begins; line 0 is unknown."""

    file: str = ""
    line: int = 0


class KubeObject(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True, dict=True):
    """An object with apiVersion, kind and metadata. ``origin`` says where it was read."""

    api_version: str
    kind: str
    metadata: ObjectMeta = ObjectMeta()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def origin(self) -> Origin:
        """Where the object was read; empty for an object made by a program."""
        found: Origin = self.__dict__.get("_origin", Origin())
        return found

    @property
    def lines(self) -> dict[str, int]:
        """Line of each field that was written, by path (``spec.triggers[0].metadata.threshold``)."""
        found: dict[str, int] = self.__dict__.get("_lines", {})
        return found

    @property
    def written(self) -> dict[str, Any]:
        """The object as it was written, with all that is not read here; empty for an object made by a program."""
        found: dict[str, Any] = self.__dict__.get("_written", {})
        return found

    def renamed(self, **names: str) -> Self:
        """The same object with another ``name`` or ``namespace``; where it was read, and what stood there, stay."""
        made = msgspec.structs.replace(self, metadata=msgspec.structs.replace(self.metadata, **names))
        return made.remember(self.origin, self.lines, self.written)

    def remember(self, origin: Origin, lines: dict[str, int], written: dict[str, Any] | None = None) -> Self:
        """Note where the object was read, and what stood there."""
        self.__dict__["_origin"] = origin
        self.__dict__["_lines"] = lines
        if written is not None:
            self.__dict__["_written"] = written
        return self


class Unknown(KubeObject, kw_only=True):
    """An object of a kind that is not read here; kept so that nothing is dropped in silence."""

    content: dict[str, Any] = {}


def where(obj: KubeObject, field: str = "") -> Where:
    """The place of a field, or of the innermost part of its path that was written."""
    return place(obj.origin, obj.lines, field)


LINE = "@"
"""After the path of a text of several lines: on which of them something stands, from 0 (``args[0]@3``)."""
_LINE_OF = re.compile(rf"{LINE}\d+$")


def place(origin: Origin, lines: Mapping[str, int], field: str = "") -> Where:
    """The place of a field of an object that begins at ``origin`` and has its fields on these lines."""
    shown = _LINE_OF.sub("", field)
    if field in lines:
        return Where(origin.file, lines[field], shown)
    path = shown
    while path:
        line = lines.get(path)
        if line is not None:
            return Where(origin.file, line, shown)
        path = _LAST_STEP.sub("", path) if _LAST_STEP.search(path) else path[:-1]
    return Where(origin.file, origin.line, shown)
