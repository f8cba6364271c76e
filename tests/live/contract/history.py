"""What happened in an API, as one who watches it without faults sees it, and what must never happen there."""

from __future__ import annotations

import random
import time
from collections import Counter

from live.contract.small import QUICK
from tonnage.facts import instances
from tonnage.kube.informer import Informers
from tonnage.kube.resources import NODE_CLAIMS, NODES, PODS
from tonnage.kube.transport import Transport
from tonnage.kube.verbs import Client
from tonnage.live.annotations import DISRUPTED_TAINT, LAUNCH
from tonnage.live.nodes import INSTANCE_TYPE, NODE_POOL
from tonnage.live.views import launch_of
from tonnage.objects import core, karpenter


class History:
    """Watches pods and NodeClaims. Pump it, and read what was wrong."""

    def __init__(self, transport: Transport) -> None:
        self.wrong: list[str] = []
        self.claims: dict[str, str] = {}
        """uid → the decision that launched it."""
        self.launched: dict[str, str] = {}
        """The same, of those that became a machine."""
        self.bound: Counter[str] = Counter()
        """uid of a pod → how often it was put on a node."""
        self.informers = Informers(Client(transport), time.time, random.Random(2), delays=QUICK)
        self._pods = self.informers.add(PODS, core.Pod)
        self._pods.on_change(lambda change, old, new: self._pod(old, new))
        self._nodes = self.informers.add(NODES, core.Node)
        self._claims = self.informers.add(NODE_CLAIMS, karpenter.NodeClaim)
        self._claims.on_change(lambda change, old, new: self._claim(new))
        assert self.informers.wait_synced(10)

    def _pod(self, old: core.Pod | None, new: core.Pod | None) -> None:
        if new is None:
            return
        was = old.spec.node_name if old is not None else ""
        if new.spec.node_name and not was:
            self.bound[new.metadata.uid] += 1
        if was and new.spec.node_name != was:
            self.wrong.append(f"pod {new.name} moved from {was} to {new.spec.node_name}")
        if new.status.phase == "Failed":
            self.wrong.append(f"pod {new.name} on {new.spec.node_name} was turned away: {new.status.message}")

    def _claim(self, new: karpenter.NodeClaim | None) -> None:
        if new is None:
            return
        decision = new.metadata.annotations.get(LAUNCH, "")
        if new.metadata.uid not in self.claims:
            self.claims[new.metadata.uid] = decision
            self._check_needed(new)
        if new.status.provider_id:
            self.launched[new.metadata.uid] = decision

    def _check_needed(self, bought: karpenter.NodeClaim) -> None:
        """There are more pods that want a GPU than all that is there or on its way has GPUs."""
        own = [node for node in self._nodes.items() if not node.metadata.labels.get(NODE_POOL)]
        leaving = {node.name for node in self._nodes.items() if node.spec.unschedulable or _disrupted(node)}
        claims = [c for c in self._claims.items() if c.metadata.uid != bought.metadata.uid]
        staying = [c for c in claims if not c.metadata.deletion_timestamp and c.status.node_name not in leaving]
        room = sum(_gpus(node.metadata.labels.get(INSTANCE_TYPE, "")) for node in own if node.name not in leaving)
        room += sum(_gpus(launch_of(claim).instance_type) for claim in staying)
        wanting = [
            p for p in self._pods.items() if any("nvidia.com/gpu" in c.resources.limits for c in p.spec.containers)
        ]
        wanting = [pod for pod in wanting if pod.spec.node_name not in leaving]
        if room >= len(wanting):
            self.wrong.append(f"{bought.name} was launched for {len(wanting)} pods, and there are {room} GPUs")

    def check(self) -> None:
        """Nothing was bound twice, and no decision has bought twice."""
        assert not self.wrong, self.wrong
        assert not [uid for uid, times in self.bound.items() if times > 1]
        twice = [decision for decision, times in Counter(self.launched.values()).items() if decision and times > 1]
        assert not twice, twice


def _disrupted(node: core.Node) -> bool:
    return any(taint.key == DISRUPTED_TAINT for taint in node.spec.taints)


def _gpus(instance_type: str) -> int:
    return instances.get(instance_type).gpu_count
