"""What was refused within one decision, and for how long that stands."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tonnage.decisions import Reason
from tonnage.fleet.classes import PodClass
from tonnage.scheduling.topology import TopologyFilter

FOR_GOOD, NOT_AT_ALL = None, -1


@dataclass(frozen=True, slots=True)
class Refusal:
    """``as_of``: it stands as long as this many pods are bound in the decision; or FOR_GOOD; or NOT_AT_ALL."""

    reason: Reason
    as_of: int | None

    @classmethod
    def of(cls, reason: Reason, placed: int, *, revocable: bool, lasting: bool) -> Refusal:
        """Given when ``placed`` pods were bound. ``revocable``: pods bound later can satisfy the pod affinity.
        ``lasting``: no room was held that may be given up."""
        return cls(reason, NOT_AT_ALL if not lasting else placed if revocable else FOR_GOOD)

    def stands(self, placed: int) -> bool:
        """Whether it holds now that ``placed`` pods are bound: bound pods take room, so all else can only get worse."""
        return self.as_of in (FOR_GOOD, placed)

    @property
    def for_good(self) -> bool:
        """Whether it holds whatever is bound later."""
        return self.as_of is FOR_GOOD

    def reopened(self) -> Refusal:
        """It after room was given up."""
        return replace(self, as_of=NOT_AT_ALL)


class Refusals:
    """The classes of unschedulable pods."""

    def __init__(self, topology: TopologyFilter) -> None:
        self._topology = topology
        self._by_class: dict[int, Refusal] = {}

    def add(self, pod_class: PodClass, reason: Reason, placed: int, *, lasting: bool) -> None:
        """No node is feasible for the class now."""
        revocable = self._topology.asks_for_others(pod_class)
        self._by_class[pod_class.id] = Refusal.of(reason, placed, revocable=revocable, lasting=lasting)

    def reopen(self) -> None:
        """Room was given up, so that no class is refused for good any more."""
        self._by_class = {number: refusal.reopened() for number, refusal in self._by_class.items()}

    @property
    def for_good(self) -> bool:
        """Whether all hold whatever is bound later."""
        return all(refusal.for_good for refusal in self._by_class.values())

    def stands(self, pod_class: PodClass, placed: int) -> bool:
        """Whether the class is known to be refused still."""
        known = self._by_class.get(pod_class.id)
        return known is not None and known.stands(placed)

    def reason(self, pod_class: PodClass) -> Reason:
        """Why it was refused last."""
        return self._by_class[pod_class.id].reason
