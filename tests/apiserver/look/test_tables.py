"""What kubectl get prints: rows as kube-apiserver v1.36.3 answered them, recorded from it."""

from __future__ import annotations

from typing import Any

import pytest
from look_checks import base, recorded, resource_of

from tonnage.apiserver import tables
from tonnage.apiserver.ages import human, since
from tonnage.kube.resources import ALL, PODS, Resource

ROWS = recorded("rows.jsonl")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['object']['kind']} {row['name']}")
def test_an_object_has_the_cells_that_kube_apiserver_gives_it(row: dict[str, Any]) -> None:
    assert tables.cells(resource_of(row["object"]), row["object"], row["now"]) == row["cells"]


@pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.plural)
def test_every_kind_has_columns_and_as_many_cells(resource: Resource) -> None:
    columns = tables.columns_of(resource)
    obj = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "a"}}
    assert [column.format for column in columns].count("name") == 1
    assert len(tables.cells(resource, obj, 0.0)) == len(columns)
    assert resource.open or all(column.description for column in columns)


@pytest.mark.parametrize("include", ["Metadata", "Object", "None"])
def test_a_row_carries_what_was_asked_for(include: str) -> None:
    pod = base("pod")
    (row,) = tables.table(PODS, [pod], 0.0, include)["rows"]
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": pod["metadata"]}
    assert row.get("object") == {"Metadata": partial, "Object": pod, "None": None}[include]


def test_a_pod_that_has_ended_is_marked_in_its_row() -> None:
    pod = base("pod", {"status": {"phase": "Succeeded"}})
    (row,) = tables.table(PODS, [pod], 0.0, "None")["rows"]
    assert row["conditions"] == [{"type": "Completed", "status": "True", "reason": "Succeeded"}]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1.5, "0s"),
        (0.9, "0s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (5 * 3600 + 720, "5h12m"),
        (8 * 3600, "8h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (3 * 86400 + 4 * 3600, "3d4h"),
        (8 * 86400 + 4 * 3600, "8d"),
        (729 * 86400, "729d"),
        (730 * 86400, "2y"),
        (800 * 86400, "2y70d"),
        (9 * 365 * 86400 + 86400, "9y"),
    ],
)
def test_ages_are_printed_as_kubernetes_prints_durations(seconds: float, text: str) -> None:
    assert human(seconds) == text


def test_an_age_without_a_time_is_unknown() -> None:
    assert since(None, 0.0) == "<unknown>"
    assert since("2026-01-01T00:00:00Z", 1767225600.0 + 61) == "61s"
