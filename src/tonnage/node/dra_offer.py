"""What a node's DRA driver publishes now: every device, what it is on which card, its taints and its health."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tonnage.dra.nvidia import DraCard, PublishedCard, gpu_name, mig_name, published, tainted
from tonnage.node.device_health import DeviceHealth, FaultCause
from tonnage.node.devices import Devices, Driver, Identity
from tonnage.node.dra_api import DeviceHealthEntry, DeviceOfPool, HealthStatus
from tonnage.node.dra_claims import ClaimRecord, DeviceTarget, in_the_way, strangers
from tonnage.objects.dra import DeviceTaint
from tonnage.partitioning.layouts import Placement
from tonnage.units import NS_PER_S

TAINTS = "tonnage.dev/"
"""How the keys of taints begin: a taint for each cause, gone when the cause is."""
STANDING = "mig-instance"
"""The taint of what cannot be made beside a MIG instance that no claim has made."""
_MOST_TAINTS = 16
_LONGEST_MESSAGE = 1024


@dataclass(frozen=True, slots=True)
class Offer:
    """``cards``: with taints. ``targets``: by name of the device. ``healthy``: by name of the device whether it is, and
    why not."""

    cards: tuple[PublishedCard, ...] = ()
    targets: Mapping[str, DeviceTarget] = field(default_factory=dict)
    healthy: Mapping[str, tuple[bool, str]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def offered(
    devices: Devices, records: Sequence[ClaimRecord], health: DeviceHealth, effect: str, *, on_demand: bool
) -> Offer:
    """Everything that claims can ask for. ``on_demand``: MIG instances are made as claims ask for them; else those that
    are there are offered. ``effect``: of the taints of what is not healthy. Raises InputError where the driver
    fails."""
    driver = devices.driver()
    cards, problems = [], []
    targets: dict[str, DeviceTarget] = {}
    healthy: dict[str, tuple[bool, str]] = {}
    for one in devices.cards():
        own = dict(_targets(devices, one, on_demand=on_demand))
        card = published(_card(devices, one, driver, on_demand=on_demand))
        causes = health.causes(one.uuid)
        standing: list[Placement] = []
        if on_demand:
            standing = strangers(devices.mig(one.index), own[gpu_name(one.minor)], records)
            problems += [f"GPU {one.index} has {_named(each)}, which no claim has made" for each in standing]
        common = [_taint(cause, effect) for cause in causes][: _MOST_TAINTS - 1]
        cards.append(tainted(card, {name: [*common, *_standing(own[name], standing)] for name in own}))
        targets |= own
        healthy |= dict.fromkeys(own, (not causes, "; ".join(cause.message for cause in causes)))
    return Offer(tuple(cards), targets, healthy, tuple(problems))


def _targets(devices: Devices, one: Identity, *, on_demand: bool) -> Iterator[tuple[str, DeviceTarget]]:
    """(name of the device, what it is) of a card."""
    state = devices.mig(one.index)
    if not on_demand and state is not None and state.enabled:
        for made in state.instances:
            if len(made.compute) == 1:
                name = mig_name(one.minor, made.profile, made.profile_id, made.start)
                yield name, DeviceTarget(one.index, one.uuid, "", Placement(made.start, made.profile))
        return
    yield gpu_name(one.minor), DeviceTarget(one.index, one.uuid, one.gpu if on_demand else "")
    for profile in devices.profiles(one.index) if on_demand else ():
        for start in profile.starts:
            name = mig_name(one.minor, profile.name, profile.gi_id, start)
            yield name, DeviceTarget(one.index, one.uuid, one.gpu, Placement(start, profile.name))


def _card(devices: Devices, one: Identity, driver: Driver, *, on_demand: bool) -> DraCard:
    profiles = tuple(devices.profiles(one.index))
    state = devices.mig(one.index)
    made = None
    if not on_demand and state is not None and state.enabled:
        known = {each.name: each for each in profiles}
        made = tuple(
            (known[each.profile], each.start, each.compute[0].uuid)
            for each in state.instances
            if len(each.compute) == 1 and each.profile in known
        )
    return DraCard(
        minor=one.minor,
        uuid=one.uuid,
        product=one.product,
        memory_mib=one.memory_mib,
        gpu=one.gpu,
        brand=one.brand,
        compute=one.compute,
        pci=one.pci,
        pcie_root="" if on_demand else pcie_root(one.pci),
        driver=driver.version,
        cuda=driver.cuda,
        partitions=profiles or None if on_demand else None,
        made=made,
    )


def pcie_root(pci: str, sysfs: Path = Path("/sys")) -> str:
    """The root complex of a PCI device, as in pci0000:00; empty where it is not said."""
    domain, _, rest = pci.partition(":")
    path = sysfs / "bus/pci/devices" / f"{domain[-4:]}:{rest}".lower()
    try:
        parts = path.resolve(strict=True).parts
    except OSError:
        return ""
    return next((part for part in parts if part.startswith("pci") and ":" in part), "")


def _taint(cause: FaultCause, effect: str) -> DeviceTaint:
    added = datetime.fromtimestamp(cause.first_ns // NS_PER_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return DeviceTaint(key=TAINTS + cause.name, value=cause.action, effect=effect, time_added=added)


def _standing(target: DeviceTarget, standing: Iterable[Placement]) -> list[DeviceTaint]:
    found = in_the_way(target, standing)
    if found is None:
        return []
    value = f"{found.profile}-{found.start}".replace("+", "-")
    return [DeviceTaint(key=TAINTS + STANDING, value=value, effect="NoSchedule")]


def _named(one: Placement) -> str:
    return f"{one.profile} at memory slice {one.start}"


def health_entries(offer: Offer, pool: str, now_ns: int, timeout_s: int) -> list[DeviceHealthEntry]:
    """The health of every device, as the kubelet is told."""
    return [
        DeviceHealthEntry(
            DeviceOfPool(pool, name),
            int(HealthStatus.HEALTHY if healthy else HealthStatus.UNHEALTHY),
            now_ns // NS_PER_S,
            timeout_s,
            message[:_LONGEST_MESSAGE],
        )
        for name, (healthy, message) in offer.healthy.items()
    ]
