"""What workloads refer to, found without going through everything that a cluster has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from tonnage.live.group_kinds import REFERRED
from tonnage.objects.base import KubeObject
from tonnage.workloads.membership import GangCandidate, asked, maker_key
from tonnage.workloads.replicas import WORKLOADS, replicas_of

_Key: TypeAlias = tuple[type[KubeObject], str, str]
_EVERYBODYS = tuple(type_ for _, type_ in REFERRED)


class References:
    """The objects that are there: PriorityClasses, runtimes and topologies, and by their names groups and workloads."""

    def __init__(self) -> None:
        self._everybodys: dict[_Key, KubeObject] = {}
        self._named: dict[str, dict[_Key, KubeObject]] = {}

    def see(self, one: KubeObject, *, there: bool) -> None:
        """The object was added, changed or, where it is not ``there``, deleted."""
        key = (type(one), one.namespace, one.name)
        kept = self._everybodys if isinstance(one, _EVERYBODYS) else self._named.setdefault(_name_of(one), {})
        if there:
            kept[key] = one
        else:
            kept.pop(key, None)
            if not self._named.get(_name_of(one), True):
                del self._named[_name_of(one)]

    @property
    def everybodys(self) -> tuple[KubeObject, ...]:
        """What any workload may refer to."""
        return tuple(self._everybodys.values())

    def of(self, workload: KubeObject) -> tuple[KubeObject, ...]:
        """What this workload and its pods may refer to."""
        found: dict[_Key, KubeObject] = dict(self._everybodys)
        for replica in replicas_of(workload, self.everybodys):
            for one in asked(replica.namespace, replica.labels, replica.annotations, replica.spec):
                for name in _names(one):
                    found |= self._named.get(name, {})
        return tuple(found.values())


def _name_of(one: KubeObject) -> str:
    """How pods name a workload or a group."""
    return maker_key(one) if isinstance(one, WORKLOADS) else f"{one.namespace}/{one.name}"


def _names(one: GangCandidate) -> Iterator[str]:
    """The names of what a pod may be of: a workload, a group, or a Workload with a group in it."""
    if one.workload:
        yield one.workload
        return
    namespace, name, *rest = one.key.split("/")
    yield f"{namespace}/{rest[0] if rest else name}"
