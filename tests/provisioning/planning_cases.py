"""Planning cases drawn by a seed: written once as Kubernetes objects, read by the planner and by the real Karpenter."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec
from provisioning_builders import GPU, catalogue

from tonnage.decisions import Ref
from tonnage.facts import instances
from tonnage.facts.labels import EC2_NODE_CLASS
from tonnage.objects import core, karpenter, quantity
from tonnage.provisioning import labels
from tonnage.provisioning.catalogue import NODES, Catalogue
from tonnage.provisioning.nodeclass import NodeStorage
from tonnage.provisioning.plans import PlanSettings
from tonnage.provisioning.pods import BoundPod, ExistingNode, PendingPod, PodShape
from tonnage.units import NS_PER_S

Json = dict[str, Any]

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
HOSTNAME = "kubernetes.io/hostname"
RACK = "example.com/rack"
TEAM = "example.com/team"
KEYS = (labels.ZONE, labels.ZONE, HOSTNAME, HOSTNAME, labels.CAPACITY_TYPE, RACK)
NAME = "karpenter.k8s.aws/instance-gpu-name"
FAMILY = "karpenter.k8s.aws/instance-family"
SIZES = "karpenter.k8s.aws/instance-cpu"
RESERVATION = "karpenter.k8s.aws/capacity-reservation-id"
STORAGE = NodeStorage()


@dataclass
class Case:
    """A cluster at the moment of planning, as objects; ``sold``: (type, zone, capacity type) → micro-USD an hour."""

    seed: int
    types: list[instances.InstanceType]
    sold: dict[tuple[str, str, str], int]
    pools: list[Json] = field(default_factory=list)
    pods: list[Json] = field(default_factory=list)
    nodes: list[Json] = field(default_factory=list)
    daemons: list[Json] = field(default_factory=list)
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    ignore_preferences: bool = False
    best_effort: bool = False

    @property
    def catalogue(self) -> Catalogue:
        return catalogue(self.types, self.sold)


@cache
def _known_types() -> tuple[instances.InstanceType, ...]:
    return tuple(one for one in instances.all() if one.arch == "amd64" and one.allocatable_cpu_milli > 0)


def draw(seed: int) -> Case:
    """The case of this number."""
    return _Draw(random.Random(f"planning case {seed}"), seed).case()


def known() -> dict[str, Case]:
    """The listed differences from Karpenter, one small case each, by name."""
    return {"nodes-limit": _nodes_limit(), "sidecar-ports": _sidecar_ports()}


def _plain(name: str) -> Case:
    one = next(one for one in _known_types() if one.name == "m5.large")
    case = Case(-1, [one], {(one.name, ZONES[0], "on-demand"): 96_000})
    draw = _Draw(random.Random(name), -1)
    pool = draw.pool("pool-0")
    pool["spec"] = {"template": {"metadata": {"labels": {}}, "spec": pool["spec"]["template"]["spec"]}}
    pool["spec"]["template"]["spec"] |= {"requirements": [], "taints": [], "startupTaints": []}
    case.pools = [pool]
    return case


def _pod(number: int, container: Json, **spec: Any) -> Json:
    meta = {"name": f"p{number}", "namespace": "default", "uid": f"u{number}", "labels": {}}
    meta["creationTimestamp"] = "2026-11-01T00:00:00Z"
    written = {"containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": written, "status": {"phase": "Pending"}}


def _nodes_limit() -> Case:
    """Four pods of which each fills a node, and a limit of two nodes."""
    case = _plain("nodes limit")
    case.pools[0]["spec"]["limits"] = {"nodes": "2"}
    asked = {"name": "main", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}
    case.pods = [_pod(number, asked) for number in range(4)]
    return case


def _sidecar_ports() -> Case:
    """Two pods whose sidecars want the same port of the node."""
    case = _plain("sidecar ports")
    asked = {"name": "main", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}
    port = {"containerPort": 80, "hostPort": 80, "protocol": "TCP"}
    sidecar = {"name": "side", "restartPolicy": "Always", "ports": [port]}
    case.pods = [_pod(number, asked, initContainers=[sidecar]) for number in range(2)]
    return case


class _Draw:
    def __init__(self, rng: random.Random, seed: int) -> None:
        self.rng, self.seed = rng, seed
        self.rules = rng.random() < 0.75
        self.serial = 0

    def case(self) -> Case:
        rng = self.rng
        types = rng.sample(_known_types(), rng.choice([4, 12, 25, 40]))
        zones = ZONES[: rng.choice([1, 2, 3, 3])]
        sold = {
            (one.name, zone, kind): one.vcpu * 48_000 * (4 if kind == "on-demand" else 1) + rng.randrange(40_000)
            for one in types
            for zone in zones
            for kind in ("on-demand", "spot")
            if rng.random() < 0.85
        }
        types = [one for one in types if any(name == one.name for name, _, _ in sold)]
        case = Case(self.seed, types, sold)
        case.namespaces = {"default": {"stage": "prod"}, "other": {"stage": "test"}, "third": {"stage": "prod"}}
        case.ignore_preferences = rng.random() < 0.1
        case.best_effort = rng.random() < 0.15
        case.pools = [self.pool(f"pool-{n}") for n in range(rng.choice([1, 1, 2, 3]))]
        case.daemons = [self.daemon(n) for n in range(rng.choice([0, 0, 1, 2]))]
        for number in range(rng.choice([0, 0, 1, 3, 6])):
            self.node(case, number)
        for number in range(rng.randint(1, 5)):
            case.pods += self.workload(number, rng.choice([1, 2, 3, 5, 9, 16]))
        return case

    def some(self, chance: float) -> bool:
        return self.rng.random() < chance

    def requirement(self, *, of_pool: bool) -> Json:
        rng = self.rng
        drawn = rng.choice(
            [
                (labels.ZONE, "In", rng.sample(ZONES, rng.choice([1, 2]))),
                (labels.ZONE, "NotIn", [rng.choice(ZONES)]),
                (labels.CAPACITY_TYPE, "In", rng.choice([["spot"], ["on-demand"], ["spot", "on-demand"]])),
                (SIZES, rng.choice(["Gt", "Lt"]), [str(rng.choice([2, 4, 16, 64]))]),
                (SIZES, "In", [str(n) for n in rng.sample([2, 4, 8, 16, 32, 48, 96], 4)]),
                (NAME, rng.choice(["Exists", "DoesNotExist"]), []),
                (FAMILY, "NotIn", [rng.choice(["g6", "g5", "m7i", "c7i"])]),
                (TEAM, "In", rng.sample(["red", "blue", "green"], rng.choice([1, 2]))),
                (TEAM, rng.choice(["Exists", "DoesNotExist"]), []),
                (TEAM, "NotIn", [rng.choice(["red", "blue"])]),
                (RACK, "In", rng.sample(["r1", "r2", "r3"], rng.choice([1, 2, 3]))),
            ]
        )
        if of_pool and self.some(0.15):
            drawn = (SIZES, rng.choice(["Gte", "Lte"]), [str(rng.choice([4, 8, 48]))])
        return {"key": drawn[0], "operator": drawn[1], "values": drawn[2]}

    def pool(self, name: str) -> Json:
        rng = self.rng
        wanted = [self.requirement(of_pool=True) for _ in range(rng.choice([0, 1, 1, 2, 3]))]
        if self.some(0.1):
            key = rng.choice([FAMILY, "node.kubernetes.io/instance-type", labels.ZONE])
            wanted.append({"key": key, "operator": "Exists", "minValues": rng.choice([1, 2, 3, 5])})
        template: Json = {
            "requirements": wanted,
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        }
        if self.some(0.25):
            template["taints"] = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
        elif self.some(0.1):
            template["taints"] = [{"key": "soft", "effect": "PreferNoSchedule"}]
        if self.some(0.2):
            template["startupTaints"] = [{"key": "starting", "effect": "NoSchedule"}]
        own: dict[str, str] = {}
        if self.some(0.3):
            own[TEAM] = rng.choice(["red", "blue"])
        if self.some(0.3):
            own[RACK] = rng.choice(["r1", "r2"])
        spec: Json = {"template": {"metadata": {"labels": own}, "spec": template}}
        if self.some(0.3):
            spec["weight"] = rng.choice([1, 10, 10, 50])
        if self.some(0.35):
            spec["limits"] = rng.choice(
                [{"cpu": "40"}, {"cpu": "200"}, {"memory": "300Gi", "cpu": "1000"}, {GPU: "6"}, {"cpu": "8"}]
            )
        return {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": name, "uid": f"uid-{name}"},
            "spec": spec,
        }

    def selector(self) -> Json:
        rng = self.rng
        if self.some(0.15):
            expression = {"key": "app", "operator": "In", "values": rng.sample(["a", "b", "c"], 2)}
            return {"matchExpressions": [expression]}
        if self.some(0.05):
            return {}
        return {"matchLabels": {"app": rng.choice("abc")}}

    def term(self, selector: Json | None = None) -> Json:
        rng = self.rng
        found: Json = {"topologyKey": rng.choice(KEYS), "labelSelector": selector or self.selector()}
        if self.some(0.1):
            found["namespaces"] = rng.sample(["default", "other", "third"], 2)
        elif self.some(0.1):
            found["namespaceSelector"] = {"matchLabels": {"stage": "prod"}}
        return found

    def affinity(self, own: Json) -> Json:
        rng = self.rng
        found: Json = {}
        node: Json = {}
        if self.some(0.25):
            terms = [{"matchExpressions": [self.requirement(of_pool=False)]} for _ in range(rng.choice([1, 1, 2, 3]))]
            node["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
        if self.some(0.2):
            node["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {
                    "weight": weight,
                    "preference": {"matchExpressions": [self.requirement(of_pool=False)]},
                }
                for weight in rng.sample([1, 10, 50, 100], rng.choice([1, 2]))
            ]
        if node:
            found["nodeAffinity"] = node
        for kind, chance in (("podAffinity", 0.25), ("podAntiAffinity", 0.3)):
            if self.rules and self.some(chance):
                rule: Json = {}
                if self.some(0.6):
                    rule["requiredDuringSchedulingIgnoredDuringExecution"] = [
                        self.term({"matchLabels": own} if self.some(0.7) else None)
                    ]
                if not rule or self.some(0.3):
                    rule["preferredDuringSchedulingIgnoredDuringExecution"] = [
                        {
                            "weight": weight,
                            "podAffinityTerm": self.term({"matchLabels": own} if self.some(0.5) else None),
                        }
                        for weight in rng.sample([1, 5, 100], rng.choice([1, 2]))
                    ]
                found[kind] = rule
        return found

    def spread(self, own: Json) -> Json:
        rng = self.rng
        found: Json = {
            "maxSkew": rng.choice([1, 1, 1, 2, 4]),
            "topologyKey": rng.choice(KEYS),
            "whenUnsatisfiable": rng.choice(["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"]),
            "labelSelector": {"matchLabels": own} if self.some(0.75) else self.selector(),
        }
        if found["whenUnsatisfiable"] == "DoNotSchedule" and self.some(0.15):
            found["minDomains"] = rng.choice([1, 2, 3, 5])
        if self.some(0.15):
            found["nodeTaintsPolicy"] = "Honor"
        if self.some(0.15):
            found["nodeAffinityPolicy"] = rng.choice(["Ignore", "Honor"])
        if self.some(0.15):
            found["matchLabelKeys"] = ["version"]
        return found

    def spec(self, own: Json) -> Json:
        rng = self.rng
        requests: Json = {"cpu": rng.choice(["100m", "500m", "1", "2", "3500m", "7"])}
        requests["memory"] = rng.choice(["128Mi", "1Gi", "4Gi", "14Gi", "30Gi"])
        if self.some(0.3):
            requests[GPU] = str(rng.choice([1, 1, 1, 2, 4, 8]))
        container: Json = {"name": "main", "resources": {"requests": requests, "limits": {}}}
        if GPU in requests:
            container["resources"]["limits"] = {GPU: requests[GPU]}
        if self.some(0.1):
            container["ports"] = [
                {
                    "containerPort": 80,
                    "hostPort": rng.choice([80, 443]),
                    "protocol": rng.choice(["TCP", "TCP", "UDP"]),
                    **rng.choice([{}, {}, {"hostIP": "10.0.0.1"}, {"hostIP": "10.0.0.2"}]),
                }
            ]
        found: Json = {"containers": [container]}
        if self.some(0.2):
            found["nodeSelector"] = rng.choice(
                [
                    {labels.ZONE: rng.choice(ZONES)},
                    {TEAM: rng.choice(["red", "blue"])},
                    {labels.CAPACITY_TYPE: rng.choice(["spot", "on-demand"])},
                    {"kubernetes.io/arch": "amd64"},
                    {"karpenter.sh/nodepool": "pool-0"},
                    {"example.com/unknown": "x"},
                ]
            )
        tolerations = []
        if self.some(0.4):
            tolerations.append({"key": "gpu", "operator": "Exists"})
        if self.some(0.1):
            tolerations.append({"operator": "Exists", "effect": "PreferNoSchedule"})
        found["tolerations"] = tolerations
        affinity = self.affinity(own)
        if affinity:
            found["affinity"] = affinity
        if self.rules and self.some(0.4):
            constraints: dict[str, Json] = {}
            for _ in range(rng.choice([1, 1, 2])):
                one = self.spread(own)
                constraints[one["topologyKey"]] = one  # two over one label may pick different domains, at random
            found["topologySpreadConstraints"] = list(constraints.values())
        return found

    def workload(self, number: int, count: int, node: str = "") -> list[Json]:
        rng = self.rng
        own = {"app": rng.choice("abc")}
        spec = self.spec(own) | ({"nodeName": node} if node else {})
        namespace = rng.choice(["default", "default", "other"])
        found = []
        for _ in range(count):
            self.serial += 1
            name = f"{'on-' + node + '-' if node else ''}w{number}-{self.serial:04d}"
            version = {"version": rng.choice(["v1", "v2"])} if self.some(0.3) else {"version": "v1"}
            meta = {
                "name": name,
                "namespace": namespace,
                "uid": f"uid-{rng.randrange(10**6):06d}-{self.serial:04d}",
                "labels": own | version,
                "creationTimestamp": f"2026-11-01T00:00:{rng.randrange(5):02d}Z",
            }
            phase = "Running" if node else "Pending"
            found.append(
                {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": phase}}
            )
        return found

    def daemon(self, number: int) -> Json:
        spec: Json = {
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "200m", "memory": "256Mi"}}}],
            "tolerations": [{"operator": "Exists"}] if self.some(0.7) else [],
        }
        if self.some(0.3):
            spec["nodeSelector"] = {NAME: "l4"}
        if self.some(0.3):
            spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"daemon-{number}", "namespace": "default", "uid": f"uid-daemon-{number}"},
            "spec": spec,
        }

    def node(self, case: Case, number: int) -> None:
        rng = self.rng
        if not case.types:
            return
        one = rng.choice(case.types)
        zone = rng.choice(ZONES)
        pool = rng.choice(case.pools)
        name = f"node-{number}"
        kind = rng.choice(["there", "there", "there", "starting", "claim"])
        own = {
            **one.labels(zone, rng.choice(["spot", "on-demand"])),
            **pool["spec"]["template"]["metadata"]["labels"],
            labels.NODE_POOL: pool["metadata"]["name"],
            EC2_NODE_CLASS: "default",
        }
        taints = list(pool["spec"]["template"]["spec"].get("taints", []))
        startup = list(pool["spec"]["template"]["spec"].get("startupTaints", []))
        claim = {
            "metadata": {"name": f"claim-{number}", "labels": own},
            "spec": {"taints": taints, "startupTaints": startup},
            "status": {"providerID": f"aws:///{name}"},
        }
        machine: Json = {
            "name": name,
            "type": one.name,
            "claim": claim,
            "deleting": self.some(0.1),
            "initialized": False,
        }
        if kind != "claim":
            registered = own | {labels.REGISTERED: "true", HOSTNAME: name}
            if kind == "there":
                registered[labels.INITIALIZED] = "true"
                machine["initialized"] = True
                if self.some(0.1):
                    taints.append({"key": "gpu", "value": "yes", "effect": "NoSchedule"})
            else:
                taints += [*startup, {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
                taints += [{"key": "readiness.k8s.io/net", "effect": "NoSchedule"}] if self.some(0.3) else []
            machine["node"] = {
                "metadata": {"name": name, "labels": registered},
                "spec": {"providerID": f"aws:///{name}", "taints": taints},
            }
            for _ in range(rng.choice([0, 1, 1, 2])):
                case.pods += self.workload(900 + number, rng.choice([1, 2]), node=name)
        case.nodes.append(machine)


@dataclass
class Ours:
    """The case as the planner takes it."""

    pods: list[PendingPod]
    nodes: list[ExistingNode]
    pools: list[karpenter.NodePool]
    catalogue: Catalogue
    settings: PlanSettings


def ours(case: Case) -> Ours:
    """Read by the planner's own types."""
    cat = case.catalogue
    shapes: dict[int, PodShape] = {}
    pending, bound = [], []
    on: dict[str, list[PodShape]] = {}
    for pod in case.pods:
        meta, spec = pod["metadata"], msgspec.convert(pod["spec"], core.PodSpec)
        ref = Ref("Pod", meta["name"], meta["namespace"], meta["uid"])
        if id(pod["spec"]) not in shapes:
            shapes[id(pod["spec"])] = PodShape.of(spec)
        shape = shapes[id(pod["spec"])]
        if spec.node_name:
            on_node = BoundPod(
                ref.namespace, spec.node_name, meta["labels"], shape.pod_anti_affinity, 1, shape.tolerations
            )
            bound.append(on_node)
            on.setdefault(spec.node_name, []).append(shape)
        else:
            second = int(meta["creationTimestamp"][17:19])
            pending.append(PendingPod(ref, shape, second * NS_PER_S, meta["labels"]))
    daemons = tuple(PodShape.of(msgspec.convert(one["spec"], core.PodSpec)) for one in case.daemons)
    capacity, allocatable = cat.with_storage(STORAGE)
    nodes = []
    for machine in case.nodes:
        at = cat.index(machine["type"])
        there = machine.get("node")
        held = on.get(machine["name"], [])
        labelled = there["metadata"]["labels"] if there else machine["claim"]["metadata"]["labels"]
        taints = tuple(msgspec.convert((there or machine["claim"])["spec"]["taints"], list[core.Taint]))
        startup = tuple(msgspec.convert(machine["claim"]["spec"]["startupTaints"], list[core.Taint]))
        free = cat.as_map(allocatable[at])
        free.pop(NODES, None)
        node = ExistingNode(
            ref=Ref("Node", machine["name"]) if there else Ref("NodeClaim", machine["claim"]["metadata"]["name"]),
            labels=labelled,
            free=free,
            taints=taints,
            startup_taints=startup,
            initialized=machine["initialized"],
            node_pool=labelled[labels.NODE_POOL],
            capacity=cat.as_map(capacity[at]),
            deleted=machine["deleting"],
            host_ports=tuple(port for shape in held for port in shape.host_ports),
        )
        for shape in [*held, *(one for one in daemons if _runs(one, node))]:
            for name, amount in ({"pods": 1} | shape.requests).items():
                if name in free:
                    free[name] -= amount
        nodes.append(node)
    settings = PlanSettings(
        daemon_sets=daemons,
        preferences=not case.ignore_preferences,
        strict_min_values=not case.best_effort,
        bound=tuple(bound),
        namespaces=case.namespaces,
    )
    pools = [msgspec.convert(pool, karpenter.NodePool) for pool in case.pools]
    return Ours(pending, nodes, pools, cat, settings)


