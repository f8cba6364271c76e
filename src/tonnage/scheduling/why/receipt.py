"""Why a pod or a gang is where it is, or waits: a receipt for a person, in names and numbers.

What others get first is taken as given: of the pending pods too, those whose turn is before this one's stand where
the scheduler would put them, and those whose turn is after it do not count. Of a pod that runs, the receipt says what
the policy would say of its node today.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest

import msgspec
import numpy as np
from msgspec.structs import replace

from tonnage.decisions import Reason, Scalar
from tonnage.dra.told import by_reason
from tonnage.fleet.device_claims import CANNOT_ALLOCATE
from tonnage.fleet.rows import PodRow, split_key
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet
from tonnage.scheduling import place
from tonnage.scheduling.beyond import beyond, gated
from tonnage.scheduling.communication import evidence_of
from tonnage.scheduling.explain import NO_NODES, refusals
from tonnage.scheduling.open_nodes import PREFERENCE_WEIGHT
from tonnage.scheduling.place import Cache, Settings
from tonnage.scheduling.policies import ANY_POLICY
from tonnage.scheduling.view import NEVER, Ints
from tonnage.scheduling.why import gang as why_gang
from tonnage.scheduling.why import moves as why_moves
from tonnage.scheduling.why import search as why_search
from tonnage.scheduling.why.bounds import Tables
from tonnage.scheduling.why.changes import PodChange
from tonnage.scheduling.why.gang import GangChange
from tonnage.scheduling.why.moves import Moves
from tonnage.scheduling.why.search import EVERY
from tonnage.scheduling.why.turn import Decided, bind, decided

EXAMPLES = 3
"""Nodes that are named for each reason."""

ANY, POD_ALONE, CLUSTER_ALONE, NODE = "smallest", "only the pod changes", "the pod stays as it is", "one more node"
_KINDS = (
    (ANY, EVERY),
    (POD_ALONE, frozenset({"pod", "lower"})),
    (CLUSTER_ALONE, frozenset({"uncordon", "leave", "recut"})),
    (NODE, frozenset({"add"})),
)

_GANG_KINDS = (
    (ANY, why_gang.EVERY),
    ("only its levels are relaxed", frozenset({"level"})),
    ("only its minimum is lower", frozenset({"minimum"})),
    ("it stays as it is", frozenset({"places"})),
)

RUNS, FITS, WAITS, HELD = "runs", "fits", "waits", "held"


class Out(msgspec.Struct, frozen=True):
    """Nodes that a filter refuses; a node counts for the first that does, and for each resource that it lacks.
    ``details``: of ResourceClaims, what there is of devices and what threw them out."""

    reason: str
    nodes: int
    examples: tuple[str, ...]
    details: tuple[str, ...] = ()


class Scored(msgspec.Struct, frozen=True):
    """A node and what its score is made of."""

    node: str
    parts: tuple[tuple[str, float], ...]


class ChangeOption(msgspec.Struct, frozen=True):
    """The smallest change of one kind. ``proved``: no smaller one of that kind exists."""

    about: str
    change: PodChange
    proved: bool


class PodReceipt(msgspec.Struct, frozen=True, tag="pod"):
    """``state``: runs, fits (it would be bound to ``node`` now), waits, or held (no scheduler takes it up: ``verdict``
    says why). ``ahead``: pods that are placed before it in the same decision. ``evicted``: who goes for it. ``moves``:
    of other pods, with which nobody would have to go; None where room is being made already."""

    pod: str
    state: str
    node: str
    verdict: str
    policy: str
    nodes: int
    ahead: int = 0
    fit: int = 0
    out: tuple[Out, ...] = ()
    best: Scored | None = None
    runner_up: Scored | None = None
    nominated: str = ""
    evicted: tuple[str, ...] = ()
    changes: tuple[ChangeOption, ...] = ()
    moves: Moves | None = None


class LevelRoom(msgspec.Struct, frozen=True):
    """At most how many of a group's pods one domain of a level holds: ``holds``, in ``best``; it needs ``needs``."""

    group: str
    level: str
    needs: int
    best: str
    holds: int
    required: bool


