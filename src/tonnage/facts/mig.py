"""MIG profiles: which share of a GPU an instance gets. Tables: ``data/mig_profiles.csv``, and ``data/mig_compute.csv``
for the compute instances that a GPU instance can be divided into."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from tonnage.facts import gpus, names, tables
from tonnage.facts.gpus import Gpu
from tonnage.facts.labels import MIG_PREFIX, MIG_PRODUCT


class MigProfile(Struct, frozen=True):
    """One kind of GPU instance. ``memory_slices`` of ``of_memory_slices`` is its share of memory bandwidth, ``sms`` of
    ``gpu_sms`` its share of compute. ``sms`` and ``memory_mib`` are None where no driver's listing was found: then the
    shares of slices stand in (:attr:`compute_share`, :meth:`usable_mib`) and ``measured`` is False.

    ``gi_id``: the id that the driver gives the profile, None where not known; never a key, since ids and names differ
    between devices and drivers. ``starts``: the memory slices that an instance may begin at; it covers
    ``memory_slices`` from there. ``copy_engines`` to ``ofas``: engines of an instance, None where not found. ``mark``:
    ``measured`` (read from a card), ``documented`` (a driver's listing, NVIDIA's guide) or ``inferred``. ``parent``: of
    a compute instance (``4c.7g.80gb``) the GPU instance that it is a part of, whose memory and engines all its compute
    instances have in common; empty for a GPU instance.
    """

    gpu: str
    name: str
    gi_id: int | None
    compute_slices: int
    memory_slices: int
    of_memory_slices: int
    starts: tuple[int, ...]
    max_instances: int
    sms: int | None
    gpu_sms: int
    memory_mib: int | None
    copy_engines: int | None
    decoders: int | None
    jpegs: int | None
    ofas: int | None
    mark: str
    source: str
    parent: str = ""

    @property
    def plain(self) -> bool:
        """Whether it has no media extension, graphics or the like (``+me``, ``+gfx``, ``-me``)."""
        return "+" not in self.name and "-" not in self.name

    @property
    def resource(self) -> str:
        """The extended resource that the device plugin offers for it: ``+me`` is written ``.me``.

        Source: NVIDIA/k8s-device-plugin internal/resource."""
        return MIG_PREFIX + self.name.replace("+", ".")

    @property
    def measured(self) -> bool:
        """Whether SMs and memory are those of a driver's listing."""
        return self.sms is not None and self.memory_mib is not None

    @property
    def of_compute_slices(self) -> int:
        """How many compute slices the GPU has: one less than its eight memory slices, else as many."""
        return 7 if self.of_memory_slices == 8 else self.of_memory_slices

    @property
    def compute_share(self) -> float:
        """Share of the GPU's arithmetic."""
        if self.sms is None:
            return self.compute_slices / self.of_compute_slices
        return self.sms / self.gpu_sms

    @property
    def memory_share(self) -> float:
        """Share of the GPU's memory bandwidth."""
        return self.memory_slices / self.of_memory_slices

    def usable_mib(self, gpu: Gpu) -> int:
        """Memory of an instance on ``gpu`` in MiB."""
        return int(gpu.memory_mib * self.memory_share) if self.memory_mib is None else self.memory_mib


def profiles(gpu: str, *, plain: bool = True) -> tuple[MigProfile, ...]:
    """The profiles of the GPU called ``gpu``, smallest first; none if it has no MIG, or none that is known here.

    ``plain``: without those that differ from another only by media extensions or graphics."""
    return tuple(one for one in _by_gpu().get(gpu, ()) if one.plain or not plain)


@lru_cache(maxsize=64)
def compute_profiles(gpu: str) -> tuple[MigProfile, ...]:
    """The compute instances, other than the whole of it, that the plain GPU instances of a GPU can be divided into.
    ``starts``: the memory slice at which their GPU instance begins, plus the compute slices before them. SMs are as
    many as equal GPU instances of one slice have."""
    made = []
    one = next((each for each in profiles(gpu) if each.compute_slices == each.memory_slices == 1), None)
    for whole in profiles(gpu):
        for row in tables.rows("mig_compute.csv"):
            if int(row["gi_slices"]) != whole.compute_slices:
                continue
            slices, within = int(row["slices"]), [int(start) for start in row["starts"].split()]
            made.append(
                replace(
                    whole,
                    name=f"{slices}c.{whole.name}",
                    gi_id=None,
                    compute_slices=slices,
                    starts=tuple(sorted(at + start for at in whole.starts for start in within)),
                    max_instances=whole.max_instances * len(within),
                    sms=None if one is None or one.sms is None else slices * one.sms,
                    mark="inferred",
                    source=row["source"],
                    parent=whole.name,
                )
            )
    return tuple(made)


