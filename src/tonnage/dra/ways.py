"""The requests of claims as the search takes them: each with the ways in which it can be served, and the devices of
each.

Source: k8s.io/dynamic-resource-allocation v0.36.3 structured/internal/experimental/allocator_experimental.go
(Allocate, validateDeviceRequest).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from tonnage.dra.allocated import AllocatedState
from tonnage.dra.capacity import consumed, nano
from tonnage.dra.constraints import Constraint
from tonnage.dra.features import Features
from tonnage.dra.node_devices import NodeDevices
from tonnage.dra.pools import PoolDevice
from tonnage.dra.selecting import MATCHES, NoValue, Selectors
from tonnage.objects.dra import (
    ALL,
    EXACT_COUNT,
    EXTENDED_CLAIM,
    MOST_RESULTS,
    DeviceClass,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceTaint,
    DeviceToleration,
    ExactDeviceRequest,
    Quantity,
    ResourceClaim,
)


class NotAllocatable(Exception):
    """The claims cannot be allocated on any node as they are: something in them, or in a class, is wrong."""


@dataclass(slots=True, eq=False)
class RequestOption:
    """One way to serve a request. ``subrequest``: its name, empty of `exactly`. ``count``: devices that it takes.

    ``devices``: numbers of those that could be taken, with everything but the claims at hand counted. ``takes``: of
    those whose capacity matters, what is taken, by name in 10⁻⁹. ``broken``: devices for which a selector has no
    value. ``blocked``: of all devices, why one of them cannot be allocated, a word of :data:`HINDRANCES`."""

    claim: int
    request: str
    subrequest: str
    device_class: DeviceClass
    asked: ExactDeviceRequest | DeviceSubRequest
    expressions: tuple[str, ...]
    all_devices: bool
    admin: bool
    count: int = 0
    devices: list[int] = field(default_factory=list)
    takes: dict[int, dict[str, int]] = field(default_factory=dict)
    broken: dict[int, NoValue] = field(default_factory=dict)
    blocked: str = ""

    @property
    def name(self) -> str:
        """As results name it: `REQUEST` or `REQUEST/SUBREQUEST`."""
        return f"{self.request}/{self.subrequest}" if self.subrequest else self.request

    @property
    def from_class(self) -> int:
        """How many of the expressions are the class's; they come first."""
        return len(self.device_class.spec.selectors)


class ClaimWays(Struct, frozen=True):
    """A claim's requests, each with its ways, and its constraints."""

    claim: ResourceClaim
    requests: tuple[tuple[RequestOption, ...], ...]
    constraints: tuple[Constraint, ...]


def title(claim: ResourceClaim) -> str:
    """A claim as messages name it; one for extended resources by its pod."""
    if claim.metadata.annotations.get(EXTENDED_CLAIM) == "true":
        owners = [one.name for one in claim.metadata.owner_references]
        return f"for extended resources of {claim.namespace}/{', '.join(owners)}"
    return f"{claim.namespace}/{claim.name}" if claim.namespace else claim.name


def tolerated(taint: DeviceTaint, tolerations: Sequence[DeviceToleration]) -> bool:
    """Whether one of the tolerations covers the taint."""
    return any(_covers(one, taint) for one in tolerations)


def _covers(one: DeviceToleration, taint: DeviceTaint) -> bool:
    if one.effect and one.effect != taint.effect:
        return False
    if one.key and one.key != taint.key:
        return False
    return one.operator == "Exists" or (one.operator in ("", "Equal") and one.value == taint.value)


