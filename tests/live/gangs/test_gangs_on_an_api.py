"""Gangs of every kind on the embedded API: bound all or nothing, whatever comes first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from live.gangs.gang_cluster import KINDS_OF_GANGS, GangCluster, verdicts
from tonnage.kube.resources import PODS


@pytest.fixture
def cluster() -> Iterator[GangCluster]:
    made = GangCluster()
    yield made
    made.stop()


@pytest.mark.parametrize("kind", KINDS_OF_GANGS)
def test_a_gang_waits_until_there_is_room_for_all_of_it(cluster: GangCluster, kind: str) -> None:
    cluster.node("a", 2)
    cluster.gang(kind, 4, "g")
    taken = cluster.tick()
    assert cluster.bound() == {"g": 0}
    assert all("gang" in verdict or "group" in verdict for verdict in verdicts(taken))
    cluster.node("b", 2)
    cluster.tick()
    assert cluster.bound() == {"g": 4}


@pytest.mark.parametrize("kind", KINDS_OF_GANGS)
def test_the_pods_of_a_gang_wait_for_each_other(cluster: GangCluster, kind: str) -> None:
    cluster.node("a", 8)
    cluster.gang(kind, 3, "g")
    last = cluster.gangs["g"][-1]
    cluster.client.delete(PODS, last.name, "ml", grace_s=0)
    cluster.tick()
    assert cluster.bound() == {"g": 0}
    cluster.create(last)
    cluster.tick()
    assert cluster.bound() == {"g": 3}


def test_two_pods_of_a_pytorch_job_do_not_share_one_gpu_out(cluster: GangCluster) -> None:
    cluster.node("a", 1)
    cluster.gang("PyTorchJob", 2, "g")
    cluster.go(300)
    assert cluster.bound() == {"g": 0}
    assert cluster.evicted == 0


@pytest.mark.parametrize("kind", ["JobSet", "PyTorchJob", "LeaderWorkerSet", "KAI", "Kueue"])
def test_informers_bring_gangs_as_they_bring_pods(kind: str) -> None:
    cluster = GangCluster(threads=True)
    try:
        cluster.node("a", 2)
        cluster.gang(kind, 4, "g")
        cluster.tick()
        assert cluster.bound() == {"g": 0}
        cluster.node("b", 2)
        cluster.tick()
        assert cluster.bound() == {"g": 4}
    finally:
        cluster.stop()
        cluster.transport.close()
