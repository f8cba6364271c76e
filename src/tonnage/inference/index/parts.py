"""Blocks of another size than the index's: an engine's larger block is several of the index's, present all or not at
all; several of an engine's smaller blocks are one of the index's, present while all of them are.

An engine's cache on the GPU, and the media below it, may each have blocks of their own size (vLLM's offloading
connector keeps several GPU blocks as one block of the CPU). Sizes have to divide each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from msgspec import Struct

_MADE_UP = 1 << 96
_BITS_64 = (1 << 64) - 1


def per(larger: int, smaller: int) -> int:
    """How many of the smaller make one of the larger; 0 where that is not a whole number of 2 or more."""
    return larger // smaller if 0 < smaller < larger and larger % smaller == 0 else 0


def divides(one: int, other: int) -> bool:
    """Whether one of the two sizes is a whole number of the other."""
    return one == other or bool(per(one, other) or per(other, one))


def spread(names: Sequence[int], count: int) -> list[int]:
    """A name for each of the ``count`` blocks that one block of an engine is here; the last has the engine's own, so
    that what follows finds it."""
    return [made for name in names for made in (*(_made_up(name, at) for at in range(count - 1)), name)]


def all_of(name: int, held: dict[int, int]) -> list[int]:
    """The names that stand for an engine's block here, its own last."""
    found: list[int] = []
    while (made := _made_up(name, len(found))) in held:
        found.append(made)
    return [*found, name]


def _made_up(name: int, at: int) -> int:
    """No engine's hash: those have 64 bits."""
    return _MADE_UP | (name & _BITS_64) << 24 | at


class BlockPart(Struct, frozen=True):
    """An engine's small block. ``before``: key of the index's block before the one that it is part of. ``tokens`` and
    ``extras``: of that block, up to the end of this part. ``members``: the engine's blocks in it so far. ``key``: of
    the whole, where this part is its last."""

    before: int
    tokens: tuple[int, ...]
    extras: tuple[Any, ...]
    members: tuple[int, ...]
    key: int | None = None


@dataclass(slots=True)
class Parts:
    """One worker's small blocks: what each is part of, how many copies each tier has, and the wholes of each."""

    known: dict[int, BlockPart] = field(default_factory=dict)
    tiers: tuple[dict[int, int], dict[int, int], dict[int, int]] = field(default_factory=lambda: ({}, {}, {}))
    wholes: dict[int, dict[int, None]] = field(default_factory=dict)

    def add(self, name: int, part: BlockPart, tier: int, *, copies: bool) -> None:
        """The tier has the block, or one more copy of it."""
        self.known[name] = part
        held = self.tiers[tier]
        held[name] = held.get(name, 0) + 1 if copies else 1
        if part.key is not None:
            for member in part.members:
                self.wholes.setdefault(member, {})[name] = None

    def complete(self, name: int, tier: int) -> Iterator[tuple[int, BlockPart]]:
        """(last part's name, last part) of the wholes with this part that the tier has all parts of."""
        held = self.tiers[tier]
        for last in self.wholes.get(name, ()):
            part = self.known[last]
            if all(member in held for member in part.members):
                yield last, part

    def remove(self, name: int, tier: int, left: int | None) -> tuple[int, ...]:
        """The names of the wholes that the tier has no longer after a copy of this part is gone; ``left``: how many
        copies remain, where that is told."""
        held = self.tiers[tier]
        remain = held[name] - 1 if left is None else left
        if remain > 0:
            held[name] = remain
            return ()
        del held[name]
        gone = tuple(self.wholes.get(name, ()))
        if not any(name in one for one in self.tiers):
            self._forget(name)
        return gone

    def clear(self, tier: int | None) -> None:
        """Nothing is there any more, in one tier or at all."""
        if tier is None:
            self.known.clear()
            self.wholes.clear()
        for number, held in enumerate(self.tiers):
            if tier is None:
                held.clear()
            elif number == tier:
                for name in list(held):
                    self.remove(name, tier, 0)

    def oldest(self, tier: int, most: int) -> list[int]:
        """The parts that are too many in a tier, least recently stored first."""
        held = self.tiers[tier]
        return list(islice(held, max(0, len(held) - most)))

    def _forget(self, name: int) -> None:
        part = self.known.pop(name)
        if part.key is not None:
            for member in part.members:
                of = self.wholes.get(member, {})
                of.pop(name, None)
                if not of:
                    self.wholes.pop(member, None)


def grown(
    names: Sequence[int],
    tokens: Sequence[int],
    extras: Sequence[Sequence[Any] | None] | None,
    start: BlockPart,
    size: int,
    key: Callable[[Sequence[int], int, Sequence[Any] | None], int],
) -> Iterator[tuple[int, BlockPart]]:
    """(name, part) of consecutive small blocks that follow ``start``, which may be a whole. ``size``: tokens of a
    whole; ``key``: of a whole by its tokens, the key before it and its extras."""
    step = len(tokens) // len(names)
    at = start
    for number, name in enumerate(names):
        if at.key is not None:
            at = BlockPart(at.key, (), (), ())
        own = extras[number] if extras is not None and number < len(extras) else None
        taken = (*at.tokens, *tokens[number * step : (number + 1) * step])
        with_extras, members = (*at.extras, *(own or ())), (*at.members, name)
        whole = key(taken, at.before, list(with_extras) or None) if len(taken) == size else None
        at = BlockPart(at.before, taken, with_extras, members, whole)
        yield name, at
