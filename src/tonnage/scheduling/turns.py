"""Each pod's and gang's turn within one decision under one policy: bound where it fits, or the reason why not.

When all have had their turn, the unschedulable ones are looked at once more: where pods that were bound a moment ago
can stand elsewhere, they do (:mod:`tonnage.scheduling.exchange`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from tonnage.decisions import Alternative, Bind, Reason, Ref, Scalar
from tonnage.fleet.asks import worth
from tonnage.fleet.snapshot import Snapshot
from tonnage.scheduling.assumed import Assumed
from tonnage.scheduling.cache import Cache
from tonnage.scheduling.defrag import DefragLimits
from tonnage.scheduling.exchange import Exchange, Seat
from tonnage.scheduling.gangs.queue import MADE_FOR_IT, Gangs
from tonnage.scheduling.order import PlacementPriorities, Unit
from tonnage.scheduling.preempt import Preemptor
from tonnage.scheduling.refusals import Refusals
from tonnage.scheduling.trial import Trial
from tonnage.scheduling.view import NEVER, TIE_BITS, Ints, ShapeView

BEST = "best node"
NO_NODE = np.array(NEVER)
"""NEVER as arrays of keys are compared with it fastest."""
EXCHANGES = 3
"""This many times, unschedulable ones are looked at again after others have been placed elsewhere for them."""
_BUDGETS_SHOWN = 5
"""Of so many budgets the receipt's sentence has the names; all of them are in its evidence."""


Seated: TypeAlias = tuple[tuple[int, int, int], ...]
"""(priority, thousandths of devices, pods) that are bound, the highest priority first: of two decisions about the same
pods the greater one places more."""


@dataclass(frozen=True, slots=True)
class TurnSettings:
    """What of the settings of a decision counts for a turn: see :class:`tonnage.scheduling.place.Settings`.

    ``exchange``: place pods of this decision elsewhere for unschedulable ones; only where without that no fewer are
    placed than ``least``."""

    policy: str
    receipts: bool = True
    preemption: bool = True
    respect_budgets: bool = True
    defrag: DefragLimits | None = None
    exchange: bool = False
    least: Seated = ()


