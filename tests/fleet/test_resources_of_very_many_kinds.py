"""Clusters that list more kinds of resources than there are columns for."""

from __future__ import annotations

import pytest

from builders import fleet, node, pod
from tonnage.fleet.node_columns import MOST_RESOURCES, OTHERS
from tonnage.fleet.state import Conflict, Fleet

H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}


def full(**own: int) -> Fleet:
    """One node with more kinds of resources than are told apart, and these beside."""
    many = {f"example.com/thing-{i:04d}": 1 for i in range(MOST_RESOURCES + 10)}
    made = fleet(node("n", gpus=2, resources=many | own, labels=H100))
    assert len(made.resources) > MOST_RESOURCES
    return made


@pytest.mark.parametrize("name", ["nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"])
def test_memory_and_cores_of_gpus_are_counted_though_the_table_is_full(name: str) -> None:
    made = full(**{name: 100})
    row = made.add_pod(pod("a", resources={"nvidia.com/gpu": 1, name: 60}))
    column = made.resource(name)
    assert made.resources[column] == name
    assert int(made.free[0, column]) == 100
    made.bind(row, 0)
    assert int(made.free[0, column]) == 40
    other = made.add_pod(pod("b", resources={"nvidia.com/gpu": 1, name: 60}))
    with pytest.raises(Conflict, match=f"has 40 {name} free"):
        made.bind(other, 0)


@pytest.mark.parametrize("name", ["nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared", "habana.ai/gaudi"])
def test_devices_that_are_known_have_a_column_of_their_own_though_the_table_is_full(name: str) -> None:
    made = full()
    assert made.resources[made.resource(name)] == name


def test_other_resources_that_come_last_have_one_column_of_which_no_node_has_anything() -> None:
    made = full()
    late = made.resource("example.com/late")
    assert (late, made.resources[late]) == (made.resource("example.com/later"), OTHERS)
    assert not made.free[:, late].any()
    row = made.add_pod(pod("a", resources={"example.com/later": 1}))
    with pytest.raises(Conflict, match=OTHERS):
        made.bind(row, 0)
