"""Short pauses of Python's garbage collector in a process that holds the objects of a large cluster.

A full collection looks at every container object: with 3,000 pods for 0.1 to 0.3 s, every other second while pods and
nodes come. Nearly all of them live until the API server says that they are gone, and are then freed by their reference
counts. So what has survived a full collection is set aside (``gc.freeze``), and later ones look at what is new. What is
set aside can come to be garbage in a cycle: every ten minutes all is looked at.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

ALL_S = 600.0
"""Everything is looked at this often, at most."""
_OLDEST = 2


class ShortPauses:
    """While entered, sets aside what full collections leave. For one place in a process."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._all_at = monotonic()

    def __enter__(self) -> ShortPauses:
        gc.collect()
        gc.freeze()
        gc.callbacks.append(self._collected)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._collected)
        gc.unfreeze()

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != _OLDEST:
            return
        if phase == "stop":
            gc.freeze()
        elif self._monotonic() - self._all_at >= ALL_S:
            self._all_at = self._monotonic()
            gc.unfreeze()
