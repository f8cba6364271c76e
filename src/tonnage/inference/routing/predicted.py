"""What the router expects a worker to hold besides what events have reported.

A prompt's blocks are expected on a worker from the moment it is sent there, whatever the lag of cache events, until a
while after it ended, by when its events have come. A request that is cancelled before its first token takes its
expectation with it.
"""

from __future__ import annotations

from collections import deque

from tonnage.inference.prompts import Path
from tonnage.inference.routing.active import ActiveBlocks


class PredictedInserts:
    """Paths that were sent to workers. ``keep_ns`` is how long one is expected there after its request ended."""

    __slots__ = ("_blocks", "_expiring", "_keep_ns", "_paths")

    def __init__(self, keep_ns: int) -> None:
        self._keep_ns = keep_ns
        self._blocks = ActiveBlocks()
        self._paths: dict[int, tuple[int, Path]] = {}  # by request in flight
        self._expiring: deque[tuple[int, int, Path]] = deque()  # (deadline, worker, path)

    def __len__(self) -> int:
        return len(self._paths) + len(self._expiring)

    def sent(self, request_id: int, worker: int, path: Path) -> None:
        """A prompt went to ``worker``."""
        self._paths[request_id] = (worker, path)
        self._blocks.add(worker, path)

    def ended(self, request_id: int, now_ns: int, *, computed: bool) -> None:
        """Its request is over; ``computed`` says whether the prompt was computed."""
        worker, path = self._paths.pop(request_id)
        if computed and self._keep_ns > 0:
            self._expiring.append((now_ns + self._keep_ns, worker, path))
        else:
            self._blocks.remove(worker, path)

    def cleared(self, worker: int) -> None:
        """What the worker's cache held is gone, but for what requests in flight hold."""
        left = [entry for entry in self._expiring if entry[1] != worker]
        for entry in self._expiring:
            if entry[1] == worker:
                self._blocks.remove(worker, entry[2])
        self._expiring = deque(left)

    def depths(self, path: Path, now_ns: int) -> dict[int, int]:
        """Leading blocks of ``path`` expected on workers, by worker; absent where none is."""
        expiring = self._expiring
        while expiring and expiring[0][0] <= now_ns:
            _, worker, old = expiring.popleft()
            self._blocks.remove(worker, old)
        return self._blocks.depths(path)
