"""Instance types of one's own, described by a file of prices."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.errors import InputError
from tonnage.facts import instances, own_types, prices
from tonnage.provisioning.catalogue import Catalogue

HEADER = "instance_type,usd_per_hour,capacity_type,zone,vcpu,memory_gib,gpu,gpu_count,max_pods,arch\n"


def book(folder: Path, *rows: str) -> prices.PriceBook:
    file = folder / "mine.csv"
    file.write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return prices.load(file, own_types=True)


def test_a_described_type_is_for_sale_with_what_its_row_says(tmp_path: Path) -> None:
    found = book(tmp_path, "box.8h100,20,,,192,2048,h100,8,,", "box.8h100,9,spot,us-east-1a,,,,,,")
    assert found.on_demand("box.8h100") == 20_000_000
    assert found.spot("box.8h100") == 9_000_000
    (one,) = found.own_types
    assert (one.vcpu, one.memory_mib, one.gpu, one.gpu_count) == (192, 2048 * 1024, "h100", 8)
    assert (one.resource, one.resource_count, one.max_pods) == ("nvidia.com/gpu", 8, 110)
    labels = one.labels("us-east-1a")
    assert labels["karpenter.k8s.aws/instance-gpu-name"] == "h100"
    assert labels["node.kubernetes.io/instance-type"] == "box.8h100"
    assert one.source.endswith("mine.csv:2")
    assert found.type_of("box.8h100") is one
    assert found.type_of("g6.xlarge") == instances.get("g6.xlarge")


def test_it_stands_in_the_catalogue_beside_those_of_ec2(tmp_path: Path) -> None:
    book(tmp_path, "box.cpu,1,,,16,64,,,58,arm64")
    catalogue = Catalogue.load(tmp_path / "mine.csv", own_types=True)
    assert {"box.cpu", "g6.xlarge"} <= set(catalogue.names)
    assert catalogue.capacity_of("box.cpu")["cpu"] == 16_000


def test_what_is_left_for_pods_is_worked_out_as_it_is_of_every_type_of_ec2() -> None:
    for one in instances.all():
        assert 1000 * one.vcpu - own_types.reserved_milli(one.vcpu) == one.allocatable_cpu_milli, one.name
        left = own_types.allocatable_mib(one.memory_mib, one.max_pods, one.arch)
        assert left == one.allocatable_memory_mib, one.name


@pytest.mark.parametrize(
    ("row", "field", "said"),
    [
        ("box.a,1,,,,64,,,,", "vcpu", "no vcpu"),
        ("box.a,1,,,4.5,64,,,,", "vcpu", "'4.5' is not a whole number from 1 to"),
        ("box.a,1,,,4,0,,,,", "memory_gib", "'0' is not a whole number"),
        ("box.a,1,,,4,64,h1000,8,,", "gpu", "unknown GPU 'h1000'"),
        ("box.a,1,,,4,64,h100,,,", "gpu_count", "no gpu_count"),
        ("box.a,1,,,4,64,,8,,", "gpu", "gpu_count without a GPU"),
        ("box.a,1,,,4,64,,,,sparc", "arch", "unknown architecture 'sparc'"),
        ("box.a,1,,,4,64,,,9999,", "max_pods", "'9999' is not a whole number from 1 to 1000"),
        ("g6.xlarge,1,,,4,16,,,,", "vcpu", "g6.xlarge is known, and so is its vcpu"),
        ("box.a,,,,4,64,,,,", "usd_per_hour", "no price"),
        ("big box/8,1,,,4,64,,,,", "instance_type", "'big box/8' cannot be the name of an instance type"),
        ("box.a,1,,,,,,,,", "instance_type", "unknown instance type 'box.a'"),
    ],
)
def test_what_cannot_be_used_is_said_with_line_and_column(tmp_path: Path, row: str, field: str, said: str) -> None:
    with pytest.raises(InputError) as raised:
        book(tmp_path, row)
    (problem,) = raised.value.problems
    assert problem.where is not None
    assert (problem.where.line, problem.where.field) == (2, field)
    assert said in problem.message
    assert problem.hint


def test_a_type_that_is_described_twice_has_to_be_the_same(tmp_path: Path) -> None:
    assert book(tmp_path, "a.b,1,,,4,64,,,,", "a.b,2,spot,,4,64,,,,").own_types[0].vcpu == 4
    with pytest.raises(InputError) as raised:
        book(tmp_path, "a.b,1,,,4,64,,,,", "a.b,2,spot,,8,64,,,,")
    assert "described in another way in line 2" in str(raised.value)


def test_where_they_are_of_no_use_they_are_refused(tmp_path: Path) -> None:
    book(tmp_path, "box.a,1,,,4,64,,,,")
    with pytest.raises(InputError) as raised:
        prices.load(tmp_path / "mine.csv")
    assert "box.a is no type of EC2 that is known here" in str(raised.value)
    assert "tonnage plan" in str(raised.value)
