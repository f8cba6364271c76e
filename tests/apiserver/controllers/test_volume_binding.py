"""Claims and the volumes that they are bound to, as the persistent volume controller and provisioners have it."""

from __future__ import annotations

from typing import Any

from managed_cluster import Cluster

from tonnage.decisions import Ref
from tonnage.kube.resources import NODES, SELECTED_NODE, STORAGE_CLASSES, VOLUME_CLAIMS, VOLUMES, Resource
from tonnage.live.claiming import take

ZONE = "topology.kubernetes.io/zone"


def named(resource: Resource, name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, **more}


def cluster(**class_: Any) -> Cluster:
    """With a StorageClass ``disk`` like this, and a claim ``c`` of it."""
    made = Cluster()
    made.client.create(NODES, {**named(NODES, "n"), "metadata": {"name": "n", "labels": {ZONE: "z"}}})
    if class_:
        made.client.create(STORAGE_CLASSES, named(STORAGE_CLASSES, "disk", **class_))
    spec = {
        "storageClassName": "disk",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Gi"}},
    }
    made.client.create(VOLUME_CLAIMS, named(VOLUME_CLAIMS, "c", spec=spec), "default")
    made.step()
    return made


def volume(name: str, storage: str = "10Gi") -> dict[str, Any]:
    spec = {"capacity": {"storage": storage}, "accessModes": ["ReadWriteOnce"], "storageClassName": "disk"}
    return named(VOLUMES, name, spec=spec)


def phase(made: Cluster) -> str:
    found: str = made.get(VOLUME_CLAIMS, "c")["status"]["phase"]
    return found


def test_an_immediate_claim_has_a_volume_made_for_it() -> None:
    made = cluster(provisioner="ebs.csi.aws.com")
    claim = made.get(VOLUME_CLAIMS, "c")
    assert claim["status"]["phase"] == "Bound"
    bound = made.get(VOLUMES, claim["spec"]["volumeName"])
    assert bound["spec"]["claimRef"]["name"] == "c"
    assert bound["status"]["phase"] == "Bound"


def test_a_claim_that_waits_for_its_pod_is_bound_in_the_zone_of_the_node_that_is_chosen() -> None:
    made = cluster(provisioner="ebs.csi.aws.com", volumeBindingMode="WaitForFirstConsumer")
    assert phase(made) == "Pending"
    claim = made.get(VOLUME_CLAIMS, "c")
    take(made.client, Ref("PersistentVolumeClaim", "c", "default", claim["metadata"]["uid"]), None, "n")
    made.step()
    claim = made.get(VOLUME_CLAIMS, "c")
    assert claim["metadata"]["annotations"] == {SELECTED_NODE: "n"}
    assert claim["status"]["phase"] == "Bound"
    terms = made.get(VOLUMES, claim["spec"]["volumeName"])["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z"]}]}]


def test_without_a_class_it_waits_for_a_volume_and_gets_the_smallest_that_will_do() -> None:
    made = cluster()
    assert phase(made) == "Pending"
    for name, size in (("small", "1Gi"), ("large", "50Gi"), ("right", "10Gi")):
        made.client.create(VOLUMES, volume(name, size))
    made.step()
    assert made.get(VOLUME_CLAIMS, "c")["spec"]["volumeName"] == "right"


def test_a_volume_that_is_kept_for_a_claim_that_waits_for_its_pod_is_bound_to_it() -> None:
    made = cluster(provisioner="kubernetes.io/no-provisioner", volumeBindingMode="WaitForFirstConsumer")
    made.client.create(VOLUMES, volume("v"))
    made.step()
    assert phase(made) == "Pending"
    claim, kept = made.get(VOLUME_CLAIMS, "c"), made.get(VOLUMES, "v")
    ref = Ref("PersistentVolumeClaim", "c", "default", claim["metadata"]["uid"])
    take(made.client, ref, Ref("PersistentVolume", "v", uid=kept["metadata"]["uid"]), "n")
    made.step()
    assert phase(made) == "Bound"
    assert made.get(VOLUME_CLAIMS, "c")["spec"]["volumeName"] == "v"
