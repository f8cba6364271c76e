"""The placement policies by name, and the view of a shape under each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tonnage.fleet.classes import PodClass, Shape
from tonnage.fleet.state import Fleet
from tonnage.scheduling.best_fit import best_fit
from tonnage.scheduling.handle import Handle
from tonnage.scheduling.packing import binpack, spread
from tonnage.scheduling.value.choices import FGD, TONNAGE
from tonnage.scheduling.value.mix import Mix
from tonnage.scheduling.value.view import Valued
from tonnage.scheduling.view import ShapeView

PlacementPolicy: TypeAlias = Callable[[Handle, Shape, ShapeView | None], ShapeView]
"""The view that scores the nodes for pods of a shape; the third argument is the view that it last gave for the shape,
which is given again while it holds: it is asked whenever nodes, pods or pod classes have come, gone or changed, but not
after bindings. A view gives a node its points in ``_points`` (:class:`ShapeView`): whole numbers,
the highest is chosen, of equals the first by name."""

POLICIES: dict[str, PlacementPolicy] = {
    "tonnage": Valued(TONNAGE),
    "fgd": Valued(FGD),
    "binpack": binpack,
    "spread": spread,
    "bestfit": best_fit,
}
"""``tonnage``: keep what is left of devices worth most to the recent mix of pods, and pack. ``fgd``: fewest new
fragments (Weng et al., ATC 2023). ``binpack``, ``spread``: most or least in use, devices before hosts. ``bestfit``:
least cores and devices left."""
DEFAULT_POLICY = "tonnage"
ANY_POLICY = "binpack"
"""What fits is the same under every policy, and this one keeps the cheapest tables."""
NO_VIEW: tuple[int, None] = (-1, None)


class Views:
    """The views of one fleet's shapes by policy. ``mix``: as in :class:`Handle`."""

    def __init__(self, fleet: Fleet, mix: Mix | None = None) -> None:
        self._handle = Handle(fleet, mix)
        self._views: dict[tuple[int, str], tuple[int, ShapeView]] = {}
        """Each with the handle's epoch in which the policy last gave it."""

    def get(self, pod_class: PodClass, policy: str) -> ShapeView:
        """The up-to-date view of the class's shape."""
        key, epoch = (pod_class.shape, policy), self._handle.epoch()
        as_of, view = self._views.get(key, NO_VIEW)
        if view is None or as_of != epoch:
            view = POLICIES[policy](self._handle, self._handle.fleet.classes.shapes[pod_class.shape], view)
            self._views[key] = epoch, view
        view.refresh()
        return view
