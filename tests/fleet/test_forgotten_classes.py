"""Classes of pods that are gone are forgotten, and nothing else changes."""

from __future__ import annotations

import msgspec
import pytest

from tonnage.control.scheduler import Scheduler
from tonnage.decisions import Bind
from tonnage.fleet.invariants import violations
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet, FleetNode, FleetPod
from tonnage.objects import core
from tonnage.scheduling import place

SPEC = msgspec.convert(
    {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}}}]}, core.PodSpec
)


def _fleet() -> Fleet:
    fleet = Fleet()
    for name in ("a", "b"):
        amounts = {"cpu": 8_000, "memory": 2**34, "pods": 110, "nvidia.com/gpu": 4}
        fleet.add_node(FleetNode(name, amounts, {}, device_resource="nvidia.com/gpu"))
    return fleet


def _pod(fleet: Fleet, number: int) -> int:
    return fleet.add_pod(FleetPod("default", f"job-{number}", f"uid-{number}", {"job-name": str(number)}, SPEC))


def test_only_the_classes_of_living_pods_are_left() -> None:
    fleet = _fleet()
    for number in range(50):
        row = _pod(fleet, number)
        if number % 10:
            fleet.remove_pod(row)
        elif number % 20:
            fleet.bind(row, 0)
    assert len(fleet.classes.rows) == 50
    free = fleet.free.copy()
    fleet.forget_classes()
    assert len(fleet.classes.rows) == 5
    assert (fleet.free == free).all()
    assert violations(fleet) == []


def test_a_scheduler_goes_on_with_the_new_numbers() -> None:
    class World:
        def snapshot(self) -> Snapshot:
            return Snapshot(0, fleet)

    fleet, scheduler = _fleet(), Scheduler()
    first = _pod(fleet, 1)
    (one,) = scheduler.decide(World())  # type: ignore[arg-type]
    assert isinstance(one, Bind)
    fleet.bind(first, fleet.node_by_name[one.node.name], one.devices)
    fleet.forget_classes()
    _pod(fleet, 2)
    (other,) = scheduler.decide(World())  # type: ignore[arg-type]
    assert isinstance(other, Bind)
    assert (other.node.name, other.devices) == ("a", (1,)), "beside the first: devices are filled"
    assert violations(fleet) == []


def test_a_cache_from_before_is_refused() -> None:
    fleet = _fleet()
    _pod(fleet, 1)
    cache = place.Cache(fleet)
    fleet.forget_classes()
    with pytest.raises(ValueError, match="another fleet"):
        place.decide(Snapshot(0, fleet), cache=cache)


def test_classes_are_not_renumbered_inside_a_what_if() -> None:
    fleet = _fleet()
    with fleet.what_if(), pytest.raises(RuntimeError, match="what-if"):
        fleet.forget_classes()
