"""Gang placement by trying everything: the oracle for the planner, on tiny clusters.

Works on names and plain dictionaries, counts everything again, and shares no code with the scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from placement_oracle import World, refusals
from tonnage.fleet.gangs import Gang, TopologyRule
from tonnage.fleet.state import Fleet, FleetPod

HOSTNAME = "kubernetes.io/hostname"
Placement = Mapping[str, str]
"""Pod name → node name, of the pods that would be bound."""


@dataclass(frozen=True)
class Puzzle:
    """A gang on a cluster. ``levels``: the label keys, outermost first. ``labels``: of each node. ``room``: free amounts
    by node and resource, cordoned nodes left out. ``bound``: members that stand already."""

    gang: Gang
    levels: Sequence[str]
    labels: Mapping[str, Mapping[str, str]]
    room: Mapping[str, Mapping[str, int]]
    pods: Mapping[str, FleetPod]
    requests: Mapping[str, Mapping[str, int]]
    bound: Sequence[tuple[str, FleetPod]]

    @staticmethod
    def of(fleet: Fleet, gang: Gang, levels: Sequence[str]) -> Puzzle:
        """What the fleet's rows say."""
        rows = fleet.node_by_name
        room = {
            name: {
                resource: amount - sum(fleet.pod_class(p).requests.get(resource, 0) for p in fleet.node(row).pods)
                for resource, amount in fleet.allocatable_of(row).items()
            }
            for name, row in rows.items()
            if fleet.schedulable[row]
        }
        members = [fleet.pod(row) for row in fleet.gang_pods.get(gang.key, ())]
        pending = {pod.spec.name: pod for pod in members if pod.node < 0}
        return Puzzle(
            gang,
            levels,
            {name: {HOSTNAME: name, **fleet.node(row).spec.labels} for name, row in rows.items()},
            room,
            {name: pod.spec for name, pod in pending.items()},
            {name: fleet.classes.rows[pod.class_id].requests for name, pod in pending.items()},
            [(fleet.node(pod.node).spec.name, pod.spec) for pod in members if pod.node >= 0],
        )

    # ---- rules ----

    def domain(self, node: str, level: str) -> tuple[str, ...] | None:
        """The node's domain: the whole path; None without the label."""
        labels = self.labels[node]
        if level not in labels:
            return None
        outer = self.levels[: self.levels.index(level)] if level != HOSTNAME else ()
        return (*(labels.get(key, "") for key in outer), labels[level])

    def groups(self) -> Iterator[tuple[str, int, TopologyRule]]:
        """(subgroup, empty for the gang; minimum; rule)."""
        yield "", self.gang.min_member, self.gang.rule
        for one in self.gang.subgroups:
            yield one.name, one.min_member, one.rule

    def inside(self, pod: FleetPod, group: str) -> bool:
        """Whether the pod is part of the group."""
        parents = {one.name: one.parent for one in self.gang.subgroups}
        at = pod.subgroup if pod.subgroup in parents else ""
        while at and at != group:
            at = parents[at] if parents[at] in parents else ""
        return at == group

    def _split(self, placement: Placement, group: str) -> tuple[list[str], list[str]]:
        """Nodes of the group's (bound, new) members."""
        bound = [node for node, pod in self.bound if self.inside(pod, group)]
        return bound, [node for name, node in placement.items() if self.inside(self.pods[name], group)]

    def one_domain(self, placement: Placement, group: str, level: str, *, with_bound: bool = False) -> bool:
        """Whether the new members are in one domain of the level, that of most of the bound ones if there are any."""
        bound, new = self._split(placement, group)
        homes = Counter(d for d in (self.domain(node, level) for node in bound) if d is not None)
        found = {self.domain(node, level) for node in new}
        if not found:
            return True
        if None in found or len(found) > 1:
            return False
        if homes:
            home = min(homes, key=lambda d: (-homes[d], d))
            return found == {home} and not (with_bound and len(homes) > 1)
        return True

    def keeps_rules(self, placement: Placement) -> bool:
        """Required levels and slices; the minimum is not asked for."""
        for name, _, rule in self.groups():
            if rule.required and not self.one_domain(placement, name, rule.required):
                return False
            if rule.slice_required and rule.slice_size > 1:
                bound, new = self._split(placement, name)
                if any(self.domain(node, rule.slice_required) is None for node in new):
                    return False
                before = self._begun(bound, rule)
                odd = len([n for n in (*bound, *new) if self.domain(n, rule.slice_required)]) % rule.slice_size > 0
                if self._begun([*bound, *new], rule) > max(odd, before):
                    return False
        return True

    def _begun(self, nodes: Sequence[str], rule: TopologyRule) -> int:
        """Domains in which a slice is begun and not whole."""
        counts = Counter(self.domain(node, rule.slice_required) for node in nodes)
        return sum(1 for domain, count in counts.items() if domain is not None and count % rule.slice_size)

    def enough(self, placement: Placement) -> bool:
        """Whether the gang and each subgroup have their minimum."""
        return all(sum(map(len, self._split(placement, name))) >= minimum for name, minimum, _ in self.groups())

    def fits(self, placement: Placement) -> bool:
        """Whether the nodes have room for all of it."""
        used: dict[str, Counter[str]] = {}
        for name, node in placement.items():
            used.setdefault(node, Counter()).update(self.requests[name])
        return all(
            node in self.room and all(self.room[node].get(r, 0) >= amount for r, amount in taken.items() if amount)
            for node, taken in used.items()
        )

    def best_level(self, placement: Placement) -> int:
        """How far in the gang's preferred rule is kept: the number of the innermost level up to the preferred one that
        holds all of the gang; -1 for none."""
        wanted = self.gang.rule.preferred
        for level in range(self.levels.index(wanted), -1, -1):
            if self.one_domain(placement, "", self.levels[level], with_bound=True):
                return level
        return -1

    # ---- everything ----

    def placements(self) -> Iterator[dict[str, str]]:
        """Every placement that is whole, fits and keeps the rules; pods that cannot be told apart are not permuted."""
        names = sorted(self.pods, key=lambda n: (self.pods[n].subgroup, sorted(self.requests[n].items()), n))
        nodes = sorted(self.room)

        def alike(a: str, b: str) -> bool:
            same = self.pods[a].subgroup == self.pods[b].subgroup
            return same and self.requests[a] == self.requests[b]

        def further(at: int, placement: dict[str, str], last: int) -> Iterator[dict[str, str]]:
            if at == len(names):
                if self.enough(placement) and self.keeps_rules(placement):
                    yield dict(placement)
                return
            start = last if at and alike(names[at - 1], names[at]) else 0
            for number in range(start, len(nodes)):
                placement[names[at]] = nodes[number]
                if self.fits(placement):
                    yield from further(at + 1, placement, number)
                del placement[names[at]]
            yield from further(at + 1, placement, len(nodes))

        yield from further(0, {}, 0)


def in_some_order(fleet: Fleet, puzzle: Puzzle) -> bool:
    """Whether the gang can be placed whole when every pod must pass all filters in turn, in some order."""
    seen: set[tuple[tuple[str, str], ...]] = set()

    def further(placement: dict[str, str]) -> bool:
        if puzzle.enough(placement) and puzzle.keeps_rules(placement):
            return True
        state = tuple(sorted(placement.items()))
        if state in seen:
            return False
        seen.add(state)
        for name in sorted(set(puzzle.pods) - set(placement)):
            row = fleet.pod_by_key["default", name]
            for node, reasons in refusals(World.of(fleet), puzzle.pods[name]).items():
                if reasons:
                    continue
                fleet.bind(row, fleet.node_by_name[node])
                placement[name] = node
                found = further(placement)
                del placement[name]
                fleet.unbind(row)
                if found:
                    return True
        return False

    with fleet.what_if():
        return further({})
