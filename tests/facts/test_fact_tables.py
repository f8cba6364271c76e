"""Every table of facts: rows have a source, keys resolve, values are of the right kind."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import tonnage.facts
from tonnage.facts import names, tables

DATA = Path(tonnage.facts.__file__).parent / "data"
TABLES = sorted(path.name for path in DATA.glob("*.csv") if path.name != "sources.csv")


def _raw(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", TABLES)
def test_every_row_of_a_table_names_its_source(name: str) -> None:
    rows = tables.rows(name)
    assert rows
    assert [row for row in rows if len(row["source"]) < 10] == []


@pytest.mark.parametrize("name", TABLES)
def test_no_row_of_a_table_has_too_many_or_too_few_cells(name: str) -> None:
    assert [row for row in _raw(name) if None in row or None in row.values()] == []


def test_every_citation_is_used_and_its_key_is_unique() -> None:
    keys = [row["key"] for row in _raw("sources.csv")]
    used = {row["source"] for name in TABLES for row in _raw(name)}
    assert len(keys) == len(set(keys))
    assert set(keys) <= used


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("accelerator_instances.csv", ("instance_type",)),
        ("cpu_instances.csv", ("instance_type",)),
        ("instance_families.csv", ("family",)),
        ("on_demand_prices.csv", ("instance_type", "region")),
        ("spot_prices.csv", ("instance_type", "zone_id")),
        ("on_demand_price_history.csv", ("seen_on", "instance_type")),
        ("zones.csv", ("zone",)),
        ("zones.csv", ("zone_id",)),
        ("gpus.csv", ("name",)),
        ("models.csv", ("name",)),
        ("mig_profiles.csv", ("gpu", "profile")),
        ("storage.csv", ("name",)),
        ("owned_gpus.csv", ("gpu",)),
        ("ownership.csv", ("name",)),
        ("rule_faults.csv", ("rule", "claim")),
        ("durations.csv", ("name",)),
        ("metric_names.csv", ("name",)),
        ("topology_labels.csv", ("label",)),
        ("gpu_topologies.csv", ("instance_type",)),
        ("collective_latencies.csv", ("link",)),
    ],
)
def test_no_two_rows_of_a_table_are_about_the_same_thing(name: str, key: tuple[str, ...]) -> None:
    found = [tuple(row[column] for column in key) for row in _raw(name)]
    assert len(found) == len(set(found))


def test_an_instance_type_is_in_one_of_the_two_tables_only() -> None:
    both = [{row["instance_type"] for row in _raw(name)} for name in ("accelerator_instances.csv", "cpu_instances.csv")]
    assert both[0] & both[1] == set()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("h10", ("h100",)),
        ("H100", ("h100",)),
        ("zzzzzz", ()),
    ],
)
def test_near_names_look_like_what_was_typed(name: str, expected: tuple[str, ...]) -> None:
    assert names.near(name, ["t4", "h100", "mixtral"]) == expected


def test_near_names_do_not_depend_on_the_order_of_the_known_ones() -> None:
    known = ["g5.xlarge", "g6.xlarge", "g4.xlarge"]
    assert names.near("g.xlarge", known) == names.near("g.xlarge", reversed(known))


def test_an_unknown_name_proposes_the_nearest_or_else_the_hint() -> None:
    assert "did you mean h100" in str(names.unknown("GPU", "h10", ["h100", "t4"], hint="see the list"))
    assert "see the list" in str(names.unknown("GPU", "quux", ["h100", "t4"], hint="see the list"))
