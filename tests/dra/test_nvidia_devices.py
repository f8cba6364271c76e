"""GPUs as NVIDIA's DRA driver publishes them: names, attributes, and counters that allow exactly what MIG allows."""

from __future__ import annotations

from itertools import combinations
from random import Random

import msgspec
import pytest

from tonnage.dra.allocated import AllocatedState
from tonnage.dra.allocator import Allocator, Feasibility
from tonnage.dra.nvidia import DraCard, PublishedCard, device_classes, published, slice_specs, tainted
from tonnage.dra.pools import NodeView
from tonnage.facts import gpus, mig
from tonnage.fleet.geometry import geometry
from tonnage.objects import dra
from tonnage.objects.api.device_claims import device_class
from tonnage.objects.api.devices import resource_slice
from tonnage.objects.base import ObjectMeta

NODE = NodeView("node-1")


def a_card(gpu: str = "h100", minor: int = 0, **fields: object) -> DraCard:
    known = {
        "product": "NVIDIA H100 80GB HBM3",
        "memory_mib": gpus.get(gpu).memory_mib,
        "partitions": mig.profiles(gpu, plain=False),
    }
    return DraCard(**{"minor": minor, "uuid": f"GPU-{minor}", "gpu": gpu, **known, **fields})  # type: ignore[arg-type]


def as_slices(cards: list[PublishedCard], generation: int = 1) -> list[dra.ResourceSlice]:
    return [
        dra.ResourceSlice(api_version=dra.V1, kind="ResourceSlice", metadata=ObjectMeta(name=f"node-1-{at}"), spec=spec)
        for at, spec in enumerate(slice_specs(cards, "node-1", generation))
    ]


def a_claim(class_name: str, expression: str = "", count: int = 1) -> dra.ResourceClaim:
    selectors = [{"cel": {"expression": expression}}] if expression else []
    exactly = {"deviceClassName": class_name, "selectors": selectors, "count": count}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    made = {"apiVersion": dra.V1, "kind": "ResourceClaim", "metadata": {"name": "claim"}, "spec": spec}
    return msgspec.convert(made, dra.ResourceClaim)


def test_a_gpu_is_published_as_itself_and_as_every_placement_of_every_profile() -> None:
    card = published(a_card(driver="580.159.04", cuda=(13, 0), compute=(9, 0), pci="00000000:65:00.0", brand="nvidia"))
    names = [one.name for one in card.devices]
    assert len(names) == 26 == len(set(names))
    assert names[0] == "gpu-0"
    assert {"gpu-0-mig-1g10gb-19-6", "gpu-0-mig-1g10gb-me-20-0", "gpu-0-mig-3g40gb-9-4"} <= set(names)
    whole = msgspec.to_builtins(card.devices[0])["attributes"]
    assert whole == {
        "type": {"string": "gpu"},
        "uuid": {"string": "GPU-0"},
        "productName": {"string": "NVIDIA H100 80GB HBM3"},
        "brand": {"string": "Nvidia"},
        "architecture": {"string": "Hopper"},
        "cudaComputeCapability": {"version": "9.0.0"},
        "driverVersion": {"version": "580.159.4"},
        "cudaDriverVersion": {"version": "13.0.0"},
        "resource.kubernetes.io/pciBusID": {"string": "0000:65:00.0"},
    }
    part = next(msgspec.to_builtins(one) for one in card.devices if one.name == "gpu-0-mig-3g40gb-9-4")
    assert part["attributes"]["profile"] == {"string": "3g.40gb"}
    assert part["attributes"]["parentUUID"] == {"string": "GPU-0"}
    assert "uuid" not in part["attributes"]
    assert {name: one["value"] for name, one in part["capacity"].items()} == {
        "memory": "40448Mi",
        "multiprocessors": "60",
        "copyEngines": "3",
        "decoders": "3",
        "jpegEngines": "3",
        "ofaEngines": "0",
    }
    taken = part["consumesCounters"][0]
    assert taken["counterSet"] == "gpu-0-counter-set"
    assert sorted(taken["counters"]) == [f"memory-slice-{at}" for at in (4, 5, 6, 7)]


def test_a_gpu_that_is_not_partitioned_on_demand_is_published_as_it_is() -> None:
    plain = published(a_card(partitions=None))
    assert [one.name for one in plain.devices] == ["gpu-0"]
    assert plain.counters is None
    profile = mig.get("h100", "1g.10gb")
    made = published(a_card(partitions=None, made=((profile, 2, "MIG-1"),)))
    assert [one.name for one in made.devices] == ["gpu-0-mig-1g10gb-19-2"]
    assert made.devices[0].attributes["uuid"].string_value == "MIG-1"
    assert not made.devices[0].consumes_counters


