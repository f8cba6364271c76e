"""Nodes with NVIDIA's DRA driver, for pods with ResourceClaims: of which NodePools could be asked, and what is free of
those that are there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from tonnage.dra import nvidia
from tonnage.facts.instances import InstanceType
from tonnage.facts.labels import DRA_PLUGIN, GPU, MIG_RELAYOUT
from tonnage.fleet import claimed_gpus
from tonnage.fleet.cards import FREE_DEVICE, SHARED_DEVICE
from tonnage.fleet.claim_plans import ComingTypes, every_type
from tonnage.fleet.devices import Piece
from tonnage.fleet.geometry import geometry
from tonnage.fleet.outfit import Outfit, memory_of, node_gpu, offered
from tonnage.fleet.state import Fleet
from tonnage.objects import karpenter
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.devices import SOMEBODY, FreeDevices, by_claim
from tonnage.provisioning.requirements import Requirements
from tonnage.provisioning.template import pool_requirements


def coming_types(node_pools: Iterable[karpenter.NodePool], catalogue: Catalogue) -> ComingTypes:
    """The instance types of such nodes; where no NodePool has any, of all, so that each can say what it lacks.

    Raises :class:`~tonnage.errors.InputError` for a requirement that cannot be read."""
    whole: dict[str, InstanceType] = {}
    partitioned: dict[str, InstanceType] = {}
    for pool in node_pools:
        requirements = pool_requirements(pool)
        labels = driver_labels(requirements)
        if nvidia.has_driver(labels):
            fitting = zip(catalogue.types, catalogue.select(requirements), strict=True)
            types = {one.name: one for one, fits in fitting if fits}
            (partitioned if nvidia.partitions_on_demand(labels) else whole).update(types)
    known = every_type()
    return ComingTypes(
        tuple(whole.values()) if whole or partitioned else known.whole,
        tuple(partitioned.values()) if partitioned else () if whole else known.partitioned,
    )


def driver_labels(requirements: Requirements) -> Mapping[str, str]:
    """What requirements say of the DRA driver of a node: labels that it will have with one value."""
    wanted = {key: requirements[key] for key in (DRA_PLUGIN, MIG_RELAYOUT) if key in requirements}
    return {key: min(one.values) for key, one in wanted.items() if not one.complement and len(one.values) == 1}


def free_devices(fleet: Fleet, row: int, *, parts: bool) -> FreeDevices | None:
    """The devices of a node that is there as claims could have them now; None where it has none for claims, or just
    whole ones, while no pod asks for ``parts`` of devices."""
    node, listed = fleet.node(row), [one for _, one in sorted(claimed_gpus.published(fleet, row).items()) if one.whole]
    if not any(one.partitioned or parts for one in listed):
        return None
    gpu = node_gpu(node.labels, node.spec.gpu)
    cuts = tuple(by_claim(gpu, on_demand=one.partitioned) for one in listed)
    memory = memory_of(node.labels, cuts, gpu)
    made = FreeDevices.untouched([Outfit(cuts, len(cuts), memory, GPU, offered(cuts, GPU))])
    known = geometry(gpu)
    slots = {one.name: one for one in known.slots.values()} if known is not None else {}
    for device, one in enumerate(listed):
        pieces = tuple(
            Piece(device, slots[name].milli, slots[name].mib, slots[name].spans[start], slots[name].resource)
            for name, start in one.instances
            if name in slots and start in slots[name].spans
        )
        if one.taken or len(pieces) < len(one.instances):
            made.cards.hold(0, (device,), SOMEBODY)
        elif pieces:
            made.cards.take(0, ((device,), pieces), GPU, SOMEBODY)
    return made


def free_of(devices: FreeDevices) -> dict[str, int]:
    """By resource, what of one node's devices is available of each alone."""
    of, cards = devices.outfits[0], devices.cards
    found = Counter(dict.fromkeys(offered(of.cuts, of.unit), 0))
    for device in range(of.count):
        holder, cut = int(cards.holder[0, device]), cards.cut_of(0, device)
        if holder == FREE_DEVICE:
            found.update(cut.offers(of.unit))
        elif holder == SHARED_DEVICE and cut.dynamic:
            found.update(cut.geometry.capacity(int(cards.mask[0, device])))
    return dict(found)
