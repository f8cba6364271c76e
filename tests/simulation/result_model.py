"""The fluid model behind ``result_builder``: demand, replicas, nodes and money of 90 minutes, one step 15 s.

It makes the columns agree with one another: replicas with the heat map, nodes with the bill. It is not a simulator: it
only has to look like the output of one.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from tonnage.simulation import result as r

STEP_S = 15.0
PRICE = 10_492_640  # micro-dollars per hour, g6e.12xlarge on demand
GPUS_PER_NODE = 4
NODE_READY_S = 195.0
ENGINE_READY_S = 225.0


@dataclass
class Profile:
    """How a policy behaves in this model."""

    lag_s: float  # from a change in traffic to a change in wanted replicas
    down_s: float  # stabilisation before scaling down
    headroom: float
    return_after_s: float


PROFILES = {
    "keda+karpenter": Profile(lag_s=60, down_s=300, headroom=1.0, return_after_s=600),
    "slo+optimal": Profile(lag_s=15, down_s=180, headroom=1.15, return_after_s=60),
    "static": Profile(lag_s=math.inf, down_s=math.inf, headroom=1.0, return_after_s=math.inf),
}


@dataclass
class Replica:
    service: str
    number: int
    created_s: float
    bound_s: float | None = None
    ready_s: float | None = None


@dataclass
class Node:
    name: str
    launched_s: float
    ready_s: float
    ended_s: float | None = None
    empty_since: float | None = None
    gpus: list[Replica | None] = field(default_factory=lambda: [None] * GPUS_PER_NODE)
    owner: list[list[int]] = field(default_factory=lambda: [[] for _ in range(GPUS_PER_NODE)])
    busy: list[list[int]] = field(default_factory=lambda: [[] for _ in range(GPUS_PER_NODE)])


@dataclass
class Service:
    name: str
    model: str
    base_rate: float
    capacity: float
    min_replicas: int
    surge: tuple[float, float, float] | None
    replicas: list[Replica] = field(default_factory=list)
    created: int = 0
    cold_starts: list[float | None] = field(default_factory=list)
    backlog: float = 0.0
    low_since: float | None = None
    columns: dict[str, list] = field(default_factory=dict)

    def rate(self, t: float, rng: random.Random) -> float:
        wave = 1 + 0.12 * math.sin(t / 700)
        factor = self.surge[2] if self.surge and self.surge[0] <= t < self.surge[1] else 1.0
        return max(0.0, self.base_rate * wave * factor * (1 + rng.gauss(0, 0.05)))

    def put(self, **values: object) -> None:
        for name, value in values.items():
            self.columns.setdefault(name, []).append(value)


class Run:
    """The fluid model's state and what it has recorded."""

    def __init__(self, policy: str, seed: int) -> None:
        self.policy, self.profile, self.rng = policy, PROFILES[policy], random.Random(seed)
        self.services = [
            Service("serving/chat-8b", "meta-llama/Llama-3.1-8B-Instruct", 9.0, 4.2, 3, (1800.0, 3600.0, 3.0)),
            Service("serving/code-14b", "Qwen/Qwen2.5-Coder-14B-Instruct", 3.2, 1.9, 2, None),
        ]
        self.nodes: list[Node] = []
        self.decisions: list[r.DecisionRecord] = []
        self.events: list[r.EventRecord] = []
        self.fleet: dict[str, list[int]] = {
            name: [] for name in ("nodes_ready", "nodes_starting", "gpus_paid", "gpus_allocated", "spend_micro_usd")
        }
        self.cost = {"serving/chat-8b": [0, 0, 0], "serving/code-14b": [0, 0, 0], "": [0, 0, 0]}
        self.busy_s = self.allocated_s = 0.0
        for number in (1, 2):
            self.nodes.append(Node(f"gpu-l40s-{number}", 0.0, 0.0))
        self.t_s: list[float] = []

    def decide(
        self,
        t: float,
        loop: str,
        kind: str,
        target: str,
        summary: str,
        verdict: str,
        evidence: list[tuple[str, r.Scalar]],
        alternatives: list[tuple[str, str, float | None]] | None = None,
        outcome: str = "Applied",
    ) -> None:
        self.decisions.append(
            r.DecisionRecord(t, loop, kind, target, summary, verdict, evidence, alternatives or [], outcome)
        )

    def event(self, t: float, obj: str, kind: str, reason: str, message: str, count: int = 1) -> None:
        self.events.append(r.EventRecord(t, obj, kind, reason, message, count))

    def scale(self, service: Service, t: float) -> int:
        past = service.columns.get("arrivals_per_s", [])
        lag = self.profile.lag_s
        current = len(service.replicas)
        floor = service.min_replicas if math.isfinite(lag) else service.min_replicas + 1
        if not math.isfinite(lag) or len(past) <= lag / STEP_S:
            wanted = max(floor, current)
        else:
            window = past[-1 - int(lag / STEP_S) :]
            load = sum(window) / len(window) + service.backlog / 110
            wanted = min(16, max(floor, math.ceil(self.profile.headroom * load / service.capacity)))
        if wanted < current:
            service.low_since = t if service.low_since is None else service.low_since
            if t - service.low_since < self.profile.down_s:
                wanted = current
        else:
            service.low_since = None
        if wanted != current:
            self.decide(
                t,
                self.policy.split("+", maxsplit=1)[0],
                "Scale",
                f"Deployment {service.name}",
                f"scale Deployment {service.name} from {current} to {wanted}",
                "the queue per replica is above its target" if wanted > current else "load fell below target",
                [
                    ("waiting", round(service.backlog, 1)),
                    ("target_per_replica", 10),
                    ("ready", sum(x.ready_s is not None for x in service.replicas)),
                    ("kv_usage", None),
                ],
                [
                    (f"{current} replicas", "queue grows by 6.1 requests/s", float(service.backlog)),
                    (
                        f"{wanted + 2} replicas",
                        "above maxReplicaCount 16" if wanted > 14 else "costs $5.25/h more",
                        None,
                    ),
                ],
            )
            for _ in range(wanted - current):
                service.created += 1
                service.replicas.append(Replica(service.name, service.created, t))
            for replica in reversed(service.replicas[wanted:]):
                service.replicas.remove(replica)
                for node in self.nodes:
                    node.gpus = [None if x is replica else x for x in node.gpus]
        return wanted

    def place(self, t: float) -> int:
        pending = 0
        for service in self.services:
            for replica in service.replicas:
                if replica.bound_s is None:
                    pending += not self.bind(replica, t)
                if replica.ready_s is None and replica.bound_s is not None:
                    wait = 0 if replica.bound_s == STEP_S else ENGINE_READY_S
                    if t >= replica.bound_s + wait:
                        replica.ready_s = t
                        if t > STEP_S:
                            service.cold_starts.append(t - replica.created_s)
                        self.event(t, f"Pod {pod(replica)}", "Normal", "Ready", "Readiness probe succeeded")
        return pending

    def bind(self, replica: Replica, t: float) -> bool:
        for node in self.nodes:
            if node.ended_s is None and t >= node.ready_s and None in node.gpus:
                index = node.gpus.index(None)
                node.gpus[index], replica.bound_s = replica, t
                self.decide(
                    t,
                    "scheduler",
                    "Bind",
                    f"Pod {pod(replica)}",
                    f"bind Pod {pod(replica)} to {node.name}",
                    "best score of the nodes that fit",
                    [("gpu", index), ("score", 87.5), ("feasible_nodes", len(self.nodes))],
                    [(other.name, "insufficient nvidia.com/gpu", None) for other in self.nodes if other is not node],
                )
                self.event(
                    t,
                    f"Pod {pod(replica)}",
                    "Normal",
                    "Scheduled",
                    f"Successfully assigned {pod(replica)} to {node.name}",
                )
                return True
        if (t - replica.created_s) % 60 == 0:
            self.decide(
                t,
                "scheduler",
                "Wait",
                f"Pod {pod(replica)}",
                f"Pod {pod(replica)} waits",
                f"0/{len(self.nodes)} nodes have a free GPU",
                [("requested_gpus", 1), ("free_gpus", 0)],
            )
            self.event(
                t, f"Pod {pod(replica)}", "Warning", "FailedScheduling",
                f"0/{len(self.nodes)} nodes are available: {len(self.nodes)} Insufficient nvidia.com/gpu.", 3,
            )  # fmt: skip
        return False

    def provision(self, t: float, pending: int) -> None:
        starting = sum(node.ended_s is None and node.ready_s > t for node in self.nodes)
        alive = sum(node.ended_s is None for node in self.nodes)
        for _ in range(min(5 - alive, math.ceil(pending / GPUS_PER_NODE) - starting)):
            name = f"gpu-l40s-{len(self.nodes) + 1}"
            self.nodes.append(Node(name, t, t + NODE_READY_S))
            self.decide(
                t, "provisioner", "Launch", f"NodeClaim {name}",
                f"launch g6e.12xlarge (on-demand) as {name} for {pending} pods",
                "cheapest offering that fits all pending pods",
                [("pods", pending), ("price_usd_per_hour", 10.49264), ("usd_per_pod_hour", 10.49264 / pending)],
                [
                    ("g6e.48xlarge", "holds them too, but costs 2.9 times as much", 30.13118),
                    ("g5.12xlarge", "24 GiB of GPU memory; the pods need 40 GiB", 5.672),
                    ("p4d.24xlarge", "not in the NodePool's instance families", 32.7726),
                ],
            )  # fmt: skip
            self.event(
                t,
                f"NodeClaim {name}",
                "Normal",
                "Launched",
                "Status condition transitioned, Type: Launched, Status: Unknown -> True",
            )
        for node in self.nodes[2:]:
            if node.ended_s is None and t > node.ready_s and not any(node.gpus):
                node.empty_since = t if node.empty_since is None else node.empty_since
                if t - node.empty_since >= self.profile.return_after_s:
                    node.ended_s = t
                    self.decide(
                        t, "provisioner", "Return", f"Node {node.name}", f"return {node.name}", "empty for longer than consolidateAfter",
                        [("empty_s", t - node.empty_since), ("saves_usd_per_hour", 10.49264)],
                    )  # fmt: skip
                    self.event(
                        t,
                        f"Node {node.name}",
                        "Normal",
                        "DisruptionTerminating",
                        "Disrupting Node: Empty/Delete",
                    )
            else:
                node.empty_since = None

    def serve(self, service: Service, t: float, wanted: int) -> float:
        rng = self.rng
        rate = service.rate(t, rng)
        ready = sum(x.ready_s is not None for x in service.replicas)
        starting = sum(x.bound_s is not None and x.ready_s is None for x in service.replicas)
        capacity = ready * service.capacity
        service.backlog = max(0.0, service.backlog + (rate - capacity) * STEP_S)
        usage = min(1.0, (rate + service.backlog / STEP_S) / capacity) if capacity else 0.0
        ttft = 95 + 140 * usage**4 + (1000 * service.backlog / capacity if capacity else 0)
        ttft *= math.exp(rng.gauss(0, 0.06))
        tpot = (17 + 15 * usage**2) * math.exp(rng.gauss(0, 0.03))
        none = ready == 0
        service.put(
            arrivals_per_s=round(rate, 3),
            replicas_wanted=wanted,
            replicas_ready=ready,
            replicas_starting=starting,
            replicas_pending=len(service.replicas) - ready - starting,
            requests_running=round(min(rate, capacity) * 4.5),
            requests_waiting=round(service.backlog),
            kv_usage=None if none else round(0.12 + 0.8 * usage**1.5 * rng.uniform(0.94, 1.0), 4),
            ttft_p50_ms=None if none else round(ttft, 3),
            ttft_p99_ms=None if none else round(ttft * 1.9 + 60, 3),
            tpot_p50_ms=None if none else round(tpot, 3),
            tpot_p99_ms=None if none else round(tpot * 1.45, 3),
            slo_share=None if none else round(max(0.0, min(1.0, 1.35 - ttft / 3000)), 4),
        )
        return usage

    def bill(self, t: float, usage: dict[str, float]) -> None:
        owners = ["", *(service.name for service in self.services)]
        paid = held = 0
        for node in self.nodes:
            alive = node.ended_s is None
            for index, replica in enumerate(node.gpus):
                owner = -1 if not alive else owners.index(replica.service) if replica else 0
                share = usage[replica.service] if replica and replica.ready_s is not None else 0.0
                share = min(1.0, share * self.rng.uniform(0.9, 1.05))
                node.owner[index].append(owner)
                node.busy[index].append(round(100 * share))
                if not alive:
                    continue
                money = round(PRICE / GPUS_PER_NODE * STEP_S / 3600)
                used = round(money * share)
                line = self.cost[replica.service if replica else ""]
                if replica:
                    line[0] += used
                    line[1] += money - used
                    self.allocated_s += STEP_S
                    self.busy_s += STEP_S * share
                else:
                    line[2] += money
                paid += 1
                held += replica is not None
        spent = sum(sum(line) for line in self.cost.values())
        alive_nodes = [node for node in self.nodes if node.ended_s is None]
        for name, value in {
            "nodes_ready": sum(t >= node.ready_s for node in alive_nodes),
            "nodes_starting": sum(t < node.ready_s for node in alive_nodes),
            "gpus_paid": paid,
            "gpus_allocated": held,
            "spend_micro_usd": spent,
        }.items():
            self.fleet[name].append(value)

    def step(self, t: float) -> None:
        self.t_s.append(t)
        wanted = {service.name: self.scale(service, t) for service in self.services}
        pending = self.place(t)
        self.provision(t, pending)
        usage = {service.name: self.serve(service, t, wanted[service.name]) for service in self.services}
        self.bill(t, usage)


def pod(replica: Replica) -> str:
    return f"{replica.service}-{replica.number:02d}"
