"""Node groups as a thread last read them, with what was asked of them since."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec

from tonnage.decisions import Applied, Outcome
from tonnage.errors import InputError
from tonnage.live.clouds.port import NodeGroups
from tonnage.provisioning.node_groups import NodeGroup

EVERY_S = 15.0
"""Between two readings. A machine takes longer than this to start."""
_ATTEMPTS = 3
"""Readings that a write crosses are read again this often."""


class WatchedGroups:
    """Implements :class:`NodeGroups`: :meth:`list` answers at once, with no call to the cloud.

    What was written is in the answer from then on, so that decisions taken together find the size that they need. A
    reading that a write has crossed may be older than the write and is thrown away. ``problem``: why the groups cannot
    be read now, in one line. Safe to use from several threads.
    """

    def __init__(self, groups: NodeGroups, every_s: float = EVERY_S) -> None:
        self.problem = ""
        self._groups = groups
        self._every_s = every_s
        self._lock = threading.Lock()
        self._known: tuple[NodeGroup, ...] = ()
        self._writes = 0
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="node groups", daemon=True)

    def start(self) -> None:
        """Read the groups again and again until :meth:`close`."""
        self._thread.start()

    def close(self) -> None:
        """End the readings; one that is under way is not waited for."""
        self._stop.set()
        self._wake.set()

    def read(self) -> None:
        """Ask the cloud now. Raises InputError when it cannot be asked; what was known then stays."""
        for _ in range(_ATTEMPTS):
            with self._lock:
                before = self._writes
            found = self._groups.list()
            with self._lock:
                if self._writes == before:
                    self._known, self.problem = found, ""
                    return

    # ---- NodeGroups ----

    def list(self) -> tuple[NodeGroup, ...]:
        """The groups as they are known, the same tuple until something changes."""
        with self._lock:
            return self._known

    def set_size(self, name: str, desired: int, expect: int) -> Outcome:
        """Ask it of the cloud; see :class:`NodeGroups`."""
        outcome = self._groups.set_size(name, desired, expect)
        self._note(outcome, name, lambda group: msgspec.structs.replace(group, desired=desired))
        return outcome

    def remove(self, provider_id: str, group: str, expect: int) -> Outcome:
        """Ask it of the cloud; see :class:`NodeGroups`."""
        outcome = self._groups.remove(provider_id, group, expect)

        def less(one: NodeGroup) -> NodeGroup:
            left = tuple(node for node in one.nodes if node != provider_id)
            return msgspec.structs.replace(one, desired=expect - 1, nodes=left)

        self._note(outcome, group, less)
        return outcome

    def _note(self, outcome: Outcome, name: str, change: Callable[[NodeGroup], NodeGroup]) -> None:
        """Keep what was written; after a no, or no answer, what is known may be old and is read again."""
        with self._lock:
            self._writes += 1
            if isinstance(outcome, Applied):
                self._known = tuple(change(group) if group.name == name else group for group in self._known)
        if not isinstance(outcome, Applied):
            self._wake.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(self._every_s)
            self._wake.clear()
            if self._stop.is_set():
                return
            try:
                self.read()
            except InputError as error:
                self.problem = str(error)
