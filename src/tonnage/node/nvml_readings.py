"""Counters and signs of faults of one card, as NVML gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tonnage.node.devices import CardCondition, EccCounts, RecoveryAction, RemappedRows
from tonnage.node.nvml import Library, Tried

REASONS = {
    1 << 0: "gpu_idle",
    1 << 1: "applications_clocks_setting",
    1 << 2: "sw_power_cap",
    1 << 3: "hw_slowdown",
    1 << 4: "sync_boost",
    1 << 5: "sw_thermal_slowdown",
    1 << 6: "hw_thermal_slowdown",
    1 << 7: "hw_power_brake_slowdown",
    1 << 8: "display_clock_setting",
}
"""nvmlClocksEventReason bits, as nvidia-smi names them."""
_RECOVERY_FIELD = 230
_NVLINK_THROUGHPUT = ("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX")
_MEMORY_TEMPERATURE = "NVML_FI_DEV_MEMORY_TEMP"
_ALL_LINKS = 0xFFFFFFFF
_COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")


def condition(library: Library, handle: Any, links: int) -> CardCondition:
    """What tells faults of the card; ``links``: the most NVLinks that one can have."""
    first = [library.tried(f"nvmlDeviceGet{name}", handle) for name in ("PciInfo", "EccMode")]
    if handle is None or any(one.lost for one in first):  # the latter is asked of the card, not of the driver's memory
        return CardCondition(lost=True)

    def ask(name: str, *arguments: Any) -> Any:
        return library.tried(f"nvmlDeviceGet{name}", handle, *arguments).value

    rows = ask("RemappedRows")
    ecc = first[1].value
    mask = ask("CurrentClocksEventReasons")
    linked = ask("NvLinkState", 0) is not None  # else the card has none
    states = [ask("NvLinkState", link) for link in range(links if linked else 0)]
    limit = ask("EnforcedPowerLimit")
    mode = ask("ComputeMode")
    persistence = ask("PersistenceMode")
    action = field(library, handle, _RECOVERY_FIELD)
    return CardCondition(
        recovery=None if action is None else RecoveryAction(int(action)),
        rows=None if rows is None else RemappedRows(int(rows[0]), int(rows[1]), bool(rows[2]), bool(rows[3])),
        ecc=None if ecc is None else bool(ecc[0]),
        errors=EccCounts(*(ask("TotalEccErrors", kind, counter) for counter in (0, 1) for kind in (0, 1))),
        throttle=() if mask is None else tuple(name for bit, name in REASONS.items() if mask & bit),
        nvlinks_down=tuple(link for link, state in enumerate(states) if state == 0),
        persistence=None if persistence is None else bool(persistence),
        compute_mode="" if mode is None else _COMPUTE_MODES[mode],
        power_limit_w=None if limit is None else limit / 1000,
    )


def field(library: Library, handle: Any, number: int, scope: int = 0) -> float | None:
    """The value of one of NVML's fields; None where the card has none."""
    found = library.tried("nvmlDeviceGetFieldValues", handle, [(number, scope)]).value
    if found is None or found[0].nvmlReturn != 0:
        return None
    kinds = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    return float(getattr(found[0].value, kinds[found[0].valueType]))


def energy(library: Library, handle: Any) -> Tried:
    """Millijoules since the driver was loaded; the dearest question there is: 3.9 ms of an H200's driver."""
    return library.tried("nvmlDeviceGetTotalEnergyConsumption", handle)


def counters(library: Library, handle: Any, energy: Tried | None) -> tuple[dict[str, Any], dict[str, str]]:
    """(values, why others are absent) by field of Measured. ``energy``: of the whole card (:func:`energy`); None: it is
    one of a card's instances, of which the driver gives memory alone."""
    values: dict[str, Any] = {}
    absent: dict[str, str] = {}

    def put(name: str, function: str, *arguments: Any, take: Callable[[Any], Any] = int) -> None:
        keep(name, library.tried(f"nvmlDeviceGet{function}", handle, *arguments), take)

    def keep(name: str, found: Tried, take: Callable[[Any], Any] = int) -> None:
        if found.value is None:
            absent[name] = found.why
        else:
            values[name] = take(found.value)

    def rest(name: str, value: float | None, what: str) -> None:
        if value is None:
            absent[name] = f"the driver gives no {what}"
        else:
            values[name] = int(value)

    version = library.constant("nvmlMemory_v2")
    put("framebuffer_used_mib", "MemoryInfo", version, take=lambda found: found.used >> 20)
    put("framebuffer_free_mib", "MemoryInfo", version, take=lambda found: found.free >> 20)
    put("framebuffer_reserved_mib", "MemoryInfo", version, take=lambda found: found.reserved >> 20)
    if energy is None:
        return values, absent
    put("sm_clock_mhz", "ClockInfo", 1)
    put("memory_clock_mhz", "ClockInfo", 2)
    put("gpu_temperature_c", "Temperature", 0)
    put("power_w", "PowerUsage", take=lambda found: found / 1000)
    keep("energy_mj", energy)
    put("pcie_replays", "PcieReplayCounter")
    put("gpu_utilization", "UtilizationRates", take=lambda found: int(found.gpu))
    put("memory_utilization", "UtilizationRates", take=lambda found: int(found.memory))
    put("encoder_utilization", "EncoderUtilization", take=lambda found: int(found[0]))
    put("decoder_utilization", "DecoderUtilization", take=lambda found: int(found[0]))
    rest("memory_temperature_c", _named(library, handle, _MEMORY_TEMPERATURE), "memory temperature")
    sent = [_named(library, handle, name, _ALL_LINKS) for name in _NVLINK_THROUGHPUT]
    both = None if None in sent else 1024 * sum(one for one in sent if one is not None)
    rest("nvlink_bytes", both, "NVLink throughput")
    return values, absent


def _named(library: Library, handle: Any, name: str, scope: int = 0) -> float | None:
    number = library.constant(name)
    return None if number is None else field(library, handle, int(number), scope)
