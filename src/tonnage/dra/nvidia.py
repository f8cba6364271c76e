"""What NVIDIA's DRA driver publishes of GPUs: devices, their counters, slices, and the device classes beside them.

A GPU that can be partitioned has a device for itself and one for every placement of every MIG profile; they share a
counter for each memory slice and one for the media engines, so that exactly the layouts of MIG can be allocated.
Source of names, attributes and classes: kubernetes-sigs/dra-driver-nvidia-gpu v0.5.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tonnage.facts import cuda, gpus
from tonnage.facts.labels import DRA_PLUGIN, MIG_RELAYOUT, NVIDIA
from tonnage.facts.mig import MigProfile
from tonnage.objects import compute_domains
from tonnage.objects.base import ObjectMeta
from tonnage.objects.dra import (
    V1,
    CelDeviceSelector,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClass,
    DeviceClassSpec,
    DeviceCounterConsumption,
    DeviceSelector,
    DeviceTaint,
    ResourcePool,
    ResourceSliceSpec,
)

DRIVER = "gpu.nvidia.com"
GPU_CLASS, MIG_CLASS = DRIVER, "mig.nvidia.com"
MOST_DEVICES = 64
"""Of a slice whose devices have counters or taints; as any of them may get a taint, of every slice."""
_MOST_SETS = 8
_STANDARD = "resource.kubernetes.io/"
_MEDIA_COUNTER = "media-engines"
_ENGINES = {
    "copy_engines": "copyEngines",
    "decoders": "decoders",
    "jpegs": "jpegEngines",
    "ofas": "ofaEngines",
}


class DraCard(Struct, frozen=True, kw_only=True):
    """A GPU as it is published. ``minor``: of /dev/nvidiaN; ``gpu``: its name in the facts, empty where it has none
    there; ``pci``: as in 00000000:65:00.0; ``driver``: the driver's version; ``cuda``: the newest that it supports.

    ``partitions``: MIG profiles of which any placement may be asked for, made on demand; None: it is not partitioned on
    demand. ``made``: (profile, start, UUID) of instances that are there and stay as they are."""

    minor: int
    uuid: str
    product: str
    memory_mib: int
    gpu: str = ""
    brand: str = ""
    compute: tuple[int, int] | None = None
    pci: str = ""
    pcie_root: str = ""
    driver: str = ""
    cuda: tuple[int, int] | None = None
    partitions: tuple[MigProfile, ...] | None = None
    made: tuple[tuple[MigProfile, int, str], ...] | None = None


class PublishedCard(Struct, frozen=True):
    """The devices of a GPU, and what they share; None: nothing."""

    devices: tuple[Device, ...]
    counters: CounterSet | None = None


def has_driver(labels: Mapping[str, str]) -> bool:
    """Whether the GPUs of a node with these labels are published for claims."""
    return labels.get(DRA_PLUGIN) == "true"


def partitions_on_demand(labels: Mapping[str, str]) -> bool:
    """Whether they are with every placement of their MIG profiles, as the driver does with its gate DynamicMIG."""
    return has_driver(labels) and labels.get(MIG_RELAYOUT) == "true"


def gpu_name(minor: int) -> str:
    """The device of a whole GPU."""
    return f"gpu-{minor}"


def mig_name(minor: int, profile: str, gi_id: int | None, start: int) -> str:
    """The device of a placement; ``gi_id``: the driver's id of the profile, where it is known."""
    plain = profile.replace(".", "").replace("+", "-")
    known = "" if gi_id is None or gi_id < 0 else f"-{gi_id}"
    return f"{gpu_name(minor)}-mig-{plain}{known}-{start}"


def published(card: DraCard) -> PublishedCard:
    """Everything of a GPU that claims can ask for."""
    if card.made is not None:
        return PublishedCard(tuple(_mig(card, profile, start, uuid) for profile, start, uuid in card.made))
    whole = _whole(card)
    if not card.partitions:
        return PublishedCard((whole,))
    amounts = dict.fromkeys((f"memory-slice-{at}" for at in range(card.partitions[0].of_memory_slices)), 1)
    if any(_has_media(one) for one in card.partitions):
        amounts[_MEDIA_COUNTER] = 1
    name = f"{gpu_name(card.minor)}-counter-set"
    parts = [
        _taking(_mig(card, profile, start, ""), name, _counters(profile, start))
        for profile in card.partitions
        for start in profile.starts
    ]
    return PublishedCard((_taking(whole, name, amounts), *parts), CounterSet(name=name, counters=_amounts(amounts)))


def _has_media(profile: MigProfile) -> bool:
    """Whether an instance has the media engines, of which a GPU has one set to give away."""
    return "+me" in profile.name


def _counters(profile: MigProfile, start: int) -> dict[str, int]:
    taken = dict.fromkeys((f"memory-slice-{at}" for at in range(start, start + profile.memory_slices)), 1)
    return taken | ({_MEDIA_COUNTER: 1} if _has_media(profile) else {})


def _amounts(of: Mapping[str, int]) -> dict[str, Counter]:
    return {name: Counter(value=str(amount)) for name, amount in of.items()}


def _taking(device: Device, name: str, amounts: Mapping[str, int]) -> Device:
    taken = DeviceCounterConsumption(counter_set=name, counters=_amounts(amounts))
    return replace(device, consumes_counters=[taken])


def _whole(card: DraCard) -> Device:
    attributes = {"type": _text("gpu"), "uuid": _text(card.uuid), **_common(card)}
    return Device(
        name=gpu_name(card.minor),
        attributes=attributes,
        capacity={"memory": DeviceCapacity(value=f"{card.memory_mib}Mi")},
    )


