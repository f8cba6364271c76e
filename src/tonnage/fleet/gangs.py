"""Gangs: pods that are worth something only together, and where they want to stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopologyRule:
    """Where the pods of a group stand. Levels are node label keys (``topology.kubernetes.io/zone``, a rack's, …).

    ``required``: all in one domain of this level. ``preferred``: in one domain of the lowest level, from this one
    upward, that holds them. ``unconstrained``: anywhere, counted by the topology all the same. ``slice_size`` pods at a
    time stand in one domain of level ``slice_required``. ``topology``: the object that orders the levels; empty: the
    order that the nodes' well-known labels have. ``led``: who creates the pods may wait with all but the first until
    that is bound.
    """

    required: str = ""
    preferred: str = ""
    unconstrained: bool = False
    slice_size: int = 0
    slice_required: str = ""
    topology: str = ""
    led: bool = False


ANYWHERE = TopologyRule()


@dataclass(frozen=True, slots=True)
class SubGroup:
    """A part of a gang with a minimum and a place of its own. ``parent``: the subgroup that it is part of, if any."""

    name: str
    min_member: int
    rule: TopologyRule = ANYWHERE
    parent: str = ""


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that are bound all or none: at least ``min_member``, and in each subgroup at least its own minimum.

    ``key``: namespace/name, unique among gangs of all ``source`` kinds (``KAI PodGroup``, ``Job``, …). Pods beyond the
    minimum may come and go one by one. ``preemptible``: others may take its room by priority.
    """

    key: str
    min_member: int
    subgroups: tuple[SubGroup, ...] = ()
    rule: TopologyRule = ANYWHERE
    source: str = ""
    priority: int = 0
    created_ns: int = 0
    preemptible: bool = True

    @property
    def minima(self) -> dict[str, int]:
        """How many pods the gang (``""``) and each subgroup must have."""
        return {"": self.min_member} | {one.name: one.min_member for one in self.subgroups}

    @property
    def counted_in(self) -> dict[str, tuple[str, ...]]:
        """By a pod's subgroup: where it counts, which is the gang, the subgroup, and all that this is part of. A pod of
        none, or of one that the gang does not have, counts in the gang alone."""
        parents = {one.name: one.parent for one in self.subgroups}
        found: dict[str, tuple[str, ...]] = {"": ("",)}
        for name in parents:
            groups, group = [""], name
            while group in parents and group not in groups:
                groups.append(group)
                group = parents[group]
            found[name] = tuple(groups)
        return found

    def is_whole(self, subgroups: Iterable[str]) -> bool:
        """Whether one pod in each of these subgroups (a name may stand often) reaches all minima. A subgroup counts the
        pods of those that name it as parent."""
        counted_in = self.counted_in
        members: Counter[str] = Counter()
        for name, count in Counter(subgroups).items():
            for group in counted_in.get(name, ("",)):
                members[group] += count
        return all(members[group] >= least for group, least in self.minima.items())
