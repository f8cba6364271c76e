"""A cluster whose GPUs NVIDIA's mig-manager cuts, which is played by hand: nodes as it would write them."""

from __future__ import annotations

import random
import time
from typing import Any

from live.contract.small import QUICK, Said
from live.gangs.gang_cluster import SteppedClock
from tonnage.apiserver.api import Api
from tonnage.apiserver.inprocess import InProcess
from tonnage.decisions import Instances, Outcome, Reason, Ref, Relayout
from tonnage.facts.labels import MIG_CONFIG, MIG_RELAYOUT
from tonnage.fleet.devices import Piece
from tonnage.hollow.definitions import define_missing_kinds
from tonnage.kube.informer import Informers
from tonnage.kube.resources import CLUSTER_POLICIES, CONFIG_MAPS, NAMESPACES, NODES, PODS
from tonnage.kube.verbs import Client
from tonnage.live.annotations import GPUS
from tonnage.live.api_effects import ApiEffects
from tonnage.live.cutting import Cutter, read_order
from tonnage.live.watching import watch_world
from tonnage.live.world import ClusterWorld
from tonnage.partitioning.fleet_layouts import instances_of
from tonnage.partitioning.node_cuts import MIG_STATE, MIG_STRATEGY
from tonnage.partitioning.node_layouts import Order
from tonnage.units import NS_PER_S

SEVENTH, HALF, WHOLE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb", "nvidia.com/gpu"
HALVES = (("3g.40gb", 0), ("3g.40gb", 4))
WHY = Reason("because of a test")
FILE = """\
version: v1
mig-configs:
  begin: # the first GPU in sevenths
    - {devices: [0], mig-enabled: true, mig-devices: {1g.10gb: 7}}
    - {devices: [1, 2, 3, 4, 5, 6, 7], mig-enabled: false}
"""
BEGIN = {SEVENTH: 7, WHOLE: 7}


