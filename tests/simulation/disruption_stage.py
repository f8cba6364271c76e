"""A simulated cluster with one NodePool whose nodes are launched and taken back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from sim_builders import POOL, bind, workload, world
from sim_builders import node as ready_node

from tonnage.control.disruption import node_loops
from tonnage.control.loops import Loop
from tonnage.control.nodes import Pools
from tonnage.control.scheduler import Scheduler
from tonnage.decisions import Applied
from tonnage.facts import instances, prices
from tonnage.machines import pods
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.objects import Workload
from tonnage.machines.scraping import Scraper
from tonnage.objects import karpenter
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.consolidation import Gates
from tonnage.provisioning.headroom import Buffer
from tonnage.simulation.driver import LoopDriver
from tonnage.simulation.recorder import Recorder
from tonnage.units import NS_PER_S

TYPES = ("m5.large", "m5.xlarge", "m5.2xlarge", "m5.4xlarge")
MARKET = Catalogue([instances.get(name) for name in TYPES], prices.load())
NOON_NS = 1_772_452_800 * NS_PER_S
"""2026-03-02 12:00:00 UTC: when the worlds of these tests begin."""
ASKED = {"requests": {"cpu": "1", "memory": "1Gi"}}


def pool(**disruption: Any) -> karpenter.NodePool:
    template: dict[str, Any] = {
        "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}],
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
    }
    template |= disruption.pop("template", {})
    settings_ = {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]} | disruption
    spec: dict[str, Any] = {"template": {"spec": template}, "disruption": settings_}
    for name in ("replicas", "limits"):
        if name in settings_:
            spec[name] = settings_.pop(name)
    return msgspec.convert(
        {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": POOL}, "spec": spec},
        karpenter.NodePool,
    )


@dataclass
class Stage:
    """A simulated cluster with one NodePool, at time 0."""

    pool: karpenter.NodePool
    buffers: tuple[Buffer, ...] = ()
    gates: Gates | None = None
    market: Catalogue = MARKET
    cluster: SimulatedCluster = field(default_factory=lambda: world(start_s=0))
    machine: LoopDriver | None = None
    watched: list[Callable[[], None]] = field(default_factory=list)

    def begin(self, policy: str = "karpenter") -> Stage:
        self.machine = LoopDriver(self.cluster, Recorder(5 * NS_PER_S), check=True)
        loops: list[Loop] = [Scheduler().loop()]
        loops += node_loops(
            self.market, lambda: Pools((self.pool,), buffers=self.buffers), NOON_NS, policy, self.gates, expires=True
        )
        self.machine.start(loops, Scraper((), histograms=False))
        return self

    def until(self, second: float) -> Stage:
        assert self.machine is not None
        self.machine.play(round(second * NS_PER_S), lambda cluster, end: [look() for look in self.watched] and None)
        assert self.machine.violations == []
        return self

    def done(self, *kinds: str) -> list[tuple[float, str]]:
        """(second, summary) of what took effect."""
        assert self.machine is not None
        wanted = kinds or ("Disrupt", "Keep", "Launch", "Evict", "Return")
        return [
            (one.t_s, one.summary)
            for one in self.machine.recorder.decisions
            if one.kind in wanted and one.outcome == "Applied"
        ]

    def run(self, name: str, replicas: int, on: str, type_: str, **spec: Any) -> Workload:
        """Pods of one core each on a node of their own that is there already."""
        made = workload(self.cluster, name, replicas, gpus=0, container={"resources": ASKED}, **spec)
        made.server = None
        target = ready_node(self.cluster, on, type_, node_pool=POOL)
        pods.reconcile(self.cluster, made)
        for one in made.active:
            assert isinstance(bind(self.cluster, one, target), Applied)
        return made
