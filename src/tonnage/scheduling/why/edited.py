"""What the rules about other pods say of a pod after edits, in tables of its own.

The fleet and the scheduler's tables do not get to know the classes of pods that are not there.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from tonnage.fleet.classes import PodClass, Shape
from tonnage.fleet.rows import FleetPod
from tonnage.fleet.state import Fleet
from tonnage.scheduling.topology import Rules, TopologyFilter
from tonnage.scheduling.view import NodeTable, ShapeView
from tonnage.scheduling.why.changes import Edit, edited


class EditedPods(TopologyFilter):
    """The classes that a pod would be of after edits which leave its namespace, labels and requests as they are. They
    have the ids of the class and the shape that it is of."""

    def __init__(
        self, fleet: Fleet, pod: FleetPod, pod_class: PodClass, nodes: NodeTable, beside: TopologyFilter | None = None
    ) -> None:
        super().__init__(fleet, beside)
        self._pod, self._class, self._nodes = pod, pod_class, nodes
        self._shape: Shape = fleet.classes.shapes[pod_class.shape]
        self._views: dict[bytes, ShapeView] = {}
        self._rules_of: dict[PodClass, Rules] = {}
        self._known: dict[tuple[Edit, ...], tuple[PodClass, ShapeView]] = {}

    def of(self, edits: tuple[Edit, ...]) -> tuple[PodClass, ShapeView]:
        """The class of the edited pod, and its view of the nodes that are there; what is free there may be old."""
        known = self._known.get(edits)
        if known is None:
            spec = edited(self._pod, edits).spec
            shape = replace(
                self._shape,
                node_name=spec.node_name,
                node_selector=spec.node_selector,
                node_affinity=spec.affinity.node_affinity if spec.affinity else None,
                tolerations=spec.tolerations,
            )
            known = replace(self._class, spec=spec), self._view(shape)
            self._known[edits] = known
        if known[1].judged != self._fleet.topology_revision:
            known[1].refresh()
        return known

    def _view(self, shape: Shape) -> ShapeView:
        """That of all pods that ask the same of nodes."""
        asked = shape.node_name, shape.node_selector, shape.node_affinity, shape.tolerations
        at = msgspec.json.encode(asked)
        if at not in self._views:
            self._views[at] = ShapeView(self._fleet, shape, self._nodes)
        return self._views[at]

    def rules(self, pod_class: PodClass) -> Rules:
        """What the class says about other pods, edited or not."""
        known = super().rules(pod_class)
        if pod_class is self._fleet.classes.rows[pod_class.id]:
            return known
        if pod_class not in self._rules_of:
            self._rules_of[pod_class] = Rules.of(pod_class)
        return self._rules_of[pod_class]
