"""Shares of a card's units that were active, from NVML's GPU performance monitoring (GPM, Hopper and newer).

A value is the mean between two samples; the older one is kept from the last reading of the same card or instance.
"""

from __future__ import annotations

from typing import Any

from tonnage.node.nvml import Library
from tonnage.units import MIB

METRICS = {
    "graphics_active": ("NVML_GPM_METRIC_GRAPHICS_UTIL", 0.01),
    "sm_active": ("NVML_GPM_METRIC_SM_UTIL", 0.01),
    "sm_occupancy": ("NVML_GPM_METRIC_SM_OCCUPANCY", 0.01),
    "tensor_active": ("NVML_GPM_METRIC_ANY_TENSOR_UTIL", 0.01),
    "dram_active": ("NVML_GPM_METRIC_DRAM_BW_UTIL", 0.01),
    "pcie_sent_bytes_per_s": ("NVML_GPM_METRIC_PCIE_TX_PER_SEC", MIB),
    "pcie_received_bytes_per_s": ("NVML_GPM_METRIC_PCIE_RX_PER_SEC", MIB),
    "nvlink_sent_bytes_per_s": ("NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC", MIB),
    "nvlink_received_bytes_per_s": ("NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC", MIB),
}
"""Field of :class:`tonnage.node.devices.Measured` → NVML's metric, and what one of its units is in the field's."""


class Gpm:
    """The samples of one machine's cards."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._last: dict[tuple[int, int | None], Any] = {}
        self._why: dict[int, str] = {}

    def read(self, card: int, handle: Any, gpu_instance: int | None) -> tuple[dict[str, float], dict[str, str]]:
        """(values, why others are absent), by field."""
        why = self._unsupported(card, handle)
        if why:
            return {}, dict.fromkeys(METRICS, why)
        key = (card, gpu_instance)
        before, now = self._last.get(key), self._library.tried("nvmlGpmSampleAlloc")
        if now.why:
            return {}, dict.fromkeys(METRICS, now.why)
        if gpu_instance is None:
            taken = self._library.tried("nvmlGpmSampleGet", handle, now.value)
        else:
            taken = self._library.tried("nvmlGpmMigSampleGet", handle, gpu_instance, now.value)
        if taken.why:
            self._library.tried("nvmlGpmSampleFree", now.value)
            return {}, dict.fromkeys(METRICS, taken.why)
        self._last[key] = now.value
        if before is None:
            return {}, dict.fromkeys(METRICS, "a first sample has nothing to be compared with")
        try:
            return self._between(before, now.value)
        finally:
            self._library.tried("nvmlGpmSampleFree", before)

    def close(self) -> None:
        """Free the samples that are kept."""
        for sample in self._last.values():
            self._library.tried("nvmlGpmSampleFree", sample)
        self._last.clear()

    def _unsupported(self, card: int, handle: Any) -> str:
        if card not in self._why:
            found = self._library.tried("nvmlGpmQueryDeviceSupport", handle)
            supported = found.value is not None and found.value.isSupportedDevice
            self._why[card] = "" if supported else found.why or "the card has no GPM (it came with Hopper)"
        return self._why[card]

    def _between(self, before: Any, now: Any) -> tuple[dict[str, float], dict[str, str]]:
        library = self._library
        asked = library.constant("c_nvmlGpmMetricsGet_t")()
        asked.version = library.constant("NVML_GPM_METRICS_GET_VERSION")
        asked.numMetrics = len(METRICS)
        asked.sample1, asked.sample2 = before, now
        for at, (name, _) in enumerate(METRICS.values()):
            asked.metrics[at].metricId = library.constant(name)
        done = library.tried("nvmlGpmMetricsGet", asked)
        if done.why:
            return {}, dict.fromkeys(METRICS, done.why)
        values, absent = {}, {}
        for at, (field, (name, unit)) in enumerate(METRICS.items()):
            one = asked.metrics[at]
            if one.nvmlReturn == 0:
                values[field] = one.value * unit
            else:
                absent[field] = f"{name}: NVML error {one.nvmlReturn}"
        return values, absent
