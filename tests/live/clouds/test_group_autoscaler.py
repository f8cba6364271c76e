"""Node groups on a cluster, sized as the Cluster Autoscaler does: moto, the embedded API, kubelets that join."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

pytest.importorskip("boto3", reason="boto3 is not installed (pip install boto3)")
pytest.importorskip("moto", reason="moto is not installed (pip install 'moto[autoscaling,ec2]')")

from fake_aws import Aws, mocked, template_tags
from group_cluster import GPU, GroupCluster

from tonnage.control.policy import Policy
from tonnage.decisions import Applied, Disrupt, Evict, Launch, Return

pytestmark = pytest.mark.peer

GPU_TAINT = template_tags(taint={GPU: "true:NoSchedule"})
UNNEEDED_S = 601
"""Longer than --scale-down-unneeded-time and --scale-down-delay-after-add (ten minutes)."""


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)  # back-off
    monkeypatch.setattr("botocore.retries.bucket.TokenBucket.acquire", lambda *_, **__: True)  # adaptive mode's pace
    with mocked() as made:
        yield made


@pytest.fixture
def cluster(aws: Aws) -> Iterator[GroupCluster]:
    aws.group(desired=0, maximum=9, tags=GPU_TAINT)
    made = GroupCluster(aws, policy=Policy(provisioning="cluster-autoscaler"))
    yield made
    made.stop()


def kinds(taken: Sequence[tuple[object, object]]) -> list[str]:
    """What was decided, once all of it has taken effect."""
    assert all(outcome == Applied() for _, outcome in taken)
    return [type(decision).__name__ for decision, _ in taken]


def test_a_machine_on_its_way_is_counted_until_its_device_plugin_has_registered(
    aws: Aws, cluster: GroupCluster
) -> None:
    cluster.pods("a", "b")
    cluster.place()
    assert kinds(cluster.buy()) == [Launch.__name__] * 2
    assert aws.size()[0] == 2
    cluster.read()
    assert cluster.buy() == []
    cluster.join(devices=False)
    assert cluster.buy() == [], "Ready without GPUs: the pods still wait, and nothing more is asked for"
    names = cluster.join()
    cluster.place()
    assert sorted(cluster.bound().values()) == sorted(names)


def test_an_empty_machine_goes_once_it_has_been_unneeded_for_ten_minutes(aws: Aws, cluster: GroupCluster) -> None:
    cluster.pods("a", "b")
    cluster.place()
    cluster.buy()
    cluster.read()
    cluster.join()
    cluster.place()
    cluster.clock.move(UNNEEDED_S)
    assert cluster.give_back() == [], "both are used"
    gone = cluster.bound()["a"]
    cluster.end("a")
    assert cluster.give_back() == [], "from now on it is unneeded"
    cluster.clock.move(UNNEEDED_S - 2)
    assert cluster.give_back() == []
    cluster.clock.move(2)
    assert kinds(cluster.give_back()) == [Return.__name__]
    assert aws.size()[0] == 1
    cluster.seen(lambda: len(list(cluster.world.fleet.node_rows())) == 1)
    assert gone not in cluster.nodes()


def test_the_pods_of_a_machine_that_is_less_than_half_used_move_to_another(aws: Aws, cluster: GroupCluster) -> None:
    """Without GPUs in use, utilisation of a GPU node is 0: its pods move where they fit, and it goes."""
    cluster.pods("a", "b")
    cluster.place()
    cluster.buy()
    cluster.read()
    cluster.join()
    cluster.place()
    stays, goes = cluster.bound()["a"], cluster.bound()["b"]
    owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs-uid", "controller": True}]
    tolerated = [{"key": GPU, "operator": "Exists"}]
    cluster.owned("small", owner, gpus=0, tolerations=tolerated, nodeSelector={"kubernetes.io/hostname": goes})
    cluster.place()
    cluster.end("b")
    assert cluster.give_back() == []
    cluster.clock.move(UNNEEDED_S)
    assert cluster.give_back() == [], "its pod selects this node and fits no other"
    cluster.end("small")
    cluster.owned("free", owner, gpus=0, tolerations=tolerated, nodeName=goes)
    assert cluster.give_back() == []
    cluster.clock.move(UNNEEDED_S)
    assert kinds(cluster.give_back())[:1] == [Disrupt.__name__]
    assert Evict.__name__ in kinds(cluster.give_back())
    cluster.end("free")  # its kubelet has ended it
    assert kinds(cluster.give_back()) == [Return.__name__]
    assert aws.size()[0] == 1
    assert stays in cluster.nodes()
