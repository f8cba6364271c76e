"""Who labels a simulated node has its GPUs cut so, and reads on the node what has become of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from live.contract.cases import HALVES, SEVENTHS
from live.contract.small import WHY, Small, build
from live.contract.worlds import opened
from tonnage.decisions import Applied, Relayout
from tonnage.facts.labels import MIG_CONFIG
from tonnage.fleet.invariants import violations
from tonnage.kube.resources import CONFIG_MAPS, NODES
from tonnage.live.annotations import MIG_AT_WORK
from tonnage.partitioning.node_cuts import MIG_STATE

ON = "base-03"
SEVENTH, WHOLE = "nvidia.com/mig-1g.10gb", "nvidia.com/gpu"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Small]:
    with opened("embedded") as transport:
        made = build(tmp_path, transport)
        yield made
        assert violations(made.world.snapshot().fleet) == []
        made.close()


def label(small: Small, name: str) -> None:
    """As ``kubectl label node base-03 --overwrite`` does it."""
    small.client.patch(NODES, ON, {"metadata": {"labels": {MIG_CONFIG: name}}})
    small.settle()


def state(small: Small) -> str:
    return str(small.client.get(NODES, ON)["metadata"]["labels"].get(MIG_STATE))


def offers(small: Small) -> dict[str, str]:
    found = small.client.get(NODES, ON)["status"]["allocatable"]
    return {name: n for name, n in found.items() if name.startswith("nvidia.com/") and n != "0"}


def test_a_label_has_all_gpus_of_the_node_cut(small: Small) -> None:
    label(small, "all-1g.10gb")
    assert state(small) == "pending"
    small.run(300)
    assert state(small) == "success"
    assert offers(small) == {SEVENTH: "56"}
    assert small.client.get(NODES, ON)["metadata"]["labels"][f"{SEVENTH}.count"] == "56"
    assert small.layouts() == [SEVENTHS] * 8
    label(small, "all-disabled")
    small.run(300)
    assert offers(small) == {WHOLE: "8"}
    assert f"{SEVENTH}.count" not in small.client.get(NODES, ON)["metadata"]["labels"]
    assert small.layouts() == [None] * 8


def test_a_configuration_of_a_config_map_is_found(small: Small) -> None:
    text = "version: v1\nmig-configs:\n  mine: [{devices: [2], mig-enabled: true, mig-devices: {3g.40gb: 2}}]\n"
    body = {"metadata": {"name": "tonnage-mig-configs"}, "data": {"config.yaml": text}}
    small.client.create(CONFIG_MAPS, body, "gpu-operator")
    label(small, "mine")
    small.run(300)
    assert (state(small), small.layouts()[2]) == ("success", HALVES)


def test_a_name_that_no_config_map_has_fails(small: Small) -> None:
    label(small, "all-1g.10gbb")
    assert state(small) == "failed"
    small.run(300)
    assert offers(small) == {WHOLE: "8"}


def test_a_gpu_in_use_is_not_cut(small: Small) -> None:
    assert small.apply(small.bind(small.pod(1), small.node(ON), 3)) == Applied()
    label(small, "all-1g.10gb")
    assert state(small) == "failed"
    small.run(300)
    assert small.made.cluster.pods["inference", "model-a-serving-00002"].node == ON


def test_the_node_says_which_gpus_are_still_at_work(small: Small) -> None:
    for device in (2, 5):
        assert small.apply(Relayout(small.node(ON), device, None, HALVES, WHY)) == Applied()
    meta = small.client.get(NODES, ON)["metadata"]
    assert meta["annotations"][MIG_AT_WORK] == f"{meta['labels'][MIG_CONFIG]}:2,5"


def test_controllers_that_start_anew_in_the_middle_of_a_change_know_of_it(small: Small) -> None:
    assert small.apply(Relayout(small.node(ON), 2, None, HALVES, WHY)) == Applied()
    assert small.steps is not None
    small.run(10)
    small.world = small.steps.restart()
    assert small.world.snapshot().relayouts == {(ON, 2): HALVES}
    assert small.layouts()[2] == ()
    small.run(200)
    assert small.world.snapshot().relayouts == {}
    assert small.layouts()[2] == HALVES
