"""What NVML says of a machine's cards and their MIG instances. Reads only: no mode is changed, nothing made.

The library is nvidia-ml-py (the extra ``node``), imported when a machine is read. Everything goes through the protocol
:class:`Nvml`, so that recorded answers of real cards can stand in for a driver.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from tonnage.errors import InputError

PROFILES = range(18)
"""NVML's numbers of GPU instance profiles (nvml.h, NVML_GPU_INSTANCE_PROFILE_COUNT); not the profiles' ids."""


class ProfileInfo(NamedTuple):
    """One profile as the driver lists it. ``id``: what instances are made with. ``slices``: of compute; ``memory_mib``:
    of an instance. ``name``: as in ``1g.10gb``, empty where the driver gives none."""

    id: int
    name: str
    slices: int
    instances: int
    sms: int
    memory_mib: int
    copy_engines: int
    decoders: int
    encoders: int
    jpegs: int
    ofas: int


class Instance(NamedTuple):
    """A GPU instance that exists: its own id, its profile's, and the memory slices it covers."""

    id: int
    profile_id: int
    start: int
    size: int


class Tried(NamedTuple):
    """What a function of the library answered: ``value``, else None and ``why``, in the driver's words. ``lost``: the
    card does not answer any more."""

    value: Any
    why: str = ""
    lost: bool = False


class Nvml(Protocol):
    """A machine's cards, by index. None is "the driver does not say"."""

    def driver(self) -> str: ...

    def count(self) -> int: ...

    def name(self, card: int) -> str: ...

    def uuid(self, card: int) -> str: ...

    def device_id(self, card: int) -> int:
        """PCI device id before vendor id, 16 bits each."""
        ...

    def memory_mib(self, card: int) -> int: ...

    def mode(self, card: int) -> tuple[bool, bool] | None:
        """Whether MIG is on, and whether it will be; None: the card has no MIG."""
        ...

    def profile(self, card: int, number: int) -> ProfileInfo | None:
        """The profile with this number of :data:`PROFILES`; None: the card has it not."""
        ...

    def placements(self, card: int, profile_id: int) -> list[tuple[int, int]] | None:
        """(first memory slice, slices) of every place that an instance can have."""
        ...

    def instances(self, card: int, profile: ProfileInfo) -> list[Instance] | None: ...


