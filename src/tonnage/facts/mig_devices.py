"""GPUs that can be partitioned, by PCI device id, and other names of their profiles.

Tables: ``data/mig_devices.csv``, ``data/mig_other_names.csv``, ``data/gpu_label_memory.csv``."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from tonnage.facts import tables

VENDOR = 0x10DE
"""NVIDIA."""


class MigDevice(Struct, frozen=True):
    """One board. ``device``: its PCI device id. ``gpu``: whose MIG profiles it has; ``own``: it is that GPU, and not
    another with equal profile names (an H800 with PCIe has those of the H100 with PCIe)."""

    device: int
    card: str
    gpu: str
    own: bool
    source: str

    @property
    def filter(self) -> str:
        """The id as NVML and mig-parted write it: device, then vendor."""
        return f"0x{self.device:04X}{VENDOR:04X}"


@lru_cache(maxsize=1)
def all() -> tuple[MigDevice, ...]:
    """Every known board, in the order of the table."""
    return tuple(
        MigDevice(int(row["device_id"], 16), row["card"], row["gpu"], row["own"] == "yes", row["source"])
        for row in tables.rows("mig_devices.csv")
    )


@lru_cache(maxsize=1)
def by_id() -> dict[int, MigDevice]:
    """Boards by PCI device id."""
    return {one.device: one for one in all()}


def of(gpu: str) -> tuple[MigDevice, ...]:
    """The boards that have the MIG profiles of the GPU called ``gpu``."""
    return tuple(one for one in all() if one.gpu == gpu)


def other_names(gpu: str) -> dict[str, str]:
    """Other names of this GPU's profiles, on early boards or with some drivers → the name in the table of profiles."""
    return _other_names().get(gpu, {})


@lru_cache(maxsize=1)
def _other_names() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for row in tables.rows("mig_other_names.csv"):
        found.setdefault(row["gpu"], {})[row["other"]] = row["profile"]
    return found


@lru_cache(maxsize=1)
def label_memory() -> dict[str, int]:
    """MiB in the label nvidia.com/gpu.memory, by GPU, where the driver's total is not the size in ``gpus.csv``."""
    return {row["gpu"]: int(row["mib"]) for row in tables.rows("gpu_label_memory.csv")}
