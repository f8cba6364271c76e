"""What sensors and counters of a simulated GPU say, from the work that it does."""

from __future__ import annotations

from tonnage.facts.gpus import Gpu
from tonnage.node.devices import Measured

_IDLE, _BUSY = 345, 1980
"""SM clock in MHz without and with work: read on an H200 with driver 580.159.03."""
_MEMORY_CLOCK = 3201
_IDLE_POWER = 0.11
"""Of the power limit: 77 W of 700 W on an idle H200."""
_AMBIENT, _RISE, _MEMORY_ABOVE = 30, 40, 5
"""Degrees Celsius: assumptions."""


def whole_card(
    gpu: Gpu, load: float, used_mib: int, memory_mib: int, *, sms: float = 1.0, bandwidth: float = 1.0
) -> Measured:
    """The readings of a card that is busy for the share ``load`` of the time (0 to 1), using the shares ``sms`` and
    ``bandwidth`` of its SMs and memory bandwidth then."""
    return Measured(
        sm_clock_mhz=_BUSY if load else _IDLE,
        memory_clock_mhz=_MEMORY_CLOCK,
        gpu_temperature_c=round(_AMBIENT + _RISE * load),
        memory_temperature_c=round(_AMBIENT + _MEMORY_ABOVE + _RISE * load),
        power_w=round(gpu.power_w * (_IDLE_POWER + (1 - _IDLE_POWER) * load), 3),
        pcie_replays=0,
        gpu_utilization=round(100 * load),
        memory_utilization=round(100 * load),
        encoder_utilization=0,
        decoder_utilization=0,
        framebuffer_used_mib=used_mib,
        framebuffer_free_mib=memory_mib - used_mib,
        framebuffer_reserved_mib=0,
        nvlink_bytes=None if gpu.nvlink_bytes_per_s is None else 0,
        graphics_active=load,
        sm_active=load * sms,
        tensor_active=load * sms,
        dram_active=load * bandwidth,
        pcie_sent_bytes_per_s=0.0,
        pcie_received_bytes_per_s=0.0,
    )
