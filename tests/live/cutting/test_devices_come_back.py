"""Which GPUs pods hold after their node, its device plugin, other pods or the controllers were away for a while."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from live.cutting.nvidia_cluster import BEGIN, SEVENTH, WHOLE, NvidiaCluster
from tonnage.fleet.invariants import violations
from tonnage.kube.resources import NODES, PODS
from tonnage.live.annotations import GPUS


@pytest.fixture
def cluster() -> Iterator[NvidiaCluster]:
    made = NvidiaCluster()
    yield made
    assert violations(made.world.snapshot().fleet) == []
    made.close()


def _gpus(cluster: NvidiaCluster) -> dict[str, tuple[int, ...]]:
    return {name: devices for name, (devices, _) in cluster.held().items()}


def test_pods_of_which_nobody_says_where_they_are_hold_as_many_as_before_too(cluster: NvidiaCluster) -> None:
    cluster.pod("p", WHOLE)
    cluster.pod("q", SEVENTH)
    held = cluster.held()
    cluster.offers({})
    assert _gpus(cluster) == {"p": (), "q": ()}
    cluster.offers(BEGIN)
    assert cluster.held() == held
    cluster.restart()
    assert cluster.held() == held


def test_what_a_pod_is_said_to_be_on_is_not_kept_from_it_by_one_of_which_nothing_is_said(
    cluster: NvidiaCluster,
) -> None:
    cluster.pod("p", WHOLE)
    assert _gpus(cluster) == {"p": (1,)}
    cluster.pod("q", WHOLE, "1")
    assert _gpus(cluster) == {"p": (2,), "q": (1,)}


def test_of_two_pods_on_one_gpu_the_second_has_it_once_the_first_is_gone(cluster: NvidiaCluster) -> None:
    cluster.pod("p", WHOLE, "5")
    cluster.pod("q", WHOLE, "5")
    assert _gpus(cluster) == {"p": (5,), "q": ()}
    cluster.client.delete(PODS, "p", "default", grace_s=0)
    cluster.see()
    assert _gpus(cluster) == {"q": (5,)}


def test_a_node_that_comes_back_before_its_device_plugin_gives_them_back_later(cluster: NvidiaCluster) -> None:
    cluster.pod("p", WHOLE, "6")
    node = cluster.client.get(NODES, "n")
    cluster.client.delete(NODES, "n")
    cluster.see()
    cluster.client.create(NODES, {"metadata": {"name": "n", "labels": node["metadata"]["labels"]}})
    cluster.see()
    assert _gpus(cluster) == {"p": ()}
    cluster.offers(BEGIN)
    assert _gpus(cluster) == {"p": (6,)}


def test_controllers_that_begin_while_the_device_plugin_is_away_wait_for_it(cluster: NvidiaCluster) -> None:
    cluster.pod("p", WHOLE, "7")
    cluster.client.patch(PODS, "p", {"metadata": {"annotations": {GPUS: "4"}}}, "default")
    cluster.see()
    cluster.offers({})
    cluster.restart()
    assert _gpus(cluster) == {"p": ()}
    cluster.offers(BEGIN)
    assert _gpus(cluster) == {"p": (4,)}
