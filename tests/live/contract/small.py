"""One small cluster, made the same way in every world: by decisions, and by what happens to its machines.

Two nodes with four GPUs each of the user's own (base-01, base-02), one with eight that may be repartitioned (base-03),
and one bought (spare, empty); a Deployment of two
pods, the first on base-01 with device 0, the second pending; a NodeClaim (coming) on its way.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim_builders import EXAMPLE

import yaml_text
from live.contract.faulty import Faulty
from live.contract.worlds import opened
from tonnage.control.world import World
from tonnage.decisions import Applied, Bind, Decision, Instances, Launch, Outcome, Reason, Ref, Return
from tonnage.facts.labels import MIG_CONFIG, MIG_RELAYOUT
from tonnage.hollow.lockstep import Lockstep
from tonnage.kube.reflector import Delays
from tonnage.kube.resources import CONFIG_MAPS, DEPLOYMENTS, NODE_CLAIMS, NODES, PDBS, PODS, RESOURCE_CLAIMS
from tonnage.kube.transport import Transport
from tonnage.kube.verbs import Client
from tonnage.machines import nodes
from tonnage.machines.objects import SimulatedNodeClaim
from tonnage.partitioning.fleet_layouts import instances_of
from tonnage.partitioning.node_cuts import MIG_STRATEGY
from tonnage.simulation import run, scenario
from tonnage.simulation.driver import LoopDriver
from tonnage.units import NS_PER_S

WHY = Reason("because of a test")
QUICK = Delays(first=0.002, most=0.02, absent=(5.0, 10.0), watch=(60.0, 90.0), short=0.0)
POOL = "gpu-inference-pool"
WORKLOAD = "inference/model-a-serving"
DEPLOYMENT = Ref("Deployment", "model-a-serving", "inference")
TYPE = "g6e.12xlarge"
CUT = {
    "instanceType": "p5.48xlarge",
    "labels": {MIG_CONFIG: "all-disabled", MIG_STRATEGY: "mixed", MIG_RELAYOUT: "true"},
}


class Said:
    """Implements Recorder: what was written as events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def event(self, about: Ref, type_: str, reason: str, message: str, done: object = None) -> None:
        self.events.append((str(about), reason))


@dataclass(slots=True)
class Small:
    """The cluster in one world. ``steps`` and ``faulty`` are None in the simulated one."""

    made: run.SetUp
    machine: LoopDriver
    world: World
    steps: Lockstep | None = None
    faulty: Faulty | None = None
    said: Said = field(default_factory=Said)

    # ---- what there is ----

    def pod(self, index: int = 0, **changes: str) -> Ref:
        """The workload's pod of that number, as the world knows it."""
        snapshot = self.world.snapshot()
        view = snapshot.workloads[WORKLOAD].pods[index]
        spec = snapshot.fleet.pod(view.row).spec
        fields = {"name": spec.name, "namespace": spec.namespace, "uid": spec.uid} | changes
        return Ref("Pod", **fields)

    def node(self, name: str, **changes: str) -> Ref:
        """A node, as the world knows it."""
        fleet = self.world.snapshot().fleet
        row = fleet.node_by_name.get(name)
        fields = {"name": name, "uid": fleet.node(row).spec.uid if row is not None else ""} | changes
        return Ref("Node", **fields)

    def nominations(self) -> dict[str, str]:
        """Pod → the node on which the world keeps room for it."""
        return dict(self.world.snapshot().nominations)

    def nominations_after_a_restart(self) -> dict[str, str]:
        """The same in a world that knows nothing but what the API says, where there is one."""
        if self.steps is not None:
            self.world = self.machine.world = self.steps.restart()
            self.settle()
        return self.nominations()

    def status_of(self, index: int) -> dict[str, Any]:
        """What the API says of the workload's pod of that number; nothing where there is no API."""
        pod = self.pod(index)
        return {} if self.steps is None else dict(self.client.get(PODS, pod.name, pod.namespace)["status"])

    def bind(self, pod: Ref, node: Ref, *devices: int) -> Bind:
        return Bind(pod, node, WHY, devices)

    def launch(self, name: str, **changes: Any) -> Launch:
        fields = {"node_pool": POOL, "instance_type": TYPE, "zone": "us-east-1a", "capacity_type": "on-demand"}
        fields |= {"price_micro_usd_per_hour": 1_000_000, "reason": WHY}
        return Launch(Ref("NodeClaim", name), **(fields | changes))

    def layouts(self) -> list[Instances]:
        """How the GPUs of base-03 are cut, as the world knows it."""
        fleet = self.world.snapshot().fleet
        return [instances_of(fleet, (fleet.node_by_name["base-03"], device)) for device in range(8)]

    def state(self) -> object:
        """All that a decision can change: in the API where there is one, in what the world believes, in the machines."""
        fleet, cluster = self.world.snapshot().fleet, self.made.cluster
        believed = {
            (pod.spec.namespace, pod.spec.name): (pod.node >= 0 and fleet.node(pod.node).spec.name, pod.devices)
            for pod in fleet.pods
            if pod is not None
        }
        machines = (
            {key: (p.node, p.terminating, p.deletion_cost) for key, p in cluster.pods.items()},
            {key: w.replicas for key, w in cluster.workloads.items()},
            sorted(cluster.cloud.claims),
            {n.name: n.ended_ns for n in cluster.nodes.values()},
        )
        views = {key: view.replicas for key, view in self.world.snapshot().workloads.items()}
        under_way = dict(self.world.snapshot().relayouts)
        return (
            believed,
            views,
            self.layouts(),
            under_way,
            sorted(c.name for c in self.world.snapshot().claims),
            machines,
            self.api_state(),
        )

    def api_state(self) -> object:
        """Every object that a decision may write, but for versions, times and what is told of a binding that failed."""
        if self.steps is None:
            return None
        return [
            [_untold(_bare(one)) for one in self.client.list(resource)]
            for resource in (PODS, NODES, NODE_CLAIMS, DEPLOYMENTS, PDBS, CONFIG_MAPS, RESOURCE_CLAIMS)
        ]

    @property
    def client(self) -> Client:
        """Another client of the API, which knows no faults."""
        assert self.steps is not None
        return Client(self.steps.tracked)

    # ---- what happens ----

    def apply(self, decision: Decision) -> Outcome:
        """Let the world apply it, and everybody see what came of it."""
        outcome = self.world.apply(decision)
        self.settle()
        return outcome

    def settle(self) -> None:
        if self.steps is not None:
            self.steps.settle()

    def run(self, seconds: float) -> None:
        """Let so much time go by; no loop is at work."""
        cluster = self.made.cluster
        until = cluster.now_ns + round(seconds * NS_PER_S)
        while (at := cluster.queue.next_ns()) is not None and at <= until:
            cluster.queue.step(cluster)
            self.settle()
        cluster.advance_to(until)

    def lose(self, name: str) -> None:
        """The machine fails."""
        nodes.lose_node(self.made.cluster, self.made.cluster.nodes[name], "test")
        self.settle()

    def cordon(self, name: str) -> None:
        """The node takes no more pods."""
        nodes.drain_node(self.made.cluster, self.made.cluster.nodes[name], "Test", "cordoned")
        self.settle()

    def close(self) -> None:
        if self.steps is not None:
            self.steps.close()


