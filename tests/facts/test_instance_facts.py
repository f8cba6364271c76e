"""Instance types: numbers, families and the labels that Karpenter sets."""

from __future__ import annotations

import pytest

from tonnage.errors import InputError
from tonnage.facts import gpus, instances

AWS = "karpenter.k8s.aws/instance-"


def test_all_types_are_sorted_by_name_and_found_by_it() -> None:
    found = instances.all()
    assert [one.name for one in found] == sorted(one.name for one in found)
    assert all(instances.get(one.name) is one for one in found)
    assert sum(one.kind != "cpu" for one in found) == 87


@pytest.mark.parametrize(
    ("name", "gpu", "count", "memory_mib", "vcpu", "host_mib", "network_mbps", "efa", "max_pods"),
    [
        ("g4dn.12xlarge", "t4", 4, 16_384, 48, 192 * 1024, 50_000, 1, 234),
        ("g5.48xlarge", "a10g", 8, 22_888, 192, 768 * 1024, 100_000, 1, 345),
        ("g6e.12xlarge", "l40s", 4, 45_776, 48, 384 * 1024, 100_000, 1, 292),
        ("p4d.24xlarge", "a100-40", 8, 40_960, 96, 1_152 * 1024, 400_000, 4, 737),
        ("p4de.24xlarge", "a100-80", 8, 81_920, 96, 1_152 * 1024, 400_000, 4, 737),
        ("p5.48xlarge", "h100", 8, 81_920, 192, 2_048 * 1024, 3_200_000, 32, 100),
        ("p5en.48xlarge", "h200", 8, 144_384, 192, 2_048 * 1024, 3_200_000, 16, 198),
        ("p6-b200.48xlarge", "b200", 8, 183_359, 192, 2_048 * 1024, 3_200_000, 8, 198),
    ],
)
def test_a_gpu_type_has_the_published_size(
    name: str,
    gpu: str,
    count: int,
    memory_mib: int,
    vcpu: int,
    host_mib: int,
    network_mbps: int,
    efa: int,
    max_pods: int,
) -> None:
    one = instances.get(name)
    assert (one.gpu, one.gpu_count, one.gpu_memory_mib) == (gpu, count, memory_mib)
    assert (one.resource, one.resource_count) == ("nvidia.com/gpu", count)
    assert (one.vcpu, one.memory_mib) == (vcpu, host_mib)
    assert (one.network_mbps, one.efa, one.max_pods) == (network_mbps, efa, max_pods)


def test_a_type_with_a_fraction_of_a_gpu_offers_no_gpu() -> None:
    one = instances.get("g6f.xlarge")
    assert (one.kind, one.gpu) == ("gpu", "l4")
    assert (one.gpu_count, one.resource, one.resource_count) == (0, "", 0)
    assert one.gpu_memory_mib == 2_861
    assert one.labels()[AWS + "gpu-count"] == "0"


def test_a_cpu_type_has_no_accelerator_and_does_not_know_its_network() -> None:
    one = instances.get("m5.large")
    assert (one.kind, one.gpu, one.gpu_count, one.resource_count) == ("cpu", "", 0, 0)
    assert (one.network_mbps, one.ebs_mbps, one.local_nvme_gb) == (None, None, None)


@pytest.mark.parametrize("one", [one for one in instances.all() if one.gpu], ids=lambda one: one.name)
def test_the_gpu_of_a_type_is_known_under_the_name_that_karpenter_gives_it(
    one: instances.InstanceType,
) -> None:
    gpu = gpus.get(one.gpu)
    assert gpu.karpenter_name == one.accelerator_name
    whole = one.gpu_count > 0
    assert not whole or abs(gpu.memory_mib - one.gpu_memory_mib) <= 0.005 * gpu.memory_mib


def test_nvidia_types_always_say_which_gpu_they_have() -> None:
    assert [one.name for one in instances.all() if one.accelerator_manufacturer == "nvidia" and not one.gpu] == []


def test_allocatable_is_less_than_the_whole() -> None:
    for one in instances.all():
        assert 0 < one.allocatable_cpu_milli < one.vcpu * 1000
        assert 0 < one.allocatable_memory_mib < one.memory_mib
        assert one.max_pods > 0


