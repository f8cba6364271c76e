"""Pods go where their volumes can be reached and the ports that they ask of the node are free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from tonnage.decisions import Bind, Wait
from tonnage.fleet.gangs import Gang
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet, FleetNode, FleetPod
from tonnage.fleet.volumes import UNKNOWN, VolumeNeed
from tonnage.objects import core, storage
from tonnage.objects.base import KubeObject, ObjectMeta
from tonnage.scheduling import place
from tonnage.scheduling.why.receipt import PodReceipt, why
from tonnage.workloads.volumes.book import Volumes

ZONE = "topology.kubernetes.io/zone"
CLAIM = {"name": "c", "persistentVolumeClaim": {"claimName": "c"}}


def fleet(*zones: str) -> Fleet:
    """A node with 8 cores in each of these zones, named a, b, …"""
    made = Fleet()
    for number, zone in enumerate(zones):
        amounts = {"cpu": 8_000, "memory": 2**36, "pods": 110}
        made.add_node(FleetNode(chr(ord("a") + number), amounts, {ZONE: zone}))
    return made


def add(made: Fleet, name: str, need: VolumeNeed = UNKNOWN, **written: Any) -> int:
    spec = msgspec.convert({"containers": [{"name": "main"}], **written}, core.PodSpec)
    return made.add_pod(FleetPod("default", name, name, {}, spec, volumes=need))


def decided(made: Fleet, gangs: Mapping[str, Gang] | None = None) -> dict[str, str]:
    """Node of each pod that is bound now, or why it waits."""
    found = {}
    for one in place.decide(Snapshot(0, made, gangs=gangs or {})):
        if isinstance(one, Bind):
            found[one.pod.name] = one.node.name
        elif isinstance(one, Wait):
            found[one.pod.name] = one.reason.verdict
    return found


def ported(*ports: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", "ports": list(ports)}], **more}


# ---- ports ----


def test_two_pods_with_one_port_stand_on_two_nodes_and_the_third_waits() -> None:
    made = fleet("x", "x")
    for name in ("p1", "p2", "p3"):
        add(made, name, **ported({"containerPort": 80, "hostPort": 80}))
    found = decided(made)
    assert {found["p1"], found["p2"]} == {"a", "b"}
    assert found["p3"] == ("0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports")


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ({"hostPort": 80}, {"hostPort": 81}, True),
        ({"hostPort": 80, "protocol": "UDP"}, {"hostPort": 80}, True),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80, "hostIP": "10.0.0.2"}, True),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80}, False),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80, "hostIP": "10.0.0.1"}, False),
        ({}, {}, True),
    ],
)
def test_ports_meet_by_number_protocol_and_address(one: dict[str, Any], other: dict[str, Any], together: bool) -> None:
    made = fleet("x")
    add(made, "p1", **ported({"containerPort": 80, **one}))
    add(made, "p2", **ported({"containerPort": 80, **other}))
    found = decided(made)
    assert found["p1"] == "a"
    assert (found["p2"] == "a") is together


@pytest.mark.report(210)
def test_container_ports_are_the_nodes_own_in_its_network() -> None:
    made = fleet("x")
    for name in ("p1", "p2"):
        add(made, name, **ported({"containerPort": 8000}, hostNetwork=True))
    assert "free ports" in decided(made)["p2"]


def test_a_port_is_free_again_when_its_pod_is_gone() -> None:
    made = fleet("x")
    first = add(made, "p1", **ported({"containerPort": 80, "hostPort": 80}))
    made.bind(first, 0)
    add(made, "p2", **ported({"containerPort": 80, "hostPort": 80}))
    assert "free ports" in decided(made)["p2"]
    made.remove_pod(first)
    assert decided(made) == {"p2": "a"}


def test_a_gang_whose_pods_want_one_port_has_one_pod_a_node() -> None:
    made = fleet("x", "x")
    for name in ("p1", "p2"):
        spec = msgspec.convert(ported({"containerPort": 80, "hostPort": 80}), core.PodSpec)
        made.add_pod(FleetPod("default", name, name, {}, spec, gang="default/g"))
    found = decided(made, {"default/g": Gang("default/g", 2, source="KAI PodGroup")})
    assert sorted(found.values()) == ["a", "b"]


# ---- volumes ----


def disk(name: str, zone: str) -> storage.PersistentVolume:
    only = core.NodeSelectorRequirement(key=ZONE, operator="In", values=[zone])
    term = core.NodeSelectorTerm(match_expressions=[only])
    return storage.PersistentVolume(
        api_version="v1",
        kind="PersistentVolume",
        metadata=ObjectMeta(name=name),
        spec=storage.PersistentVolumeSpec(
            capacity={"storage": "10Gi"},
            access_modes=["ReadWriteOnce"],
            storage_class_name="disk",
            node_affinity=storage.VolumeNodeAffinity(required=core.NodeSelector(node_selector_terms=[term])),
        ),
    )


def claim(name: str = "c", **spec: Any) -> storage.PersistentVolumeClaim:
    written = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}, **spec}
    return storage.PersistentVolumeClaim(
        api_version="v1",
        kind="PersistentVolumeClaim",
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=msgspec.convert(written, storage.PersistentVolumeClaimSpec),
    )


def class_(**more: Any) -> storage.StorageClass:
    written = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "disk"},
        "provisioner": "ebs.csi.aws.com",
        **more,
    }
    return msgspec.convert(written, storage.StorageClass)


def need(*objects: KubeObject, binds: bool = True) -> VolumeNeed:
    return Volumes(objects, binds=binds).need("default", "p", [CLAIM])


def test_a_pod_goes_to_the_zone_of_its_volume() -> None:
    made = fleet("x", "y", "z")
    add(made, "p", need(claim(storageClassName="disk"), disk("d", "y")))
    assert decided(made) == {"p": "b"}


def test_no_node_in_the_zone_of_the_volume_is_said_as_kube_scheduler_does() -> None:
    made = fleet("x", "x")
    add(made, "p", need(claim(storageClassName="disk"), disk("d", "y")))
    assert decided(made) == {"p": "0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity"}


def test_a_node_that_is_short_of_cores_counts_for_that_first() -> None:
    made = fleet("x")
    add(
        made,
        "p",
        need(claim(storageClassName="disk"), disk("d", "y")),
        containers=[{"name": "main", "resources": {"requests": {"cpu": "64"}}}],
    )
    assert decided(made) == {"p": "0/1 nodes are available: 1 Insufficient cpu"}


def test_a_volume_may_say_its_zone_by_label() -> None:
    volume = disk("d", "y")
    volume = msgspec.structs.replace(
        volume,
        metadata=ObjectMeta(name="d", labels={ZONE: "y__z"}),
        spec=msgspec.structs.replace(volume.spec, node_affinity=None),
    )
    made = fleet("x", "z")
    add(made, "p", need(claim(storageClassName="disk"), volume))
    assert decided(made) == {"p": "b"}


def test_why_says_that_no_node_reaches_the_volume_and_offers_no_change_of_the_pod_that_helps_nothing() -> None:
    made = fleet("x")
    add(made, "p", need(claim(storageClassName="disk"), disk("d", "y")))
    receipt = why(Snapshot(0, made), "default/p")
    assert isinstance(receipt, PodReceipt)
    assert [(one.reason, one.nodes) for one in receipt.out] == [
        ("node(s) didn't match PersistentVolume's node affinity", 1)
    ]
    assert receipt.changes == ()


@pytest.mark.parametrize(
    ("objects", "waits"),
    [
        ((), 'persistentvolumeclaim "c" not found'),
        ((claim(storageClassName="disk"),), "pod has unbound immediate PersistentVolumeClaims"),
        ((claim(storageClassName=""), disk("d", "x")), "pod has unbound immediate PersistentVolumeClaims"),
        ((claim(storageClassName="disk"), class_()), ""),
        ((claim(),), ""),
        ((claim(), class_()), "pod has unbound immediate PersistentVolumeClaims"),
        ((claim(storageClassName="gp2"),), ""),
    ],
    ids=["missing", "no-class", "other-class", "class", "default", "no-default", "of-managed-clusters"],
)
def test_what_a_claim_of_manifests_waits_for(objects: tuple[KubeObject, ...], waits: str) -> None:
    assert need(*objects).waits == waits


def test_a_claim_in_a_cluster_waits_until_it_is_bound_there() -> None:
    written = claim(storageClassName="disk")
    assert need(written, class_(), binds=False).waits == "pod has unbound immediate PersistentVolumeClaims"
    assert need(written, class_(volumeBindingMode="WaitForFirstConsumer"), binds=False) == VolumeNeed()
    bound = claim(storageClassName="disk", volumeName="d")
    assert need(bound, disk("d", "y"), binds=False).reach
    assert need(bound, binds=False).waits == ('persistentvolumeclaim "c" bound to non-existent persistentvolume "d"')


def test_allowed_topologies_say_where_a_claim_that_waits_for_its_pod_can_be() -> None:
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": ["y"]}]}]
    made = fleet("x", "y")
    later = class_(volumeBindingMode="WaitForFirstConsumer", allowedTopologies=terms)
    add(made, "p", need(claim(storageClassName="disk"), later))
    assert decided(made) == {"p": "b"}


def test_without_a_provisioner_a_claim_that_waits_goes_where_a_volume_is() -> None:
    later = class_(provisioner="kubernetes.io/no-provisioner", volumeBindingMode="WaitForFirstConsumer")
    made = fleet("x", "y")
    add(made, "p", need(claim(storageClassName="disk"), later, disk("d", "y")))
    assert decided(made) == {"p": "b"}
    made = fleet("x")
    add(made, "p", need(claim(storageClassName="disk"), later))
    assert decided(made) == {"p": "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind"}


def test_a_claim_is_bound_in_the_zone_of_the_first_pod_that_uses_it() -> None:
    book = Volumes([claim(storageClassName="disk"), class_(volumeBindingMode="WaitForFirstConsumer")], binds=True)
    assert book.need("default", "p", [CLAIM]) == VolumeNeed()
    assert book.bind("default", "p", [CLAIM], {ZONE: "y"})
    assert not book.bind("default", "q", [CLAIM], {ZONE: "y"})
    made = fleet("x", "y")
    add(made, "q", book.need("default", "q", [CLAIM]))
    assert decided(made) == {"q": "b"}


def test_a_claim_for_one_pod_is_for_one_pod_in_the_whole_cluster() -> None:
    book = Volumes([claim(accessModes=["ReadWriteOncePod"])], binds=True)
    made = fleet("x", "x")
    for name in ("p1", "p2"):
        add(made, name, book.need("default", name, [CLAIM]))
    found = decided(made)
    assert found["p1"] == "a"
    assert found["p2"] == (
        "0/2 nodes are available: 2 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod"
    )


def test_two_claims_do_not_get_one_volume() -> None:
    objects = [claim(storageClassName="disk"), claim("d", storageClassName="disk"), disk("v", "x")]
    book = Volumes(objects, binds=True)
    assert book.need("default", "p", [CLAIM]).waits == ""
    other = {"name": "d", "persistentVolumeClaim": {"claimName": "d"}}
    assert book.need("default", "p", [other]).waits == "pod has unbound immediate PersistentVolumeClaims"


def test_claims_that_change_change_what_a_pending_pod_asks_of_its_node() -> None:
    made = fleet("x", "y")
    row = add(made, "p", need())
    assert decided(made) == {"p": '0/2 nodes are available: persistentvolumeclaim "c" not found'}
    made.set_volumes(row, need(claim(storageClassName="disk"), disk("d", "y")))
    assert decided(made) == {"p": "b"}
