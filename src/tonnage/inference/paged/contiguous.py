"""KV memory given out in contiguous regions, one a sequence, as engines did before paging.

A region is reserved when a sequence is admitted and released when it ends, so nobody is preempted. How much is
reserved follows the three versions of Orca that the PagedAttention paper compares with (Kwon et al., SOSP 2023,
section 6.1): the longest context (``max``); the prompt and the output rounded up to a power of two (``pow2``); what
will really be used, which no engine can know (``exact``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from tonnage.inference.engine import Engine
from tonnage.inference.engine.requests import Finished

Reservation = Literal["max", "pow2", "exact"]


class Sized(NamedTuple):
    """A request: when it arrives (any unit of time) and how many tokens go in and come out."""

    arrival: int
    prompt: int
    output: int

    @property
    def stored(self) -> int:
        """KV tokens that it needs in the end; the last token is sampled and never stored."""
        return self.prompt + self.output - 1


class Region(NamedTuple):
    """What one sequence holds: ``size`` tokens of memory from ``start``, of which ``reserved`` were asked for."""

    start: int
    size: int
    reserved: int


class ContiguousMemory(Protocol):
    """Contiguous memory of a number of tokens."""

    def take(self, reserved: int) -> Region | None:
        """A region of at least ``reserved`` tokens; None while there is none."""

    def give(self, region: Region) -> None:
        """Takes back a region that ``take`` gave."""


class SlotMemory:
    """Equal slots of ``slot`` tokens; what does not fill a slot is lost. Constant time.

    Stores only slots that were taken once, so that any ``total`` will do.
    """

    def __init__(self, total: int, slot: int) -> None:
        self._slot = slot
        self._slots = total // slot
        self._fresh = 0  # slots from here on were never taken
        self._free: list[int] = []
        self._taken: set[int] = set()

    def take(self, reserved: int) -> Region | None:
        if reserved > self._slot:
            raise ValueError(f"{reserved} tokens do not fit a slot of {self._slot}")
        if self._free:
            number = self._free.pop()
        elif self._fresh < self._slots:
            number = self._fresh
            self._fresh += 1
        else:
            return None
        self._taken.add(number)
        return Region(number * self._slot, self._slot, reserved)

    def give(self, region: Region) -> None:
        number = region.start // self._slot
        if number not in self._taken:
            raise RuntimeError("a slot was freed twice")
        self._taken.remove(number)
        self._free.append(number)


class BuddyMemory:
    """A buddy allocator, which the paper assumes for Orca: a region has the next power of two as its size.

    A total that is not a power of two is a row of such blocks, the largest first. Takes the lowest address of the
    smallest block that fits; O(log total) blocks are split or joined.
    """

    def __init__(self, total: int) -> None:
        self._free: dict[int, set[int]] = {}  # addresses by size
        self._taken: dict[int, int] = {}  # size by address
        start = 0
        for order in reversed(range(total.bit_length())):
            if total >> order & 1:
                self._free.setdefault(1 << order, set()).add(start)
                start += 1 << order

    def take(self, reserved: int) -> Region | None:
        size = next_power_of_two(reserved)
        fitting = [one for one, addresses in self._free.items() if one >= size and addresses]
        if not fitting:
            return None
        found = min(fitting)
        start = min(self._free[found])
        self._free[found].remove(start)
        while found > size:
            found //= 2
            self._free.setdefault(found, set()).add(start + found)
        self._taken[start] = size
        return Region(start, size, reserved)

    def give(self, region: Region) -> None:
        size = self._taken.pop(region.start, None)
        if size is None:
            raise RuntimeError("a region was freed twice")
        start = region.start
        while start ^ size in self._free.get(size, ()):
            self._free[size].remove(start ^ size)
            start &= ~size
            size *= 2
        self._free.setdefault(size, set()).add(start)


class Gate:
    """First come first served in front of an engine: a request passes when it has its region of memory.

    The engine behind it is given memory of blocks of one token and never runs short. With whole steps of the engine's
    clock the schedule is the same as that of an engine whose block is as large as a slot.
    """

    def __init__(self, kind: Reservation, total: int, max_model_len: int) -> None:
        self._kind = kind
        self._max_model_len = max_model_len
        self.memory: ContiguousMemory = SlotMemory(total, max_model_len) if kind == "max" else BuddyMemory(total)
        self.held: dict[int, tuple[Region, int]] = {}  # region and final need, by request id
        self.waiting: deque[tuple[int, Sized]] = deque()
        self.reserved = 0  # tokens asked for
        self.needed = 0  # tokens of it that will be used

    def admit(self, engine: Engine, now: int) -> None:
        """Hand over the requests that arrived by ``now``, as far as the memory goes."""
        while self.waiting and self.waiting[0][1].arrival <= now:
            number, request = self.waiting[0]
            region = self.memory.take(reservation(self._kind, request, self._max_model_len))
            if region is None:
                return
            self.waiting.popleft()
            self.held[number] = (region, request.stored)
            self.reserved += region.reserved
            self.needed += request.stored
            engine.submit(number, now, request.prompt, request.output)

    def end(self, number: int) -> None:
        """Take back what the request held."""
        region, needed = self.held.pop(number)
        self.reserved -= region.reserved
        self.needed -= needed
        self.memory.give(region)

    def play(self, engine: Engine, requests: list[Sized], collect: Callable[[list[Finished]], None]) -> None:
        """Play ``requests``, in order of arrival, to the end of the last one."""
        self.waiting.extend(enumerate(requests))
        now = 0
        while True:
            self.admit(engine, now)
            change = engine.next_change_ns()
            arrival = self.waiting[0][1].arrival if self.waiting else None
            if arrival is not None and arrival > now:
                change = arrival if change is None else min(change, arrival)
            if change is None:
                if self.waiting:
                    raise ValueError("a request can never get its memory")
                return
            now = change
            engine.advance(now)
            ended = engine.take_finished()
            for one in ended:
                self.end(one.request_id)
            collect(ended)


def reservation(kind: Reservation, request: Sized, max_model_len: int) -> int:
    """Tokens to reserve for ``request``, at most ``max_model_len``."""
    if kind == "max":
        return max_model_len
    if kind == "pow2":
        return min(request.prompt + next_power_of_two(request.output), max_model_len)
    return request.stored


def next_power_of_two(tokens: int) -> int:
    """The smallest power of two that is not below ``tokens``."""
    return 1 << (tokens - 1).bit_length()
