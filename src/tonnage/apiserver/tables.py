"""Objects as meta.k8s.io/v1 Tables: the columns and cells that ``kubectl get`` prints.

Columns are ``table_columns.csv``. The server fills in all of them, wide ones too; kubectl chooses, sorts and aligns.
Source: kubernetes/kubernetes v1.36 pkg/printers/internalversion/printers.go.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias

from tonnage.apiserver import tables_custom, tables_kinds, tables_pods
from tonnage.kube.resources import RESOURCE_CLAIMS, Resource

JsonObject: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column. ``path`` is for custom kinds: where in the object the cell's value stands."""

    name: str
    type: str
    format: str
    priority: int
    path: str
    description: str

    def definition(self) -> JsonObject:
        """As the API writes it."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


@cache
def columns(kind: str) -> tuple[TableColumn, ...]:
    """The columns of a kind, in order."""
    text = files("tonnage.apiserver").joinpath("table_columns.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return tuple(
        TableColumn(row["name"], row["type"], row["format"], int(row["priority"]), row["path"], row["description"])
        for row in rows
        if row["kind"] == kind
    )


def columns_of(resource: Resource) -> tuple[TableColumn, ...]:
    """The columns of a kind; of one that a CRD defines, those that it names."""
    if not resource.open:
        return columns(resource.kind)
    name = TableColumn("Name", "string", "name", 0, "", f"The {resource.kind}'s name.")
    return (name, *(TableColumn(one.name, one.type, "", one.priority, one.path, "") for one in resource.columns))


def table(resource: Resource, objects: Sequence[JsonObject], now_s: float, include: str) -> JsonObject:
    """A Table of the objects, one row each.

    ``now_s``: seconds since the epoch, from which ages are counted. ``include``: what each row carries besides its
    cells, ``Metadata`` (the default), ``Object`` or ``None``.
    """
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": [column.definition() for column in columns_of(resource)],
        "rows": [_row(resource, obj, now_s, include) for obj in objects],
    }


def _row(resource: Resource, obj: JsonObject, now_s: float, include: str) -> JsonObject:
    row: JsonObject = {"cells": cells(resource, obj, now_s)}
    if resource.kind == "Pod":
        conditions = tables_pods.row_conditions(obj)
        if conditions:
            row["conditions"] = conditions
    if include == "Object":
        row["object"] = obj
    elif include != "None":
        partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
        row["object"] = {**partial, "metadata": obj.get("metadata", {})}
    return row


def cells(resource: Resource, obj: JsonObject, now_s: float) -> list[Any]:
    """The cells of one object, one for each column."""
    if resource == RESOURCE_CLAIMS:
        return tables_kinds.resource_claim(obj, now_s)
    if resource.custom or resource.open:
        paths = [(column.path, column.type) for column in columns_of(resource)]
        return tables_custom.cells(obj, paths, now_s)
    if resource.kind == "Pod":
        return tables_pods.cells(obj, now_s)
    return tables_kinds.CELLS[resource.kind](obj, now_s)
