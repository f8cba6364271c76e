"""The layouts of a fleet's GPUs: read from how its devices are partitioned, and laid on them.

A decision writes instances as (profile, first memory slice), a layout is made of placements, and the fleet has cuts.
"""

from __future__ import annotations

from collections.abc import Mapping

from tonnage.decisions import Instances
from tonnage.facts.labels import GPU, MIG_RELAYOUT
from tonnage.fleet.asks import Kind
from tonnage.fleet.cards import NO_DEVICE
from tonnage.fleet.devices import OPEN, Cut, How
from tonnage.fleet.geometry import MEDIA, Geometry, geometry
from tonnage.fleet.outfit import node_gpu
from tonnage.fleet.state import Conflict, Fleet
from tonnage.partitioning.layouts import Layout, Placement, resource
from tonnage.partitioning.node_cuts import MIG_STRATEGY

_MOST_PARTS = 8
"""Memory slices of a GPU, of which no MIG instance has less than one."""

Device = tuple[int, int]
"""(row of the node, index of the device)."""


def instances_of(fleet: Fleet, device: Device) -> Instances:
    """How the GPU is partitioned now, as a decision writes it. Raises ValueError where its instances are made on
    demand, or are shared."""
    cut = fleet.cards.cut_of(*device)
    if cut == OPEN:
        return None
    if not has_layout(cut):
        raise ValueError("the GPU has no layout")
    return as_instances(layout_of(cut))


def has_layout(cut: Cut) -> bool:
    """Whether the GPU gives its MIG instances, made beforehand, each as one of its own resource."""
    return cut.how is How.MIG and not cut.dynamic and cut.replicas == 1 and not cut.resource


def layout_of(cut: Cut) -> Layout:
    """The instances of a MIG device."""
    how = cut.geometry
    return tuple(sorted(Placement(start, how.named(name).name) for name, start in cut.instances or ()))


def as_instances(layout: Layout) -> Instances:
    """A layout as a decision writes it."""
    return tuple((one.profile, one.start) for one in layout)


def as_layout(instances: Instances) -> Layout:
    """The layout that a decision writes; of a whole GPU none."""
    return tuple(sorted(Placement(start, profile) for profile, start in instances or ()))


def busy_in(fleet: Fleet, device: Device) -> Layout:
    """The instances of a MIG device that pods hold."""
    cut, mask = fleet.cards.cut_of(*device), int(fleet.cards.mask[device]) & ~MEDIA
    on = cut.geometry
    return tuple(one for one in layout_of(cut) if on.span(resource(on, one.profile), one.start) & mask)


def cut_as(on: Geometry, instances: Instances) -> Cut:
    """A GPU with these instances, or whole."""
    if instances is None:
        return OPEN
    made = sorted((resource(on, profile), start) for profile, start in instances)
    return Cut(How.MIG, isolated=True, gpu=on.gpu, instances=tuple(made))


def lay(fleet: Fleet, device: Device, instances: Instances) -> None:
    """Cut the GPU so. Raises Conflict when it is not there, or something that is in use would be gone."""
    row, number = device
    node = fleet.node(row)
    on = geometry(node_gpu(node.labels, node.spec.gpu))
    if on is None:
        raise Conflict(f"node {node.spec.name}: no MIG profiles of its GPU are known")
    cuts = [fleet.cards.cut_of(row, one) for one in range(devices(fleet, row))]
    if number >= len(cuts):
        raise Conflict(f"node {node.spec.name}: GPU {number} is not there")
    cuts[number] = cut_as(on, instances)
    fleet.set_cuts(row, cuts)


def devices(fleet: Fleet, row: int) -> int:
    """How many devices the node has now."""
    return int((fleet.devices[row] != NO_DEVICE).sum())


def may_change(labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels allows its MIG layout to be changed. Its MIG strategy has to be ``mixed`` then:
    each profile is a resource of its own."""
    return labels.get(MIG_RELAYOUT) == "true" and labels.get(MIG_STRATEGY) == "mixed"


def asks(fleet: Fleet, pod: int) -> list[str]:
    """What the pod in this row asks of GPUs that can be partitioned, a MIG resource or ``nvidia.com/gpu`` for a whole
    one, each once; nothing for more than any node has."""
    ask = fleet.classes.shapes[fleet.pod_class(pod).shape].ask
    if max([ask.count, *(n for _, n in ask.profiles)]) > fleet.devices.shape[1] * _MOST_PARTS:
        return []
    whole = [GPU] * (ask.count if ask.resource == GPU and ask.kind in (Kind.WHOLE, Kind.MIG) else 0)
    return [*whole, *(name for name, n in ask.profiles for _ in range(n))]
