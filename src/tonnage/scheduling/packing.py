"""The placement policies ``binpack`` and ``spread``: most or least in use, devices before CPU and memory."""

from __future__ import annotations

from tonnage.fleet.classes import Shape
from tonnage.scheduling.handle import Handle
from tonnage.scheduling.view import ShapeView


def binpack(handle: Handle, shape: Shape, before: ShapeView | None) -> ShapeView:
    """The fullest feasible node."""
    return before if before is not None else ShapeView(handle.fleet, shape, handle.nodes)


def spread(handle: Handle, shape: Shape, before: ShapeView | None) -> ShapeView:
    """The emptiest one."""
    return before if before is not None else ShapeView(handle.fleet, shape, handle.nodes, pack=-1)
