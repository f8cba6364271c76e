"""A GPU whose MIG layout is being changed."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.decisions import Instances
from tonnage.fleet.geometry import Geometry
from tonnage.machines.objects import SimulatedNode
from tonnage.partitioning.layouts import Layout
from tonnage.partitioning.steps import Journal


@dataclass(slots=True)
class LayoutChange:
    """One GPU between two layouts. ``there``: the instances that exist; ``before`` and ``after`` as decided."""

    node: SimulatedNode
    device: int
    on: Geometry
    before: Instances
    after: Instances
    journal: Journal
    there: Layout

    @property
    def key(self) -> tuple[str, int]:
        """(name of the node, index of the GPU)."""
        return self.node.name, self.device

    @property
    def goal(self) -> Instances:
        """What the GPU will be, as things stand."""
        return self.before if self.journal.back else self.after
