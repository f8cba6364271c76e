"""The search: devices for every request of some claims, by trying, with exact undo and a limit on steps.

Source of what is allowed: k8s.io/dynamic-resource-allocation v0.36.3
structured/internal/experimental/allocator_experimental.go (allocateOne, allocateDevice).

Every decision is a generator: `next` undoes what it did before and does the next alternative. Two things keep it
from trying what cannot help: of devices that are interchangeable one is tried (:mod:`tonnage.dra.alike`), and a
state in which the rest of the requests has failed is not entered again, nor is one that is the same but for
interchangeable devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tonnage.dra.alike import Alike
from tonnage.dra.allocated import AllocatedState
from tonnage.dra.capacity import nano
from tonnage.dra.components import WHOLE
from tonnage.dra.constraints import Values
from tonnage.dra.enough import too_few
from tonnage.dra.node_devices import NodeDevices
from tonnage.dra.ways import ClaimWays, Reader, RequestOption, broken
from tonnage.objects.dra import MOST_RESULTS

_LOOKS_PER_STEP = 16
"""Devices that are only looked at, in what one step is."""
_COUNT_AFTER = 512
"""Steps after which it is counted once whether there can be enough devices at all."""
_MOST_FAILED = 100_000


class OutOfSteps(Exception):
    """The limit is reached and nothing is decided."""


class SelectorFailed(Exception):
    """A selector has no value for a device that was about to be taken."""


class Chosen(NamedTuple):
    """A device for a request. ``takes``: of its capacities, if it is shared, in 10⁻⁹."""

    way: RequestOption
    device: int
    takes: dict[str, int] | None


class _Position(NamedTuple):
    """Where a search is: request, way, number of the device; devices that were tried for the request, and those that it
    has: of a device that others share it gets one share."""

    at: int
    way: RequestOption | None
    number: int
    excluded: set[int]
    picked: set[int]


class DeviceSearch:
    """One search. ``published``: devices are tried in the order in which kube-scheduler tries them, and a selector that
    has no value ends the search as it does there; otherwise those that leave most are tried first."""

    def __init__(
        self, on: NodeDevices, state: AllocatedState, reader: Reader, claims: Sequence[ClaimWays], *, published: bool
    ) -> None:
        self.on = on
        self.published = published
        self.claims = claims
        self.steps = 0
        self.limit = 0
        self.chosen: list[Chosen] = []
        self.clashed = ""
        self.requests = [ways for claim in claims for ways in claim.requests]
        self.used = [0] * len(on.devices)
        self.opened = [0] * len(on.devices)
        self.free = [[reader.left[one.pool].get(key, 0) for key in one.keys] for one in on.components]
        self._free_at_first = [list(one) for one in self.free]
        self.held = [one.id in state.devices for one in on.devices]
        self._consumed = state.consumed
        self.taking: dict[int, dict[str, int]] = {}
        self.constraints: list[list[Values | None]] = [[None] * len(one.constraints) for one in claims]
        self.count = [0] * len(claims)
        self._least_after = self._rest()
        self.at = 0
        self._way: RequestOption | None = None
        self._number = 0
        self._excluded: set[int] = set()
        self.picked: set[int] = set()
        self._alike: Alike | None = None
        self._failed: set[object] = set()
        self._counted = False
        self._reader = reader
        self.later = [on.pools[pool].waits_for_conditions for pool in on.pool_of]

    def _rest(self) -> list[int]:
        """For each request the fewest devices that the later requests of its claim need."""
        found: list[int] = []
        for claim in self.claims:
            least = [min(way.count for way in ways) for ways in claim.requests]
            found += [sum(least[at + 1 :]) for at in range(len(least))]
        return found

    def run(self, limit: int) -> bool:
        """Whether there are devices for all requests; they are then in ``chosen``. Raises OutOfSteps,
        SelectorFailed."""
        self.limit = self.steps + limit
        stack = [self._decision()]
        while stack:
            if next(stack[-1], None) is None:
                stack.pop()
            elif self.at == len(self.requests):
                return True
            else:
                stack.append(self._decision())
        return False

    def _decision(self) -> Iterator[bool]:
        if self._way is None:
            return self._ways()
        return self._every(self._way) if self._way.all_devices else self._one(self._way)

    def _step(self, looks: int = _LOOKS_PER_STEP) -> None:
        self.steps += -(-looks // _LOOKS_PER_STEP)
        if self.steps >= self.limit:
            raise OutOfSteps
        if self.steps > _COUNT_AFTER and not self._counted:
            self._counted = True
            self.hopeless = not self.published and too_few(self.on, self.claims, self._free_at_first)

    hopeless = False

    # ---- which way ----

    def _ways(self) -> Iterator[bool]:
        ways = self.requests[self.at] if self.requests else ()
        if not self.requests:
            yield True
            return
        if self._failed and self._here() in self._failed:
            return
        for way in ways:
            if self.count[way.claim] + way.count + self._least_after[self.at] > MOST_RESULTS:
                continue
            if self.hopeless:
                break
            self._step()
            self._way, self._number = way, 0
            if way.count:
                yield True
            elif not way.all_devices:
                done = self._next(way)
                yield True
                self._back(done)
            self._way = None
        if len(self._failed) < _MOST_FAILED:
            self._failed.add(self._here())

    def _next(self, way: RequestOption) -> _Position:
        """Go on to the next device, or the next request; what to go back to."""
        before = _Position(self.at, self._way, self._number, self._excluded, self.picked)
        self._number += 1
        if self._number >= way.count:
            self.at, self._way, self._number, self._excluded, self.picked = self.at + 1, None, 0, set(), set()
        return before

    def _back(self, before: _Position) -> None:
        self.at, self._way, self._number, self._excluded, self.picked = before

    # ---- which device ----

    def _one(self, way: RequestOption) -> Iterator[bool]:
        excluded, added = self._excluded, []
        failed: set[object] = set()
        for number in self._ordered(way):
            if number in excluded or self.hopeless:
                continue
            if failed and self._key(number) in failed:
                excluded.add(number)
                added.append(number)
                continue
            self._step()
            if number in way.broken:
                if not self._in_use(way, number):
                    raise SelectorFailed(broken(way, way.broken[number], self.on.devices[number]))
                continue
            undo = self._take(way, number)
            if undo is None:
                continue
            excluded.add(number)
            added.append(number)
            self.picked.add(number)
            before = self._next(way)
            yield True
            self._back(before)
            self.picked.discard(number)
            self._undo(way, number, undo)
            failed.add(self._key(number))
        excluded.difference_update(added)

    def _every(self, way: RequestOption) -> Iterator[bool]:
        """All devices of the way, in one go: there is nothing to choose."""
        self._step(len(way.devices))
        done = []
        for number in way.devices:
            undo = None if way.blocked else self._take(way, number)
            if undo is None:
                break
            done.append((number, undo))
        if way.devices and len(done) == len(way.devices):
            self._number = way.count - 1
            before = self._next(way)
            yield True
            self._back(before)
        for number, undo in reversed(done):
            self._undo(way, number, undo)

    def _ordered(self, way: RequestOption) -> Sequence[int]:
        if self.published:
            return sorted([*way.devices, *way.broken]) if way.broken else way.devices
        self._step(len(way.devices))
        if len(way.devices) == 1:
            return way.devices
        losses: dict[int, tuple[int, ...]] = {}
        keyed = []
        for number in way.devices:
            loss = self._loss(way, number, losses)
            if loss >= 0:
                keyed.append((self.later[number], loss, number))
        keyed.sort()
        return [number for _, _, number in keyed]

    def _loss(self, way: RequestOption, number: int, losses: dict[int, tuple[int, ...]]) -> int:
        """What is lost with a device for others, in millionths of a whole device; -1 where it cannot be had."""
        one = self.on.devices[number]
        share = 0
        if one.shared:
            takes = way.takes.get(number, {})
            capacity = one.device.capacity
            share = max(
                (amount * WHOLE // max(1, nano(capacity[name].value)) for name, amount in takes.items()), default=0
            )
            if self._is_open(number):
                return share
        if not one.counters:
            return self.on.worths[number] + share
        at = self.on.component_of[number]
        found = losses.get(at)
        if found is None:
            found = losses[at] = self.on.components[at].shape.losses(tuple(self.free[at]))
        loss = found[self.on.place_in[number]]
        return loss if loss < 0 else loss + share

    # ---- taking and undoing ----

    def _is_open(self, number: int) -> bool:
        """Whether a share of the device is in use."""
        return self.opened[number] > 0 or self.on.devices[number].id in self._consumed

    def _in_use(self, way: RequestOption, number: int) -> bool:
        if way.admin:
            return bool(self.used[number] & (1 << way.claim))
        return self.held[number] or bool(self.used[number])

    def _take(self, way: RequestOption, number: int) -> tuple[bool, list[Values | None]] | None:
        """Take the device if the claims at hand leave it; what is needed to undo that, None where they do not."""
        if self._in_use(way, number):
            return None
        one = self.on.devices[number]
        counted = bool(one.counters) and not (one.shared and self._is_open(number))
        free = self.free[self.on.component_of[number]]
        needs: Sequence[tuple[int, int]] = ()
        if counted:
            shape = self.on.components[self.on.component_of[number]].shape
            needs = shape.needs[self.on.place_in[number]]
            if any(free[counter] < amount for counter, amount in needs):
                return None
        takes = way.takes.get(number) if one.shared else None
        if takes and not self._has_room(number, takes):
            return None
        before = self.constraints[way.claim]
        if before:
            after = self._constrained(way, number, before)
            if after is None:
                return None
            self.constraints[way.claim] = after
        for counter, amount in needs:
            free[counter] -= amount
        if one.shared:
            self.opened[number] += 1
            if takes:
                taking = self.taking.setdefault(number, {})
                for name, amount in takes.items():
                    taking[name] = taking.get(name, 0) + amount
        else:
            self.used[number] |= 1 << way.claim
        self.count[way.claim] += 1
        self.chosen.append(Chosen(way, number, (takes or {}) if one.shared else None))
        return counted, before

    def _undo(self, way: RequestOption, number: int, done: tuple[bool, list[Values | None]]) -> None:
        counted, constraints = done
        self.chosen.pop()
        self.count[way.claim] -= 1
        one = self.on.devices[number]
        if one.shared:
            self.opened[number] -= 1
            for name, amount in way.takes.get(number, {}).items():
                self.taking[number][name] -= amount
        else:
            self.used[number] &= ~(1 << way.claim)
        if counted:
            at = self.on.component_of[number]
            for counter, amount in self.on.components[at].shape.needs[self.on.place_in[number]]:
                self.free[at][counter] += amount
        self.constraints[way.claim] = constraints

    def _has_room(self, number: int, takes: dict[str, int]) -> bool:
        one = self.on.devices[number]
        taking, held = self.taking.get(number, {}), self._consumed.get(one.id, {})
        return all(
            held.get(name, 0) + taking.get(name, 0) + amount <= nano(one.device.capacity[name].value)
            for name, amount in takes.items()
        )

    def _constrained(self, way: RequestOption, number: int, states: list[Values | None]) -> list[Values | None] | None:
        after = list(states)
        for at, constraint in enumerate(self.claims[way.claim].constraints):
            if constraint.concerns(way.request, way.subrequest):
                state = constraint.after(states[at], constraint.of(self.on.devices[number]))
                if state is None:
                    if way.all_devices:
                        self.clashed = f"{way.name}: the constraint on {constraint.attribute} keeps it from all devices"
                    return None
                after[at] = state
        return after

    # ---- what is the same ----

    def _key(self, number: int) -> object:
        return self._same().device(self, number)

    def _here(self) -> object:
        if self.at == 0:
            return 0
        claim = self.requests[self.at][0].claim
        touched = sorted({self.on.component_of[one.device] for one in self.chosen})
        return (self.at, self.count[claim], *self._same().state(self, touched))

    def _same(self) -> Alike:
        if self._alike is None:
            self._alike = Alike(self.on, self.claims, self._reader.left, self._consumed)
        return self._alike
