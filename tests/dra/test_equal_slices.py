"""Nodes of one kind publish equal slices, of which most is read once: each is answered as if there were no other."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from deep_seeds import part
from device_allocations import DRIVER, NODE, claim, device, device_class, request, resource_slice
from tonnage.dra.allocated import AllocatedState
from tonnage.dra.allocator import Allocation, Allocator, Feasibility
from tonnage.dra.pools import NodeView
from tonnage.objects import dra

A, C = f'device.attributes["{DRIVER}"]', f'device.capacity["{DRIVER}"]'
CLASSES = [device_class("gpu", f'device.driver == "{DRIVER}"'), device_class("mig", f'{A}.type == "mig"')]
SELECTORS = (
    f'{A}.type == "gpu"',
    f'{A}.profile == "1g" && {A}.version.isGreaterThan(semver("2.0.0"))',
    f'{A}.uuid.endsWith("-1")',
    f'{C}.memory.isGreaterThan(quantity("20Gi"))',
    f'{A}.all(name, name.size() < 9) && "missing" in {A}',
    f'{A}.?parent.orValue("none") != "none"',
    f"{A}.missing == 1",
)


class Cluster:
    """Nodes whose slices are equal, but for what a driver writes differently, and what it should never write."""

    def __init__(self, seed: int) -> None:
        self.draw = Random(f"equal slices/{seed}")
        self.nodes = [f"node-{at}" for at in range(5)]
        self.slices = [one for at, name in enumerate(self.nodes) for one in self._of(at, name)]

    def _of(self, at: int, node: str) -> list[dra.ResourceSlice]:
        draw = self.draw
        version = draw.choice(("1.0.0", "2.5.0", "2.5.0", "2.5.0", "no version"))
        memory = draw.choice(("40Gi", "40Gi", "80Gi"))
        devices: list[dict[str, Any]] = []
        for gpu in range(2):
            whole = {"type": {"string": "gpu"}, "uuid": {"string": f"{node}-{gpu}"}, "version": {"version": version}}
            devices.append(_device(f"gpu-{gpu}", gpu, whole, memory, (0, 1)))
            for slot in (0, 1):
                part = {
                    "type": {"string": "mig"},
                    "parent": {"string": f"{node}-{gpu}"},
                    "profile": {"string": draw.choice(("1g", "1g", "1g", "2g"))},
                    "version": {"version": version},
                }
                if draw.random() < 0.05:
                    part[f"{DRIVER}/profile"] = {"string": "1g"}
                if draw.random() < 0.05:
                    part["empty"] = {}
                devices.append(_device(f"gpu-{gpu}-{slot}", gpu, part, "20Gi", (slot,)))
        sets = [{"name": f"set-{gpu}", "counters": {f"s{n}": {"value": 1} for n in (0, 1)}} for gpu in (0, 1)]
        if draw.random() < 0.05:
            sets = sets[:1]
        pool = {"name": node, "generation": 1, "resourceSliceCount": 2}
        specs = [{"devices": devices}, {"sharedCounters": sets}]
        return [
            msgspec.convert(
                {
                    "apiVersion": dra.V1,
                    "kind": "ResourceSlice",
                    "metadata": {"name": f"{node}-{number}"},
                    "spec": {"driver": DRIVER, "pool": pool, "nodeName": node, **spec},
                },
                dra.ResourceSlice,
            )
            for number, spec in enumerate(specs)
        ]

    def claims(self) -> list[dra.ResourceClaim]:
        draw = self.draw
        return [
            claim(request("r", draw.choice(("gpu", "mig")), *draw.sample(SELECTORS, draw.choice((0, 1, 1, 2)))), name=f"c{at}")
            for at in range(4)
        ]  # fmt: skip


def _device(name: str, gpu: int, attributes: dict[str, Any], memory: str, slots: tuple[int, ...]) -> dict[str, Any]:
    takes = {"counterSet": f"set-{gpu}", "counters": {f"s{slot}": {"value": 1} for slot in slots}}
    return {
        "name": name,
        "attributes": attributes,
        "capacity": {"memory": {"value": memory}},
        "consumesCounters": [takes],
    }


@pytest.mark.parametrize("seed", part(range(40)))
def test_a_node_among_equal_ones_gets_what_it_would_get_alone(seed: int) -> None:
    cluster = Cluster(seed)
    together, state = Allocator(cluster.slices, CLASSES), AllocatedState()
    for one in cluster.claims():
        for name in cluster.nodes:
            node = NodeView(name, {})
            alone = Allocator(cluster.slices, CLASSES)
            found = together.allocate([one], node, state)
            assert found == alone.allocate([one], node, state)
            if found.feasibility is Feasibility.ALLOCATED:
                state.take(found.results[0])


def test_every_outcome_is_met_among_equal_nodes() -> None:
    met: set[Feasibility] = set()
    for seed in range(40):
        cluster = Cluster(seed)
        allocator = Allocator(cluster.slices, CLASSES)
        found: list[Allocation] = [
            allocator.allocate([one], NodeView(name, {}), AllocatedState())
            for one in cluster.claims()
            for name in cluster.nodes
        ]
        met |= {one.feasibility for one in found}
    assert met == {Feasibility.ALLOCATED, Feasibility.DOES_NOT_FIT, Feasibility.ERROR}


def test_a_class_without_selectors_has_every_device_of_slices_that_are_longer_or_shorter() -> None:
    slices = [
        resource_slice(f"s{at}", *(device(f"d{n}") for n in range(count)), pool=f"p{at}", nodeName=f"node-{at}")
        for at, count in enumerate((2, 5, 1))
    ]
    allocator, every = Allocator(slices, [device_class("any")]), claim(request("r", "any", allocationMode="All"))
    counts = []
    for at in range(3):
        found = allocator.allocate([every], NodeView(f"node-{at}", {}), AllocatedState())
        counts.append(len(found.results[0].devices.results))
    assert counts == [2, 5, 1]


def test_a_version_that_is_none_fails_every_selector_of_its_device_alone() -> None:
    good = resource_slice("s", *(device(f"d{at}", attributes={"type": "mig"}) for at in range(3)), pool="good")
    bad = resource_slice(
        "s",
        *(device(f"d{at}", attributes={"type": "mig", "version": {"version": "none"}}) for at in range(1)),
        *(device(f"d{at}", attributes={"type": "mig"}) for at in (1, 2)),
        pool="bad",
        nodeName="node-2",
    )
    allocator, wanted = Allocator([good, bad], CLASSES), claim(request("r", "mig", count=3))
    first = allocator.allocate([wanted], NODE, AllocatedState())
    second = allocator.allocate([wanted], NodeView("node-2", {}), AllocatedState())
    assert first.feasibility is Feasibility.ALLOCATED
    assert second.feasibility is Feasibility.ERROR and "'none' is not a semantic version" in second.error
