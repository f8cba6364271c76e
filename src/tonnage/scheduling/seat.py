"""How a pod is bound to the node that was chosen for it, whoever chose it."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.fleet.state import Fleet
from tonnage.scheduling import device_choice


def seat(fleet: Fleet, row: int, node: int, devices: Sequence[int] | None = None) -> tuple[int, ...]:
    """Bind the pod (its row) to the node (its row) and say on which devices: those given, else the best joined ones,
    else as :meth:`tonnage.fleet.state.Fleet.bind` chooses.

    Raises Conflict where it does not fit."""
    return fleet.bind(row, node, devices or device_choice.for_pod(fleet, row, node))
