"""Claims on a cluster of GPUs that can be partitioned, with every MIG placement published: what placing them costs.

The slices are those of NVIDIA's driver, and decoded one by one as an API server would send them: no two nodes have an
object, a string or an answer in common."""

from __future__ import annotations

import time

import msgspec

from tonnage.dra import nvidia
from tonnage.dra.allocated import AllocatedState
from tonnage.dra.allocator import Allocator, Feasibility
from tonnage.dra.pools import NodeView
from tonnage.facts import gpus, mig
from tonnage.objects.base import ObjectMeta
from tonnage.objects.dra import V1, AllocationResult, ResourceClaim, ResourceSlice

GPUS = 8
"""Of a node."""
GPU = "h100"
SHARES = {"1g.10gb": 3, "1g.20gb": 1, "2g.20gb": 2, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1}
"""How many of ten claims ask for which profile."""


def cluster(nodes: int) -> list[ResourceSlice]:
    """What the drivers of so many nodes publish."""
    known, profiles = gpus.get(GPU), tuple(mig.profiles(GPU, plain=False))
    encoded = []
    for at in range(nodes):
        name = f"node-{at:03}"
        cards = [
            nvidia.published(
                nvidia.DraCard(
                    minor=minor,
                    uuid=f"GPU-{at:08x}-0000-4000-8000-{minor:012x}",
                    product=known.product,
                    memory_mib=81559,
                    gpu=GPU,
                    brand="nvidia",
                    compute=(9, 0),
                    pci=f"00000000:{minor + 16:02X}:00.0",
                    pcie_root=f"pci0000:{minor + 15:02x}",
                    driver="580.65.06",
                    cuda=(13, 0),
                    partitions=profiles,
                )
            )
            for minor in range(GPUS)
        ]
        encoded += [
            msgspec.json.encode(
                ResourceSlice(
                    api_version=V1, kind="ResourceSlice", metadata=ObjectMeta(name=f"{name}-{number}"), spec=spec
                )
            )
            for number, spec in enumerate(nvidia.slice_specs(cards, name, 1))
        ]
    decoder = msgspec.json.Decoder(ResourceSlice)
    return [decoder.decode(one) for one in encoded]


def claims(count: int) -> list[ResourceClaim]:
    """Claims for one MIG device each, of each profile its share."""
    profiles = [profile for profile, share in SHARES.items() for _ in range(share)]
    made = []
    for at in range(count):
        text = f"device.attributes['{nvidia.DRIVER}'].profile == '{profiles[at % len(profiles)]}'"
        request = {
            "name": "gpu",
            "exactly": {"deviceClassName": nvidia.MIG_CLASS, "selectors": [{"cel": {"expression": text}}]},
        }
        meta = {"name": f"claim-{at:04}", "namespace": "team", "uid": f"{at:08x}-0000-4000-8000-000000000000"}
        claim = {"apiVersion": V1, "kind": "ResourceClaim", "metadata": meta}
        made.append(msgspec.convert({**claim, "spec": {"devices": {"requests": [request]}}}, ResourceClaim))
    return made


def spread(
    slices: list[ResourceSlice], wanted: list[ResourceClaim], nodes: int
) -> tuple[float, list[AllocationResult]]:
    """CPU seconds from the slices as they were read to the devices of every claim, each on the next node; and these."""
    begun = time.process_time()
    allocator, state = Allocator(slices, nvidia.device_classes()), AllocatedState()
    found = []
    for at, claim in enumerate(wanted):
        name = f"node-{at % nodes:03}"
        said = allocator.allocate([claim], NodeView(name, {"kubernetes.io/hostname": name}), state)
        if said.feasibility is Feasibility.ALLOCATED:
            state.take(said.results[0])
            found += said.results
    return time.process_time() - begun, found


def overlaps(slices: list[ResourceSlice], found: list[AllocationResult]) -> int:
    """How many devices were given whose counters somebody has, or that somebody has: told from the slices alone."""
    takes = {
        (one.spec.pool.name, device.name): [
            (taken.counter_set, name) for taken in device.consumes_counters for name in taken.counters
        ]
        for one in slices
        for device in one.spec.devices
    }
    given = [(each.pool, each.device) for one in found for each in one.devices.results]
    counters = [(pool, *counter) for pool, device in given for counter in takes[pool, device]]
    return len(given) - len(set(given)) + len(counters) - len(set(counters))
