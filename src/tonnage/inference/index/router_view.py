"""The index for a router: workers by number instead of by name, keys as paths, answers as overlaps."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.inference.index.view import CacheView
from tonnage.inference.prompts import Path
from tonnage.inference.routing.types import Overlap


class RouterView:
    """A CacheView whose workers have the numbers of a router's workers.

    ``recent`` says who expects a prompt where it was just sent: the view, from dispatches of the last seconds, or, with
    False, the policy itself (``Tonnage(predicts=True)``). With both, what one has forgotten the other still expects.
    """

    def __init__(self, view: CacheView, *, recent: bool = True) -> None:
        self.view = view
        self._recent = recent
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._next = 0

    def join(self, name: str) -> int:
        """The number of a worker; a new one, which nobody had before, for one that is not here."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = self._next
            self._names[number] = name
            self._next += 1
            self.view.add_worker(name)
        return number

    def leave(self, name: str) -> int | None:
        """Forget a worker and all about it: the number it had, None if it is not here."""
        number = self._numbers.pop(name, None)
        if number is not None:
            del self._names[number]
            self.view.remove_worker(name)
        return number

    def name(self, number: int) -> str:
        """The worker of a number. Raises KeyError for one that is not here."""
        return self._names[number]

    def overlap(self, keys: Sequence[int], now_ns: int) -> Overlap:
        """What workers hold of the prompt, each by the source that may be believed (:meth:`CacheView.overlap`)."""
        device: dict[int, int] = {}
        host: dict[int, int] = {}
        disk: dict[int, int] = {}
        for name, blocks in self.view.overlap(keys, now_ns, recent=self._recent).items():
            number = self._numbers.get(name)
            if number is None:
                continue  # it publishes events, and no requests go there
            for tier, count in zip((device, host, disk), blocks, strict=True):
                if count:
                    tier[number] = count
        return Overlap(device, host, disk)

    def dispatched(self, number: int, keys: Sequence[int], now_ns: int) -> None:
        """A prompt with these keys is sent to the worker of this number. Raises KeyError for one that is not here."""
        self.view.dispatched(self._names[number], keys, now_ns)

    def take_cleared(self) -> list[int]:
        """Workers whose caches were emptied since the last call, for ``Router.cache_cleared``."""
        return [self._numbers[name] for name in self.view.take_cleared() if name in self._numbers]


def path_of(keys: Sequence[int]) -> Path:
    """Keys of a prompt's blocks as a path, a range for each: for the book, which counts what requests share."""
    return tuple([(key, key + 1) for key in keys])
