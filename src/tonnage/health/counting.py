"""How many pods a template stands for, and how many of them only run together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tonnage.health.inventory import content
from tonnage.objects import core, leaderworker, training
from tonnage.objects.base import KubeObject
from tonnage.objects.templates import Template
from tonnage.workloads.replicas import replicas_of


class Count(NamedTuple):
    """``pods``: at a time, in all. ``together``: of each group that computes as one and serves nobody before all of its
    pods are there; 0 where each pod is of use alone."""

    pods: int
    together: int = 0


ONE = Count(1)
_MOST = 1_000_000
"""More pods than this are counted as so many."""


def count(one: KubeObject, template: Template, objects: Iterable[KubeObject]) -> Count:
    """Of a template of the object, when the object is made; autoscalers may want more later."""
    if isinstance(one, core.Pod):
        return ONE
    if isinstance(one, leaderworker.LeaderWorkerSet):
        made = one.spec.leader_worker_template
        leads = "leaderTemplate" in template.field
        each = 1 if leads else made.size - (made.leader_template is not None)
        return Count(one.spec.replicas * each, each)
    made_here = [r for r in replicas_of(one, objects) if not r.turn] if _few(one) else []
    if made_here:
        alike = sum(replica.spec.containers == template.spec.containers for replica in made_here)
        return Count(alike, alike if isinstance(one, training.KubeflowJob) else 0)
    spec = content(one).get("spec")
    written = spec.get("replicas", 1) if isinstance(spec, dict) else 1
    return Count(min(written, _MOST) if isinstance(written, int) and written >= 0 else 1)


def _few(one: KubeObject) -> bool:
    """Whether the pods can be listed: no number in the object is so large that a list of them would fill the memory."""
    return _largest(content(one).get("spec")) <= _MOST


def _largest(value: object) -> int:
    if isinstance(value, dict):
        listed = (inner for key, inner in value.items() if key in _NUMBERS or isinstance(inner, dict | list))
        return max(map(_largest, listed), default=0)
    if isinstance(value, list):
        return max(map(_largest, value), default=0)
    return value if isinstance(value, int) else 0


_NUMBERS = ("replicas", "parallelism", "completions", "size", "numNodes", "numOfHosts", "minReplicas")
