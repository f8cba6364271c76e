"""Evicting gangs that are partially bound: fewer members are bound than the gang needs, and the others find no room.

Such members hold devices, and none of them can work. They come about when a binding fails after others of its gang
have worked, or when the process crashes between the two; and when a gang that was whole loses pods. The two are told
apart by what the API says. Pods are planned together only when they are all there. So a member that waits and is older
than the newest binding was to be bound with that, and was not: that gang has never been whole, and is evicted soon. A
gang whose waiting members are all younger was whole before; its framework knows better what to do, and has long.

The members are evicted, all of them, and their controllers recreate them: the gang waits as a whole, and others pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from msgspec import Struct

from tonnage.decisions import Bind, Decision, Evict, Reason, Ref, Scalar, Wait
from tonnage.fleet.gangs import Gang
from tonnage.fleet.rows import split_key
from tonnage.fleet.snapshot import Snapshot
from tonnage.units import NS_PER_S


class Patience(Struct, frozen=True):
    """How long a gang may be partially bound: ``never_whole_ns``, and ``was_whole_ns`` where it has been whole.

    Sources: 60 s is the grace of KAI's stale gangs (kai-scheduler/KAI-Scheduler
    pkg/scheduler/actions/stalegangeviction); after 30 min the processes that remain have given up by themselves
    (PyTorch's default_pg_timeout, torch/distributed/constants.py).
    ``check_ns``: how often it is looked at where nothing else happens."""

    never_whole_ns: int = 60 * NS_PER_S
    was_whole_ns: int = 1_800 * NS_PER_S
    check_ns: int = 10 * NS_PER_S


class PartialGang(Struct, frozen=True):
    """A gang that is partially bound. ``since_ns``: since when it has been seen so; ``hoped_ns``: since when every look
    has found room for the rest, which has not come to stand; None: the last look found none."""

    since_ns: int
    hoped_ns: int | None = None


HeldSince = Mapping[str, PartialGang]
"""By gang."""


def release(
    snapshot: Snapshot,
    decisions: Sequence[Decision],
    known: HeldSince,
    patience: Patience,
    scheduler_names: Sequence[str],
) -> tuple[list[Decision], dict[str, PartialGang]]:
    """(what is decided instead, what is partially bound now), when the scheduler has taken these decisions.

    ``known``: what this gave the last time. What counts is what stands, not what is about to be bound: a binding may be
    refused each time. A gang is left alone while room is being made for it, and when another scheduler has a part in
    it; pods that have succeeded count as members. Of a gang that is evicted nothing is bound."""
    bound = {decision.pod for decision in decisions if isinstance(decision, Bind)}
    nominated = {decision.pod for decision in decisions if isinstance(decision, Wait) and decision.nominated}
    asked = bound | {decision.pod for decision in decisions if isinstance(decision, Wait)}
    evicted = {decision.pod for decision in decisions if isinstance(decision, Evict)}
    evictions: list[Evict] = []
    held: dict[str, PartialGang] = {}
    gone: set[str] = set()
    for key in sorted({_gang_of(snapshot, pod) for pod in asked - nominated} & snapshot.gangs.keys()):
        members = _members(snapshot, key, scheduler_names)
        if members is None or not members.standing or snapshot.is_whole(key, members.standing):
            continue
        if any(ref in nominated for ref in members.refs(snapshot, members.pending)):
            continue
        hopeful = [row for row in members.pending if snapshot.fleet.pod(row).spec.ref in bound]
        now = _seen(snapshot, key, [*members.standing, *hopeful], known.get(key))
        held[key] = now
        never = members.never_whole(snapshot, asked)
        waited = snapshot.now_ns - (now.since_ns if now.hoped_ns is None else now.hoped_ns)
        if waited >= (patience.never_whole_ns if never else patience.was_whole_ns):
            evictions += members.evictions(snapshot, evicted, never=never, room=now.hoped_ns is not None)
            gone.add(key)
    left = [one for one in decisions if not (isinstance(one, Bind) and _gang_of(snapshot, one.pod) in gone)]
    return [*left, *evictions], held


def _seen(snapshot: Snapshot, key: str, hopeful: Sequence[int], known: PartialGang | None) -> PartialGang:
    """The gang as it is held now, when these members (rows) stand or are about to be bound."""
    since = known.since_ns if known is not None else snapshot.now_ns
    if not snapshot.is_whole(key, hopeful):
        return PartialGang(since)
    hoped = known.hoped_ns if known is not None else None
    return PartialGang(since, snapshot.now_ns if hoped is None else hoped)


def _gang_of(snapshot: Snapshot, pod: Ref) -> str:
    row = snapshot.fleet.pod_by_key.get((pod.namespace, pod.name))
    return snapshot.fleet.pod(row).spec.gang if row is not None else ""


class _Members(Struct, frozen=True):
    """Rows of a gang's pods: those that stand, and those that wait."""

    gang: Gang
    standing: tuple[int, ...]
    pending: tuple[int, ...]

    def refs(self, snapshot: Snapshot, rows: Sequence[int]) -> list[Ref]:
        return [snapshot.fleet.pod(row).spec.ref for row in rows]

    def never_whole(self, snapshot: Snapshot, waiting: Set[Ref]) -> bool:
        """Whether a member that waits is older than the newest binding that is known of."""
        fleet = snapshot.fleet
        times = [snapshot.life(fleet.pod(row).key).bound_ns for row in self.standing]
        newest = max((at for at in times if at is not None), default=-1)
        return any(
            spec.created_ns <= newest and spec.ref in waiting for spec in (fleet.pod(row).spec for row in self.pending)
        )

    def evictions(self, snapshot: Snapshot, already: Set[Ref], *, never: bool, room: bool) -> list[Evict]:
        pods = [snapshot.fleet.pod(row) for row in self.standing]
        evidence: tuple[tuple[str, Scalar], ...] = (
            ("gang", self.gang.key),
            ("minimum", self.gang.min_member),
            ("bound", len(pods)),
            ("waiting", len(self.pending)),
            ("was_whole", not never),
        )
        why = "the rest cannot be bound" if room else "there is no room for the rest"
        reason = Reason(f"gang {self.gang.key} is partially bound, and {why}", evidence)
        namespace, name = split_key(self.gang.key)
        gang = Ref("Gang", name, namespace)
        refs = sorted(self.refs(snapshot, self.standing), key=lambda ref: (ref.namespace, ref.name))
        return [Evict(ref, reason, gang) for ref in refs if ref not in already]


def _members(snapshot: Snapshot, key: str, scheduler_names: Sequence[str]) -> _Members | None:
    """The gang's members, those that leave left out; None where one is another scheduler's."""
    fleet = snapshot.fleet
    standing: list[int] = []
    pending: list[int] = []
    for row in fleet.gang_pods.get(key, ()):
        pod = fleet.pod(row)
        if pod.spec.spec.scheduler_name not in scheduler_names:
            return None
        if snapshot.leaves(pod.key):
            continue
        (standing if pod.node >= 0 else pending).append(row)
    return _Members(snapshot.gangs[key], tuple(standing), tuple(pending))
