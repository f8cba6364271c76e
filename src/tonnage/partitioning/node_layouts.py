"""The layouts that the GPUs of a node are to have: as mig-parted reads them, and as a node says them.

mig-manager acts on two labels of a node: ``nvidia.com/mig.config`` names the configuration that is wanted, and
``nvidia.com/mig.config.state`` says how far it has come. An :class:`Order` beside them says what was there before, and
where each instance stands, of which mig-parted's files know nothing. Source: NVIDIA/mig-parted deployments/container
(reconfigure-mig.sh), cmd/nvidia-mig-manager.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from enum import Enum

import msgspec

from tonnage.decisions import Instances
from tonnage.facts.labels import MIG_CONFIG
from tonnage.fleet.devices import Cut
from tonnage.fleet.geometry import Geometry
from tonnage.partitioning.fleet_layouts import as_instances, cut_as, has_layout, layout_of
from tonnage.partitioning.mig_parted import Entry, Spec
from tonnage.partitioning.node_cuts import MIG_STATE, layouts

PENDING, REBOOTING, SUCCESS, FAILED = "pending", "rebooting", "success", "failed"
"""What mig-manager writes as the state."""


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """All GPUs of a node are to be cut as ``gpus`` says, by index, which the configuration ``config`` says too.

    ``was``: the configuration until then. ``before``: what the GPUs had that are repartitioned, by index. ``due_ns``:
    when the label is to follow, which waits until mig-manager can read the configuration; 0: it is there.
    ``failures``: how often cutting this node has gone wrong in a row; ``retry_ns``: until when nothing is tried."""

    config: str
    gpus: tuple[Instances, ...]
    was: str = ""
    before: dict[int, Instances] = {}
    due_ns: int = 0
    failures: int = 0
    retry_ns: int = 0


class Phase(Enum):
    """How far an order has come."""

    VOID = "void"
    """There is none, or somebody has labelled the node otherwise since."""
    WAITING = "waiting"
    """It is written down; the label follows."""
    CUTTING = "cutting"
    FAILED = "failed"
    DONE = "done"


def phase(order: Order | None, labels: Mapping[str, str]) -> Phase:
    """How far it has come on a node with these labels."""
    named = labels.get(MIG_CONFIG, "")
    if order is not None and order.due_ns and named == order.was:
        return Phase.WAITING
    if order is None or named != order.config:
        return Phase.VOID
    state = labels.get(MIG_STATE, "")
    return {SUCCESS: Phase.DONE, FAILED: Phase.FAILED}.get(state, Phase.CUTTING)


def under_way(order: Order | None, at: Phase, left: Collection[int] | None = None) -> dict[int, Instances]:
    """The GPUs whose MIG layout is being changed, by index, and what they will be. ``left``: those with which whoever
    repartitions them has not finished, where it says so."""
    if order is None or at not in (Phase.WAITING, Phase.CUTTING):
        return {}
    open_ = [device for device in sorted(order.before) if device < len(order.gpus)]
    return {device: order.gpus[device] for device in open_ if left is None or device in left}


def cuts(order: Order, changing: Collection[int], on: Geometry) -> tuple[Cut, ...]:
    """How the GPUs are partitioned now: of those that are being repartitioned only what stays."""
    return tuple(
        cut_as(on, _staying(order.before[device], goal) if device in changing else goal)
        for device, goal in enumerate(order.gpus)
    )


def of_cut(cut: Cut) -> Instances:
    """The layout of a GPU that is partitioned so; None where it is whole, or shared."""
    return as_instances(layout_of(cut)) if has_layout(cut) else None


def _staying(before: Instances, after: Instances) -> Instances:
    """What is there all the while."""
    return tuple(one for one in before or () if one in (after or ()))


def entries(gpus: Sequence[Instances]) -> tuple[Entry, ...]:
    """A configuration of mig-parted with these layouts, GPUs that are alike together."""
    alike: dict[tuple[tuple[str, int], ...] | None, list[int]] = {}
    for index, instances in enumerate(gpus):
        counts = None if instances is None else tuple(sorted(Counter(name for name, _ in instances).items()))
        alike.setdefault(counts, []).append(index)
    return tuple(
        Entry(devices, False) if counts is None else Entry(devices, True, mig_devices=dict(counts))
        for counts, devices in alike.items()
    )


def name_of(made: Sequence[Entry]) -> str:
    """The name of a configuration: the same for the same layouts, and a label's value."""
    written = msgspec.json.encode(made, order="sorted")
    return f"tonnage-{hashlib.sha256(written).hexdigest()[:12]}"


def as_mig_parted_makes(made: tuple[Entry, ...], gpu: str, count: int) -> tuple[Instances, ...]:
    """Where mig-parted puts the instances of a configuration. Raises InputError for what a GPU cannot be."""
    found = layouts(Spec({"": made}), "", gpu, count)
    return tuple(None if one is None else tuple((it.profile, it.start) for it in one) for one in found)
