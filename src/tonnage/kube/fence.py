"""Requests that may be sent only while something holds: that a lease is held, say.

Whoever decides to send asks long before the bytes are out: what is between (a queue of threads, a connection to be
made, a server that says "later") can take longer than a lease lasts, and a process can be stopped within it. So the
transport asks once more, where nothing is left to be done but to hand the bytes to the system.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from tonnage.kube.transport import ClientError

READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing: they are not asked for."""


class Withheld(ClientError):
    """The server did not get the request: who asked for it may not change anything any more."""


class Fence:
    """``holds`` may be called in any thread. ``withheld``: whether a request was not sent for it."""

    __slots__ = ("_holds", "withheld")

    def __init__(self, holds: Callable[[], bool]) -> None:
        self._holds = holds
        self.withheld = False

    def check(self) -> None:
        """Raises Withheld where it does not hold any more."""
        if not self._holds():
            self.withheld = True
            raise Withheld("the lease was lost before it was sent")


_NOW: ContextVar[Fence | None] = ContextVar("fence", default=None)


@contextmanager
def only_while(holds: Callable[[], bool]) -> Iterator[Fence]:
    """What this thread asks for within the block is sent only while ``holds``, but for what only reads."""
    fence = Fence(holds)
    token = _NOW.set(fence)
    try:
        yield fence
    finally:
        _NOW.reset(token)


def of(method: str) -> Fence | None:
    """The fence of a request of this thread."""
    return None if method in READING else _NOW.get()