class GangOption(msgspec.Struct, frozen=True):
    """As :class:`ChangeOption`."""

    about: str
    change: GangChange
    proved: bool


class GangReceipt(msgspec.Struct, frozen=True, tag="gang"):
    """``state`` as of a pod. ``bound``, ``pending``: its pods. ``level``, ``domain``: the innermost that holds it.
    ``communication``: predicted, of where it stands or would. ``out``: nodes for one of its ``member`` pods."""

    gang: str
    source: str
    state: str
    verdict: str
    minimum: int
    bound: int
    pending: int
    ahead: int = 0
    level: str = ""
    domain: str = ""
    on: tuple[tuple[str, int], ...] = ()
    communication: tuple[tuple[str, Scalar], ...] = ()
    room: tuple[LevelRoom, ...] = ()
    member: str = ""
    out: tuple[Out, ...] = ()
    nominated: tuple[str, ...] = ()
    evicted: tuple[str, ...] = ()
    changes: tuple[GangOption, ...] = ()
    moves: Moves | None = None


Receipt = PodReceipt | GangReceipt


def why(snapshot: Snapshot, key: str, settings: Settings = place.DEFAULTS, cache: Cache | None = None) -> Receipt:
    """The receipt of a pod (namespace/name) or of a gang (its key). Changes nothing. Raises KeyError for neither."""
    fleet = snapshot.fleet
    cache = cache or place.Cache(fleet)
    row = fleet.pod_by_key.get(split_key(key))
    if row is None and key not in snapshot.gangs:
        raise KeyError(key)
    with fleet.what_if():
        made = _Receipts(snapshot, settings, cache)
        if row is not None and (fleet.pod(row).node >= 0 or fleet.pod(row).spec.gang not in snapshot.gangs):
            return made.of_pod(row)
        return made.of_gang(key if row is None else fleet.pod(row).spec.gang)


