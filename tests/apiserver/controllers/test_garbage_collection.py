"""Deleting owners in the background, in the foreground and with orphans; deleting namespaces."""

from __future__ import annotations

from managed_cluster import Cluster, bare_pod, replica_set

from tonnage.kube.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
from tonnage.kube.transport import ApiError


def with_deployment() -> Cluster:
    cluster = Cluster()
    cluster.deploy(replicas=3)
    cluster.settle()
    return cluster


def test_in_the_background_the_owner_goes_first_and_all_it_made_follows() -> None:
    cluster = with_deployment()
    cluster.delete(DEPLOYMENTS, "web", "Background")
    assert not cluster.exists(DEPLOYMENTS, "web")
    assert len(cluster.pods()) == 3
    cluster.settle()
    assert cluster.all(REPLICA_SETS) == []
    assert cluster.pods() == []


def test_in_the_foreground_the_owner_stays_until_all_it_made_is_gone() -> None:
    cluster = with_deployment()
    cluster.delete(DEPLOYMENTS, "web", "Foreground")
    cluster.step()
    assert cluster.exists(DEPLOYMENTS, "web")
    (one,) = cluster.all(REPLICA_SETS)
    assert one["metadata"]["finalizers"] == ["foregroundDeletion"]
    pods = cluster.pods()
    assert all(pod["metadata"].get("deletionTimestamp") for pod in pods)
    for pod in pods:
        assert cluster.exists(DEPLOYMENTS, "web")
        cluster.client.delete(PODS, pod["metadata"]["name"], "default", grace_s=0)
        cluster.step()
    assert cluster.all(REPLICA_SETS) == []
    assert not cluster.exists(DEPLOYMENTS, "web")


def test_orphans_stay_and_belong_to_nobody() -> None:
    cluster = with_deployment()
    cluster.delete(DEPLOYMENTS, "web", "Orphan")
    cluster.settle()
    assert not cluster.exists(DEPLOYMENTS, "web")
    (one,) = cluster.all(REPLICA_SETS)
    assert "ownerReferences" not in one["metadata"]
    assert len(cluster.pods()) == 3
    cluster.deploy(replicas=3)
    cluster.settle()
    assert [found["metadata"]["uid"] for found in cluster.all(REPLICA_SETS)] == [one["metadata"]["uid"]]


def owned(name: str, *owners: tuple[str, str], block: bool = True) -> dict[str, object]:
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "blockOwnerDeletion": block}
        for owner, uid in owners
    ]
    return {"metadata": {"name": name, "ownerReferences": references}}


def config_map(cluster: Cluster, name: str, *owners: tuple[str, str], block: bool = True) -> tuple[str, str]:
    made = cluster.client.create(CONFIG_MAPS, owned(name, *owners, block=block), "default")
    return name, made["metadata"]["uid"]


def test_an_object_with_two_owners_goes_with_the_last() -> None:
    cluster = Cluster()
    first, second = config_map(cluster, "first"), config_map(cluster, "second")
    config_map(cluster, "child", first, second)
    cluster.step()
    cluster.delete(CONFIG_MAPS, "first")
    cluster.step()
    (left,) = cluster.get(CONFIG_MAPS, "child")["metadata"]["ownerReferences"]
    assert left["name"] == "second"
    cluster.delete(CONFIG_MAPS, "second")
    cluster.step()
    assert not cluster.exists(CONFIG_MAPS, "child")


def test_an_owner_that_never_was_counts_as_gone_and_another_uid_too() -> None:
    cluster = Cluster()
    real = config_map(cluster, "real")
    config_map(cluster, "of-nobody", ("ghost", "no-such-uid"))
    config_map(cluster, "of-an-earlier-one", ("real", "an-earlier-uid"))
    config_map(cluster, "of-real", real)
    cluster.step()
    assert sorted(cluster.names(CONFIG_MAPS)) == ["of-real", "real"]


def test_an_owner_of_a_kind_that_is_not_served_keeps_its_objects() -> None:
    cluster = Cluster()
    reference = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "w-uid"}
    cluster.client.create(CONFIG_MAPS, {"metadata": {"name": "kept", "ownerReferences": [reference]}}, "default")
    cluster.settle()
    assert cluster.exists(CONFIG_MAPS, "kept")


def test_in_the_foreground_only_dependents_that_block_are_waited_for() -> None:
    cluster = Cluster()
    owner = config_map(cluster, "owner")
    config_map(cluster, "free", owner, block=False)
    cluster.step()
    cluster.delete(CONFIG_MAPS, "owner", "Foreground")
    cluster.step()
    assert cluster.names(CONFIG_MAPS) == []


def test_objects_that_own_each_other_can_be_deleted_in_the_foreground() -> None:
    cluster = Cluster()
    first = config_map(cluster, "first")
    second = config_map(cluster, "second", first)
    references = owned("first", second)["metadata"]
    cluster.change("first", {"metadata": references}, CONFIG_MAPS)
    cluster.step()
    cluster.delete(CONFIG_MAPS, "first", "Foreground")
    cluster.settle()
    assert cluster.names(CONFIG_MAPS) == []


def test_owners_deleted_while_nobody_looked_are_noticed_after_a_restart() -> None:
    cluster = with_deployment()
    cluster.managers.close()
    cluster.delete(DEPLOYMENTS, "web", "Background")
    cluster.restart()
    cluster.settle()
    assert cluster.pods() == []


def test_a_namespace_gets_a_service_account_and_gets_it_back() -> None:
    cluster = Cluster()
    cluster.client.create(NAMESPACES, {"metadata": {"name": "team"}})
    cluster.step()
    assert cluster.exists(SERVICE_ACCOUNTS, "default", "team")
    cluster.client.delete(SERVICE_ACCOUNTS, "default", "team")
    cluster.step()
    assert cluster.exists(SERVICE_ACCOUNTS, "default", "team")


def test_a_namespace_goes_after_all_that_is_in_it() -> None:
    cluster = Cluster()
    cluster.client.create(NAMESPACES, {"metadata": {"name": "team"}})
    cluster.client.create(REPLICA_SETS, replica_set("rs", 2, {"app": "x"}), "team")
    cluster.client.create(SERVICES, {"metadata": {"name": "svc"}, "spec": {"ports": [{"port": 80}]}}, "team")
    cluster.client.create(PODS, bare_pod("alone"), "team")
    cluster.settle()
    cluster.client.delete(NAMESPACES, "team")
    cluster.step()
    assert cluster.get(NAMESPACES, "team")["status"]["phase"] == "Terminating"
    assert cluster.names(REPLICA_SETS) == []
    try:
        cluster.client.create(PODS, bare_pod("late"), "team")
    except ApiError as error:
        assert error.code == 403
    cluster.settle()
    assert not cluster.exists(NAMESPACES, "team")
    assert [one for one in cluster.all(EVENTS) if one["metadata"]["namespace"] == "team"] == []
    assert cluster.names(PODS) == []
