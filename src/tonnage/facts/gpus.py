"""GPU models: memory, rates, links. Table: ``data/gpus.csv``."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from tonnage.facts import names, tables

GB_PER_S = 1e9
_TFLOPS = 1e12


class Gpu(Struct, frozen=True):
    """One GPU model. Rates are peaks without sparsity; bytes are counted in powers of ten for rates.

    ``product``: value of the label nvidia.com/gpu.product. ``karpenter_name``: value of the label
    karpenter.k8s.aws/instance-gpu-name, empty if no EC2 type has this GPU. ``memory_mib``: as EC2 reports it,
    for others as the driver does. ``fp8_flops``, ``fp4_flops``: None where the tensor cores lack the format.
    ``nvlink_bytes_per_s``, ``pcie_bytes_per_s``: of one GPU in one direction; NVLink is None where there is
    none. On Grace systems the link to the CPU is NVLink-C2C, and ``pcie_bytes_per_s`` is its rate.
    """

    name: str
    product: str
    karpenter_name: str
    memory_mib: int
    bandwidth_bytes_per_s: int
    bf16_flops: float
    fp8_flops: float | None
    fp4_flops: float | None
    nvlink_bytes_per_s: int | None
    pcie_bytes_per_s: int
    power_w: int
    source: str


def get(name: str) -> Gpu:
    """The GPU called ``name``: its own name, an alias or its product label, in any letter case.

    Raises :class:`~tonnage.errors.InputError` with near names if there is none.
    """
    found = _by_name().get(_plain(name))
    if found is None:
        raise names.unknown("GPU", name, [gpu.name for gpu in all()], hint="GPU names are like l40s, a100-80, h100")
    return found


@lru_cache(maxsize=1)
def all() -> tuple[Gpu, ...]:
    """Every known GPU, sorted by name."""
    return tuple(sorted((gpu for gpu, _ in _read()), key=lambda gpu: gpu.name))


@lru_cache(maxsize=1)
def _by_name() -> dict[str, Gpu]:
    index: dict[str, Gpu] = {}
    for gpu, aliases in _read():
        for name in (gpu.name, gpu.product, *aliases):
            index[_plain(name)] = gpu
    return index


@lru_cache(maxsize=1)
def _read() -> tuple[tuple[Gpu, tuple[str, ...]], ...]:
    return tuple((_gpu(row), tuple(row["aliases"].split())) for row in tables.rows("gpus.csv"))


def _gpu(row: dict[str, str]) -> Gpu:
    nvlink = tables.scaled(row["nvlink_gb_per_s"], GB_PER_S)
    return Gpu(
        name=row["name"],
        product=row["product"],
        karpenter_name=row["karpenter_name"],
        memory_mib=int(row["memory_mib"]),
        bandwidth_bytes_per_s=round(float(row["bandwidth_gb_per_s"]) * GB_PER_S),
        bf16_flops=float(row["bf16_tflops"]) * _TFLOPS,
        fp8_flops=tables.scaled(row["fp8_tflops"], _TFLOPS),
        fp4_flops=tables.scaled(row["fp4_tflops"], _TFLOPS),
        nvlink_bytes_per_s=None if nvlink is None else round(nvlink),
        pcie_bytes_per_s=round(float(row["pcie_gb_per_s"]) * GB_PER_S),
        power_w=int(row["power_w"]),
        source=row["source"],
    )


def _plain(name: str) -> str:
    plain = name.strip().lower().replace("_", "-").replace(" ", "-")
    return plain.removeprefix("nvidia-")
