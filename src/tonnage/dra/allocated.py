"""What claims hold of the devices of a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tonnage.dra.capacity import nano
from tonnage.objects.dra import AllocationResult, DeviceRequestAllocationResult, Quantity, ResourceClaim


class DeviceID(NamedTuple):
    """A device of a cluster: names are unique within a pool, pools within a driver."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return "/".join(self)


class AllocatedState:
    """Devices that are held, shares of devices, and what the shares take of their capacities.

    ``devices``: held whole. ``shares``: (device, share id). ``consumed``: capacities of devices that are shared, by
    name, as quantities; a device in it counts as shared. Admin access holds nothing.
    """

    def __init__(
        self,
        devices: Iterable[DeviceID] = (),
        shares: Iterable[tuple[DeviceID, str]] = (),
        consumed: Mapping[DeviceID, Mapping[str, Quantity]] | None = None,
    ) -> None:
        self.devices = set(devices)
        self.shares = set(shares)
        self.consumed = {
            device: {name: nano(value) for name, value in amounts.items()}
            for device, amounts in (consumed or {}).items()
        }
        self._sharers = Counter(device for device, _ in self.shares)

    @classmethod
    def of(cls, claims: Iterable[ResourceClaim]) -> AllocatedState:
        """What these claims hold, by their status."""
        state = cls()
        for claim in claims:
            if claim.status.allocation is not None:
                state.take(claim.status.allocation)
        return state

    def take(self, allocation: AllocationResult) -> None:
        """Count an allocation as held."""
        for one in allocation.devices.results:
            if one.admin_access:
                continue
            device = DeviceID(one.driver, one.pool, one.device)
            if one.share_id is None:
                self.devices.add(device)
            elif (device, one.share_id) not in self.shares:
                self.shares.add((device, one.share_id))
                self._sharers[device] += 1
                self._add(device, one, 1)

    def release(self, allocation: AllocationResult) -> None:
        """Count an allocation as held no more."""
        for one in allocation.devices.results:
            if one.admin_access:
                continue
            device = DeviceID(one.driver, one.pool, one.device)
            if one.share_id is None:
                self.devices.discard(device)
            elif (device, one.share_id) in self.shares:
                self.shares.discard((device, one.share_id))
                self._sharers[device] -= 1
                self._add(device, one, -1)
                if not self._sharers[device]:
                    del self._sharers[device]
                    self.consumed.pop(device, None)

    def _add(self, device: DeviceID, one: DeviceRequestAllocationResult, sign: int) -> None:
        amounts = self.consumed.setdefault(device, {})
        for name, value in one.consumed_capacity.items():
            amounts[name] = amounts.get(name, 0) + sign * nano(value)

    def is_held(self, device: DeviceID) -> bool:
        """Whether anybody has the device or a share of it, so that its counters are taken."""
        return device in self.devices or device in self.consumed or device in self._sharers
