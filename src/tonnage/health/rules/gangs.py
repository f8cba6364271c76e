"""Groups of pods that are bound all or none, and never are: too few pods, or no group of that name."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tonnage.decisions import Ref
from tonnage.health.blocker import UNSCHEDULABLE, Blocker
from tonnage.health.inventory import DEFAULT
from tonnage.health.setting import Setting
from tonnage.objects.base import KubeObject
from tonnage.workloads.contradictions import NeverStarts, never_start


def gangs(setting: Setting) -> Iterator[Blocker]:
    """Minimums above the pods that there are, and pods that name a group that does not exist."""
    for one in never_start(_in_namespace(obj) for obj in setting.objects):
        yield _absent(one) if one.missing else _too_few(one)


def _in_namespace(obj: KubeObject) -> KubeObject:
    """The object with the namespace that it gets where it names none: groups and pods find each other by it."""
    if obj.namespace:
        return obj
    metadata = msgspec.structs.replace(obj.metadata, namespace=DEFAULT)
    return msgspec.structs.replace(obj, metadata=metadata).remember(obj.origin, obj.lines, obj.written)


def _too_few(one: NeverStarts) -> Blocker:
    return Blocker(
        "gang-below-minimum",
        UNSCHEDULABLE,
        Ref(one.owner.kind, one.owner.name, one.owner.namespace),
        one.problem.where,
        f"{one.problem.message}: all of its pods wait",
        f"set it to {one.problem.hint}, or make more pods",
        "Unschedulable",
        one.problem.message,
    )


def _absent(one: NeverStarts) -> Blocker:
    return Blocker(
        "gang-missing",
        UNSCHEDULABLE,
        Ref(one.owner.kind, one.owner.name, one.owner.namespace),
        one.problem.where,
        one.problem.message,
        one.problem.hint,
        "Unschedulable",
        one.problem.message,
    )
