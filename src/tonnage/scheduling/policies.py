"""The placement policies by name, and the view of a shape under each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tonnage.fleet.asks import FULL
from tonnage.fleet.cards import NO_DEVICE
from tonnage.fleet.classes import PodClass
from tonnage.fleet.state import CPU, Fleet
from tonnage.scheduling.value.choices import FGD, TONNAGE, Weights
from tonnage.scheduling.value.mix import Mix
from tonnage.scheduling.value.valuation import Valuation
from tonnage.scheduling.value.view import ValueView
from tonnage.scheduling.view import Ints, NodeTable, ShapeView

DRIFT = 0.25
"""The mix is read again when the fleet's pods, or its pod classes, have become more or fewer by this share."""

PACK = {"binpack": 1, "spread": -1}
VALUED: dict[str, Weights] = {"tonnage": TONNAGE, "fgd": FGD}
DEFAULT_POLICY = "tonnage"
POLICIES = ("tonnage", "fgd", "binpack", "spread", "bestfit")
"""``tonnage``: keep what is left of devices worth most to the recent mix of pods, and pack. ``fgd``: fewest new
fragments (Weng et al., ATC 2023). ``binpack``, ``spread``: most or least in use, devices before hosts. ``bestfit``:
least cores and devices left."""


class BestFitView(ShapeView):
    """Least cores and devices left, each by what the largest node has, equally weighted, in whole per cent.

    Source: hkust-adsl/kubernetes-scheduler-simulator pkg/simulator/plugin/best_fit_score.go."""

    _most = 1, FULL
    """Cores and thousandths of devices of the largest node of each."""

    def _judge(self) -> None:
        super()._judge()
        fleet = self.fleet
        devices = int((fleet.cards.holder != NO_DEVICE).sum(axis=1).max(initial=1))
        self._most = max(1, int(fleet.allocatable[:, CPU].max(initial=1))), FULL * devices

    def _points(self, rows: NDArray[np.intp]) -> Ints:
        fleet = self.fleet
        column = self.nodes.device_column[rows]
        devices = np.where(column >= 0, fleet.cards.milli[rows].sum(axis=1), 0) - self.shape.ask.gpu_milli
        cpu = fleet.free[rows, CPU] - self.shape.requests.get("cpu", 0)
        most_cpu, most_devices = self._most
        left: Ints = np.floor(100 - 50 * (cpu / most_cpu + devices / most_devices)).astype(np.int64)
        return left


class Views:
    """The views of one fleet's shapes by policy. ``mix``: of which pods to think; None: those of the fleet, read when
    first asked for and again as they drift."""

    def __init__(self, fleet: Fleet, mix: Mix | None = None) -> None:
        self._fleet = fleet
        self._nodes = NodeTable(fleet)
        self._given = mix
        self._mix: Mix | None = None  # the same for all policies
        self._views: dict[tuple[int, str], ShapeView] = {}
        self._valuations: dict[str, Valuation] = {}

    def get(self, pod_class: PodClass, policy: str) -> ShapeView:
        """The up-to-date view of the class's shape."""
        valuation = self._valuation(policy) if policy in VALUED else None
        view = self._views.get((pod_class.shape, policy))
        if view is None or (isinstance(view, ValueView) and view.valuation is not valuation):
            view = self._views[pod_class.shape, policy] = self._make(pod_class, policy, valuation)
        view.refresh()
        return view

    def _make(self, pod_class: PodClass, policy: str, valuation: Valuation | None) -> ShapeView:
        shape = self._fleet.classes.shapes[pod_class.shape]
        if valuation is not None:
            return ValueView(self._fleet, shape, self._nodes, valuation)
        if policy == "bestfit":
            return BestFitView(self._fleet, shape, self._nodes)
        return ShapeView(self._fleet, shape, self._nodes, PACK[policy])

    def _valuation(self, policy: str) -> Valuation:
        known = self._valuations.get(policy)
        if self._mix is None or self._drifted(self._mix):
            self._mix = self._given or Mix.of(self._fleet)
        if known is None or known.mix is not self._mix or not known.covers():
            known = self._valuations[policy] = Valuation(self._fleet, self._mix, VALUED[policy])
        return known

    def _drifted(self, mix: Mix) -> bool:
        if self._given is not None:
            return False
        pods, classes = len(self._fleet.pod_by_key), len(self._fleet.classes.rows)
        return abs(pods - mix.pods) > DRIFT * mix.pods or abs(classes - mix.classes) > DRIFT * mix.classes
