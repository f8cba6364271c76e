"""What is planned for pods with ResourceClaims, and what they hold of GPUs by them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from builders import decide, node, pod
from claim_builders import NAMESPACE, add, bind_all, claiming, slices_of
from tonnage.costs.held import held
from tonnage.dra import nvidia
from tonnage.facts import instances, mig
from tonnage.facts.labels import DRA_PLUGIN, GPU, INSTANCE_TYPE, MIG_RELAYOUT
from tonnage.fleet import claimed_gpus
from tonnage.fleet.claim_plans import ComingTypes, as_planned
from tonnage.fleet.device_claims import DeviceClaims
from tonnage.fleet.state import Fleet
from tonnage.objects import core

OF = "device.attributes['gpu.nvidia.com']"
PRODUCT = f"{OF}.productName"


def types_of(spec: core.PodSpec) -> list[str]:
    assert spec.affinity is not None and spec.affinity.node_affinity is not None
    required = spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    assert required is not None
    return [
        value
        for term in required.node_selector_terms
        for one in term.match_expressions
        if one.key == INSTANCE_TYPE
        for value in one.values
    ]


@pytest.mark.parametrize("count", [1, 2, 8])
def test_a_claim_for_gpus_is_planned_on_instance_types_that_have_so_many_of_them(count: int) -> None:
    known = DeviceClaims()
    spec = as_planned(claiming(known, f"{PRODUCT}.contains('L40S')", count), known)
    assert spec is not None
    assert core.pod_requests(spec)[GPU] == count
    assert spec.node_selector == {DRA_PLUGIN: "true"}
    there = [one.name for one in instances.all() if one.gpu == "l40s" and one.gpu_count >= count]
    assert types_of(spec) == there


def test_what_no_instance_type_has_is_not_planned() -> None:
    known = DeviceClaims()
    assert as_planned(claiming(known, f"{PRODUCT}.contains('Imaginary')"), known) is None
    whole = ComingTypes((instances.get("p5.48xlarge"),), ())
    assert as_planned(claiming(known, of=nvidia.MIG_CLASS, name="q"), known, whole) is None, "none is partitioned"


@pytest.mark.parametrize(
    ("selector", "profile", "types"),
    [
        (f"{OF}.profile == '1g.10gb'", "1g.10gb", {"p4d.24xlarge", "p4de.24xlarge", "p5.4xlarge", "p5.48xlarge"}),
        (f"{OF}.profile == '1g.10gb' && {PRODUCT}.contains('H100')", "1g.10gb", {"p5.4xlarge", "p5.48xlarge"}),
        ("device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('30Gi')) >= 0", "1g.35gb", {"p5e.48xlarge"}),
    ],
)
def test_a_claim_for_mig_devices_is_planned_as_the_smallest_that_it_selects(
    selector: str, profile: str, types: set[str]
) -> None:
    known = DeviceClaims()
    spec = as_planned(claiming(known, selector, 2, of=nvidia.MIG_CLASS), known)
    assert spec is not None
    assert core.pod_requests(spec)[f"nvidia.com/mig-{profile}"] == 2
    assert GPU not in core.pod_requests(spec)
    assert spec.node_selector == {DRA_PLUGIN: "true", MIG_RELAYOUT: "true"}
    assert types <= set(types_of(spec))
    of_profile = {one.name for one in instances.all() if profile in {each.name for each in mig.profiles(one.gpu)}}
    assert set(types_of(spec)) <= of_profile


def test_a_pod_without_claims_is_planned_as_it_is() -> None:
    one = pod("p", gpus=1)
    assert as_planned(one, DeviceClaims()) == one.spec


def made_of(gpu: str, type_: str, *, partitioned: bool = False) -> Fleet:
    """A node of the instance type with what NVIDIA's driver publishes."""
    made = Fleet()
    made.add_node(node("n", gpu=gpu, labels={DRA_PLUGIN: "true"}))
    itype = instances.get(type_)
    slices = slices_of(itype, "n", on_demand=partitioned)
    for one in (*slices, *nvidia.device_classes()):
        made.device_claims.see(one)
    return made


def test_whole_gpus_of_claims_are_charged_as_gpus() -> None:
    made = made_of("l40s", "g6e.12xlarge")
    add(made, claiming(made.device_claims, count=3))
    bind_all(made, decide(made))
    row = made.pod_by_key[NAMESPACE, "p"]
    assert claimed_gpus.whole(made, row) == (0, 1, 2)
    assert claimed_gpus.holders(made, 0) == dict.fromkeys((0, 1, 2), row)
    assert claimed_gpus.allocated(made) == 3
    assert held(made, row, gpus=True).gpus == 3


def test_a_partition_is_charged_by_its_part_of_the_memory() -> None:
    made = made_of("h100", "p5.48xlarge", partitioned=True)
    half = "device.attributes['gpu.nvidia.com'].profile == '3g.40gb'"
    add(made, claiming(made.device_claims, half, of=nvidia.MIG_CLASS))
    bind_all(made, decide(made))
    row = made.pod_by_key[NAMESPACE, "p"]
    assert claimed_gpus.whole(made, row) == ()
    assert claimed_gpus.allocated(made) == 1
    share = claimed_gpus.share(made, row)
    assert Fraction(45, 100) < share < Fraction(55, 100)
    assert held(made, row, gpus=True).gpus == share


def test_a_pod_that_waits_holds_nothing() -> None:
    made = made_of("l40s", "g6e.12xlarge")
    add(made, claiming(made.device_claims, count=5))
    row = made.pod_by_key[NAMESPACE, "p"]
    assert claimed_gpus.share(made, row) == 0
    assert claimed_gpus.whole(made, row) == ()
