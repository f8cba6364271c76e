"""Gangs: pods that are worth something only together, and where they want to stand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopologyRule:
    """Where the pods of a group stand. Levels are node label keys (``topology.kubernetes.io/zone``, a rack's, …).

    ``required``: all in one domain of this level. ``preferred``: in one domain of the lowest level, from this one
    upward, that holds them. ``unconstrained``: anywhere, counted by the topology all the same. ``slice_size`` pods at a
    time stand in one domain of level ``slice_required``. ``topology``: the object that orders the levels; empty: the
    order that the nodes' well-known labels have.
    """

    required: str = ""
    preferred: str = ""
    unconstrained: bool = False
    slice_size: int = 0
    slice_required: str = ""
    topology: str = ""


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
