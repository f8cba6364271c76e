"""Node groups that are only read: what would be asked of the cloud is recorded, and nothing is written."""

from __future__ import annotations

from dataclasses import dataclass, field

from tonnage.decisions import OBSERVING, Outcome, Refused, Stale
from tonnage.live.clouds.port import NodeGroups, moved, refusal
from tonnage.provisioning.node_groups import NodeGroup

KEPT = 1_000
"""Writes that would have been made and are remembered; older ones go first."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What would have been asked: ``set_size``, or ``remove`` with the machine's ``provider_id``."""

    action: str
    group: str
    expect: int
    desired: int
    provider_id: str = ""

    def __str__(self) -> str:
        if self.action == "remove":
            sizes = f"from {self.expect} to {self.desired}"
            return f"would remove {self.provider_id} from {self.group} and lower its size {sizes}"
        return f"would set the size of {self.group} from {self.expect} to {self.desired}"


@dataclass(slots=True)
class DryRunGroups:
    """Reads ``groups`` and writes nothing. ``wishes``: the writes that would have been made, each once, in order.

    The outcome of such a write is Refused, since nothing took effect; checks that fail anyway say so in the same words
    as where they matter.
    """

    groups: NodeGroups
    _wishes: dict[Wish, None] = field(default_factory=dict)

    @property
    def wishes(self) -> tuple[Wish, ...]:
        """What would have been asked so far."""
        return tuple(self._wishes)

    def list(self) -> tuple[NodeGroup, ...]:
        """Every group; see :class:`NodeGroups`."""
        return self.groups.list()

    def set_size(self, name: str, desired: int, expect: int) -> Outcome:
        """Record that a group's size would be set."""
        group = self._group(name)
        if group is None:
            return Stale(f"node group {name} is gone")
        if changed := moved(group, expect):
            return Stale(changed)
        if why := refusal(group, desired):
            return Refused(why)
        return self._record(Wish("set_size", name, expect, desired))

    def remove(self, provider_id: str, group: str, expect: int) -> Outcome:
        """Record that a machine would be removed."""
        found = self._group(group)
        if found is None:
            return Stale(f"node group {group} is gone")
        if changed := moved(found, expect):
            return Stale(changed)
        if provider_id not in found.nodes:
            return Stale(f"{provider_id} is not in {group}")
        if found.desired <= found.minimum:
            return Refused(f"{group} is at its minimum of {found.minimum}")
        return self._record(Wish("remove", group, expect, expect - 1, provider_id))

    def _group(self, name: str) -> NodeGroup | None:
        return next((group for group in self.groups.list() if group.name == name), None)

    def _record(self, wish: Wish) -> Refused:
        self._wishes[wish] = None
        if len(self._wishes) > KEPT:
            del self._wishes[next(iter(self._wishes))]
        return Refused(f"only reported: {wish}", OBSERVING)
