"""The gangs of one scheduling decision: each is planned when its turn comes, and bound whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tonnage.decisions import Bind, Reason, Ref, Scalar
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Conflict
from tonnage.scheduling import device_choice
from tonnage.scheduling.communication import evidence_of
from tonnage.scheduling.gangs import plan as gangs
from tonnage.scheduling.gangs.plan import NoPlan, Place, Plan

if TYPE_CHECKING:
    from tonnage.scheduling.place import Cache


class Gangs:
    """``pods``: rows of the pending pods of this decision; those of gangs are picked out. Inside a what-if only."""

    def __init__(self, snapshot: Snapshot, cache: Cache, pods: Sequence[int], *, receipts: bool) -> None:
        self._snapshot = snapshot
        self._fleet = snapshot.fleet
        self._cache = cache
        self._receipts = receipts
        self._pods: dict[str, list[int]] = {}
        for row in pods:
            gang = self._fleet.pod(row).spec.gang
            if gang:
                self._pods.setdefault(gang, []).append(row)
        self._waits: dict[str, tuple[Reason, int | None]] = {}  # (why, as of which journal entry; None: for good)

    def place(self, key: str) -> list[Bind]:
        """Bind what the gang's plan says (inside the what-if); nothing where there is none, or nothing more to bind."""
        known = self._waits.get(key)
        if known is not None and known[1] in (None, self._fleet.journal.end):
            return []
        pods = [row for row in self._pods[key] if self._fleet.pod(row).node < 0]
        found = gangs.plan(self._snapshot, key, pods, self._cache) if pods else NoPlan(Reason(""))
        binds = self._bind(found) if isinstance(found, Plan) else []
        why = found.reason if isinstance(found, NoPlan) else self._no_more(key, len(pods) - len(binds))
        self._waits[key] = (why, self._fleet.journal.end if self._revocable(pods) else None)
        return binds

    def reason(self, pod_row: int) -> Reason | None:
        """Why the pod waits; None for a pod of no gang."""
        gang = self._fleet.pod(pod_row).spec.gang
        return self._waits[gang][0] if gang else None

    def _no_more(self, key: str, left: int) -> Reason:
        evidence = (("gang", key), ("minimum", self._snapshot.gangs[key].min_member), ("waiting", left))
        return Reason(f"gang {key} has its minimum; there is no room for more of it where it may stand", evidence)

    def _revocable(self, pods: Sequence[int]) -> bool:
        """Whether pods placed later can make room: where company or even spread is asked for."""
        classes = {self._fleet.pod(row).class_id for row in pods}
        rules = [self._cache.topology.rules(self._fleet.classes.rows[class_id]) for class_id in classes]
        return any(one.spread or one.affinity for one in rules)

    def _bind(self, plan: Plan) -> list[Bind]:
        """All of the minimum or nothing; then what follows it as far as it goes."""
        done: list[tuple[Place, tuple[int, ...]]] = []
        try:
            for place in plan.minimum:
                done.append((place, self._bound(place)))
        except Conflict:
            for place, _ in reversed(done):
                self._fleet.unbind(place.pod)
            raise
        for place in plan.extra:
            done.append((place, self._bound(place)))
        reason = self._receipt(plan)
        return [self._decision(place, devices, reason) for place, devices in done]

    def _bound(self, place: Place) -> tuple[int, ...]:
        devices = place.devices or device_choice.for_pod(self._fleet, place.pod, place.node)
        return self._fleet.bind(place.pod, place.node, devices)

    def _receipt(self, plan: Plan) -> Reason:
        return self._placed("placed with its gang", plan.gang, ("level", plan.level), ("domain", plan.domain))

    def made_for(self, key: str) -> Reason:
        """The receipt of a gang that stands where room was made for it."""
        return self._placed("room was made for it on this node", key)

    def _placed(self, verdict: str, key: str, *where: tuple[str, Scalar]) -> Reason:
        if not self._receipts:
            return Reason(verdict)
        members = [self._fleet.pod(row) for row in self._fleet.gang_pods[key]]
        there = [(pod.node, pod.devices) for pod in members if pod.node >= 0]
        gang = self._snapshot.gangs.get(key)
        evidence: tuple[tuple[str, Scalar], ...] = (
            ("gang", key),
            ("pods", len(there)),
            *((("minimum", gang.min_member),) if gang else ()),
            *where,
            ("nodes", len({node for node, _ in there})),
            *evidence_of(self._fleet, there),
        )
        return Reason(verdict, evidence)

    def _decision(self, place: Place, devices: tuple[int, ...], reason: Reason) -> Bind:
        pod, node = self._fleet.pod(place.pod).spec, self._fleet.node(place.node).spec
        return Bind(pod.ref, Ref("Node", node.name, uid=node.uid), reason, devices)
