"""Cards and demands from nodes and pods as the Kubernetes API has them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tonnage.errors import InputError
from tonnage.objects import apps, core
from tonnage.partitioning import documents, mig_parted
from tonnage.partitioning.inventory import CardInventory, inventory

PRODUCT = "NVIDIA-H100-80GB-HBM3"
MIG = "nvidia.com/mig-"


def node(name: str, labels: dict[str, str], allocatable: dict[str, int] | None = None) -> core.Node:
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": PRODUCT, **labels}},
        "status": {"allocatable": allocatable or {}},
    }
    return msgspec.convert(content, core.Node)


def spec(resource: str, count: int, on: str = "") -> dict[str, Any]:
    return {"nodeName": on, "containers": [{"name": "main", "resources": {"limits": {resource: count}}}]}


def pod(name: str, resource: str, count: int = 1, on: str = "", phase: str = "") -> core.Pod:
    metadata = {"name": name, "namespace": "default", "labels": {"app": name.split("-")[0]}}
    content = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec(resource, count, on)}
    return msgspec.convert({**content, "status": {"phase": phase}}, core.Pod)


def layouts(found: CardInventory) -> list[tuple[list[str], int]]:
    """(profiles, how many are in use) of each card."""
    return [([one.profile for one in card.running], len(card.busy)) for card in found.cards]


def test_instances_of_a_mixed_node_lie_on_its_cards_and_pods_hold_the_first_of_them() -> None:
    one = node("a", {"nvidia.com/gpu.count": "3"}, {f"{MIG}3g.40gb": 2, f"{MIG}1g.10gb": 8})
    found = inventory([one], [pod("x", f"{MIG}3g.40gb", on="a"), pod("y", f"{MIG}1g.10gb", 2, on="a")])
    assert layouts(found) == [
        (["1g.10gb"] * 4 + ["3g.40gb"], 3),
        (["1g.10gb"] * 4 + ["3g.40gb"], 0),
        ([], 0),
    ]
    assert [card.name for card in found.cards] == ["a/0", "a/1", "a/2"]


def test_instances_that_cannot_lie_evenly_are_on_no_more_cards_than_the_node_has() -> None:
    one = node("a", {"nvidia.com/gpu.count": "2"}, {f"{MIG}1g.10gb": 9})
    found = layouts(inventory([one], []))
    assert [len(running) for running, _ in found] in ([7, 2], [6, 3], [5, 4], [4, 5], [3, 6], [2, 7])
    # the first card that has room for the next large instance is not always one that leaves room for all
    tight = node("b", {"nvidia.com/gpu.count": "2"}, {f"{MIG}3g.40gb": 2, f"{MIG}4g.40gb": 1, f"{MIG}1g.10gb": 4})
    found = layouts(inventory([tight], []))
    assert sorted(name for running, _ in found for name in running) == ["1g.10gb"] * 4 + ["3g.40gb"] * 2 + ["4g.40gb"]
    assert len(found) == 2


def test_labels_count_the_instances_where_the_node_has_no_status() -> None:
    one = node("a", {"nvidia.com/gpu.count": "2", f"{MIG}7g.80gb.count": "1"})
    assert layouts(inventory([one], [])) == [(["7g.80gb"], 0), ([], 0)]


def test_a_node_of_strategy_single_says_its_profile_in_the_product() -> None:
    labels = {"nvidia.com/gpu.product": f"{PRODUCT}-MIG-1g.10gb", "nvidia.com/gpu.count": "14"}
    one = node("a", labels, {"nvidia.com/gpu": 14})
    found = inventory([one], [pod("x", "nvidia.com/gpu", 2, on="a")])
    assert layouts(found) == [(["1g.10gb"] * 7, 2), (["1g.10gb"] * 7, 0)]


@pytest.mark.parametrize(
    ("config", "first"),
    [
        ("all-1g.10gb", ["1g.10gb"] * 7),
        ("all-balanced", ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]),
        ("all-disabled", []),
        ("halves", ["3g.40gb", "3g.40gb"]),
    ],
)
def test_the_configuration_that_a_label_names_is_what_runs(config: str, first: list[str]) -> None:
    text = (
        "version: v1\nmig-configs:\n  halves:\n  - devices: [0]\n    mig-enabled: true\n    mig-devices: {3g.40gb: 2}\n"
    )
    own = mig_parted.parse(documents.read(text, "own.yaml")[0])
    one = node("a", {"nvidia.com/gpu.count": "2", "nvidia.com/mig.config": config})
    found = inventory([one], [], configs=[own])
    assert sorted(found.cards[0].running and [p.profile for p in found.cards[0].running]) == first
    assert len(found.cards) == 2


def test_cards_that_pods_hold_whole_are_left_out() -> None:
    one = node("a", {"nvidia.com/gpu.count": "4"}, {"nvidia.com/gpu": 4})
    found = inventory(
        [one], [pod("x", "nvidia.com/gpu", 3, on="a"), pod("y", "nvidia.com/gpu", 1, on="a", phase="Failed")]
    )
    assert len(found.cards) == 1


def test_pods_without_a_node_and_pods_that_a_deployment_still_owes_are_demands() -> None:
    metadata = {"name": "web", "namespace": "default"}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": spec(f"{MIG}1g.10gb", 1)}
    owed = {"replicas": 5, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    deployment = msgspec.convert(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": owed}, apps.Deployment
    )
    one = node("a", {}, {f"{MIG}1g.10gb": 7})
    pods = [pod("web-1", f"{MIG}1g.10gb", on="a"), pod("web-2", f"{MIG}1g.10gb"), pod("big", "nvidia.com/gpu")]
    found = inventory([one], pods, [deployment])
    assert [(d.name, d.count, d.profile) for d in found.demands] == [
        ("default/web-2", 1, f"{MIG}1g.10gb"),
        ("default/web", 3, f"{MIG}1g.10gb"),
    ]
    assert found.notes == ["whole GPUs are not planned for: default/big"]


def test_the_price_of_a_node_is_shared_by_its_cards() -> None:
    one = node("a", {"node.kubernetes.io/instance-type": "p5.48xlarge"})
    found = inventory([one], [], hourly={"p5.48xlarge": 80_000_000})
    assert [card.micro_usd_per_hour for card in found.cards] == [10_000_000] * 8


@pytest.mark.parametrize(
    ("labels", "allocatable", "pods", "words"),
    [
        ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM4"}, {}, [], "unknown GPU"),
        ({}, {f"{MIG}1g.11gb": 3}, [], "no cards of h100 hold 3 x 1g.11gb"),
        ({"nvidia.com/mig.config": "mine", "nvidia.com/gpu.count": "1"}, {}, [], "'mine' is not a configuration"),
        (
            {},
            {f"{MIG}1g.10gb": 1},
            [pod("x", f"{MIG}1g.10gb", 3, on="a")],
            "pods hold 2 more of nvidia.com/mig-1g.10gb",
        ),
        ({"nvidia.com/gpu.count": "99999"}, {}, [], "more than 256 devices"),
        ({"nvidia.com/gpu.count": "two"}, {}, [], "metadata.labels.nvidia.com/gpu.count: 'two': expected a number"),
        ({f"{MIG}1g.10gb.count": "-1"}, {}, [], "1g.10gb.count: '-1': expected a number"),
        ({"nvidia.com/gpu.count": "1"}, {f"{MIG}1g.10gb": 8}, [], "gpu.count: 1 x h100 cannot hold 8 x 1g.10gb"),
    ],
)
def test_a_node_that_cannot_be_as_it_says_is_refused(
    labels: dict[str, str], allocatable: dict[str, int], pods: list[core.Pod], words: str
) -> None:
    with pytest.raises(InputError, match=words.replace("(", r"\(")):
        inventory([node("a", labels, allocatable)], pods)


def test_nodes_without_gpus_and_gpus_without_mig_are_passed_over() -> None:
    plain = msgspec.convert({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "cpu"}}, core.Node)
    found = inventory([plain, node("b", {"nvidia.com/gpu.product": "NVIDIA-L40S"}, {"nvidia.com/gpu": 4})], [])
    assert not found.cards
    assert found.notes == ["GPUs that cannot be partitioned: node b (l40s)"]
