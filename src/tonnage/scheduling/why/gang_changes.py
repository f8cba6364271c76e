"""Changes that would make a waiting gang fit: edits, what each is worth, and applying them.

The measure is (number of edits, sum of their ranks, sum of their amounts), smaller first, then the text. Ranks: 0 a
level is relaxed, 1 a minimum is lower, 2 there are more places. Amounts: the levels by which the rule gets wider, the
pods less, the places more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, TypeAlias

import msgspec

from tonnage.fleet.gangs import Gang, TopologyRule
from tonnage.fleet.rows import FleetNode
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import HOSTNAME, Fleet
from tonnage.scheduling.why.changes import Cost


class RelaxLevel(msgspec.Struct, frozen=True, tag="relax-level"):
    """A group's pods may stand in one domain of a wider level (``to``; empty: anywhere). ``rule``: ``required``, or
    ``slice`` for what is required of each slice. ``wider``: by how many levels."""

    rank: ClassVar[int] = 0
    group: str
    rule: str
    level: str
    to: str
    wider: int

    @property
    def amount(self) -> int:
        return self.wider

    def text(self) -> str:
        what = "each slice of " if self.rule == "slice" else ""
        where = f"in one {self.to}" if self.to else "anywhere"
        return f"place {what}{self.group} {where} instead of in one {self.level}"


class LowerMinimum(msgspec.Struct, frozen=True, tag="lower-minimum"):
    """The gang or subgroup starts with ``by`` pods less."""

    rank: ClassVar[int] = 1
    group: str
    by: int
    to: int

    @property
    def amount(self) -> int:
        return self.by

    def text(self) -> str:
        return f"start {self.group} with {self.to} pod{'s' if self.to > 1 else ''} instead of {self.by + self.to}"


class MorePlaces(msgspec.Struct, frozen=True, tag="more-places"):
    """Room for ``count`` more pods, each as large as the largest of each resource, in a domain: on one more host like
    ``like``, or on this many hosts with one place each (``apart``); on ``like`` itself where the domain is that
    host."""

    rank: ClassVar[int] = 2
    level: str
    domain: str
    count: int
    like: str
    apart: bool = False

    @property
    def amount(self) -> int:
        return self.count

    def text(self) -> str:
        where = f"in {self.level} {self.domain}" if self.level else "in the cluster"
        room = f"room for {self.count} more pod{'' if self.count == 1 else 's'}"
        hosts = ", each on a host of its own," if self.apart and self.count > 1 else ""
        return f"{room} {where}{hosts} on hosts like {self.like}"


GangEdit: TypeAlias = RelaxLevel | LowerMinimum | MorePlaces


class GangChange(msgspec.Struct, frozen=True):
    """Edits after which the gang's minimum fits."""

    edits: tuple[GangEdit, ...]

    @property
    def cost(self) -> Cost:
        """Its measure."""
        rank = amount = 0
        for edit in self.edits:
            rank, amount = rank + edit.rank, amount + edit.amount
        return len(self.edits), rank, amount

    @property
    def texts(self) -> tuple[str, ...]:
        """What each edit says."""
        return tuple([edit.text() for edit in self.edits])

    @property
    def order(self) -> tuple[Cost, tuple[str, ...]]:
        """Smaller changes first."""
        return self.cost, self.texts


def apply(snapshot: Snapshot, key: str, change: GangChange, pods: Sequence[int]) -> Snapshot:
    """The snapshot after the edits; more places are made in its fleet, inside a what-if if they are to be undone."""
    gang = snapshot.gangs[key]
    for number, edit in enumerate(change.edits):
        match edit:
            case RelaxLevel() | LowerMinimum():
                gang = with_edit(gang, edit)
            case MorePlaces():
                _make_places(snapshot.fleet, edit, pods, number)
    return replace(snapshot, gangs={**snapshot.gangs, key: gang})


def with_edit(gang: Gang, edit: RelaxLevel | LowerMinimum) -> Gang:
    """The gang after the edit."""

    def changed(rule: TopologyRule, minimum: int) -> tuple[TopologyRule, int]:
        if isinstance(edit, LowerMinimum):
            return rule, edit.to
        if edit.rule == "slice":
            return replace(rule, slice_required=edit.to, slice_size=rule.slice_size if edit.to else 0), minimum
        return replace(rule, required=edit.to, led=False), minimum

    if edit.group == gang.key:
        rule, minimum = changed(gang.rule, gang.min_member)
        return replace(gang, rule=rule, min_member=minimum)
    parts = []
    for part in gang.subgroups:
        rule, minimum = changed(part.rule, part.min_member) if part.name == edit.group else (part.rule, part.min_member)
        parts.append(replace(part, rule=rule, min_member=minimum))
    return replace(gang, subgroups=tuple(parts))


def place_size(fleet: Fleet, pods: Sequence[int]) -> dict[str, int]:
    """The most of each resource that one of the pods asks for; for shares of devices, as many whole ones."""
    most: dict[str, int] = {}
    for class_id in {fleet.pod(row).class_id for row in pods}:
        shape = fleet.classes.shapes[fleet.classes.rows[class_id].shape]
        asked = dict(shape.requests)
        if shape.ask.shares:
            asked[shape.ask.resource] = shape.ask.count
        for name, amount in asked.items():
            most[name] = max(most.get(name, 0), amount)
    return most


def _make_places(fleet: Fleet, edit: MorePlaces, pods: Sequence[int], number: int) -> None:
    like = fleet.node_by_name[edit.like]
    size = place_size(fleet, pods)
    if edit.level == HOSTNAME:
        more = fleet.allocatable_of(like)
        for name, amount in size.items():
            more[name] = more.get(name, 0) + edit.count * amount
        fleet.set_allocatable(like, more)
        return
    node = fleet.node(like)
    labels = {key: value for key, value in node.labels.items() if key != HOSTNAME}
    hosts, each = (edit.count, 1) if edit.apart else (1, edit.count)
    amounts = {name: each * amount for name, amount in size.items()}
    for host in range(hosts):
        name = f"{edit.like}-new-{number}-{host}"
        spec = FleetNode(
            name, amounts, labels, node.taints, gpu=node.spec.gpu, device_resource=node.spec.device_resource
        )
        fleet.add_node(spec)