def gigabytes(slice_mib: int, total_mib: int) -> int:
    """The GB in a profile's name: its memory in eighths of the GPU's, rounded up, of the GPU's GiB, rounded up; half a
    GB is rounded up.

    Source: NVIDIA/go-nvlib pkg/nvlib/device/mig_profile.go."""
    eighths = -(-8 * slice_mib // total_mib)
    return (2 * eighths * -(-total_mib // 1024) + 8) // 16


def with_profiles() -> tuple[str, ...]:
    """The GPUs whose profiles are known, by name."""
    return tuple(sorted(_by_gpu()))


def get(gpu: str, profile: str) -> MigProfile:
    """The profile of this name, as in ``1g.10gb``. Raises :class:`~tonnage.errors.InputError` with near names."""
    here = profiles(gpu, plain=False)
    for known in (*here, *compute_profiles(gpu)):
        if known.name == profile.lower():
            return known
    names_here = [known.name for known in here]
    hint = f"{gpu} has {', '.join(names_here)}" if names_here else f"no MIG profiles of {gpu} are known"
    raise names.unknown("MIG profile", profile, names_here, hint=hint)


def as_gpu(gpu: Gpu, profile: MigProfile) -> Gpu:
    """The instance as a GPU of its own: its share of memory, bandwidth and arithmetic; no NVLink, as instances have
    no peer-to-peer access. Its share of PCIe and of power is that of its compute slices."""
    compute, memory = profile.compute_share, profile.memory_share

    def part(rate: float | None) -> float | None:
        return None if rate is None else rate * compute

    return replace(
        gpu,
        name=f"{gpu.name}:{profile.name}",
        product=gpu.product + MIG_PRODUCT + profile.name,
        memory_mib=profile.usable_mib(gpu),
        bandwidth_bytes_per_s=round(gpu.bandwidth_bytes_per_s * memory),
        bf16_flops=gpu.bf16_flops * compute,
        fp8_flops=part(gpu.fp8_flops),
        fp4_flops=part(gpu.fp4_flops),
        nvlink_bytes_per_s=None,
        power_w=round(gpu.power_w * compute),
    )


def resolve(name: str) -> tuple[Gpu, MigProfile | None]:
    """A GPU, or a MIG instance of one written ``GPU:PROFILE`` as in ``h100:1g.10gb``, as a card.

    Raises :class:`~tonnage.errors.InputError` with near names for an unknown GPU or profile.
    """
    whole, colon, profile = name.partition(":")
    gpu = gpus.get(whole)
    if not colon:
        return gpu, None
    found = get(gpu.name, profile)
    return as_gpu(gpu, found), found


@lru_cache(maxsize=1)
def _by_gpu() -> dict[str, tuple[MigProfile, ...]]:
    found: dict[str, list[MigProfile]] = {}
    for row in tables.rows("mig_profiles.csv"):
        profile = MigProfile(
            gpu=row["gpu"],
            name=row["profile"],
            gi_id=tables.whole(row["gi_id"]),
            compute_slices=int(row["compute_slices"]),
            memory_slices=int(row["memory_slices"]),
            of_memory_slices=int(row["of_memory_slices"]),
            starts=tuple(int(start) for start in row["starts"].split()),
            max_instances=int(row["max_instances"]),
            sms=tables.whole(row["sms"]),
            gpu_sms=int(row["gpu_sms"]),
            memory_mib=tables.whole(row["memory_mib"]),
            copy_engines=tables.whole(row["copy_engines"]),
            decoders=tables.whole(row["decoders"]),
            jpegs=tables.whole(row["jpegs"]),
            ofas=tables.whole(row["ofas"]),
            mark=row["mark"],
            source=row["source"],
        )
        found.setdefault(profile.gpu, []).append(profile)
    return {gpu: tuple(of) for gpu, of in found.items()}
