"""The placement policy ``bestfit``: least cores and devices left."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tonnage.fleet.asks import FULL
from tonnage.fleet.cards import NO_DEVICE
from tonnage.fleet.classes import Shape
from tonnage.fleet.state import CPU
from tonnage.scheduling.handle import Handle
from tonnage.scheduling.view import Ints, ShapeView


def best_fit(handle: Handle, shape: Shape, before: ShapeView | None) -> ShapeView:
    """The node of which least is left."""
    return before if before is not None else BestFitView(handle.fleet, shape, handle.nodes)


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
