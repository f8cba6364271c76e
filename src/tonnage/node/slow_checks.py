"""Why a GPU workload is slow although it runs: power against utilisation, clocks held down, links that are narrow.

A single reading of utilisation says little: between two kernels it is 0 %. So several are taken over a window.
"""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.node.devices import CardCondition, Devices, Identity, Measured
from tonnage.node.node_checks import PASSED, UNKNOWN, WARNING, NodeCheck

_BUSY_PERCENT = 50
_LITTLE_POWER = 0.35
"""Of the power limit: a card that computes takes more, one that waits between kernels does not."""
_HARMLESS = frozenset({"gpu_idle", "applications_clocks_setting", "sync_boost", "display_clock_setting"})
_GP3_MIB_PER_S = 125


def slow(devices: Devices, samples: Sequence[Sequence[Measured]], read_mib_per_s: float | None) -> list[NodeCheck]:
    """``samples``: of each reading the measurements of all cards, by index. ``read_mib_per_s``: what was read from
    disks meanwhile; None: not measured. Raises InputError where the driver fails."""
    cards = devices.cards()
    now = [devices.condition(one.index) for one in cards]
    return [
        power(cards, now, samples),
        window(cards, samples),
        throttled(cards, now),
        links(devices),
        storage(samples, read_mib_per_s),
    ]


def _values(samples: Sequence[Sequence[Measured]], card: int) -> list[int]:
    given = (one[card].gpu_utilization for one in samples)
    return [value for value in given if value is not None]


def power(cards: Sequence[Identity], now: Sequence[CardCondition], samples: Sequence[Sequence[Measured]]) -> NodeCheck:
    """Cards that are busy and take little power wait for something."""
    name = "power against utilisation"
    seen, low, measured = [], False, False
    for one in cards:
        limit = now[one.index].power_limit_w
        watts = [taken[one.index].power_w for taken in samples]
        known = [value for value in watts if value is not None]
        used = _values(samples, one.index)
        if limit is None or not known or not used:
            continue
        measured = True
        mean, busy = sum(known) / len(known), sum(used) / len(used)
        waits = busy >= _BUSY_PERCENT and mean < _LITTLE_POWER * limit
        low = low or waits
        seen.append(f"GPU {one.index}: {busy:.0f} % busy at {mean:.0f} of {limit:.0f} W")
    if low:
        help_ = "the bottleneck is before the GPU: data loading, tokenising, small batches, or FP32 in place of BF16"
        return NodeCheck(name, WARNING, tuple(seen), help_)
    return NodeCheck(
        name, PASSED if measured else UNKNOWN, tuple(seen) or ("the driver gives no power or utilisation",)
    )


def window(cards: Sequence[Identity], samples: Sequence[Sequence[Measured]]) -> NodeCheck:
    """Cards that read 0 % at times and work at others."""
    name = "sampling window"
    seen = []
    between = False
    for one in cards:
        used = _values(samples, one.index)
        if used and min(used) == 0 and max(used) > 0:
            between = True
            seen.append(f"GPU {one.index}: {min(used)} to {max(used)} % within {len(used)} readings")
    if between:
        help_ = "one reading of 0 % proves nothing: take DCGM_FI_PROF_GR_ENGINE_ACTIVE, or an average over minutes"
        return NodeCheck(name, WARNING, tuple(seen), help_)
    return NodeCheck(name, PASSED, (f"{len(samples)} readings agree on who works",))


def throttled(cards: Sequence[Identity], now: Sequence[CardCondition]) -> NodeCheck:
    """Reasons for which clocks are held down."""
    name = "clocks"
    found = {one.index: [why for why in now[one.index].throttle if why not in _HARMLESS] for one in cards}
    seen = tuple(f"GPU {index}: {', '.join(why)}" for index, why in found.items() if why)
    if not seen:
        return NodeCheck(name, PASSED, ("no clock is held down",))
    help_ = "sw_power_cap: the power limit; thermal: cooling; hw_slowdown, hw_power_brake: power supply or board"
    return NodeCheck(name, WARNING, seen, help_)


def links(devices: Devices) -> NodeCheck:
    """PCIe links narrower or older than they can be under load, and NVLinks that are down."""
    name = "PCIe and NVLink"
    seen = []
    for one in devices.cards():
        link = devices.pcie(one.index)
        if link.width is not None and link.max_width is not None and link.width < link.max_width:
            seen.append(f"GPU {one.index}: PCIe x{link.width} of x{link.max_width}")
        down = devices.condition(one.index).nvlinks_down
        if down:
            seen.append(f"GPU {one.index}: NVLink {', '.join(map(str, down))} down")
    if seen:
        return NodeCheck(
            name, WARNING, tuple(seen), "reseat or replace the card or its cable; reset both GPUs of a link"
        )
    return NodeCheck(name, PASSED, ("PCIe at full width, no NVLink down",))


def storage(samples: Sequence[Sequence[Measured]], read_mib_per_s: float | None) -> NodeCheck:
    """A disk that reads at the rate of a volume as it comes, while no GPU works."""
    name = "storage"
    if read_mib_per_s is None:
        return NodeCheck(name, UNKNOWN, ("not measured",), "iostat -x 1 while a model loads")
    idle = all((one.gpu_utilization or 0) == 0 for taken in samples for one in taken)
    seen = (f"{read_mib_per_s:.0f} MiB/s read",)
    if idle and 0.8 * _GP3_MIB_PER_S <= read_mib_per_s <= 1.2 * _GP3_MIB_PER_S:
        help_ = "that is a gp3 volume as it comes (125 MiB/s): provision throughput, or keep models on local NVMe"
        return NodeCheck(name, WARNING, seen, help_)
    return NodeCheck(name, PASSED, seen)