def _mig(card: DraCard, profile: MigProfile, start: int, uuid: str) -> Device:
    attributes = {
        "type": _text("mig"),
        **({"uuid": _text(uuid)} if uuid else {}),
        "parentUUID": _text(card.uuid),
        "profile": _text(profile.name),
        **_common(card),
    }
    mib = profile.memory_mib if profile.memory_mib is not None else profile.usable_mib(gpus.get(profile.gpu))
    capacity = {"memory": DeviceCapacity(value=f"{mib}Mi")}
    if profile.sms is not None:
        capacity["multiprocessors"] = DeviceCapacity(value=str(profile.sms))
    for field, name in _ENGINES.items():
        if (count := getattr(profile, field)) is not None:
            capacity[name] = DeviceCapacity(value=str(count))
    return Device(
        name=mig_name(card.minor, profile.name, profile.gi_id, start), attributes=attributes, capacity=capacity
    )


def _text(value: str) -> DeviceAttribute:
    return DeviceAttribute(string_value=value)


def _common(card: DraCard) -> dict[str, DeviceAttribute]:
    """Attributes of the GPU, which its partitions have too; without those that are not known."""
    made = {"productName": _text(card.product)}
    if card.brand:
        made["brand"] = _text(card.brand.capitalize())
    if card.compute is not None:
        if (known := cuda.architectures().get(card.compute)) is not None:
            made["architecture"] = _text(known.family.replace("-", " ").title())
        made["cudaComputeCapability"] = DeviceAttribute(version_value=_version(card.compute))
    if card.driver:
        made["driverVersion"] = DeviceAttribute(version_value=_version(cuda.parse_version(card.driver)))
    if card.cuda is not None:
        made["cudaDriverVersion"] = DeviceAttribute(version_value=_version(card.cuda))
    if card.pci:
        made[f"{_STANDARD}pciBusID"] = _text(_bus_id(card.pci))
    if card.pcie_root:
        made[f"{_STANDARD}pcieRoot"] = _text(card.pcie_root)
    return made


def _bus_id(pci: str) -> str:
    """0000:65:00.0, as sysfs and the API have it, of NVML's 00000000:65:00.0."""
    domain, colon, rest = pci.partition(":")
    return f"{domain[-4:]}{colon}{rest}".lower()


def _version(parts: Iterable[int]) -> str:
    """A semantic version, which has three numbers and no zeros before them."""
    return ".".join(map(str, [*parts, 0, 0][:3]))


def tainted(card: PublishedCard, taints: Mapping[str, Sequence[DeviceTaint]]) -> PublishedCard:
    """The GPU with taints by the name of the device."""
    devices = [replace(one, taints=list(taints.get(one.name, ()))) for one in card.devices]
    return replace(card, devices=tuple(devices))


def slice_specs(
    cards: Sequence[PublishedCard], node: str, generation: int, driver: str = DRIVER
) -> list[ResourceSliceSpec]:
    """The slices of a node's pool, devices before counters; a GPU's devices are all in one. None: no GPU at all."""
    groups: list[list[Device]] = []
    for card in cards:
        if not groups or len(groups[-1]) + len(card.devices) > MOST_DEVICES:
            groups.append([])
        groups[-1] += card.devices
    sets = [card.counters for card in cards if card.counters is not None]
    shared = [sets[at : at + _MOST_SETS] for at in range(0, len(sets), _MOST_SETS)]
    pool = ResourcePool(name=node, generation=generation, resource_slice_count=len(groups) + len(shared))
    made = [ResourceSliceSpec(driver=driver, pool=pool, node_name=node, devices=group) for group in groups]
    return made + [
        ResourceSliceSpec(driver=driver, pool=pool, node_name=node, shared_counters=group) for group in shared
    ]


def channel_spec(node: str, generation: int = 1) -> ResourceSliceSpec:
    """The slice of the driver of ComputeDomains on a node: the channel that claims of a domain get there."""
    attributes = {"type": _text("channel"), "id": DeviceAttribute(int_value=0)}
    pool = ResourcePool(name=node, generation=generation, resource_slice_count=1)
    devices = [Device(name="channel-0", attributes=attributes)]
    return ResourceSliceSpec(driver=compute_domains.DRIVER, pool=pool, node_name=node, devices=devices)


def channel_class() -> DeviceClass:
    """The class by which claims of a ComputeDomain ask for that channel."""
    driver = compute_domains.DRIVER
    has = f"device.attributes['{driver}']"
    text = f"device.driver == '{driver}' && {has}.type == 'channel' && {has}.id == 0"
    spec = DeviceClassSpec(selectors=[DeviceSelector(cel=CelDeviceSelector(expression=text))])
    meta = ObjectMeta(name=compute_domains.CHANNEL_CLASS)
    return DeviceClass(api_version=V1, kind="DeviceClass", metadata=meta, spec=spec)


def device_classes() -> list[DeviceClass]:
    """The classes by which claims ask for whole GPUs, also as ``nvidia.com/gpu``, and for MIG devices."""
    return [
        _class(GPU_CLASS, "gpu", NVIDIA + "gpu"),
        _class(MIG_CLASS, "mig", None),
    ]


def _class(name: str, type_: str, resource: str | None) -> DeviceClass:
    text = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{type_}'"
    selector = DeviceSelector(cel=CelDeviceSelector(expression=text))
    spec = DeviceClassSpec(selectors=[selector], extended_resource_name=resource)
    return DeviceClass(api_version=V1, kind="DeviceClass", metadata=ObjectMeta(name=name), spec=spec)
