"""What is planned for pods with ResourceClaims, and what they hold of GPUs by them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from builders import decide, node, pod
from claim_builders import NAMESPACE, add, bind_all
from device_allocations import cel, claim
from tonnage.costs.held import held
from tonnage.dra import nvidia
from tonnage.facts import instances, mig
from tonnage.facts.labels import DRA_PLUGIN, GPU, INSTANCE_TYPE
from tonnage.fleet import claimed_gpus
from tonnage.fleet.claim_plans import as_planned, slices_of
from tonnage.fleet.device_claims import DeviceClaims
from tonnage.fleet.rows import FleetPod
from tonnage.fleet.state import Fleet
from tonnage.objects import core
from tonnage.objects.base import ObjectMeta
from tonnage.objects.dra import V1, ResourceSlice

PRODUCT = "device.attributes['gpu.nvidia.com'].productName"


def claiming(
    known: DeviceClaims, selector: str = "", count: int = 1, name: str = "p", of: str = nvidia.GPU_CLASS
) -> FleetPod:
    """A pod with one claim for so many devices."""
    exactly = {"count": count, **({"selectors": cel(selector)} if selector else {})}
    one = claim({"name": "r", "exactly": {"deviceClassName": of, **exactly}}, name=f"{name}-claim")
    known.see(one)
    written = [{"name": "gpu", "resourceClaimName": one.name}]
    made = pod(name, namespace=NAMESPACE, resourceClaims=written)
    return replace(made, claims=known.need(NAMESPACE, name, made.uid, made.spec))


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
    assert as_planned(claiming(known, of=nvidia.MIG_CLASS, name="q"), known) is None, "partitions are not known before"


def test_a_pod_without_claims_is_planned_as_it_is() -> None:
    one = pod("p", gpus=1)
    assert as_planned(one, DeviceClaims()) == one.spec


def made_of(gpu: str, type_: str, *, partitioned: bool = False) -> Fleet:
    """A node of the instance type with what NVIDIA's driver publishes."""
    made = Fleet()
    made.add_node(node("n", gpu=gpu, labels={DRA_PLUGIN: "true"}))
    itype = instances.get(type_)
    slices = slices_of(itype, "n")
    if partitioned:
        cards = [
            nvidia.published(
                nvidia.DraCard(
                    minor=minor,
                    uuid=f"u{minor}",
                    product="p",
                    memory_mib=itype.gpu_memory_mib,
                    gpu=gpu,
                    partitions=mig.profiles(gpu),
                )
            )
            for minor in range(itype.gpu_count)
        ]
        slices = [
            ResourceSlice(api_version=V1, kind="ResourceSlice", metadata=ObjectMeta(name=f"n-{at}"), spec=spec)
            for at, spec in enumerate(nvidia.slice_specs(cards, "n", 1))
        ]
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
