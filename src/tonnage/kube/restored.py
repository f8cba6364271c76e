"""Whether lists are of before etcd was restored from a backup, while leases are of the backup.

An API server whose etcd was exchanged under it goes on to list what its cache has, at the revisions of before: by its
lists nobody can tell. A lease is written to etcd itself: a renewal that is at a lower revision than what was listed
before it was sent is of another history. Where a kind has an etcd of its own (``--etcd-servers-overrides``) the two
never were of one: a kind counts from when it was seen not to be ahead, or when the lease itself has gone back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tonnage.kube.informer import Informers
from tonnage.kube.leases import Elector


class Led(Protocol):
    """A controller that may have a lease."""

    @property
    def elector(self) -> Elector | None: ...


class Restored:
    """Compares the versions of informers with those that the lease has later. Looked at in the owner's thread."""

    def __init__(self) -> None:
        self._lease = 0  # its version when it was compared last
        self._older: dict[str, int] = {}  # versions by informer as of two renewals ago,
        self._newer: dict[str, int] = {}  # and of one
        self._of_one_etcd: set[str] = set()  # informers that have been at no higher revision than the lease
        self._ahead: tuple[str, ...] = ()

    def look(self, controllers: Iterable[Led], informers: Informers) -> None:
        """Compare after each renewal: what was seen before it was sent is at no higher revision."""
        for controller in controllers:
            elector = controller.elector
            if elector is not None and elector.version:
                if elector.version != self._lease:
                    self._compare(elector.version, elector.went_back, informers)
                return

    def _compare(self, lease: int, went_back: bool, informers: Informers) -> None:
        ahead = (name for name, at in self._older.items() if at > lease and (went_back or name in self._of_one_etcd))
        self._lease, self._ahead, self._older = lease, tuple(sorted(ahead)), self._newer
        self._newer = {name: one.resource_version for name, one in informers.named().items()}
        self._of_one_etcd.update(name for name, at in self._newer.items() if 0 < at <= lease)

    def problem(self) -> dict[str, str]:
        """What is out of step, for ``/readyz``. Callable from any thread."""
        ahead = self._ahead
        if not ahead:
            return {}
        more = f" and {len(ahead) - 1} more" if len(ahead) > 1 else ""
        there = f"it was restored from a backup and is at revision {self._lease}"
        why = f"{there}, but {ahead[0]}{more} are those of before"
        return {"etcd": f"{why}: restart the API server, whose cache they come from"}
