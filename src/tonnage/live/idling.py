"""What controllers say of why they do nothing: once when it changes, in log and event, and for ``/readyz``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from tonnage.control.idle import Idle
from tonnage.control.world import World


def _nobody(controller: str, why: Idle) -> None:
    """Nobody listens."""


class IdleReasons:
    """The reasons that stand now, by controller. ``tell``: told of each that is new. Readable from any thread."""

    def __init__(self, tell: Callable[[str, Idle], None] = _nobody) -> None:
        self._tell = tell
        self._now: dict[str, tuple[Idle, ...]] = {}
        self._lock = threading.Lock()

    def say(self, controller: str, found: Iterable[Idle], world: World) -> None:
        """These stand now. What is new is told, and noted as an event of the object that asked."""
        now = tuple(found)
        with self._lock:
            before = self._now.get(controller, ())
            self._now[controller] = now
        for one in now:
            if one not in before:
                self._tell(controller, one)
                if one.about is not None:
                    world.note(one.about, one.reason, one.message)

    def listed(self) -> list[str]:
        """A line for each."""
        with self._lock:
            return [f"{name}: {one}" for name, found in sorted(self._now.items()) for one in found]

    def asked(self) -> bool:
        """Whether something was asked for that cannot be done."""
        with self._lock:
            return any(one.asked for found in self._now.values() for one in found)