class Library:
    """NVML of this machine, for the length of a ``with`` block.

    Raises :class:`~tonnage.errors.InputError` when nvidia-ml-py or a driver is missing."""

    def __init__(self) -> None:
        try:
            import pynvml
        except ImportError as error:
            hint = "pip install 'tonnage[node]'"
            raise InputError.at("cards are read through nvidia-ml-py, which is not installed", hint=hint) from error
        self._nvml: Any = pynvml
        self._absent = self._codes(
            "NOT_SUPPORTED", "INVALID_ARGUMENT", "NO_PERMISSION", "FUNCTION_NOT_FOUND", "NOT_FOUND"
        )

    def _codes(self, *names: str) -> frozenset[int]:
        return frozenset(getattr(self._nvml, f"NVML_ERROR_{name}") for name in names)

    def __enter__(self) -> Self:
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            hint = "run it on a machine with an NVIDIA driver, in a container with the GPUs; nvidia-smi must work there"
            raise InputError.at(f"NVML cannot be used: {error}", hint=hint) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._nvml.nvmlShutdown()

    def driver(self) -> str:
        return _text(self._said(self._nvml.nvmlSystemGetDriverVersion))

    def count(self) -> int:
        return int(self._said(self._nvml.nvmlDeviceGetCount))

    def name(self, card: int) -> str:
        return _text(self._said(self._nvml.nvmlDeviceGetName, self._card(card)))

    def uuid(self, card: int) -> str:
        return _text(self._said(self._nvml.nvmlDeviceGetUUID, self._card(card)))

    def device_id(self, card: int) -> int:
        return int(self._said(self._nvml.nvmlDeviceGetPciInfo, self._card(card)).pciDeviceId)

    def memory_mib(self, card: int) -> int:
        return int(self._said(self._nvml.nvmlDeviceGetMemoryInfo, self._card(card)).total) >> 20

    def mode(self, card: int) -> tuple[bool, bool] | None:
        found = self._asked(self._nvml.nvmlDeviceGetMigMode, self._card(card))
        return None if found is None else (bool(found[0]), bool(found[1]))

    def profile(self, card: int, number: int) -> ProfileInfo | None:
        info = self._asked(self._nvml.nvmlDeviceGetGpuInstanceProfileInfo, self._card(card), number)
        return None if info is None else profile_info({name: getattr(info, name) for name, *_ in info._fields_})

    def placements(self, card: int, profile_id: int) -> list[tuple[int, int]] | None:
        rows = self._listed(
            self._nvml.nvmlDeviceGetGpuInstancePossiblePlacements,
            self._nvml.c_nvmlGpuInstancePlacement_t,
            _MOST_PLACEMENTS,
            card,
            profile_id,
        )
        return None if rows is None else [(int(row.start), int(row.size)) for row in rows]

    def instances(self, card: int, profile: ProfileInfo) -> list[Instance] | None:
        handles = self._listed(
            self._nvml.nvmlDeviceGetGpuInstances,
            self._nvml.c_nvmlGpuInstance_t,
            profile.instances,
            card,
            profile.id,
        )
        if handles is None:
            return None
        found = []
        for handle in handles:
            info = self._said(self._nvml.nvmlGpuInstanceGetInfo, handle)
            found.append(Instance(info.id, info.profileId, info.placement.start, info.placement.size))
        return found

    def tried(self, name: str, *arguments: Any) -> Tried:
        """The answer of the function called so; a driver or library that is older than the function has none."""
        function = getattr(self._nvml, name, None)
        if function is None:
            return Tried(None, f"nvidia-ml-py has no {name}")
        try:
            return Tried(function(*arguments))
        except self._nvml.NVMLError as error:
            lost = error.value in (self._nvml.NVML_ERROR_GPU_IS_LOST, self._nvml.NVML_ERROR_RESET_REQUIRED)
            return Tried(None, str(error), lost)

    def constant(self, name: str) -> Any:
        """A number or a structure of the library; None where its version has none of that name."""
        return getattr(self._nvml, name, None)

    def _card(self, index: int) -> Any:
        return self._said(self._nvml.nvmlDeviceGetHandleByIndex, index)

    def _asked(self, function: Any, *arguments: Any) -> Any:
        """The function's answer; None where the driver has none."""
        return self._said(function, *arguments, absent=self._absent)

    def _said(self, function: Any, *arguments: Any, absent: frozenset[int] = frozenset()) -> Any:
        """The function's answer; None for the errors ``absent``. Others are said in the driver's words."""
        try:
            return function(*arguments)
        except self._nvml.NVMLError as error:
            if error.value in absent:
                return None
            raise InputError.at(f"NVML failed: {error}", hint="does nvidia-smi work?") from error

    def _listed(self, function: Any, kind: Any, most: int, card: int, profile_id: int) -> list[Any] | None:
        """What a function puts into an array of the caller's, with its length."""
        import ctypes

        array, count = (kind * most)(), ctypes.c_uint(most)
        done = self._asked(function, self._card(card), profile_id, array, ctypes.byref(count))
        return None if done is None else list(array[: count.value])


_MOST_PLACEMENTS = 64
"""Room for the places of one profile; a card has 8 memory slices."""


def profile_info(fields: dict[str, Any]) -> ProfileInfo:
    """A profile from the fields of nvmlGpuInstanceProfileInfo_v2_t."""
    return ProfileInfo(
        id=int(fields["id"]),
        name=_text(fields.get("name", "")).removeprefix("MIG "),
        slices=int(fields["sliceCount"]),
        instances=int(fields["instanceCount"]),
        sms=int(fields["multiprocessorCount"]),
        memory_mib=int(fields["memorySizeMB"]),
        copy_engines=int(fields["copyEngineCount"]),
        decoders=int(fields["decoderCount"]),
        encoders=int(fields["encoderCount"]),
        jpegs=int(fields["jpegCount"]),
        ofas=int(fields["ofaCount"]),
    )


def listed(nvml: Nvml, card: int) -> Iterable[ProfileInfo]:
    """The profiles that the card has, in NVML's order."""
    found = (nvml.profile(card, number) for number in PROFILES)
    return [one for one in found if one is not None]


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