def _runs(daemon: PodShape, node: ExistingNode) -> bool:
    """Whether the DaemonSet's pod will come to the node: by its selector and, as it tolerates all or nothing, taints."""
    from tonnage.provisioning.standing import StandingNode

    taints = StandingNode(node).taints
    return (not taints or bool(daemon.tolerations)) and daemon.node_selector.items() <= node.labels.items()


def karpenters(case: Case) -> Json:
    """The case as a line for karpenter-plan. Pods in the order in which they will be planned."""
    cat = case.catalogue
    capacity, allocatable = cat.with_storage(STORAGE)
    everywhere = sorted(labels.well_known())
    types = []
    for at, one in enumerate(cat.types):
        offers = [(zone, kind, price) for (name, zone, kind), price in case.sold.items() if name == one.name]
        own: dict[str, list[str]] = {key: [value] for key, value in one.labels().items()}
        own[labels.ZONE] = sorted({zone for zone, _, _ in offers})
        own[labels.CAPACITY_TYPE] = sorted({kind for _, kind, _ in offers})
        own[labels.REGION] = ["us-east-1"]
        types.append(
            {
                "name": one.name,
                "labels": own,
                "absent": sorted(labels.of_instance_type() - own.keys()),
                "capacity": _amounts(cat.as_map(capacity[at])),
                "allocatable": _amounts(cat.as_map(allocatable[at])),
                "offerings": [
                    {
                        "labels": {labels.ZONE: [zone], labels.CAPACITY_TYPE: [kind]},
                        "absent": [RESERVATION],
                        "price": price / 1e6,
                        "available": True,
                    }
                    for zone, kind, price in offers
                ],
            }
        )
    machines = []
    for machine in case.nodes:
        at = cat.index(machine["type"])
        size = {"capacity": _amounts(cat.as_map(capacity[at])), "allocatable": _amounts(cat.as_map(allocatable[at]))}
        claim = machine["claim"] | {"status": machine["claim"]["status"] | size}
        there = machine.get("node")
        machines.append(
            {"nodeClaim": claim, "node": there and there | {"status": size}, "deleting": machine["deleting"]}
        )
    return {
        "id": str(case.seed),
        "wellKnown": everywhere,
        "reservationId": RESERVATION,
        "types": types,
        "nodePools": case.pools,
        "pods": sorted(case.pods, key=_turn),
        "daemonPods": case.daemons,
        "nodes": machines,
        "objects": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": own}}
            for name, own in case.namespaces.items()
        ],
        "ignorePreferences": case.ignore_preferences,
        "bestEffort": case.best_effort,
    }


def _turn(pod: Json) -> tuple[int, int, str, str]:
    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    cpu, memory = (quantity.amount(name, requests[name]) for name in ("cpu", "memory"))
    return (-cpu, -memory, pod["metadata"]["creationTimestamp"], pod["metadata"]["uid"])


def _amounts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in amounts.items() if name != NODES}