@pytest.mark.parametrize("gpu", mig.with_profiles())
def test_counters_allow_exactly_the_layouts_that_the_card_can_have(gpu: str) -> None:
    """Against the geometry of MIG: every pair of placements, and random sets of up to eight."""
    card, known = published(a_card(gpu)), geometry(gpu)
    assert known is not None and card.counters is not None
    spans = {
        (profile.name, start): known.slots[profile.resource].spans[start]
        for profile in mig.profiles(gpu, plain=False)
        for start in profile.starts
    }
    parts = dict(zip(spans, card.devices[1:], strict=True))
    room = {name: int(one.value) for name, one in card.counters.counters.items()}

    def counted(chosen: tuple[tuple[str, int], ...]) -> bool:
        left = dict(room)
        for one in chosen:
            for name, amount in parts[one].consumes_counters[0].counters.items():
                left[name] -= int(amount.value)
        return min(left.values()) >= 0

    def legal(chosen: tuple[tuple[str, int], ...]) -> bool:
        return sum(spans[one] for one in chosen) == _union(spans[one] for one in chosen)

    rng = Random(gpu)
    sets = [*combinations(spans, 2), *(tuple(rng.sample(list(spans), rng.randint(3, 8))) for _ in range(300))]
    for chosen in sets:
        assert counted(chosen) == legal(chosen), chosen


def _union(masks: object) -> int:
    found = 0
    for mask in masks:  # type: ignore[attr-defined]
        found |= mask
    return found


def test_eight_partitioned_gpus_are_slices_that_an_api_server_takes_each_gpu_in_one() -> None:
    cards = [published(a_card(minor=minor)) for minor in range(8)]
    slices = as_slices(cards)
    assert [len(one.spec.devices) for one in slices] == [52, 52, 52, 52, 0]
    assert [len(one.spec.shared_counters) for one in slices] == [0, 0, 0, 0, 8]
    for one in slices:
        assert one.spec.pool == dra.ResourcePool(name="node-1", generation=1, resource_slice_count=5)
        assert resource_slice(msgspec.to_builtins(one)) == []
        of = {device.name.split("-mig-")[0] for device in one.spec.devices}
        assert len(of) == (2 if one.spec.devices else 0)


def test_nine_gpus_need_two_slices_of_counters_and_none_need_no_slice() -> None:
    cards = [published(a_card(minor=minor)) for minor in range(9)]
    assert [len(one.spec.shared_counters) for one in as_slices(cards) if one.spec.shared_counters] == [8, 1]
    assert slice_specs([], "node-1", 1) == []


def test_claims_are_allocated_of_what_is_published() -> None:
    slices = as_slices([published(a_card(minor=minor)) for minor in range(2)])
    classes = device_classes()
    for one in classes:
        assert device_class(msgspec.to_builtins(one)) == []
    allocator, state = Allocator(slices, classes), AllocatedState()
    half = "device.attributes['gpu.nvidia.com'].profile == '3g.40gb'"
    for expected in (["gpu-0-mig-3g40gb-9-4"], ["gpu-0-mig-3g40gb-9-0"]):
        found = allocator.allocate([a_claim("mig.nvidia.com", half)], NODE, state)
        assert found.feasibility is Feasibility.ALLOCATED
        assert [one.device for one in found.results[0].devices.results] == expected
        state.take(found.results[0])
    found = allocator.allocate([a_claim("gpu.nvidia.com")], NODE, state)
    assert [one.device for one in found.results[0].devices.results] == ["gpu-1"]
    assert allocator.allocate([a_claim("gpu.nvidia.com", count=2)], NODE, state).feasibility is Feasibility.DOES_NOT_FIT


def test_a_taint_of_one_device_leaves_the_others_free() -> None:
    card = published(a_card())
    bad = dra.DeviceTaint(key="tonnage.dev/xid-79", value="RESTART_BM", effect="NoSchedule")
    slices = as_slices([tainted(card, {"gpu-0": [bad]})])
    allocator = Allocator(slices, device_classes())
    assert (
        allocator.allocate([a_claim("gpu.nvidia.com")], NODE, AllocatedState()).feasibility is Feasibility.DOES_NOT_FIT
    )
    assert allocator.allocate([a_claim("mig.nvidia.com")], NODE, AllocatedState()).feasibility is Feasibility.ALLOCATED
