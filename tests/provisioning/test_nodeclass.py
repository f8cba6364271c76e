"""Storage of an EC2NodeClass."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from provisioning_builders import instance, node_pool, on_demand, pods, shape

from tonnage.objects import karpenter
from tonnage.provisioning.karpenter import plan
from tonnage.provisioning.nodeclass import NodeStorage, read
from tonnage.provisioning.plans import PlanSettings
from tonnage.units import GIB, MIB


def node_class(**spec: Any) -> karpenter.EC2NodeClass:
    basis = {
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"tags": {"a": "b"}}],
        "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
    }
    written = {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": basis | spec,
    }
    return msgspec.convert(written, karpenter.EC2NodeClass)


def volume(device: str, root: bool = False, **ebs: Any) -> dict[str, Any]:
    return {"deviceName": device, "rootVolume": root, "ebs": ebs}


@pytest.mark.parametrize(
    ("spec", "storage"),
    [
        ({}, NodeStorage(20 * GIB, "gp3", 125 * MIB, 3000)),
        (
            {"blockDeviceMappings": [volume("/dev/xvda", volumeSize="500Gi", volumeType="gp3")]},
            NodeStorage(500 * GIB, "gp3", 125 * MIB, 3000),
        ),
        (
            {"blockDeviceMappings": [volume("/dev/xvda", volumeSize="500Gi", throughput=1000, iops=16000)]},
            NodeStorage(500 * GIB, "gp3", 1000 * MIB, 16000),
        ),
        (
            {"blockDeviceMappings": [volume("/dev/xvdz", volumeSize="500Gi", throughput=1000)]},
            NodeStorage(20 * GIB, "gp3", 125 * MIB, 3000),
        ),
        (
            {"blockDeviceMappings": [volume("/dev/xvdz", root=True, volumeSize="90Gi", throughput=200)]},
            NodeStorage(90 * GIB, "gp3", 200 * MIB, 3000),
        ),
        (
            {
                "amiSelectorTerms": [{"alias": "bottlerocket@latest"}],
                "blockDeviceMappings": [
                    volume("/dev/xvda", volumeSize="4Gi", throughput=900),
                    volume("/dev/xvdb", volumeSize="200Gi", throughput=600),
                ],
            },
            NodeStorage(200 * GIB, "gp3", 600 * MIB, 3000),
        ),
        (
            {
                "amiSelectorTerms": [{"id": "ami-123"}],
                "blockDeviceMappings": [volume("/dev/sda1", volumeSize="4Gi"), volume("/dev/sdb", volumeSize="9Gi")],
            },
            NodeStorage(9 * GIB, "gp3", 125 * MIB, 3000),
        ),
        (
            {"blockDeviceMappings": [volume("/dev/xvda", volumeSize="400Gi", volumeType="gp2")]},
            NodeStorage(400 * GIB, "gp2", 250 * MIB, 1200),
        ),
        (
            {"blockDeviceMappings": [volume("/dev/xvda", volumeSize="400Gi", volumeType="io2", iops=9000)]},
            NodeStorage(400 * GIB, "io2", None, 9000),
        ),
        ({"instanceStorePolicy": "RAID0"}, NodeStorage(local_nvme=True)),
    ],
)
def test_storage_is_read_from_the_node_class(spec: dict[str, Any], storage: NodeStorage) -> None:
    assert read(node_class(**spec)) == storage


def test_disk_speed_is_bounded_by_the_instances_ebs_bandwidth() -> None:
    fast = NodeStorage(throughput_bytes_per_s=1000 * MIB)
    assert fast.disk_bytes_per_s(instance("a.one", ebs_mbps=2000)) == 250_000_000
    assert fast.disk_bytes_per_s(instance("a.one")) == 1000 * MIB
    assert NodeStorage().disk_bytes_per_s(instance("a.one", ebs_mbps=19_000)) == 125 * MIB


def test_raid0_uses_local_nvme_only_where_there_is_any() -> None:
    local = NodeStorage(local_nvme=True)
    with_disks = instance("g.one", local_nvme_gb=450)
    assert local.capacity_bytes(with_disks) == 450 * 10**9
    assert local.disk_bytes_per_s(with_disks) is None
    assert local.capacity_bytes(instance("a.one")) == 20 * GIB
    assert local.disk_bytes_per_s(instance("a.one")) == 125 * MIB


def test_ephemeral_storage_of_a_pod_is_weighed_against_the_node_class() -> None:
    world = on_demand([(instance("a.one"), 10)])
    asked = pods(1, shape(more={"ephemeral-storage": 100 * GIB}))
    assert plan(asked, [], [node_pool()], world).waits
    large = PlanSettings(node_classes={"default": NodeStorage(volume_bytes=200 * GIB)})
    assert plan(asked, [], [node_pool()], world, large).launches
