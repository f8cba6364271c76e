"""Labels as columns of numbers: what they say is what each label set says, however many came since."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from builders import fleet, node
from tonnage.fleet.labels import LabelColumns, alike
from tonnage.fleet.state import FleetNode

KEYS = ("zone", "rack", "pool")


def some(rng: Random, count: int) -> list[dict[str, str]]:
    return [{key: str(rng.randrange(4)) for key in KEYS if rng.random() < 0.8} for _ in range(count)]


@pytest.mark.parametrize("seed", range(6))
def test_a_column_says_of_each_set_its_value_as_sets_are_added(seed: int) -> None:
    rng = Random(seed)
    sets: list[dict[str, str]] = []
    columns = LabelColumns(sets)
    for _ in range(5):
        sets += some(rng, rng.randrange(8))
        for key in (*KEYS, "nowhere"):
            numbers, values = columns.of(key)
            assert [values[n] if n >= 0 else None for n in numbers.tolist()] == [one.get(key) for one in sets]
            assert values == list(dict.fromkeys(one[key] for one in sets if key in one)), "in the order of first sets"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("keys", [(), ("zone",), ("rack", "zone"), KEYS])
def test_places_are_alike_where_all_columns_say_the_same(seed: int, keys: tuple[str, ...]) -> None:
    sets = some(Random(seed), 40)
    columns = LabelColumns(sets)
    first, numbers = alike([columns.of(key)[0] for key in keys], len(sets))
    said = [tuple(one.get(key) for key in keys) for one in sets]
    order = list(dict.fromkeys(said))
    assert numbers.tolist() == [order.index(one) for one in said]
    assert first.tolist() == [said.index(one) for one in order]


def test_of_no_places_none_are_alike() -> None:
    first, numbers = alike([np.zeros(0, np.int64)], 0)
    assert (len(first), len(numbers)) == (0, 0)


def test_the_columns_of_a_fleet_follow_nodes_that_come_and_labels_that_change() -> None:
    made = fleet(node("a", labels={"zone": "x"}), node("b", labels={}))
    rows = made.node_by_name

    def zones() -> dict[str, str | None]:
        numbers, values = made.label_columns.of("zone")
        number = {name: int(numbers[made.label_set[row]]) for name, row in rows.items()}
        return {name: values[n] if n >= 0 else None for name, n in number.items()}

    assert zones() == {"a": "x", "b": None}
    made.add_node(FleetNode("c", {"cpu": 1000}, {"zone": "y"}))
    made.set_labels(rows["b"], {"zone": "z"})
    assert zones() == {"a": "x", "b": "z", "c": "y"}
    with made.what_if():
        made.set_labels(rows["a"], {"zone": "w"})
        assert zones()["a"] == "w"
    assert zones() == {"a": "x", "b": "z", "c": "y"}
