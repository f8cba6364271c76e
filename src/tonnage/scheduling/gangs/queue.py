"""The gangs of one scheduling decision: each is planned when its turn comes, and bound all or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tonnage.decisions import Bind, Reason, Ref, Scalar
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Conflict
from tonnage.scheduling.assumed import Assumed
from tonnage.scheduling.cache import Cache
from tonnage.scheduling.communication import evidence_of
from tonnage.scheduling.gangs import plan as gangs
from tonnage.scheduling.gangs.plan import GangPlan, NoPlan, PodPlace
from tonnage.scheduling.policies import ANY_POLICY
from tonnage.scheduling.refusals import Refusal
from tonnage.scheduling.seat import seat
from tonnage.scheduling.view import NEVER

MADE_FOR_IT = "room was made for it on this node"


class Gangs:
    """``pods``: rows of the pending pods of this decision; those of gangs are picked out. ``assumed``: those pods that
    are not where the fleet holds them. Inside a what-if only."""

    def __init__(
        self, snapshot: Snapshot, cache: Cache, pods: Sequence[int], assumed: Assumed, *, receipts: bool
    ) -> None:
        self._snapshot = snapshot
        self._fleet = snapshot.fleet
        self._cache = cache
        self._assumed = assumed
        self._receipts = receipts
        self._pods: dict[str, list[int]] = {}
        for row, pod in zip(pods, self._fleet.pods_in(pods), strict=True):
            gang = pod.spec.gang
            if gang:
                self._pods.setdefault(gang, []).append(row)
        self._waits: dict[str, Refusal] = {}

    def place(self, key: str, placed: int, *, lasting: bool) -> list[Bind]:
        """Bind what the gang's plan says (inside the what-if); nothing where there is none, or nothing more to bind.

        ``placed``: how many pods have been bound so far. ``lasting``: where the gang has to wait, it need not be asked
        again until room is given up or pods that its affinity selects come."""
        known = self._waits.get(key)
        if known is not None and known.stands(placed):
            return []
        pods = [row for row in self._pods[key] if self._fleet.pod(row).node < 0]
        revocable = self._revocable(pods)
        found = gangs.plan(self._snapshot, key, pods, self._cache) if pods else NoPlan(Reason(""))
        if isinstance(found, GangPlan) and self._assumed and revocable:
            found = self._without_assumed(found)
        binds = self._bind(found) if isinstance(found, GangPlan) else []
        why = found.reason if isinstance(found, NoPlan) else self._no_more(key, len(pods) - len(binds))
        self._waits[key] = Refusal.of(why, placed + len(binds), revocable=revocable, lasting=lasting)
        return binds

    @property
    def refused_for_good(self) -> bool:
        """Whether nothing that is bound later lets a gang that waits in."""
        return all(refusal.for_good for refusal in self._waits.values())

    def reopen(self) -> None:
        """Room was given up, so that no gang is refused for good any more."""
        self._waits = {key: refusal.reopened() for key, refusal in self._waits.items()}

    def _without_assumed(self, plan: GangPlan) -> GangPlan | NoPlan:
        """As much of the plan as holds without those who are not there yet."""
        good = 0
        with self._assumed.away():
            for place in (*plan.minimum, *plan.extra):
                pod_class = self._fleet.pod_class(place.pod)
                view = self._cache.view(pod_class, ANY_POLICY)
                masks = self._cache.topology.masks(pod_class, view)
                if view.key[place.node] == NEVER or not all(mask[place.node] for _, mask in masks):
                    break
                self._seat(place)
                good += 1
        if good < len(plan.minimum):
            return NoPlan(
                Reason(f"gang {plan.gang} waits for the pods that its pod affinity requires", (("gang", plan.gang),))
            )
        return replace(plan, extra=plan.extra[: good - len(plan.minimum)])

    def reason(self, pod_row: int) -> Reason | None:
        """Why the pod waits; None for a pod of no gang."""
        gang = self._fleet.pod(pod_row).spec.gang
        return self._waits[gang].reason if gang else None

    def _no_more(self, key: str, left: int) -> Reason:
        evidence = (("gang", key), ("minimum", self._snapshot.gangs[key].min_member), ("waiting", left))
        return Reason(f"gang {key} has its minimum; no feasible node has room for more of its pods", evidence)

    def _revocable(self, pods: Sequence[int]) -> bool:
        """Whether pods placed later can make room for one of them."""
        classes = {self._fleet.pod(row).class_id for row in pods}
        return any(self._cache.topology.asks_for_others(self._fleet.classes.rows[one]) for one in classes)

    def _bind(self, plan: GangPlan) -> list[Bind]:
        """The minimum; then what follows it as far as it goes."""
        done = [(place, self._seat(place)) for place in plan.minimum]
        for place in plan.extra:
            try:
                done.append((place, self._seat(place)))
            except Conflict:
                break
        reason = self._receipt(plan)
        return [self._decision(place, devices, reason) for place, devices in done]

    def _seat(self, place: PodPlace) -> tuple[int, ...]:
        return seat(self._fleet, place.pod, place.node, place.devices)

    def _receipt(self, plan: GangPlan) -> Reason:
        return self._placed("placed with its gang", plan.gang, ("level", plan.level), ("domain", plan.domain))

    def made_for(self, key: str) -> Reason:
        """The receipt of a gang that stands where room was made for it."""
        return self._placed(MADE_FOR_IT, key)

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

    def _decision(self, place: PodPlace, devices: tuple[int, ...], reason: Reason) -> Bind:
        pod, node = self._fleet.pod(place.pod).spec, self._fleet.node(place.node).spec
        return Bind(pod.ref, Ref("Node", node.name, uid=node.uid), reason, devices)