class NvidiaCluster:
    """One machine with eight GPUs, ``n``, labelled ``begin``. ``map_name``: the ConfigMap that the ClusterPolicy names; empty: its
    own; None: there is no ClusterPolicy."""

    def __init__(
        self,
        map_name: str | None = "layouts",
        cutter: Cutter | None = None,
        *,
        instance_type: str = "p5.48xlarge",
        profile: str = "1g.10gb",
    ) -> None:
        self.api = Api()
        self.client = Client(InProcess(self.api))
        self.clock, self.said, self.cutter = SteppedClock(), Said(), cutter
        self.client.create(NAMESPACES, {"metadata": {"name": "gpu-operator"}})
        if map_name is not None:
            define_missing_kinds(self.client, [CLUSTER_POLICIES])
            spec = {"mig": {"strategy": "mixed"}, "migManager": {"config": {"name": map_name}}}
            self.client.create(CLUSTER_POLICIES, {"metadata": {"name": "cluster-policy"}, "spec": spec})
        text = FILE.replace("1g.10gb", profile)
        name = map_name or "default-mig-parted-config"
        self.client.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": {"config.yaml": text}}, "gpu-operator")
        labels = {MIG_CONFIG: "begin", MIG_STATE: "success", MIG_STRATEGY: "mixed", MIG_RELAYOUT: "true"}
        labels |= {"node.kubernetes.io/instance-type": instance_type}
        self.client.create(NODES, {"metadata": {"name": "n", "labels": labels}})
        self.world, self.informers = self._connect()
        self.offers({f"nvidia.com/mig-{profile}": 7, WHOLE: 7})

    def _connect(self) -> tuple[ClusterWorld, Informers]:
        world = ClusterWorld(
            ApiEffects(self.client, self.clock),
            self.clock,
            price=lambda *_: 0,
            recorder=self.said,
            cutter=self.cutter,
        )
        informers = Informers(self.client, time.time, random.Random(0), delays=QUICK)
        watch_world(informers, world)
        assert informers.wait_synced(20), informers.problems()
        return world, informers

    def restart(self) -> None:
        """The controllers' process ends, and another begins."""
        self.close()
        self.world, self.informers = self._connect()

    def close(self) -> None:
        self.informers.stop()
        self.world.close()

    # ---- what mig-manager and the device plugin do ----

    def offers(self, amounts: dict[str, int]) -> None:
        """The kubelet says what it can give."""
        every = {"cpu": "190", "memory": "1900Gi", "pods": "110", **{name: str(n) for name, n in amounts.items()}}
        there = self.client.get(NODES, "n").get("status", {}).get("allocatable", {})
        every = {name: "0" for name in there if "/" in name} | every
        ready = [{"type": "Ready", "status": "True"}]
        status = {"capacity": every, "allocatable": every, "conditions": ready}
        self.client.patch(NODES, "n", {"status": status}, subresource="status")
        self.see()

    def says(self, state: str) -> None:
        """mig-manager writes how far it is."""
        self.client.patch(NODES, "n", {"metadata": {"labels": {MIG_STATE: state}}})
        self.see()

    def label(self, name: str) -> None:
        """Somebody labels the node."""
        self.client.patch(NODES, "n", {"metadata": {"labels": {MIG_CONFIG: name}}})
        self.see()

    def pod(self, name: str, resource: str, gpus: str = "") -> None:
        """A pod stands on the node; ``gpus``: as its annotation says where."""
        limits = {"limits": {resource: "1"}}
        meta: dict[str, Any] = {"name": name, "annotations": {GPUS: gpus} if gpus else {}}
        spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i", "resources": limits}]}
        self.client.create(PODS, {"metadata": meta, "spec": spec}, "default")
        self.see()

    def held(self) -> dict[str, tuple[tuple[int, ...], tuple[Piece, ...]]]:
        """By pod: the GPUs that it is on, and what it holds of them."""
        fleet = self.world.snapshot().fleet
        pods = (fleet.pod(row) for row in fleet.pod_by_key.values())
        return {pod.spec.name: (pod.devices, pod.pieces) for pod in pods}

    # ---- the world ----

    def see(self) -> None:
        """Take what the watches bring."""
        for resource in (NODES, PODS, CONFIG_MAPS):
            for informer in self.informers:
                if informer.resource == resource:
                    self._catch_up(informer)

    def _catch_up(self, informer: Any) -> None:
        deadline = time.monotonic() + 10
        found = self.client.list(informer.resource)
        wanted = {
            (m.get("namespace", ""), m["name"]): m["resourceVersion"]
            for m in (one["metadata"] for one in found)
            if informer.selects(m.get("namespace", ""), m["name"])
        }
        while True:
            seen = {(o.namespace, o.name): o.metadata.resource_version for o in informer.items()}
            if seen == wanted:
                return
            assert time.monotonic() < deadline, (informer.resource.plural, seen, wanted)
            self.informers.pump(0.01)

    def cut(self, device: int, before: Instances, after: Instances) -> Outcome:
        """Have the MIG layout of a GPU changed."""
        outcome = self.world.apply(Relayout(Ref("Node", "n"), device, before, after, WHY))
        self.see()
        return outcome

    def wait(self, seconds: float) -> None:
        """Time passes, and the world looks after what is open."""
        self.clock.at_ns += round(seconds * NS_PER_S)
        self.world.woken()
        self.see()

    def layouts(self) -> list[Instances]:
        """How the GPUs that are there are cut, as the world has it."""
        fleet = self.world.snapshot().fleet
        row = fleet.node_by_name["n"]
        return [instances_of(fleet, (row, device)) for device in range(8) if fleet.devices[row, device] != -2]

    @property
    def node(self) -> dict[str, Any]:
        return self.client.get(NODES, "n")

    @property
    def named(self) -> str:
        """The label."""
        return str(self.node["metadata"]["labels"][MIG_CONFIG])

    @property
    def order(self) -> Order | None:
        return read_order(self.node["metadata"].get("annotations", {}))
