"""What an hour of a GPU costs that one owns: price, life and energy. Tables: ``data/owned_gpus.csv`` and
``data/ownership.csv``."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from tonnage.facts import gpus, tables
from tonnage.facts.gpus import Gpu
from tonnage.facts.instances import InstanceType
from tonnage.units import micro_usd

_HOURS_A_YEAR = 8_766


class Ownership(Struct, frozen=True):
    """Assumptions, each with its source in the table: ``life_years`` of straight-line depreciation, ``host_share`` of
    the GPU's price for what is around it, ``usd_per_kwh``, ``host_power`` as a share of the GPU's, ``pue``, mean
    ``load`` as a share of the rated power, and the share of hours that count as ``used``."""

    life_years: float
    host_share: float
    usd_per_kwh: float
    host_power: float
    pue: float
    load: float
    used: float

    def usd_per_hour(self, gpu: Gpu, price_usd: float) -> float:
        """Dollars an hour of one GPU bought for ``price_usd``::

        price · (1 + host_share) / (life_years · 8766 · used)
        + power · load · (1 + host_power) · pue · usd_per_kwh
        """
        capital = price_usd * (1 + self.host_share) / (self.life_years * _HOURS_A_YEAR * self.used)
        kilowatts = gpu.power_w / 1000 * self.load * (1 + self.host_power) * self.pue
        return capital + kilowatts * self.usd_per_kwh


@lru_cache(maxsize=1)
def get() -> Ownership:
    """The bundled assumptions."""
    return Ownership(**{row["name"]: float(row["value"]) for row in tables.rows("ownership.csv")})


def price_usd(gpu: str) -> float | None:
    """What a GPU is bought for, None where no price is known."""
    return _prices().get(gpu)


def machine_micro_usd(machine: InstanceType) -> int | None:
    """Micro-dollars an hour of a machine with GPUs that one owns, by the bundled assumptions; None where no price of
    its GPUs is known."""
    price = price_usd(machine.gpu) if machine.gpu_count else None
    if price is None:
        return None
    return micro_usd(machine.gpu_count * get().usd_per_hour(gpus.get(machine.gpu), price))


@lru_cache(maxsize=1)
def _prices() -> dict[str, float]:
    return {row["gpu"]: float(row["usd"]) for row in tables.rows("owned_gpus.csv")}