Make = Callable[[Path], Small]


@contextmanager
def embedded(folder: Path) -> Iterator[Small]:
    """The small cluster on an embedded API."""
    with opened("embedded") as transport:
        made = build(folder, transport)
        yield made
        made.close()


def build(folder: Path, transport: Transport | None = None, *, faulty: bool = False) -> Small:
    """The small cluster: simulated, or on an API."""
    made = run.set_up(scenario.load(_written(folder)), "slo", run.RunOptions(seed=1))
    said = Said()
    injected: list[Faulty] = []

    def between(tracked: Transport) -> Transport:
        injected.append(Faulty(tracked, 0))
        return injected[0]

    steps = None
    if transport is not None:
        wrap = between if faulty else (lambda tracked: tracked)
        steps = Lockstep(made, transport, recorder=said, controllers=wrap, delays=QUICK)
        for key in made.cluster.workloads:
            namespace, _, name = key.partition("/")
            Client(steps.tracked).patch(DEPLOYMENTS, name, {"spec": {"replicas": _replicas(key)}}, namespace)
    for workload in made.cluster.workloads.values():
        workload.replicas = _replicas(workload.key)
    world: World = made.cluster if steps is None else steps.world
    machine = LoopDriver(
        made.cluster, made.recorder(), False, world=world, settle=steps.settle if steps else lambda: None
    )
    small = Small(made, machine, world, steps, injected[0] if injected else None, said)
    machine.start([], made.scraper())
    small.run(1)
    cluster = made.cluster
    spare = nodes.start_node(cluster, SimulatedNodeClaim(small.launch("spare"), cluster.now_ns))
    nodes.register_node(cluster, spare)
    nodes.initialize_node(cluster, spare)
    small.settle()
    for decision in (small.bind(small.pod(0), small.node("base-01"), 0), small.launch("coming")):
        assert small.apply(decision) == Applied()
    return small


def _replicas(workload: str) -> int:
    return 2 if workload in (WORKLOAD, "inference/claimer") else 0


def _with_claims(manifests: Path, folder: Path) -> Path:
    """The manifests and a workload with a ResourceClaim."""
    made = folder / "manifests" / manifests.name
    if not made.is_dir():
        shutil.copytree(manifests, made)
        shutil.copy(Path(__file__).parent / "claims.yaml", made)
    return made


def _written(folder: Path) -> Path:
    """A scenario of two nodes, with the example's manifests and hardly any traffic."""
    document = yaml_text.load((EXAMPLE / "scenario.yaml").read_text(encoding="utf-8"))
    document |= {"duration": "25m", "fleet": {"nodes": [{"instanceType": TYPE, "count": 2}, CUT]}}
    for traffic in document["traffic"]:
        traffic |= {"profile": str(EXAMPLE / traffic["profile"]), "rate": 0.01, "surges": []}
    for policy in document["policies"].values():
        policy["manifests"] = str(_with_claims(EXAMPLE / policy["manifests"], folder))
    path = folder / "scenario.yaml"
    path.write_text(yaml_text.dump(document), encoding="utf-8")
    return path


def _untold(written: Any) -> Any:
    """The object without what it was told: that it could not be bound."""
    conditions = (written.get("status") or {}).get("conditions") or []
    if any(one.get("reason") == "SchedulerError" for one in conditions):
        left = [one for one in conditions if one.get("reason") != "SchedulerError"]
        status = {name: value for name, value in written["status"].items() if name != "conditions"}
        return written | {"status": status | ({"conditions": left} if left else {})}
    return written


def _bare(one: dict[str, Any]) -> dict[str, Any]:
    meta = {k: v for k, v in one["metadata"].items() if k not in ("resourceVersion", "managedFields", "generation")}
    return {**one, "metadata": meta}


def returns(small: Small, name: str, **changes: str) -> Return:
    """Give this node back."""
    return Return(small.node(name, **changes), WHY)
