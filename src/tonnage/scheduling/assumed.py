"""Pods that the fleet holds in their future places though they are not there yet: nominated, or being moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tonnage.fleet.state import Fleet


class Assumed:
    """Which of the fleet's bound pods are not there yet. They may never come, so they take room and do not count for
    pod affinity: who needs others around it must fit with them and without them, as in kube-scheduler
    (kubernetes/kubernetes v1.36 pkg/scheduler/framework/runtime, RunFilterPluginsWithNominatedPods). Inside a what-if
    of the fleet only."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._rows: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._rows)

    def put(self, row: int, node: int) -> None:
        """The pod is taken to be there, whether or not it fits yet."""
        self._fleet.claim(row, node)
        self._rows.add(row)

    def count_in(self, row: int) -> None:
        """The pod, which is bound, is not there yet."""
        self._rows.add(row)

    def take(self, rows: Iterable[int]) -> None:
        """Unbind these pods, whether or not they are there."""
        for row in rows:
            self._fleet.unbind(row)
            self._rows.discard(row)

    @contextmanager
    def away(self) -> Iterator[None]:
        """The fleet without those who are not there yet."""
        with self._fleet.what_if():
            for row in sorted(self._rows):
                self._fleet.unbind(row)
            yield

    @contextmanager
    def what_if(self) -> Iterator[None]:
        """As ``fleet.what_if()``, for who is not there as well."""
        before = set(self._rows)
        try:
            with self._fleet.what_if():
                yield
        finally:
            self._rows = before
