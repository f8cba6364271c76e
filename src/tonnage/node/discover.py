"""The cards of a machine as NVML describes them, beside the table of MIG profiles: what the card says wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from tonnage.errors import InputError
from tonnage.facts import gpus, mig, mig_devices
from tonnage.facts.mig import MigProfile
from tonnage.node.nvml import Instance, Nvml, ProfileInfo, listed


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that the card says otherwise than the table. ``profile`` is empty where it is about the card;
    ``table``, ``card``: the two values, empty where there is none."""

    profile: str
    field: str
    table: str
    card: str


@dataclass(frozen=True, slots=True)
class FoundProfile:
    """One profile of a card. ``profile``: with the card's values where it gives any, the table's elsewhere.
    ``placed``: whether its places are the card's own."""

    info: ProfileInfo
    profile: MigProfile
    placed: bool


@dataclass(frozen=True, slots=True)
class Discovered:
    """One card. ``gpu``: its name in the facts, empty where it has none there. ``mode``: MIG on, MIG on after a reset;
    None: it has no MIG."""

    index: int
    name: str
    uuid: str
    device_id: int
    gpu: str
    memory_mib: int
    mode: tuple[bool, bool] | None
    profiles: tuple[FoundProfile, ...]
    instances: tuple[tuple[str, Instance], ...]
    """(profile, instance) by place."""
    differences: tuple[Difference, ...]


def discover(nvml: Nvml) -> list[Discovered]:
    """Every card of the machine, by index. Raises InputError where the driver fails."""
    return [_card(nvml, index) for index in range(nvml.count())]


def _card(nvml: Nvml, index: int) -> Discovered:
    device_id = nvml.device_id(index)
    gpu = _gpu(nvml.name(index), device_id)
    table = {one.name: one for one in mig.profiles(gpu, plain=False)}
    infos = list(listed(nvml, index))
    found, differences = [], []
    for info in infos:
        name = mig_devices.other_names(gpu).get(info.name, info.name)
        known = table.get(name) or next((one for one in table.values() if not info.name and one.gi_id == info.id), None)
        called = info.name or f"{info.slices}g.{mig.gigabytes(info.memory_mib, nvml.memory_mib(index))}gb"
        one = _merged(info, known, nvml.placements(index, info.id), gpu, called)
        found.append(one)
        differences += _differences(one.profile, known)
    met = {one.profile.name for one in found}
    if infos:
        differences += [Difference(name, "profile", "there", "") for name in table if name not in met]
    by_id = {one.info.id: one.profile.name for one in found}
    return Discovered(
        index,
        nvml.name(index),
        nvml.uuid(index),
        device_id,
        gpu,
        nvml.memory_mib(index),
        nvml.mode(index),
        tuple(found),
        tuple(_instances(nvml, index, infos, by_id)),
        tuple(differences),
    )


def instances(nvml: Nvml, card: Discovered) -> list[tuple[str, Instance]]:
    """(profile, instance) of what is on a card now, by place. Raises InputError where the driver fails."""
    names = {one.info.id: one.profile.name for one in card.profiles}
    return _instances(nvml, card.index, [one.info for one in card.profiles], names)


def _instances(
    nvml: Nvml, index: int, infos: Sequence[ProfileInfo], names: dict[int, str]
) -> list[tuple[str, Instance]]:
    made = [one for info in infos for one in nvml.instances(index, info) or ()]
    return [(names[one.profile_id], one) for one in sorted(made, key=lambda one: (one.start, one.id))]


def _gpu(product: str, device_id: int) -> str:
    """The card's name in the facts: by its PCI device id where that names one GPU, else by its product name."""
    board = mig_devices.by_id().get(device_id >> 16)
    if board is not None and board.own:
        return board.gpu
    try:
        return gpus.get(product).name
    except InputError:
        return board.gpu if board is not None else ""


def _merged(
    info: ProfileInfo, known: MigProfile | None, placements: Sequence[tuple[int, int]] | None, gpu: str, called: str
) -> FoundProfile:
    """The profile with what the card says, and the table's values for what it does not say. ``called``: its name where
    the table has none."""
    starts = tuple(sorted(start for start, _ in placements or ()))
    sizes = {size for _, size in placements or ()}
    if known is None:
        known = MigProfile(
            gpu,
            called,
            info.id,
            info.slices,
            0,
            8,
            (),
            info.instances,
            None,
            0,
            None,
            None,
            None,
            None,
            None,
            "",
            "",
        )
    made = replace(
        known,
        gi_id=info.id,
        compute_slices=info.slices,
        memory_slices=sizes.pop() if len(sizes) == 1 else known.memory_slices,
        starts=starts or known.starts,
        max_instances=info.instances,
        sms=info.sms,
        memory_mib=info.memory_mib,
        copy_engines=info.copy_engines,
        decoders=info.decoders,
        jpegs=info.jpegs,
        ofas=info.ofas,
        mark="measured",
        source="this card",
    )
    return FoundProfile(info, made, placed=bool(starts))


_COMPARED = (
    "gi_id",
    "compute_slices",
    "memory_slices",
    "starts",
    "max_instances",
    "sms",
    "memory_mib",
    "copy_engines",
    "decoders",
    "jpegs",
    "ofas",
)


def _differences(card: MigProfile, table: MigProfile | None) -> list[Difference]:
    if table is None:
        return [Difference(card.name, "profile", "", "there")]
    pairs = ((field, getattr(table, field), getattr(card, field)) for field in _COMPARED)
    return [
        Difference(card.name, field, _text(old), _text(new))
        for field, old, new in pairs
        if old is not None and old != new
    ]


def _text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