class Turns:
    """Each unit's turn: where room was made for it, else on the best node or with its gang. Inside a what-if only.

    ``rows``: the pending pods of the decision, in the order of their turns. ``binds``: what is bound so far, by pod
    row."""

    def __init__(self, snapshot: Snapshot, cache: Cache, how: TurnSettings, rows: Sequence[int]) -> None:
        lives = dict(snapshot.lives)
        snapshot = replace(snapshot, lives=lives)  # who is chosen to be evicted leaves from then on, for all who ask
        self._fleet = snapshot.fleet
        self._how = how
        self._rows = rows
        self._priorities = PlacementPriorities(snapshot)
        self._refusals = Refusals(cache.topology)
        assumed = Assumed(snapshot.fleet)
        self._trial = Trial(snapshot, cache, how.policy, assumed)
        self._gangs = Gangs(snapshot, cache, rows, assumed, receipts=how.receipts)
        self._exchanges = EXCHANGES if how.exchange else 0
        self._own: dict[int, None] = {}
        """Pods on the node that the policy chose for them, in the order of their turns."""
        self._refs: dict[int, Ref] = {}
        """Nodes by row, as binds name them."""
        self._chose = False
        """Whether any of them could have stood elsewhere."""
        self.binds: dict[int, Bind] = {}
        self.preemptor = Preemptor(
            snapshot,
            self._trial,
            rows,
            lives,
            preemption=how.preemption,
            respect_budgets=how.respect_budgets,
            defrag=how.defrag,
        )

    def take(self) -> list[Unit]:
        """Everybody's turn; what of them waits."""
        waiting: list[Unit] = []
        for band in self.preemptor.bands():
            waiting += band
            again = True
            while again:  # a pod placed later may satisfy the pod affinity of one refused earlier
                found, waiting = self._round(waiting)
                again = (found and not self._refused_for_good) or self._exchange(waiting) or self._make_room(waiting)
                waiting = [unit for unit in waiting if unit.rows[0] not in self.binds]  # placed by an exchange
        return waiting

    def reason(self, unit: Unit, row: int) -> Reason:
        """Why the pod of the unit waits, and which budgets keep from it the room of others."""
        reason = self._gangs.reason(row) or self._refusals.reason(self._fleet.pod_class(row))
        budgets = self.preemptor.guarded_by(unit)
        if not budgets:
            return reason
        shown = budgets[:_BUDGETS_SHOWN]
        names = ", ".join(shown) + (f" and {more} more" if (more := len(budgets) - len(shown)) else "")
        text = f"{reason.verdict}; preemption: blocked by PodDisruptionBudget{'s' * (len(budgets) > 1)} {names}"
        return Reason(text, (*reason.evidence, ("budgets", ", ".join(budgets))), reason.alternatives)

    @property
    def chose(self) -> bool:
        """Whether another policy could have decided otherwise: of some pod there was more than one node to choose, or
        more than one device to share; or room was made, for which pods may be moved."""
        made = self._how.defrag is not None or self.preemptor.evictions or self.preemptor.nominated()
        return bool(self._own) and (self._chose or bool(made))

    def seated(self) -> Seated:
        """How much is bound so far, as it was asked for: what a pod is worth does not depend on where it stands."""
        priority, fleet = self._priorities.of_pod, self._fleet
        memory, milli = int(fleet.cards.memory.max(initial=0)), dict[int, int]()
        found = {priority(pod): [0, 0] for pod in fleet.pods_in(self._rows)}
        (only, *more) = found or [0]
        for pod in fleet.pods_in(self.binds):
            one = found[priority(pod) if more else only]
            each = milli.get(pod.class_id)
            if each is None:
                shape = fleet.classes.shapes[fleet.classes.rows[pod.class_id].shape]
                each = milli[pod.class_id] = worth(shape.ask, memory)
            one[0] += each
            one[1] += 1
        return tuple((priority, devices, pods) for priority, (devices, pods) in sorted(found.items(), reverse=True))

    def _round(self, queue: Sequence[Unit]) -> tuple[bool, list[Unit]]:
        """One turn for each of these: whether any is bound, and what of them waits. Room that is coming is held for who
        waits from those who come after."""
        before = len(self.binds)
        waiting: list[Unit] = []
        self.preemptor.lift()
        quiet = self.preemptor.quiet
        for unit in queue:
            if quiet and not unit.gang:
                if not self._alone(unit, lasting=True):
                    waiting.append(unit)
                continue
            self.preemptor.keep_for_others(unit)
            found = self._take(unit)
            if found and self.preemptor.stands_elsewhere(unit):
                self._reopen()
            if rest := unit.pending(self._fleet):
                waiting.append(rest)
                self.preemptor.hold(rest)
        return len(self.binds) > before, waiting

    @property
    def _refused_for_good(self) -> bool:
        """Whether no pod that is placed can help one that was refused."""
        return self._refusals.for_good and self._gangs.refused_for_good

    def _make_room(self, waiting: Sequence[Unit]) -> bool:
        """See to it that there will be room for those who wait; whether room was given up that others may have now."""
        given_up = self.preemptor.preempt(waiting)
        if given_up:
            self._reopen()
        return given_up

    def _exchange(self, waiting: Sequence[Unit]) -> bool:
        """Let unschedulable pods be placed by placing others of this decision elsewhere; whether any does now."""
        if not (self._exchanges and self.chose and waiting):
            return False
        if self._how.least and self.seated() < self._how.least:
            return False  # who had one node to stand on when there was more room has no other now
        left = [unit.rows[0] for unit in waiting if not (unit.gang or self.preemptor.is_nominated(unit))]
        found = Exchange(self._trial, self._own).seat(left) if left else []
        self._exchanges -= 1
        for seat in found:
            self._own[seat.row] = None
            before = self.binds.get(seat.row)
            stays = before is not None and before.node.name == self._fleet.node(seat.node).spec.name
            self._bind(seat.row, before.reason if before is not None and stays else self._why_there(seat))
        if found:
            self._reopen()
        return bool(found)

    def _why_there(self, seat: Seat) -> Reason:
        verdict = "placed elsewhere, so that another pod fits too" if seat.moved else "others were placed elsewhere"
        if not self._how.receipts:
            return Reason(verdict)
        score = self._trial.view(seat.row).score(seat.key)
        return Reason(verdict, (("score", score), ("for" if seat.moved else "moved", seat.about)))

    def _reopen(self) -> None:
        self._refusals.reopen()
        self._gangs.reopen()

    def _take(self, unit: Unit) -> bool:
        """Bind what of the unit fits now; whether any of it is bound."""
        if not self.preemptor.is_nominated(unit):
            return self._anywhere(unit, lasting=True)
        found = self._where_room_was_made(unit)
        if found and not unit.gang:
            return True
        with self.preemptor.leaving_claims(unit) as others:
            return self._anywhere(unit, lasting=not others) or found

    def _anywhere(self, unit: Unit, *, lasting: bool) -> bool:
        """Bind what of the unit fits where no room is made for it."""
        if unit.gang:
            binds = self._gangs.place(unit.gang, len(self.binds), lasting=lasting)
            for bind in binds:
                self.binds[self._fleet.pod_by_key[bind.pod.namespace, bind.pod.name]] = bind
            return bool(binds)
        return self._alone(unit, lasting=lasting)

    def _where_room_was_made(self, unit: Unit) -> bool:
        key = self._trial.keys(unit.rows[0]).copy()
        places = self.preemptor.seat(unit)
        if places is None:
            return False
        if unit.gang:
            reason = self._gangs.made_for(unit.gang)
        else:
            view = self._trial.view(unit.rows[0])
            reason = Reason(MADE_FOR_IT, _evidence(view, key, places[0][1]) if self._how.receipts else ())
        for row, _ in places:
            self._bind(row, reason)
        return bool(places)

    def _alone(self, unit: Unit, *, lasting: bool) -> bool:
        """Bind a pod on its own to its best node, or note why there is none."""
        (row,) = unit.rows
        pod_class = self._fleet.pod_class(row)
        if self._refusals.stands(pod_class, len(self.binds)):
            return False
        view, key = self._trial.looked(pod_class)
        best = int(key.argmax())
        score = key.item(best)
        if score == NEVER:
            self._refusals.add(pod_class, self._trial.refusal(pod_class), len(self.binds), lasting=lasting)
            return False
        self._chose = self._chose or view.shape.ask.shares or _fit(key) > 1
        reason = _receipt(view, key, best, score) if self._how.receipts else Reason(BEST)
        self._trial.seat(row, best, view)
        self._own[row] = None
        self._bind(row, reason, unit.about)
        return True

    def _bind(self, row: int, reason: Reason, about: Ref | None = None) -> None:
        """Note that the pod is bound. ``about`` names it, where that is at hand."""
        pod = self._fleet.pod(row)
        at = self._refs.get(pod.node)
        if at is None:
            node = self._fleet.node(pod.node).spec
            at = self._refs[pod.node] = Ref("Node", node.name, uid=node.uid)
        self.binds[row] = Bind(about or pod.spec.ref, at, reason, pod.devices)


def _fit(key: Ints) -> int:
    """How many nodes are feasible for the pod."""
    return int(np.count_nonzero(key != NO_NODE))


def _evidence(view: ShapeView, key: Ints, node: int) -> tuple[tuple[str, Scalar], ...]:
    return ("nodes_that_fit", _fit(key)), ("score", view.score(key.item(node)))


def _receipt(view: ShapeView, key: Ints, best: int, winner: int) -> Reason:
    fit, score = _fit(key), view.score(winner)
    evidence = ("nodes_that_fit", fit), ("score", score)
    if fit == 1:
        return Reason(BEST, evidence)
    key[best] = NEVER
    second = int(key.argmax())
    key[best] = winner
    after = key.item(second)
    lower = after >> TIE_BITS < winner >> TIE_BITS
    why = "lower score" if lower else "same score, later name"
    other = Alternative(view.fleet.node(second).spec.name, why, view.score(after) if lower else score)
    return Reason(BEST, evidence, (other,))