class Reader:
    """Makes ways of claims, on one node. Raises NotAllocatable."""

    def __init__(
        self,
        on: NodeDevices,
        classes: Mapping[str, DeviceClass],
        state: AllocatedState,
        selectors: Selectors,
        features: Features,
    ) -> None:
        self.on = on
        self.classes = classes
        self.state = state
        self.selectors = selectors
        self.features = features
        self.left, self.overdrawn = on.counters_left(state)

    def read(self, claims: Sequence[ResourceClaim]) -> list[ClaimWays]:
        """All claims, each in order."""
        return [self._claim(at, claim) for at, claim in enumerate(claims)]

    def _claim(self, at: int, claim: ResourceClaim) -> ClaimWays:
        requests = tuple(self._request(at, claim, request) for request in claim.spec.devices.requests)
        least = sum(min(way.count for way in ways) for ways in requests)
        if least > MOST_RESULTS:
            raise NotAllocatable(f"claim {title(claim)}: asks for {least} devices, a claim can have {MOST_RESULTS}")
        constraints = []
        for number, one in enumerate(claim.spec.devices.constraints):
            if one.match_attribute is None and one.distinct_attribute is None:
                raise NotAllocatable(
                    f"claim {title(claim)}, constraint {number}: expected matchAttribute or distinctAttribute"
                )
            constraints.append(Constraint(one, lists=self.features.list_type_attributes))
        return ClaimWays(claim, requests, tuple(constraints))

    def _request(self, at: int, claim: ResourceClaim, request: DeviceRequest) -> tuple[RequestOption, ...]:
        here = f"claim {title(claim)}, request {request.name}"
        several = request.first_available
        if several and not self.features.prioritized_list:
            raise NotAllocatable(f"{here}: has firstAvailable, and the gate DRAPrioritizedList is off")
        if not self.features.consumable_capacity:
            ways = (*several, request.exactly)
            if any(one is not None and one.capacity is not None for one in ways):
                raise NotAllocatable(f"{here}: asks for capacity, and the gate DRAConsumableCapacity is off")
        if several:
            return tuple(self._way(at, here, request.name, one.name, one, admin=None) for one in several)
        if request.exactly is None:
            raise NotAllocatable(f"{here}: expected exactly or firstAvailable")
        return (self._way(at, here, request.name, "", request.exactly, admin=request.exactly.admin_access),)

    def _way(
        self,
        at: int,
        here: str,
        request: str,
        subrequest: str,
        asked: ExactDeviceRequest | DeviceSubRequest,
        *,
        admin: bool | None,
    ) -> RequestOption:
        here = f"{here}/{subrequest}" if subrequest else here
        if admin is not None and not self.features.admin_access:
            raise NotAllocatable(f"{here}: asks for admin access, and the gate DRAAdminAccess is off")
        if not asked.device_class_name:
            raise NotAllocatable(f"{here}: names no DeviceClass")
        of_class = self.classes.get(asked.device_class_name)
        if of_class is None:
            raise NotAllocatable(f"{here}: there is no DeviceClass {asked.device_class_name}")
        own = _expressions(here, asked.selectors)
        expressions = _expressions(f"DeviceClass {of_class.name}", of_class.spec.selectors) + own
        every = asked.allocation_mode == ALL
        if not every and asked.allocation_mode != EXACT_COUNT:
            raise NotAllocatable(f"{here}: {asked.allocation_mode}: expected {EXACT_COUNT} or {ALL}")
        way = RequestOption(at, request, subrequest, of_class, asked, expressions, every, bool(admin))
        if every:
            self._every(way, here)
        else:
            way.count = asked.count or 1  # as the API server fills it in
            self._candidates(way)
        return way

    def _every(self, way: RequestOption, here: str) -> None:
        """The devices of allocationMode All: all that match, whether they can be allocated or not."""
        for pool in self.on.pools:
            if pool.unusable:
                raise NotAllocatable(f"{here}: asks for all devices, and the pool {pool.name} {pool.unusable}")
        for number, match in enumerate(self._matches(way)):
            if isinstance(match, NoValue):
                raise NotAllocatable(broken(way, match, self.on.devices[number]))
            if match == MATCHES and self.on.here[number] and self._has_capacity(way, number):
                way.devices.append(number)
                way.blocked = way.blocked or self.hindrance(way, number)
        way.count = len(way.devices)

    def _matches(self, way: RequestOption) -> Sequence[int | NoValue]:
        return self.on.matches(way.expressions, self.selectors, binding=self.features.device_binding_conditions)

    def _candidates(self, way: RequestOption) -> None:
        for number, match in enumerate(self._matches(way)):
            if isinstance(match, NoValue):
                if way.admin or self.on.devices[number].id not in self.state.devices:
                    way.broken[number] = match
            elif match == MATCHES and not self.hindrance(way, number):
                way.devices.append(number)

    def hindrance(self, way: RequestOption, number: int) -> str:
        """Why a device that matches cannot be had, whatever the claims at hand take: a word of :data:`HINDRANCES`;
        empty where it can."""
        one = self.on.devices[number]
        if not self.on.here[number]:
            return "node"
        if not way.admin and one.id in self.state.devices:
            return "held"
        if any(not tolerated(taint, way.asked.tolerations) for taint in one.taints):
            return "taint"
        if not self._has_capacity(way, number):
            return "capacity"
        return "" if self.counters_free(number) else "counters"

    def counters_free(self, number: int) -> bool:
        """Whether enough is left of the counters that a device takes, before the claims at hand take any."""
        one = self.on.devices[number]
        if not one.device.consumes_counters:
            return True
        if not self.features.partitionable_devices:
            return False
        if one.shared and one.id in self.state.consumed:
            return True
        pool = self.on.pool_of[number]
        left = self.left[pool]
        return not self.overdrawn[pool] and all(left[key] >= amount for key, amount in one.counters)

    def _has_capacity(self, way: RequestOption, number: int) -> bool:
        if not self.features.consumable_capacity:
            return True
        one = self.on.devices[number]
        asked: Mapping[str, Quantity] = way.asked.capacity.requests if way.asked.capacity is not None else {}
        if not asked and (not one.device.capacity or (one.plain and one.id not in self.state.consumed)):
            return True
        takes = consumed(one.device.capacity, asked)
        if takes is None or not self._left(one, takes):
            return False
        if one.shared:
            way.takes[number] = takes
        return True

    def _left(self, one: PoolDevice, takes: Mapping[str, int]) -> bool:
        held = self.state.consumed.get(one.id, {})
        capacity = one.device.capacity
        return all(held.get(name, 0) + amount <= nano(capacity[name].value) for name, amount in takes.items())


HINDRANCES = {
    "node": "cannot be reached from the node",
    "held": "are allocated",
    "taint": "have a taint that the request does not tolerate",
    "capacity": "have insufficient capacity",
    "counters": "have insufficient shared counters",
}
"""Why a device that matches cannot be allocated, in words."""


def broken(way: RequestOption, found: NoValue, device: PoolDevice) -> str:
    """What to say of a selector that has no value for a device."""
    if found.selector < way.from_class:
        where = f"DeviceClass {way.device_class.name}, selector {found.selector}"
    else:
        where = f"request {way.name}, selector {found.selector - way.from_class}"
    return f"{where}, device {device.id}: {found.error}"


def _expressions(here: str, selectors: Sequence[DeviceSelector]) -> tuple[str, ...]:
    for number, one in enumerate(selectors):
        if one.cel is None:
            raise NotAllocatable(f"{here}, selector {number}: expected a CEL expression")
    return tuple(one.cel.expression for one in selectors if one.cel is not None)