class _Receipts:
    """Inside a what-if only."""

    def __init__(self, snapshot: Snapshot, settings: Settings, cache: Cache) -> None:
        self.snapshot, self.settings, self.cache = snapshot, settings, cache
        self.fleet: Fleet = snapshot.fleet
        self._pending = frozenset(snapshot.fleet.pending)

    # ---- pods ----

    def of_pod(self, row: int) -> PodReceipt:
        """A pod on its own, or one that runs."""
        pod = self.fleet.pod(row)
        if pod.node >= 0:
            return self._running(row, pod)
        held = self._held(pod)
        if held:
            return self._receipt(pod, HELD, "", Reason(held), 0)
        said = decided(self.snapshot, self.settings, self.cache, [row])
        if said.binds:
            return self._placed(row, FITS, said.binds[0].node.name, said.binds[0].reason, said.ahead)
        fit, out = self._out(row)
        return replace(
            self._receipt(pod, WAITS, "", said.reason, said.ahead),
            fit=fit,
            out=out,
            nominated=said.wait.nominated if said.wait else "",
            evicted=said.evicted,
            changes=() if fit else self._changes(row),
            moves=None if fit else self._moves([row], said),
        )

    def _running(self, row: int, pod: PodRow) -> PodReceipt:
        node = self.fleet.node(pod.node).spec.name
        self.fleet.unbind(row)
        return self._placed(row, RUNS, node, Reason("it runs"), 0)

    def _placed(self, row: int, state: str, node: str, reason: Reason, ahead: int) -> PodReceipt:
        fit, out = self._out(row)
        best, second = self._scores(row, self.fleet.node_by_name[node])
        made = self._receipt(self.fleet.pod(row), state, node, reason, ahead)
        return replace(made, fit=fit, out=out, best=best, runner_up=second)

    def _receipt(self, pod: PodRow, state: str, node: str, reason: Reason, ahead: int) -> PodReceipt:
        nodes = len(self.fleet.node_by_name)
        return PodReceipt(pod.key, state, node, reason.verdict, self.settings.policy, nodes, ahead)

    def _held(self, pod: PodRow) -> str:
        """Why no decision is made about the pod; empty where one is."""
        spec = pod.spec.spec
        if gate := gated(pod.spec):
            return gate
        if spec.scheduler_name not in self.settings.scheduler_names:
            return f"it is placed by scheduler {spec.scheduler_name}, and by nobody where that does not run"
        return beyond(
            pod.spec, len(self.fleet.node_by_name), strict=self.settings.strict, absent=self.snapshot.absent_groups
        )

    def _out(self, row: int) -> tuple[int, tuple[Out, ...]]:
        """How many nodes fit, and the others by reason."""
        fleet, cache = self.fleet, self.cache
        pod_class = fleet.pod_class(row)
        if not fleet.node_by_name:
            return 0, (Out(NO_NODES, 0, ()),)
        view = cache.view(pod_class, ANY_POLICY)
        masks = cache.topology.masks(pod_class, view)
        fit = int(np.count_nonzero(place.keys_of(cache.topology, pod_class, view, masks) != NEVER))
        merged: dict[str, list[int]] = {}
        for text, rows in refusals(fleet, view, masks):
            if len(rows):
                merged.setdefault(text, []).extend(rows.tolist())
        tie = view.nodes.tie.tolist()
        return fit, tuple(
            Out(
                text,
                len(rows),
                tuple(fleet.node(row).spec.name for row in nsmallest(EXAMPLES, rows, lambda r: -tie[r])),
                self._of_claims(row, rows) if text == CANNOT_ALLOCATE else (),
            )
            for text, rows in merged.items()
        )

    def _of_claims(self, row: int, nodes: Sequence[int]) -> tuple[str, ...]:
        """Why these nodes have no devices for the claims of the pod."""
        fleet, keys = self.fleet, self.fleet.pod(row).spec.claims.keys
        views = sorted(((fleet.node_view(node), node) for node in nodes), key=lambda pair: pair[0].name)
        found = {
            view.name: fleet.device_claims.look(keys, view, fleet.extended_claim(row, node)) for view, node in views
        }
        return by_reason({name: one for name, one in found.items() if one is not None})

    def _scores(self, row: int, node: int) -> tuple[Scored | None, Scored | None]:
        """The parts of this node's score, and of the best of the others."""
        fleet, cache = self.fleet, self.cache
        pod_class = fleet.pod_class(row)
        view = cache.view(pod_class, self.settings.policy)
        masks = cache.topology.masks(pod_class, view)
        key: Ints = place.keys_of(cache.topology, pod_class, view, masks).copy()
        wishes = cache.topology.preference(pod_class, key != NEVER)

        def scored(at: int) -> Scored:
            parts = view.parts(at)
            if wishes is not None:
                parts = (*parts, ("pod affinity", float(PREFERENCE_WEIGHT * wishes[at])))
            return Scored(fleet.node(at).spec.name, parts)

        if key[node] == NEVER:
            return None, None
        best = scored(node)
        key[node] = NEVER
        second = int(key.argmax())
        return best, scored(second) if key[second] != NEVER else None

    def _changes(self, row: int) -> tuple[ChangeOption, ...]:
        """The smallest change of all, and those of a kind that are others."""
        found: list[ChangeOption] = []
        tables = Tables(self.fleet, row, self.cache)
        for about, may in _KINDS:
            one = why_search.find(tables, may)
            if one.change is not None and all(one.change != other.change for other in found):
                found.append(ChangeOption(about, one.change, one.proved))
        return tuple(found)

    def _moves(self, rows: Sequence[int], said: Decided) -> Moves | None:
        if said.evicted or (said.wait and said.wait.nominated):
            return None
        limits = self.settings.defrag
        policy = self.settings.policy if limits else ANY_POLICY
        return why_moves.find(self.snapshot, rows, self.cache, policy, limits, self._pending)

    # ---- gangs ----

    def of_gang(self, key: str) -> GangReceipt:
        """A whole gang."""
        fleet, gang = self.fleet, self.snapshot.gangs[key]
        members = list(fleet.gang_pods.get(key, ()))
        pending = [row for row in members if fleet.pod(row).node < 0]
        bound = [row for row in members if fleet.pod(row).node >= 0]
        made = GangReceipt(key, gang.source, WAITS, "it has no pods", gang.min_member, len(bound), len(pending))
        if not pending:
            return self._stands(replace(made, state=RUNS, verdict="it runs"), bound) if bound else made
        held = {row: why_not for row in pending if (why_not := self._held(fleet.pod(row)))}
        ready = [row for row in pending if row not in held]
        if not ready:
            return replace(made, state=HELD, verdict=next(iter(held.values())))
        said = decided(self.snapshot, self.settings, self.cache, ready)
        made = replace(made, ahead=said.ahead, evicted=said.evicted)
        if said.binds:
            bind(fleet, said.binds)
            there = [row for row in members if fleet.pod(row).node >= 0]
            return self._stands(replace(made, state=FITS, verdict=said.binds[0].reason.verdict), there)
        _, out = self._out(ready[0])
        return replace(
            made,
            verdict=said.reason.verdict,
            room=self._room(key, ready),
            member=fleet.pod(ready[0]).key,
            out=out,
            nominated=(said.wait.nominated,) if said.wait and said.wait.nominated else (),
            changes=self._gang_changes(key, ready),
            moves=self._moves(ready, said),
        )

    def _gang_changes(self, key: str, ready: Sequence[int]) -> tuple[GangOption, ...]:
        found: list[GangOption] = []
        search = why_gang.GangChangeSearch(self.snapshot, key, ready, self.cache)
        for about, may in _GANG_KINDS:
            one = search.find(may)
            if one.change is not None and all(one.change != other.change for other in found):
                found.append(GangOption(about, one.change, one.proved))
        return tuple(found)

    def _stands(self, made: GangReceipt, bound: Sequence[int]) -> GangReceipt:
        """The receipt with where these pods of the gang are."""
        fleet = self.fleet
        on: dict[str, int] = {}
        for row in bound:
            name = fleet.node(fleet.pod(row).node).spec.name
            on[name] = on.get(name, 0) + 1
        there = [(fleet.pod(row).node, fleet.pod(row).devices) for row in bound]
        found = why_gang.standing(self.snapshot, made.gang, [], self.cache)
        level, domain = found.tree.stands_in(found.levels) if found else ("", "")
        communication = evidence_of(fleet, there)
        return replace(made, level=level, domain=domain, on=tuple(sorted(on.items())), communication=communication)

    def _room(self, key: str, ready: Sequence[int]) -> tuple[LevelRoom, ...]:
        """What the fullest domain of each level holds, for the gang and each part that has a rule."""
        found = why_gang.standing(self.snapshot, key, ready, self.cache)
        if found is None:
            return ()
        tree, levels = found.tree, found.levels
        rooms = []
        for number, group in enumerate(tree.groups):
            short = int(found.limits.held(number, None)[0]) < tree.need(number)
            if number and group.required < 0 and not short:
                continue
            for level in (None, *range(len(levels.keys))):
                held = found.limits.held(number, level)
                if not len(held):
                    continue
                best = int(held.argmax())
                name = levels.name(level, best) if level is not None else ""
                rooms.append(
                    LevelRoom(
                        group.name,
                        levels.keys[level] if level is not None else why_gang.CLUSTER,
                        tree.need(number),
                        name,
                        int(held[best]),
                        level is not None and level == group.required,
                    )
                )
        return tuple(rooms)
