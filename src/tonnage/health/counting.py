"""How many pods a template stands for, and how many of them only run together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tonnage.health.inventory import content
from tonnage.objects import core, leaderworker, training
from tonnage.objects.base import KubeObject
from tonnage.objects.templates import PodTemplate
from tonnage.workloads.replicas import replicas_of


class Count(NamedTuple):
    """``pods``: at a time, in all. ``together``: of each group that computes as one and serves nobody before all of its
    pods are there; 0 where each pod is of use alone."""

    pods: int
    together: int = 0


ONE = Count(1)
_MOST = 1_000_000
"""More pods than this are counted as this many."""


def count(one: KubeObject, template: PodTemplate, objects: Iterable[KubeObject]) -> Count:
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
    """Whether the pods can be listed: no numbers are so large that a list of them would fill the memory."""
    return at_most(one)[0] <= _MOST


def at_most(one: KubeObject) -> tuple[int, str]:
    """More pods than the object makes at no time, by the numbers that are written in it alone, and the field of the
    largest of them."""
    return _bound(content(one).get("spec"), "spec")


def _bound(value: object, path: str) -> tuple[int, str]:
    """Numbers beside each other are of the same pods, but for hosts; those within each other multiply."""
    if isinstance(value, list):
        found = [_bound(inner, f"{path}[{n}]") for n, inner in enumerate(value)]
        return max(1, sum(number for number, _ in found if number > 1)), max(found, default=(1, ""))[1]
    if not isinstance(value, dict):
        return 1, ""
    own = [(n, f"{path}.{key}") for key in _NUMBERS if isinstance(n := value.get(key), int)]
    inner = [_bound(one, f"{path}.{key}") for key, one in value.items() if isinstance(one, dict | list)]
    numbers = [
        max(own, default=(1, "")),
        max(inner, default=(1, "")),
        (_whole(value.get("numOfHosts")), f"{path}.numOfHosts"),
    ]
    product = 1
    for number, _ in numbers:
        product *= max(1, number)
    return product, max(numbers)[1]


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 1


_NUMBERS = ("replicas", "parallelism", "completions", "size", "numNodes", "minReplicas", "minReplicaCount")
