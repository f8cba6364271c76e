"""GPUs are repartitioned in time: what is in use stays, what is made is offered in the end, and the journal closes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from sim_builders import EXAMPLE, events, node, run_until, variant, world

from builders import GPU
from deep_seeds import deep
from relayout_builders import ALL, EMPTY, HALF, HALVES, MAY_CHANGE, SEVEN, SMALL
from tonnage.control.loops import tick
from tonnage.control.partitioner import Partitioner
from tonnage.control.scheduler import Scheduler
from tonnage.decisions import Applied, Instances, Outcome, Reason, Ref, Refused, Relayout, Stale
from tonnage.errors import InputError
from tonnage.facts.labels import MIG_PREFIX
from tonnage.fleet.cards import NO_DEVICE
from tonnage.fleet.invariants import violations
from tonnage.machines import nodes, pods
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.gpu_faults import GpuUnhealthy, restore_gpu
from tonnage.machines.objects import SimulatedNode, SimulatedPod, Workload
from tonnage.objects import core
from tonnage.partitioning.fleet_layouts import as_layout, busy_in, instances_of, lay
from tonnage.partitioning.layouts import mask_of
from tonnage.units import NS_PER_S

WHY = Reason("test")
ONE_GPU, EIGHT_GPUS = "p5.4xlarge", "p5.48xlarge"


def machine(cluster: SimulatedCluster, name: str, *cards: Instances) -> SimulatedNode:
    """A node with H100s cut like this, whose layouts may change."""
    made = node(cluster, name, ONE_GPU if len(cards) == 1 else EIGHT_GPUS)
    row = cluster.fleet.node_by_name[name]
    cluster.fleet.set_labels(row, {**cluster.fleet.node(row).labels, **MAY_CHANGE})
    for device, card in enumerate(cards):
        lay(cluster.fleet, (row, device), card)
    return made


def asking(cluster: SimulatedCluster, profile: str) -> SimulatedPod:
    """A new pod, pending, that asks for an instance, or for a whole GPU."""
    key = f"batch/{profile.replace('.', '-').replace('/', '-')}"
    if key not in cluster.workloads:
        wanted = GPU if profile == GPU else f"{MIG_PREFIX}{profile}"
        spec = {"containers": [{"name": "main", "image": "x", "resources": {"requests": {wanted: "1"}}}]}
        template = msgspec.convert({"spec": spec}, core.PodTemplateSpec)
        cluster.workloads[key] = Workload("batch", key.partition("/")[2], template, 0)
    of = cluster.workloads[key]
    of.created += 1
    return pods.create_pod(cluster, of, f"{of.name}-{of.created:05d}", None, "", "")


def cut(cluster: SimulatedCluster, before: Instances, after: Instances, device: int = 0, name: str = "a") -> Outcome:
    return cluster.apply(Relayout(Ref("Node", name, uid=f"node-{name}"), device, before, after, WHY))


def layout(cluster: SimulatedCluster, name: str = "a", device: int = 0) -> Instances:
    return instances_of(cluster.fleet, (cluster.fleet.node_by_name[name], device))


def second(cluster: SimulatedCluster) -> float:
    return cluster.now_ns / NS_PER_S


# ---- one change ----


def test_instances_go_and_come_one_by_one_and_are_offered_when_the_plugin_has_registered() -> None:
    cluster = world()
    machine(cluster, "a", SEVEN)
    assert cut(cluster, SEVEN, HALVES) == Applied()
    start, life = second(cluster), cluster.physics.durations
    run_until(cluster, start + 2.5 * life.mig_instance_s)
    assert layout(cluster) == tuple((SMALL, at) for at in range(3, 7))
    assert len(events(cluster, "InstanceDestroyed")) == 2
    run_until(cluster, start + 9 * life.mig_instance_s + 0.9 * life.mig_plugin_s)
    assert layout(cluster) == ()
    assert cluster.gpus.relayouts["a", 0].there == as_layout(HALVES)
    run_until(cluster, start + 9 * life.mig_instance_s + 1.1 * life.mig_plugin_s)
    assert layout(cluster) == HALVES
    assert cluster.gpus.relayouts == {}
    assert "node" in cluster.woken()
    assert events(cluster, "RelayoutDone") == ["GPU 0: 2 x 3g.40gb"]
    assert cluster.fleet.allocatable_of(0)["nvidia.com/mig-3g.40gb"] == 2
    assert "nvidia.com/mig-1g.10gb" not in cluster.fleet.allocatable_of(0)
    labels = cluster.fleet.node(0).labels
    assert labels["nvidia.com/mig-3g.40gb.count"] == "2"
    assert "nvidia.com/mig-1g.10gb.count" not in labels


def test_what_stays_is_offered_and_used_all_the_while() -> None:
    cluster = world()
    machine(cluster, "a", SEVEN)
    first = asking(cluster, SMALL)
    cluster.assign(first, cluster.nodes["a"])
    held = cluster.fleet.pod(first.row).pieces
    (kept,) = busy_in(cluster.fleet, (0, 0))
    after = ((HALF, 0), (SMALL, kept.start), (SMALL, 4 if kept.start != 4 else 5))
    assert cut(cluster, SEVEN, after) == Applied()
    run_until(cluster, second(cluster) + 11)
    cluster.assign(asking(cluster, SMALL), cluster.nodes["a"])
    run_until(cluster, second(cluster) + 100)
    assert set(layout(cluster) or ()) == set(after)
    assert cluster.fleet.pod(first.row).pieces == held
    assert violations(cluster.fleet) == []


def test_a_pod_that_takes_an_instance_that_was_to_go_turns_the_change_back() -> None:
    cluster = world()
    machine(cluster, "a", HALVES)
    assert cut(cluster, HALVES, SEVEN) == Applied()
    run_until(cluster, second(cluster) + 0.5)
    assert layout(cluster) == HALVES[1:]
    pod = asking(cluster, HALF)
    cluster.assign(pod, cluster.nodes["a"])
    run_until(cluster, second(cluster) + 100)
    assert layout(cluster) == HALVES
    assert events(cluster, "RelayoutRolledBack") == ["GPU 0: 3g.40gb at 4 is in use now"]
    assert cluster.fleet.pod(pod.row).node == 0


def test_a_gpu_leaves_mig_mode_and_enters_it_in_a_longer_time() -> None:
    cluster = world()
    machine(cluster, "a", ((ALL, 0),))
    life, start = cluster.physics.durations, second(cluster)
    assert cut(cluster, ((ALL, 0),), None) == Applied()
    run_until(cluster, start + life.mig_instance_s + life.mig_mode_s)
    assert layout(cluster) == ()
    run_until(cluster, start + life.mig_instance_s + life.mig_mode_s + 2 * life.mig_plugin_s)
    assert layout(cluster) is None
    assert cluster.fleet.allocatable_of(0)[GPU] == 1
    start = second(cluster)
    assert cut(cluster, None, HALVES) == Applied()
    assert GPU not in cluster.fleet.allocatable_of(0), "it is withdrawn at once"
    run_until(cluster, start + life.mig_mode_s - 1)
    assert cluster.gpus.relayouts["a", 0].there == ()
    run_until(cluster, start + 200)
    assert layout(cluster) == HALVES


def test_a_node_that_is_lost_in_the_middle_takes_its_change_along() -> None:
    cluster = world()
    machine(cluster, "a", SEVEN)
    assert cut(cluster, SEVEN, HALVES) == Applied()
    run_until(cluster, second(cluster) + 5)
    nodes.lose_node(cluster, cluster.nodes["a"], "test")
    run_until(cluster, second(cluster) + 100)
    assert cluster.gpus.relayouts == {}
    assert violations(cluster.fleet) == []


def _in_use(cluster: SimulatedCluster) -> None:
    cluster.assign(asking(cluster, SMALL), cluster.nodes["a"])


def _under_way(cluster: SimulatedCluster) -> None:
    assert cut(cluster, SEVEN, EMPTY) == Applied()


def _lost(cluster: SimulatedCluster) -> None:
    nodes.lose_node(cluster, cluster.nodes["a"], "test")


def _leaving(cluster: SimulatedCluster) -> None:
    nodes.drain_node(cluster, cluster.nodes["a"], "Drained", "test")


STALE: dict[str, tuple[Callable[[SimulatedCluster], None], dict[str, Any], str]] = {
    "of a node that is gone": (_lost, {}, "node a is gone"),
    "of a namesake of the node": (lambda c: None, {"node": Ref("Node", "a", uid="other")}, "node a is gone"),
    "of a node that is leaving": (_leaving, {}, "terminating"),
    "of a GPU that is not there": (lambda c: None, {"device": 1}, "GPU 1 of a is not there"),
    "of a GPU that is repartitioned": (lambda c: None, {"before": HALVES}, "has layout 7 x 1g.10gb, not 2 x 3g.40gb"),
    "of a GPU that is not whole": (lambda c: None, {"before": None}, "has layout 7 x 1g.10gb, not whole"),
    "of a GPU that is being partitioned": (_under_way, {}, "is being changed already"),
    "of an instance in use": (_in_use, {}, "is in use"),
}


@pytest.mark.parametrize(("happens", "changes", "says"), STALE.values(), ids=STALE)
def test_a_decision_that_no_longer_holds_is_stale_and_changes_nothing(
    happens: Callable[[SimulatedCluster], None], changes: dict[str, Any], says: str
) -> None:
    cluster = world()
    machine(cluster, "a", SEVEN)
    decision = Relayout(Ref("Node", "a", uid="node-a"), 0, SEVEN, HALVES, WHY)
    happens(cluster)
    before, under_way = cluster.queue.next_ns(), dict(cluster.gpus.relayouts)
    outcome = cluster.apply(msgspec.structs.replace(decision, **changes))
    assert isinstance(outcome, Stale)
    assert says in outcome.changed
    assert (cluster.queue.next_ns(), cluster.gpus.relayouts) == (before, under_way)


def test_a_layout_that_cannot_be_is_refused() -> None:
    cluster = world()
    machine(cluster, "a", SEVEN)
    outcome = cut(cluster, SEVEN, ((ALL, 0), (SMALL, 0)))
    assert isinstance(outcome, Refused)
    assert "overlaps" in outcome.why
    node(cluster, "b", "g6e.12xlarge")
    assert isinstance(cut(cluster, None, EMPTY, name="b"), Refused)


def test_a_scenario_says_whether_layouts_change_in_a_word_that_is_known(tmp_path: Path) -> None:
    policies = {"one": {"manifests": str(EXAMPLE / "manifests" / "corrected"), "partitioning": "relayuot"}}
    with pytest.raises(InputError, match=r'policies.one.partitioning.*"relayuot", expected one of static, relayout'):
        variant(tmp_path, policies=policies, default="one")


# ---- everything at random ----


class Walk:
    """A cluster to which anything happens, and what has to hold all the while."""

    def __init__(self, seed: int) -> None:
        self.rng, self.cluster = Random(seed), world(seed=seed)
        self.partitioner, self.scheduler = Partitioner().loop(), Scheduler().loop()
        self.made = 0
        self.standing: dict[str, tuple[str, object]] = {}
        for _ in range(4):
            self.add_node()

    def add_node(self) -> None:
        self.made += 1
        cards = [self.rng.choice((SEVEN, HALVES, EMPTY, None)) for _ in range(self.rng.choice((1, 8)))]
        machine(self.cluster, f"n{self.made}", *cards)

    def arrive(self) -> None:
        asking(self.cluster, self.rng.choice((SMALL, SMALL, SMALL, "2g.20gb", HALF, ALL, GPU)))

    def end(self) -> None:
        if self.cluster.pods:
            pods.end_pod(self.cluster, self.cluster.pods[self.rng.choice(sorted(self.cluster.pods))])

    def lose_node(self) -> None:
        live = sorted(node.name for node in self.cluster.nodes.values() if node.ended_ns is None)
        nodes.lose_node(self.cluster, self.cluster.nodes[self.rng.choice(live)], "test")
        self.add_node()

    def fail_and_mend(self) -> None:
        """The last GPU of a node fails, or one that failed is back."""
        live = sorted(node.name for node in self.cluster.nodes.values() if node.ended_ns is None)
        fails, name = self.rng.random() < 1 / 3, self.rng.choice(live)
        if fails:
            self.cluster.queue.push(self.cluster.now_ns, GpuUnhealthy(name))
        else:
            restore_gpu(self.cluster, self.cluster.nodes[name])

    def cut_anything(self) -> None:
        """A decision that nobody needs, and that may hold or not."""
        fleet = self.cluster.fleet
        row = self.rng.choice(fleet.node_rows())
        device = self.rng.randrange(self.cluster.nodes[fleet.node(row).spec.name].gpus)
        before = instances_of(fleet, (row, device))
        after = self.rng.choice((SEVEN, HALVES, EMPTY, None, ((ALL, 0),), (("2g.20gb", 0), (HALF, 4))))
        spec = fleet.node(row).spec
        outcome = self.cluster.apply(Relayout(Ref("Node", spec.name, uid=spec.uid), device, before, after, WHY))
        assert isinstance(outcome, Applied | Stale)

    def time_passes(self) -> None:
        for _ in range(self.rng.randrange(1, 6)):
            if self.cluster.queue.next_ns() is not None:
                self.cluster.queue.step(self.cluster)
                self.check()

    def step(self) -> None:
        weights: dict[Callable[[], object], int] = {self.arrive: 6, self.end: 5, self.time_passes: 12}
        weights |= {self.cut_anything: 1, lambda: tick(self.scheduler, self.cluster): 5}
        weights |= {lambda: tick(self.partitioner, self.cluster): 4}
        if self.rng.random() < 0.004:
            self.lose_node()
        if self.rng.random() < 0.02:
            self.fail_and_mend()
        self.rng.choices(list(weights), list(weights.values()))[0]()
        self.check()

    def check(self) -> None:
        """No pod has lost its instance, and what is offered of a GPU is there."""
        fleet, cluster = self.cluster.fleet, self.cluster
        standing: dict[str, tuple[str, object]] = {}
        for pod in cluster.pods.values():
            row = fleet.pod(pod.row)
            if row.node >= 0:
                assert row.devices, "what it asked for it has"
                standing[pod.key] = (pod.node, (row.devices, row.pieces))
        for key, where in standing.items():
            assert self.standing.get(key, where) == where
        self.standing = standing
        for (name, device), change in cluster.gpus.relayouts.items():
            mask_of(change.on, change.there)
            at = fleet.node_by_name.get(name)
            if at is not None and fleet.devices[at, device] != NO_DEVICE:
                busy = set(busy_in(fleet, (at, device)))
                assert busy <= set(as_layout(instances_of(fleet, (at, device)))) <= set(change.there)


@pytest.mark.parametrize("seed", [0, 1, *deep((2, 3))])
def test_whatever_happens_no_pod_loses_its_instance_and_every_change_ends(seed: int) -> None:
    walk = Walk(seed)
    for number in range(1_500):
        walk.step()
        if number % 10 == 0:
            assert violations(walk.cluster.fleet) == []
    decided = len(events(walk.cluster, "RelayoutStarted"))
    cluster = walk.cluster
    for made in (one for one in cluster.nodes.values() if one.ended_ns is None):
        for _ in range(made.gpus):
            restore_gpu(cluster, made)
    while cluster.gpus.relayouts:
        assert cluster.queue.next_ns() is not None, "a change that nobody goes on with"
        cluster.queue.step(cluster)
        walk.check()
    assert violations(cluster.fleet) == []
    assert decided > 30
    assert events(cluster, "RelayoutDone")


def test_a_gpu_that_offers_nothing_while_it_is_cut_does_not_fail() -> None:
    cluster = world()
    made = machine(cluster, "a", EMPTY)
    assert list(GpuUnhealthy(made.name).handle(cluster)) == []
    restore_gpu(cluster, made)
    assert len(events(cluster, "FaultHitNothing")) == 1
    assert not events(cluster, "GPUUnhealthy")
    assert cluster.fleet.devices[cluster.fleet.node_by_name["a"], 0] != NO_DEVICE
    assert violations(cluster.fleet) == []
