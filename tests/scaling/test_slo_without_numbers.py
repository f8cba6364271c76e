"""A metric that is not a number leaves its own workload as it is, and the others go on."""

from __future__ import annotations

import math

import pytest

from tonnage.control.replicas import Planned, ReplicaPlanner
from tonnage.decisions import Ref, Scale
from tonnage.errors import InputError, NotAnswered
from tonnage.fleet.snapshot import Snapshot, WorkloadView
from tonnage.fleet.state import Fleet
from tonnage.metrics.promql import Result, Sample, Vector
from tonnage.scaling import slo
from tonnage.units import NS_PER_S


class _World:
    """Two workloads with one replica each; ``good`` receives ten requests per second."""

    def __init__(self, odd: float | Exception) -> None:
        self.odd, self.now_s, self.asked = odd, 0, 0
        self.views = {
            f"ns/{name}": WorkloadView("Deployment", "ns", name, 1, (), uid=f"uid-{name}") for name in ("bad", "good")
        }

    def snapshot(self) -> Snapshot:
        return Snapshot(self.now_s * NS_PER_S, Fleet(), self.views)

    def measure(self, query: str, at_ns: int) -> Result:
        self.asked += 1
        if query.startswith("bad"):
            if isinstance(self.odd, Exception):
                raise self.odd
            return Vector((Sample({}, self.odd),))
        return Vector((Sample({}, 10.0 * self.now_s if query == "good-received" else 1.0),))


def _planner() -> ReplicaPlanner:
    def one(name: str) -> Planned:
        target = slo.Target(f"ns/{name}", 1.0, 2.0, 1, 20, 60 * NS_PER_S)
        return Planned("slo", target, f"{name}-received", f"{name}-in-flight")

    planned = [one("bad"), one("good")]
    return ReplicaPlanner("slo", lambda snapshot: planned)


def _decided(world: _World) -> list[Scale]:
    planner, found = _planner(), []
    for world.now_s in range(0, 120, 15):
        found += [decision for decision in planner.decide(world) if isinstance(decision, Scale)]  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("odd", [math.inf, -math.inf, math.nan, InputError.at("the query is wrong")], ids=str)
def test_the_others_are_scaled(odd: float | Exception) -> None:
    targets = {decision.target for decision in _decided(_World(odd))}
    assert targets == {Ref("Deployment", "good", "ns", "uid-good")}, "and a decision names the very Deployment"


def test_a_server_that_does_not_answer_is_asked_once_a_tick() -> None:
    world = _World(NotAnswered.at("nobody answers"))
    _planner().decide(world)  # type: ignore[arg-type]
    assert world.asked == 1
