"""Amounts that no machine has fit nowhere and break nothing."""

from __future__ import annotations

import msgspec
import pytest

from tonnage.control.nodes import Pools, Provisioner
from tonnage.decisions import Bind, Wait
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet, FleetNode, FleetPod
from tonnage.objects import core
from tonnage.objects.quantity import LARGEST, amount
from tonnage.provisioning.catalogue import Catalogue
from tonnage.scheduling import place

HUGE = str(2**63 - 1)


def _spec(cpu: str = "1", memory: str = "1Gi", containers: int = 1) -> core.PodSpec:
    one = {"resources": {"requests": {"cpu": cpu, "memory": memory}}}
    return msgspec.convert({"containers": [{"name": f"c{i}", **one} for i in range(containers)]}, core.PodSpec)


def _fleet() -> Fleet:
    fleet = Fleet()
    fleet.add_node(FleetNode("node", {"cpu": 8_000, "memory": 2**34, "pods": 110}, {}))
    return fleet


@pytest.mark.parametrize(("resource", "written"), [("cpu", HUGE), ("memory", HUGE), ("nvidia.com/gpu", "1e30")])
def test_an_amount_is_held_to_what_adds_up(resource: str, written: str) -> None:
    assert amount(resource, written) == LARGEST


def test_a_pod_that_asks_for_it_waits_and_the_others_are_placed() -> None:
    fleet = _fleet()
    fleet.add_pod(FleetPod("default", "huge", "1", {}, _spec(cpu=HUGE, memory=HUGE, containers=50)))
    fleet.add_pod(FleetPod("default", "plain", "2", {}, _spec()))
    decisions = place.decide(Snapshot(0, fleet))
    kinds = {decision.pod.name: type(decision) for decision in decisions if isinstance(decision, Bind | Wait)}
    assert kinds == {"huge": Wait, "plain": Bind}


def test_pods_of_others_that_were_bound_all_the_same_fill_their_node() -> None:
    fleet = _fleet()
    for number in range(100):
        row = fleet.add_pod(FleetPod("default", f"huge-{number}", str(number), {}, _spec(memory=HUGE, containers=9)))
        fleet.bind(row, 0, observed=True)
    fleet.add_pod(FleetPod("default", "plain", "p", {}, _spec()))
    (decision,) = place.decide(Snapshot(0, fleet))
    assert isinstance(decision, Wait)
    assert "Insufficient memory" in decision.reason.verdict


def test_nobody_buys_a_node_for_it() -> None:
    class World:
        def snapshot(self) -> Snapshot:
            return Snapshot(0, fleet)

    fleet = Fleet()
    fleet.add_pod(FleetPod("default", "huge", "1", {}, _spec(cpu=HUGE)))
    decisions = Provisioner(Catalogue.load(None), Pools).decide(World())  # type: ignore[arg-type]
    assert [type(decision) for decision in decisions] == [Wait]
