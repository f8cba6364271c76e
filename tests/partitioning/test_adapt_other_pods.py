"""Rules about other pods, and pods of other schedulers: GPUs are partitioned only for pods that can be bound afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from builders import GPU
from relayout_builders import ALL, EMPTY, HALF, HALVES, SEVEN, SMALL, WHOLE, applied, asking, gpu_fleet, gpu_node, seen
from tonnage.control.nodes import Pools, Provisioner
from tonnage.control.partitioner import Partitioner
from tonnage.decisions import Bind, Instances, Relayout
from tonnage.fleet.rows import FleetNode, FleetPod
from tonnage.fleet.state import Fleet
from tonnage.provisioning.catalogue import Catalogue
from tonnage.scheduling import place

HOST = "kubernetes.io/hostname"
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "x"}}}
        ]
    }
}


@dataclass
class Still:
    """A world that only shows a fleet."""

    fleet: Fleet
    relayouts: dict[tuple[str, int], Instances] = field(default_factory=dict)

    def snapshot(self) -> Any:
        return seen(self.fleet, relayouts=self.relayouts)


def decided(made: Fleet) -> list[Relayout]:
    found = Partitioner().decide(Still(made))  # type: ignore[arg-type]
    return [one for one in found if isinstance(one, Relayout)]


def host(name: str, *cards: Any) -> FleetNode:
    made = gpu_node(name, *cards)
    return type(made)(**{key: getattr(made, key) for key in made.__slots__} | {"labels": {**made.labels, HOST: name}})


def apart(name: str, **more: Any) -> FleetPod:
    return asking(name, HALF, labels={"app": "x"}, affinity=APART, **more)


def bound_by_scheduler(made: Fleet) -> int:
    return sum(isinstance(one, Bind) for one in place.decide(seen(made)))


def test_nothing_is_cut_where_anti_affinity_keeps_the_pod_out() -> None:
    made = gpu_fleet(host("a", SEVEN), a=[asking("q", SMALL, labels={"app": "x"})], waiting=[apart("p")])
    assert decided(made) == []
    made.add_node(host("b", SEVEN))
    (one,) = decided(made)
    assert one.node.name == "b"
    applied(made, [one])
    assert bound_by_scheduler(made) == 1


def test_nothing_is_cut_where_the_anti_affinity_of_a_pod_that_is_there_keeps_the_pod_out() -> None:
    made = gpu_fleet(host("a", SEVEN, HALVES), a=[apart("q")], waiting=[asking("p", ALL, labels={"app": "x"})])
    assert decided(made) == []
    assert [one.node.name for one in decided(gpu_fleet(host("a", SEVEN, HALVES), waiting=[asking("p", ALL)]))] == ["a"]


def test_of_pods_that_stand_apart_only_as_many_are_served_as_there_are_nodes() -> None:
    made = gpu_fleet(host("a", SEVEN, SEVEN), host("b", SEVEN), waiting=[apart(f"p{i}") for i in range(4)])
    found = decided(made)
    assert [one.node.name for one in found] == ["a", "b"]
    applied(made, found)
    assert bound_by_scheduler(made) == 2


def test_pods_of_other_schedulers_do_not_count() -> None:
    assert decided(gpu_fleet(host("a", SEVEN), waiting=[asking("p", HALF, schedulerName="somebody-else")])) == []
    assert len(decided(gpu_fleet(host("a", SEVEN), waiting=[asking("p", HALF, schedulerName="tonnage")]))) == 1


def test_large_pods_that_no_node_can_serve_keep_nobody_else_waiting() -> None:
    waiting = [*(asking(f"big-{i}", GPU, 3) for i in range(20)), asking("two", GPU, 2), asking("small", HALF)]
    made = gpu_fleet(*(host(f"n{i:02d}", WHOLE, SEVEN) for i in range(6)), waiting=waiting)
    found = decided(made)
    applied(made, found)
    assert bound_by_scheduler(made) == 2


def test_no_node_is_planned_for_a_pod_that_a_gpu_which_is_being_cut_will_take() -> None:
    made = gpu_fleet(host("a", EMPTY), waiting=[asking("p", HALF), asking("q", ALL)])
    provisioner = Provisioner(Catalogue.load(None), Pools)
    assert [one.pod.name for one in provisioner.decide(Still(made))] == ["p", "q"]  # type: ignore[arg-type,union-attr]
    assert provisioner.nominated == frozenset()
    cutting = Still(made, {("a", 0): HALVES})
    assert [one.pod.name for one in provisioner.decide(cutting)] == ["q"]  # type: ignore[arg-type,union-attr]
    assert provisioner.nominated == {"a"}, "the node is not terminated meanwhile"
