"""Threads that wait for a server to come back hear of it when any of them has reached it."""

from __future__ import annotations

import threading


class Contact:
    """What reflectors of one server share: when one gets through, those that wait to try again do it at once."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._made = 0

    def made(self) -> None:
        """The server has answered one that could not reach it."""
        with self._changed:
            self._made += 1
            self._changed.notify_all()

    def wake(self) -> None:
        """Let those that wait look whether they are to stop."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, seconds: float, stopped: threading.Event) -> bool:
        """Wait for another's contact; whether it was made."""
        with self._changed:
            before = self._made
            self._changed.wait_for(lambda: stopped.is_set() or self._made != before, seconds)
            return self._made != before
