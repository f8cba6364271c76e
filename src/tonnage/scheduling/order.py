"""Whose turn is when: the one order in which everybody looks at the pending pods.

Higher priority first; of equals those first for which room is being made, as others must not take it; then the older
one, then by name. A gang has one turn for all of its pods, and one priority: the highest of its own and its pods'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from msgspec import Struct
from msgspec.structs import replace

from tonnage.decisions import Ref
from tonnage.fleet.rows import FleetPod, PodRow, split_key
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet

Places = tuple[tuple[int, int], ...]
"""(pod row, node row) of each pod."""


class Unit(Struct, frozen=True, gc=False):
    """Pending pods that are placed together: one pod, or a gang's. ``region_key``: the node label whose value they
    must share, empty for none."""

    rows: tuple[int, ...]
    about: Ref
    priority: int
    gang: str = ""
    region_key: str = ""

    def pending(self, fleet: Fleet) -> Unit | None:
        """What of it is not bound, None when all of it is."""
        left = tuple(row for row in self.rows if fleet.pod(row).node < 0)
        if len(left) == len(self.rows):
            return self
        return replace(self, rows=left) if left else None


class PlacementPriorities:
    """The priority with which each pod is placed, preempts and is preempted, as of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._of_gang: dict[str, int] = {}

    def of(self, row: int) -> int:
        """The pod's own priority; with a known gang, that of the gang."""
        return self.of_pod(self._snapshot.fleet.pod(row))

    def of_pod(self, pod: PodRow) -> int:
        """:meth:`of` for who has the pod at hand."""
        spec = pod.spec
        if not spec.gang or spec.gang not in self._snapshot.gangs:
            return spec.priority
        known = self._of_gang.get(spec.gang)
        if known is None:
            known = self._of_gang[spec.gang] = self._snapshot.gang_priority(spec.gang)
        return known


Turn = tuple[int, bool, int, str, str]
"""Compares as who comes first."""
WithinGang = tuple[int, str, str] | tuple[()]
"""The same, of the pods of one gang; empty for a pod on its own."""


def in_turn(snapshot: Snapshot, rows: Iterable[int]) -> list[int]:
    """These pending pods in the order of their turns; the pods of a known gang come one after the other, the oldest
    first, then by name."""
    rows = list(rows)
    if len(rows) < 2:
        return rows
    fleet, priorities = snapshot.fleet, PlacementPriorities(snapshot)
    nominated = {row for row in nominations(snapshot) if fleet.pod(row).node < 0}
    gangs: dict[str, Turn] = {}

    specs = {row: pod.spec for row, pod in zip(rows, fleet.pods_in(rows), strict=True)}

    def turn(row: int) -> tuple[Turn, WithinGang]:
        spec = specs[row]
        gang = snapshot.gangs.get(spec.gang) if spec.gang else None
        if gang is None:
            return (-spec.priority, row not in nominated, spec.created_ns, spec.namespace, spec.name), ()
        known = gangs.get(gang.key)
        if known is None:
            waits = nominated.isdisjoint(fleet.gang_pods.get(gang.key, ()))
            known = gangs[gang.key] = (-priorities.of(row), waits, gang.created_ns, *split_key(gang.key))
        return known, (spec.created_ns, spec.namespace, spec.name)

    return sorted(rows, key=turn)


def units_of(snapshot: Snapshot, rows: Sequence[int]) -> list[Unit]:
    """Single pods, and each gang's pods together, in the order in which the first of each stands in ``rows``."""
    priorities = PlacementPriorities(snapshot)
    units: dict[str | int, Unit] = {}
    gangs: dict[str, list[int]] = {}
    for row, pod in zip(rows, snapshot.fleet.pods_in(rows), strict=True):
        gang = pod.spec.gang
        if not gang:
            units[row] = Unit((row,), pod.spec.ref, pod.spec.priority)
        elif gang in gangs:
            gangs[gang].append(row)
        else:
            gangs[gang] = [row]
            units[gang] = _gang_unit(snapshot, pod.spec, priorities.of_pod(pod))
    for gang, together in gangs.items():
        units[gang] = replace(units[gang], rows=tuple(together))
    return list(units.values())


def _gang_unit(snapshot: Snapshot, spec: FleetPod, priority: int) -> Unit:
    """Of the gang of a pod, the first of it that waits; without its rows."""
    namespace, name = split_key(spec.gang)
    known = snapshot.gangs.get(spec.gang)
    return Unit((), Ref("Gang", name, namespace), priority, spec.gang, known.rule.required if known else "")


def nominations(snapshot: Snapshot) -> dict[int, int]:
    """Pod row → the row of the node where room is kept for it: pending pods, and pods that leave as they are moved.

    Of a pod that is moved, the one that its controller created meanwhile to replace it has the nomination."""
    if not snapshot.nominations:
        return {}
    fleet = snapshot.fleet
    found: dict[int, int] = {}
    moved: dict[int, int] = {}
    for key, name in sorted(snapshot.nominations.items()):
        row, node = fleet.pod_by_key.get(split_key(key)), fleet.node_by_name.get(name)
        if row is None or node is None:
            continue
        if fleet.pod(row).node < 0:
            found[row] = node
        elif snapshot.leaves(key):
            moved[row] = node
    heirs: set[int] = set()
    for row, node in moved.items():
        heir = _heir(fleet, row, node, found, heirs)
        found[row if heir is None else heir] = node
        if heir is not None:
            heirs.add(heir)
    return found


def _heir(fleet: Fleet, row: int, node: int, nominated: Mapping[int, int], taken: Set[int]) -> int | None:
    """A pending pod, no other than the one that moves to the node but in name: one that has the nomination already,
    or else the first by name."""
    old = fleet.pod(row)
    if not old.spec.owner:
        return None
    alike = [
        (one not in nominated, new.spec.name, one)
        for one in fleet.pending
        if one not in taken and nominated.get(one, node) == node and _is_alike(old, new := fleet.pod(one))
    ]
    return min(alike)[2] if alike else None


def _is_alike(old: PodRow, new: PodRow) -> bool:
    mine, other = old.spec, new.spec
    return not other.spec.scheduling_gates and (mine.owner, mine.gang, mine.subgroup, old.class_id) == (
        other.owner,
        other.gang,
        other.subgroup,
        new.class_id,
    )
