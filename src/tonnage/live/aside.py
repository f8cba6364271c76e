"""Writes that nobody waits for: why a pod waits, in its status and as an event.

They are made by threads of their own while no binding is under way, the latest for each object counts, and what fails
is tried again later. The thread that decides only puts them here.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from tonnage.decisions import Applied, Outcome, Refused

Write = Callable[[], Outcome]
"""A guarded call; raises nothing for a server's no."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""A write that failed is retried after the first, then after twice as long, at most after the second. So are all,
when nothing but failures came for a while."""
FAILURES = 4
"""This many in a row do not concern one object."""
PASSED_OVER_S = 0.25
"""While bindings are under way one write is made each such time by each thread, so that what is to be told is told."""
SETTLED_S = 5.0
"""A binding waits this long for a write about its pod that is under way."""


@dataclass(slots=True)
class _One:
    """A write that is to be made. ``tries``: how often it has failed."""

    key: Hashable
    write: Write
    tries: int = 0


class Aside:
    """``threads``: how many writes are under way at once; 0: each is made at once, by whoever brings it.

    Everything may be called in any thread."""

    def __init__(self, threads: int, name: str = "aside") -> None:
        self._changed = threading.Condition()
        self._todo: OrderedDict[Hashable, _One] = OrderedDict()
        self._later: list[tuple[float, int, _One]] = []  # a heap by when they are retried
        self._latest: dict[Hashable, _One] = {}  # what is to be made of each object, wherever it is
        self._under_way: set[Hashable] = set()
        self._bindings = 0
        self._in_a_row = 0
        self._paused_until = 0.0
        self._number = 0
        self._stopped = False
        self.problem = ""
        """Why the last write failed; empty when it did not."""
        self._threads = [threading.Thread(target=self._run, name=f"{name}-{n}", daemon=True) for n in range(threads)]
        for thread in self._threads:
            thread.start()

    def put(self, key: Hashable, write: Write, after_s: float = 0.0) -> Outcome:
        """Make this write some time, ``after_s`` from now at the earliest, in place of one with the same key that has
        not been made. Applied, unless it was made at once: then what became of it."""
        if not self._threads:
            return write()
        one = _One(key, write)
        with self._changed:
            self._latest[key] = one
            self._todo.pop(key, None)
            if after_s:
                self._put_off(one, after_s)
            else:
                self._todo[key] = one
            self._changed.notify()
        return Applied()

    def _put_off(self, one: _One, seconds: float) -> None:
        self._number += 1
        heapq.heappush(self._later, (time.monotonic() + seconds, self._number, one))

    def drop(self, key: Hashable) -> bool:
        """Nobody needs it any more. Whether it had not been begun."""
        with self._changed:
            begun = key in self._under_way
            self._todo.pop(key, None)
            return self._latest.pop(key, None) is not None and not begun

    def settle(self, key: Hashable) -> None:
        """As :meth:`drop`; and where it is under way, wait until it has been made."""
        if self._threads:
            with self._changed:
                self._latest.pop(key, None)
                self._todo.pop(key, None)
                if key in self._under_way:
                    self._changed.wait_for(lambda: key not in self._under_way, SETTLED_S)

    def settled(self, key: Hashable) -> bool:
        """As :meth:`settle`, without waiting: False where it is under way."""
        if not self._threads:
            return True
        with self._changed:
            self._latest.pop(key, None)
            self._todo.pop(key, None)
            return key not in self._under_way

    def bindings_first(self) -> AbstractContextManager[None]:
        """While inside, bindings are under way."""
        return self._bindings_first() if self._threads else nullcontext()

    @contextmanager
    def _bindings_first(self) -> Iterator[None]:
        with self._changed:
            self._bindings += 1
        try:
            yield
        finally:
            with self._changed:
                self._bindings -= 1
                self._changed.notify_all()

    def __len__(self) -> int:
        """What is still to be made."""
        return len(self._latest)

    def flush(self, timeout_s: float) -> bool:
        """Wait until all has been made. False after ``timeout_s``."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._latest, timeout_s)

    def close(self) -> None:
        """End the threads, each after the write that it is at. What was not made is dropped."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(SETTLED_S)

    def _run(self) -> None:
        while (one := self._take()) is not None:
            try:
                outcome = one.write()
                why = "" if isinstance(outcome, Applied) else _why(outcome)
            except Exception as error:  # the next is made all the same
                why = f"{type(error).__name__}: {error}"
            self._made(one, why)

    def _take(self) -> _One | None:
        """The next write, once it may be made; None at the end."""
        passed_over = time.monotonic() + PASSED_OVER_S
        with self._changed:
            while not self._stopped:
                now = time.monotonic()
                self._bring_back(now)
                may = now >= self._paused_until and (not self._bindings or now >= passed_over)
                key = next((key for key in self._todo if key not in self._under_way), None) if may else None
                if key is not None:
                    self._under_way.add(key)
                    return self._todo.pop(key)
                self._changed.wait(self._wait_s(now, passed_over))
            return None

    def _wait_s(self, now: float, passed_over: float) -> float | None:
        """Until when nothing can be made unless something changes."""
        times = [self._later[0][0]] if self._later else []
        if self._todo:
            times.append(max(self._paused_until, passed_over if self._bindings else 0.0))
        times = [at for at in times if at > now]
        return min(times) - now if times else None

    def _bring_back(self, now: float) -> None:
        while self._later and self._later[0][0] <= now:
            one = heapq.heappop(self._later)[2]
            if self._latest.get(one.key) is one:
                self._todo.setdefault(one.key, one)

    def _made(self, one: _One, why: str) -> None:
        with self._changed:
            self._under_way.discard(one.key)
            self.problem = why
            latest = self._latest.get(one.key) is one
            if not why:
                self._in_a_row, self._paused_until = 0, 0.0
                if latest:
                    del self._latest[one.key]
            elif latest:
                one.tries += 1
                self._in_a_row += 1
                now = time.monotonic()
                if self._in_a_row >= FAILURES:
                    self._paused_until = now + _pause_s(self._in_a_row - FAILURES + 1)
                self._put_off(one, _pause_s(one.tries))
            self._changed.notify_all()


def _pause_s(tries: int) -> float:
    return min(FIRST_PAUSE_S * 2.0 ** min(tries - 1, 10), LONGEST_PAUSE_S)


def _why(outcome: Outcome) -> str:
    return outcome.why if isinstance(outcome, Refused) else getattr(outcome, "changed", "")
