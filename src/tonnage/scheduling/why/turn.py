"""What the scheduler says of pending pods when their turn comes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from tonnage.decisions import Bind, Decision, Evict, Reason, Ref, Wait
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet
from tonnage.scheduling import place
from tonnage.scheduling.place import Cache, Settings


class Decided(Struct, frozen=True):
    """Where some pods are bound, the first of them that waits, how many others are bound before them, and whom the
    scheduler evicts for them."""

    binds: list[Bind]
    wait: Wait | None
    ahead: int
    evicted: tuple[str, ...]

    @property
    def reason(self) -> Reason:
        """Why the first of them waits."""
        return self.wait.reason if self.wait else Reason("not considered in this scheduling cycle")


def decided(snapshot: Snapshot, settings: Settings, cache: Cache, rows: Sequence[int]) -> Decided:
    """What the scheduler says of these pods, and all bound that it binds before them. Inside a what-if only.

    Pods whose turn is after theirs do not count, unless the pod affinity of these selects them, or stand where these
    would without them: whether these are bound is as the whole decision says."""
    fleet = snapshot.fleet
    mine = {fleet.pod(row).key for row in rows}
    decisions = place.decide(snapshot, settings, cache)
    if not _binds(decisions, mine):
        with _waiting_only(fleet, _upto_turn(snapshot, settings, rows)) as fewer:
            earlier = place.decide(snapshot, settings, cache) if fewer else decisions
        if not _binds(earlier, mine):
            decisions = earlier
    binds = _binds(decisions, mine)
    before = decisions[: decisions.index(binds[0])] if binds else decisions
    ahead = [one for one in before if isinstance(one, Bind)]
    bind(fleet, ahead)
    by = mine | {gang for row in rows if (gang := fleet.pod(row).spec.gang)}
    evicted = [one for one in decisions if isinstance(one, Evict) and one.by is not None and _key(one.by) in by]
    waits = [one for one in decisions if isinstance(one, Wait) and _key(one.pod) in mine]
    return Decided(binds, waits[0] if waits else None, len(ahead), tuple(_key(one.pod) for one in evicted))


def bind(fleet: Fleet, binds: Iterable[Bind]) -> None:
    """Bind these pods as it is said."""
    for one in binds:
        row = fleet.pod_by_key[one.pod.namespace, one.pod.name]
        fleet.bind(row, fleet.node_by_name[one.node.name], one.devices)


def _upto_turn(snapshot: Snapshot, settings: Settings, rows: Sequence[int]) -> list[int]:
    """The pending pods whose turns are no later than that of these."""
    queue = place._queue(snapshot, settings)
    last = max((number for number, row in enumerate(queue) if row in rows), default=len(queue) - 1)
    return queue[: last + 1]


@contextmanager
def _waiting_only(fleet: Fleet, rows: Sequence[int]) -> Iterator[bool]:
    """Of the pending pods, only these are pending, inside: the others are there, and are not looked at. Whether these
    are fewer."""
    pending = dict(fleet.pending)
    others = pending.keys() - set(rows)
    for row in others:
        del fleet.pending[row]
    try:
        yield bool(others)
    finally:
        fleet.pending.clear()
        fleet.pending.update(pending)


def _binds(decisions: Iterable[Decision], keys: set[str]) -> list[Bind]:
    return [one for one in decisions if isinstance(one, Bind) and _key(one.pod) in keys]


def _key(ref: Ref) -> str:
    return f"{ref.namespace}/{ref.name}" if ref.namespace else ref.name
