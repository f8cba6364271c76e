"""GPUs are repartitioned by NVIDIA's mig-manager: what is written, what is believed, and what becomes of a failure."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from live.cutting.nvidia_cluster import BEGIN, HALF, HALVES, SEVENTH, WHOLE, NvidiaCluster
from tonnage.control.partitioner import AGAIN
from tonnage.decisions import Applied, Refused
from tonnage.fleet.invariants import violations
from tonnage.kube.resources import CONFIG_MAPS
from tonnage.live.cutting import FIRST_RETRY_NS, KUBELET_NS
from tonnage.partitioning.node_cuts import MIG_STATE
from tonnage.units import NS_PER_S

SEVENTHS = tuple(("1g.10gb", start) for start in range(7))
KUBELET_S, RETRY_S = KUBELET_NS / NS_PER_S, FIRST_RETRY_NS / NS_PER_S


@pytest.fixture
def cluster() -> Iterator[NvidiaCluster]:
    made = NvidiaCluster()
    yield made
    assert violations(made.world.snapshot().fleet) == []
    made.close()


def test_the_layouts_of_a_node_are_those_that_its_label_names(cluster: NvidiaCluster) -> None:
    assert cluster.layouts() == [SEVENTHS, *[None] * 7]


def test_a_config_map_that_changes_is_read_again(cluster: NvidiaCluster) -> None:
    assert cluster.world.pools().configurations.mig.keys() == {"begin"}
    text = "version: v1\nmig-configs:\n  other: [{devices: all, mig-enabled: false}]\n"
    cluster.client.patch(CONFIG_MAPS, "layouts", {"data": {"config.yaml": text}}, "gpu-operator")
    cluster.see()
    assert cluster.world.pools().configurations.mig.keys() == {"other"}


def test_a_config_map_that_mig_parted_would_refuse_changes_nothing_and_is_told(cluster: NvidiaCluster) -> None:
    text = "version: v1\nmig-configs:\n  other: [{devices: some, mig-enabled: false}]\n"
    cluster.client.patch(CONFIG_MAPS, "layouts", {"data": {"config.yaml": text}}, "gpu-operator")
    cluster.see()
    cluster.wait(1)
    cluster.wait(1)
    assert cluster.said.events == [("ConfigMap gpu-operator/layouts", "InvalidConfiguration")]
    assert cluster.layouts() == [SEVENTHS, *[None] * 7]
    outcome = cluster.cut(3, None, HALVES)
    assert isinstance(outcome, Refused) and "'some' names no devices" in outcome.why


def test_the_label_follows_once_mig_manager_can_have_read_the_configuration(cluster: NvidiaCluster) -> None:
    assert cluster.cut(3, None, HALVES) == Applied()
    (config_map,) = cluster.client.list(CONFIG_MAPS, "gpu-operator")
    assert cluster.named == "begin"
    assert cluster.layouts()[3] == (), "nobody is to be placed there meanwhile"
    cluster.wait(KUBELET_S - 1)
    assert cluster.named == "begin"
    cluster.wait(2)
    assert f"{cluster.named}:" in config_map["data"]["config.yaml"]
    assert "begin:" in config_map["data"]["config.yaml"], "what was in it stays"
    assert cluster.node["metadata"]["labels"][MIG_STATE] == "pending"


def test_a_change_is_over_when_the_node_says_so(cluster: NvidiaCluster) -> None:
    cluster.cut(3, None, HALVES)
    cluster.wait(KUBELET_S)
    assert cluster.world.snapshot().relayouts == {("n", 3): HALVES}
    cluster.offers({SEVENTH: 7, WHOLE: 6, HALF: 2})
    assert cluster.layouts()[3] == (), "what the device plugin offers may be of an instance that goes"
    cluster.says("success")
    assert cluster.world.snapshot().relayouts == {}
    assert cluster.layouts() == [SEVENTHS, None, None, HALVES, *[None] * 4]


def test_another_process_knows_as_much(cluster: NvidiaCluster) -> None:
    cluster.cut(3, None, HALVES)
    cluster.restart()
    assert cluster.world.snapshot().relayouts == {("n", 3): HALVES}
    cluster.wait(KUBELET_S)
    assert cluster.named == cluster.order.config  # type: ignore[union-attr]
    cluster.restart()
    assert cluster.layouts()[3] == ()
    cluster.offers({SEVENTH: 7, WHOLE: 6, HALF: 2})
    cluster.says("success")
    cluster.restart()
    assert cluster.layouts()[3] == HALVES


def test_a_node_on_which_mig_manager_works_is_left_alone(cluster: NvidiaCluster) -> None:
    cluster.cut(3, None, HALVES)
    outcome = cluster.cut(4, None, HALVES)
    assert isinstance(outcome, Refused) and "at work on this node" in outcome.why
    assert {device for _, device in cluster.world.snapshot().fixed} == set(range(8)), "nothing is planned there"


def test_a_gpu_with_an_instance_in_use_is_not_cut_for_mig_parted_destroys_all(cluster: NvidiaCluster) -> None:
    cluster.pod("p", SEVENTH, "0:6")
    outcome = cluster.cut(0, SEVENTHS, (("1g.10gb", 6), ("3g.40gb", 0)))
    assert isinstance(outcome, Refused) and "destroys every instance of a GPU" in outcome.why
    assert cluster.world.snapshot().fixed.keys() == {("n", 0)}
    assert cluster.cut(3, None, HALVES) == Applied()


def test_while_nobody_says_which_gpu_a_pod_is_on_none_of_the_node_is_cut(cluster: NvidiaCluster) -> None:
    cluster.pod("p", WHOLE)
    outcome = cluster.cut(3, None, HALVES)
    assert isinstance(outcome, Refused) and "which GPUs pod default/p is on is not known" in outcome.why
    assert cluster.order is None


def test_a_pod_stands_where_its_annotation_says(cluster: NvidiaCluster) -> None:
    cluster.pod("p", WHOLE, "5")
    cluster.pod("q", SEVENTH, "0:2")
    fleet = cluster.world.snapshot().fleet
    assert fleet.pod(fleet.pod_by_key["default", "p"]).devices == (5,)
    (piece,) = fleet.pod(fleet.pod_by_key["default", "q"]).pieces
    assert (piece.device, piece.mask) == (0, 1 << 2)


def test_pods_hold_what_they_are_on_again_once_the_node_says_that_it_is_there(cluster: NvidiaCluster) -> None:
    cluster.pod("p", WHOLE, "5")
    cluster.pod("q", SEVENTH, "0:2")
    held = cluster.held()
    assert {name: devices for name, (devices, _) in held.items()} == {"p": (5,), "q": (0,)}
    cluster.offers({})
    assert cluster.held() == {"p": ((), ()), "q": ((), ())}, "the device plugin has restarted"
    cluster.offers(BEGIN)
    assert cluster.held() == held
    cluster.says("failed")
    assert cluster.held() != held, "how the GPUs are partitioned is not known"
    cluster.says("success")
    assert cluster.held() == held
    assert cluster.world.snapshot().fixed.keys() == {("n", 0)}


def test_a_failure_is_told_turned_back_once_and_not_repeated_for_a_while(cluster: NvidiaCluster) -> None:
    cluster.cut(3, None, HALVES)
    cluster.wait(KUBELET_S)
    cluster.says("failed")
    cluster.wait(1)
    assert cluster.said.events.count(("Node n", "MigConfigFailed")) == 1
    assert (cluster.named, cluster.node["metadata"]["labels"][MIG_STATE]) == ("begin", "pending")
    assert cluster.layouts()[3] == (), "what is there is not known before it says so"
    cluster.offers(BEGIN)
    cluster.says("success")
    assert cluster.layouts() == [SEVENTHS, *[None] * 7]
    outcome = cluster.cut(3, None, HALVES)
    assert isinstance(outcome, Refused) and "1 in a row" in outcome.why
    cluster.world.woken()
    cluster.clock.at_ns += FIRST_RETRY_NS
    assert AGAIN in cluster.world.woken(), "pods may wait for it, and nothing else has changed"
    assert cluster.cut(3, None, HALVES) == Applied()
    cluster.wait(KUBELET_S)
    cluster.says("failed")
    cluster.wait(1)
    cluster.offers(BEGIN)
    cluster.says("success")
    cluster.wait(RETRY_S)
    assert isinstance(cluster.cut(3, None, HALVES), Refused), "twice as long"


def test_what_cannot_be_turned_back_is_left_to_people(cluster: NvidiaCluster) -> None:
    cluster.cut(3, None, HALVES)
    cluster.wait(KUBELET_S)
    cluster.says("failed")
    cluster.wait(1)
    cluster.says("failed")
    for _ in range(3):
        cluster.wait(600)
    assert cluster.said.events.count(("Node n", "MigConfigFailed")) == 2
    assert cluster.named == "begin"
    outcome = cluster.cut(4, None, HALVES)
    assert isinstance(outcome, Refused) and "has failed on this node" in outcome.why


def test_a_change_that_does_not_end_is_told(cluster: NvidiaCluster) -> None:
    """mig-manager that waits in vain for a client of the GPUs to end leaves the state as it is."""
    cluster.cut(3, None, HALVES)
    for _ in range(30):
        cluster.wait(60)
    assert cluster.said.events.count(("Node n", "MigConfigPending")) == 1
    assert cluster.layouts()[3] == ()


def test_mig_mode_of_an_ampere_gpu_is_left_while_pods_are_on_the_node() -> None:
    cluster = NvidiaCluster(instance_type="p4d.24xlarge", profile="1g.5gb")
    try:
        cluster.pod("p", WHOLE, "5")
        outcome = cluster.cut(3, None, (("3g.20gb", 0), ("3g.20gb", 4)))
        assert isinstance(outcome, Refused) and "pods are on the node's GPUs" in outcome.why
        assert cluster.cut(0, tuple(("1g.5gb", n) for n in range(7)), (("3g.20gb", 0), ("3g.20gb", 4))) == Applied()
    finally:
        cluster.close()


def test_who_labels_the_node_himself_is_followed(cluster: NvidiaCluster) -> None:
    cluster.cut(3, None, HALVES)
    cluster.wait(KUBELET_S)
    cluster.label("begin")
    cluster.says("success")
    cluster.wait(1000)
    assert cluster.named == "begin"
    assert cluster.world.snapshot().relayouts == {}
    assert cluster.layouts() == [SEVENTHS, *[None] * 7]


@pytest.mark.parametrize("map_name", ["", None], ids=["the operator's own", "no ClusterPolicy"])
def test_without_a_config_map_to_write_to_nothing_is_cut(map_name: str | None) -> None:
    cluster = NvidiaCluster(map_name)
    try:
        outcome = cluster.cut(3, None, HALVES)
        assert isinstance(outcome, Refused) and "name one of your own in the ClusterPolicy" in outcome.why
    finally:
        cluster.close()


def test_what_a_node_offers_goes_before_a_label_that_it_does_not_follow(cluster: NvidiaCluster) -> None:
    cluster.offers({WHOLE: 8})
    assert cluster.layouts() == [None] * 8
    cluster.offers(BEGIN)
    cluster.says("failed")
    assert len(cluster.layouts()) == 8