def test_labels_of_a_gpu_node_are_those_of_karpenter() -> None:
    assert instances.get("g6e.12xlarge").labels("us-east-1a", "spot") == {
        "node.kubernetes.io/instance-type": "g6e.12xlarge",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": "us-east-1a",
        "topology.kubernetes.io/region": "us-east-1",
        "karpenter.sh/capacity-type": "spot",
        AWS + "category": "g",
        AWS + "family": "g6e",
        AWS + "generation": "6",
        AWS + "size": "12xlarge",
        AWS + "hypervisor": "nitro",
        AWS + "tenancy": "default",
        AWS + "capability-flex": "false",
        AWS + "cpu": "48",
        AWS + "cpu-manufacturer": "amd",
        AWS + "memory": "393216",
        AWS + "network-bandwidth": "100000",
        AWS + "ebs-bandwidth": "20000",
        AWS + "local-nvme": "3800",
        AWS + "gpu-name": "l40s",
        AWS + "gpu-manufacturer": "nvidia",
        AWS + "gpu-count": "4",
        AWS + "gpu-memory": "45776",
    }


@pytest.mark.parametrize(
    ("name", "label", "value"),
    [
        ("p4d.24xlarge", "gpu-name", "a100"),
        ("p4de.24xlarge", "gpu-memory", "81920"),
        ("p5.48xlarge", "gpu-name", "h100"),
        ("p3.2xlarge", "gpu-name", "v100"),
        ("p3.2xlarge", "hypervisor", "xen"),
        ("p6-b200.48xlarge", "generation", "6"),
        ("p6-b200.48xlarge", "family", "p6-b200"),
        ("u-6tb1.56xlarge", "category", "u"),
        ("u-6tb1.56xlarge", "generation", "1"),
        ("c7i-flex.large", "capability-flex", "true"),
        ("c7g.large", "cpu-manufacturer", "aws"),
        ("c6a.large", "cpu-manufacturer", "amd"),
        ("inf2.48xlarge", "accelerator-name", "inferentia2"),
        ("inf2.48xlarge", "accelerator-count", "12"),
        ("trn1.32xlarge", "accelerator-manufacturer", "aws"),
        ("g4ad.xlarge", "gpu-name", "radeon-pro-v520"),
    ],
)
def test_a_label_has_the_value_that_karpenter_gives_it(name: str, label: str, value: str) -> None:
    assert instances.get(name).labels()[AWS + label] == value


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("m5.large", "gpu-name"),
        ("m5.large", "gpu-count"),
        ("m5.large", "local-nvme"),
        ("m5.large", "accelerator-name"),
        ("g5g.xlarge", "local-nvme"),
        ("inf2.48xlarge", "gpu-count"),
        ("p5.48xlarge", "accelerator-name"),
        ("g4dn.metal", "hypervisor"),
    ],
)
def test_a_label_that_does_not_apply_is_absent(name: str, label: str) -> None:
    assert AWS + label not in instances.get(name).labels("us-east-1a", "on-demand")


def test_zone_capacity_type_and_region_are_left_out_when_they_are_not_said() -> None:
    labels = instances.get("g5.xlarge").labels()
    assert (
        labels.keys()
        & {
            "topology.kubernetes.io/zone",
            "topology.kubernetes.io/region",
            "karpenter.sh/capacity-type",
        }
        == set()
    )
    assert instances.get("g5.xlarge").labels(region="eu-west-1")["topology.kubernetes.io/region"] == "eu-west-1"


@pytest.mark.parametrize(("zone", "region"), [("us-east-1a", "us-east-1"), ("eu-west-2c", "eu-west-2"), ("", "")])
def test_the_region_of_a_zone_is_its_name_without_the_letter(zone: str, region: str) -> None:
    assert instances.region_of(zone) == region


def test_an_unknown_type_is_refused_with_near_names() -> None:
    with pytest.raises(InputError, match=r"unknown instance type 'g6e.12xlarg' \(did you mean g6e.12xlarge"):
        instances.get("g6e.12xlarg")
    assert not instances.known("g6e.12xlarg")
    assert instances.known("g6e.12xlarge")
