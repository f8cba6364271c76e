"""What a container is given for the devices that the kubelet chose, in each way that a device plugin can say it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tonnage.node import cdi
from tonnage.node.kubelet_api import CdiName, ContainerAllocateResponse, DeviceSpec, Mount
from tonnage.node.offers import OfferedDevice
from tonnage.partitioning.device_plugin import FlagValue

_VISIBLE = "NVIDIA_VISIBLE_DEVICES"
_MOUNTED = "/var/run/nvidia-container-devices"
_CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")


class AllocationError(Exception):
    """The container cannot have these devices; the kubelet shows the text in the pod's status."""


@dataclass(frozen=True, slots=True)
class Handing:
    """How devices are handed over: the flags ``plugin.deviceListStrategy``, ``plugin.deviceIDStrategy``,
    ``plugin.cdiAnnotationPrefix`` and ``plugin.passDeviceSpecs``. ``one_each``: more than one replica is refused."""

    strategies: tuple[str, ...] = ("envvar",)
    by_index: bool = False
    annotation_prefix: str = "cdi.k8s.io/"
    pass_device_specs: bool = False
    one_each: bool = False

    @classmethod
    def of(cls, settings: Mapping[str, FlagValue], *, one_each: bool) -> Handing:
        """That of settled flags (:func:`tonnage.partitioning.device_plugin.settle`)."""

        def value(name: str) -> object:
            return settings[f"plugin.{name}"].value

        listed = value("deviceListStrategy")
        return cls(
            tuple(listed) if isinstance(listed, list) else (str(listed),),
            value("deviceIDStrategy") == "index",
            str(value("cdiAnnotationPrefix")),
            value("passDeviceSpecs") is True,
            one_each,
        )

    @property
    def by_cdi(self) -> bool:
        """Whether names of CDI devices are handed over."""
        return any(one.startswith("cdi-") for one in self.strategies)


def answer(
    resource: str,
    known: Mapping[str, OfferedDevice],
    ids: Sequence[str],
    how: Handing,
    nodes: Mapping[str, Sequence[str]],
) -> ContainerAllocateResponse:
    """What the container gets. ``nodes``: by uuid the device nodes of a device (those of its CDI specification).

    Raises AllocationError for ids that are not offered, that no specification has, and for too many replicas."""
    unknown = [one for one in ids if one not in known]
    if unknown:
        raise AllocationError(f"{resource}: no device {', '.join(unknown)} here (now there are {', '.join(known)})")
    chosen = [known[one] for one in ids]
    if how.one_each and len(chosen) > 1 and any(one.replica is not None for one in chosen):
        raise AllocationError(
            f"request for {resource}: {len(chosen)} is too large: at most 1 replica of a shared resource"
        )
    uuids = list(dict.fromkeys(one.uuid for one in chosen))
    missing = [uuid for uuid in uuids if uuid not in nodes]
    if missing and how.by_cdi:
        raise AllocationError(f"{resource}: the CDI specification has no device {', '.join(missing)}")
    named = list(dict.fromkeys(one.index for one in chosen)) if how.by_index else uuids
    made = ContainerAllocateResponse()
    if "volume-mounts" in how.strategies:
        made.envs[_VISIBLE] = _MOUNTED
        made.mounts = [Mount(f"{_MOUNTED}/{one}", "/dev/null", read_only=False) for one in named]
    if "envvar" in how.strategies:
        made.envs[_VISIBLE] = ",".join(named)
    names = [f"{cdi.PLUGIN_KIND}={uuid}" for uuid in uuids]
    if "cdi-annotations" in how.strategies:
        digest = hashlib.sha256(",".join(ids).encode()).hexdigest()[:32]
        made.annotations[f"{how.annotation_prefix}tonnage_{digest}"] = ",".join(names)
    if "cdi-cri" in how.strategies:
        made.cdi = [CdiName(name) for name in names]
    if how.pass_device_specs:
        paths = dict.fromkeys((*_CONTROL, *(path for uuid in uuids for path in nodes.get(uuid, ()))))
        made.devices = [DeviceSpec(path, path, "rw") for path in paths]
    return made
