"""Which devices, and which states of a search, are the same but for names.

Two components (GPUs, as a rule) are of one class if they have the same counters with as much left, and device by
device the same answers of all selectors, the same capacities and the same values of the attributes that constraints
look at. A value that occurs in one component alone (the UUID of a GPU that its partitions name) is the same as the
value at the same place of another. Components of one class in one state are interchangeable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from tonnage.dra.allocated import DeviceID
from tonnage.dra.capacity import nano
from tonnage.dra.constraints import Values
from tonnage.dra.node_devices import NodeDevices
from tonnage.dra.slice_shapes import CounterKey
from tonnage.dra.ways import ClaimWays

Value = tuple[str, object]


class TakenSoFar(Protocol):
    """By device the claims that use it (bits) and its shares; by component what is free of its counters; by device what
    its shares take; by claim the states of its constraints. ``picked``: devices that the request at hand has."""

    used: list[int]
    opened: list[int]
    free: list[list[int]]
    taking: dict[int, dict[str, int]]
    constraints: list[list[Values | None]]
    picked: set[int]


class Alike:
    """Classes of components, made once for a search."""

    def __init__(
        self,
        on: NodeDevices,
        claims: Sequence[ClaimWays],
        left: Sequence[Mapping[CounterKey, int]],
        consumed: Mapping[DeviceID, Mapping[str, int]],
    ) -> None:
        self._on = on
        self._home = self._homes(claims)
        self._tokens = self._device_tokens(claims, consumed)
        numbers: dict[object, int] = {}
        self._class_of = []
        for one in on.components:
            free = tuple(left[one.pool].get(key, 0) for key in one.keys)
            token = (id(one.shape), free, tuple(self._tokens[number] for number in one.devices))
            self._class_of.append(numbers.setdefault(token, len(numbers)))

    def _homes(self, claims: Sequence[ClaimWays]) -> list[list[dict[Value, tuple[int, int]]]]:
        """By claim and constraint: of each value that occurs in one component alone, the component and its rank
        there."""
        found = []
        for claim in claims:
            of_claim = []
            for constraint in claim.constraints:
                home: dict[Value, tuple[int, int]] = {}
                several: set[Value] = set()
                ranks: Counter[int] = Counter()
                for number, device in enumerate(self._on.devices):
                    at = self._on.component_of[number]
                    for value in sorted(constraint.of(device) or (), key=repr):
                        if value not in home:
                            home[value] = (at, ranks[at])
                            ranks[at] += 1
                        elif home[value][0] != at:
                            several.add(value)
                of_claim.append({value: place for value, place in home.items() if value not in several})
            found.append(of_claim)
        return found

    def _device_tokens(
        self, claims: Sequence[ClaimWays], consumed: Mapping[DeviceID, Mapping[str, int]]
    ) -> list[object]:
        ways = [way for claim in claims for several in claim.requests for way in several]
        rows: list[list[object]] = [[] for _ in self._on.devices]
        for at, way in enumerate(ways):
            for number in way.devices:
                rows[number].append((at, tuple(sorted(way.takes.get(number, {}).items()))))
            for number in way.broken:
                rows[number].append((at, "broken"))
        tokens: list[object] = []
        for number, one in enumerate(self._on.devices):
            room: tuple[object, ...] = ()
            if one.shared:
                held = consumed.get(one.id)
                amounts = sorted(
                    (name, nano(has.value) - (held or {}).get(name, 0)) for name, has in one.device.capacity.items()
                )
                room = (held is not None, *amounts)
            values = tuple(
                self._local(constraint.of(one), home)
                for claim, homes in zip(claims, self._home, strict=True)
                for constraint, home in zip(claim.constraints, homes, strict=True)
            )
            later = self._on.pools[self._on.pool_of[number]].waits_for_conditions
            tokens.append((tuple(rows[number]), values, room, one.shared, later))
        return tokens

    def _local(self, values: Values | None, home: Mapping[Value, tuple[int, int]]) -> object:
        if values is None:
            return None
        return frozenset(("here", home[value][1]) if value in home else value for value in values)

    def device(self, search: TakenSoFar, number: int) -> object:
        """What a device has in common with those that are interchangeable with it now."""
        at = self._on.component_of[number]
        place = self._on.place_in[number]
        needs = self._on.components[at].shape.needs[place]
        return (self._component(search, at), self._tokens[number], needs, search.used[number], search.opened[number])

    def state(self, search: TakenSoFar, touched: Sequence[int]) -> tuple[object, ...]:
        """What states of a search have in common in which the same requests can be served. ``touched``: the
        components of which anything is taken."""
        held = tuple(
            None if values is None else frozenset(value for value in values if value not in home)
            for states, homes in zip(search.constraints, self._home, strict=True)
            for values, home in zip(states, homes, strict=True)
        )
        return held, frozenset(Counter(self._component(search, at) for at in touched).items())

    def _component(self, search: TakenSoFar, at: int) -> object:
        one = self._on.components[at]
        values = tuple(
            frozenset(home[value][1] for value in states[number] or () if home.get(value, (-1,))[0] == at)
            for states, homes in zip(search.constraints, self._home, strict=True)
            for number, home in enumerate(homes)
        )
        return (
            self._class_of[at],
            tuple(search.free[at]),
            tuple(search.used[number] for number in one.devices),
            tuple((search.opened[number], number in search.picked) for number in one.devices),
            tuple(
                tuple(sorted(search.taking.get(number, {}).items())) for number in one.devices if search.opened[number]
            ),
            values,
        )
