"""Disruption cases drawn by a seed: written once as Kubernetes objects, read by the emulator and the real Karpenter."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import msgspec
from planning_cases import HOSTNAME, RESERVATION, STORAGE, ZONES, Case, Json, _Draw, _known_types, karpenters, ours

from tonnage.facts.labels import EC2_NODE_CLASS
from tonnage.kube.clock import rfc3339
from tonnage.objects import karpenter
from tonnage.provisioning import labels
from tonnage.provisioning.candidates import MovablePod, RunningNode
from tonnage.provisioning.consolidation import Gates, Round
from tonnage.provisioning.disruption import NodeState
from tonnage.provisioning.drift import HASH, HASH_VERSION, drift
from tonnage.provisioning.pods import PendingPod
from tonnage.units import NS_PER_S, from_rfc3339

NOW_NS = 1_793_534_400 * NS_PER_S
"""The moment of every case: 2026-11-01 12:00:00 UTC, a Sunday."""
DISRUPTED = "karpenter.sh/disrupted"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
CLASS = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}


def before(seconds: int) -> str:
    """The time so many seconds before the moment of the case."""
    return rfc3339(NOW_NS - seconds * NS_PER_S)


@dataclass
class DisruptionCase:
    """A cluster at the moment of a disruption round. ``budgets``: PodDisruptionBudgets; ``drifted``: since when each
    node would have drifted; ``meanwhile``: pods that come while a command waits."""

    plan: Case
    budgets: list[Json] = field(default_factory=list)
    drifted: dict[str, str] = field(default_factory=dict)
    nominated: set[str] = field(default_factory=set)
    spot_to_spot: bool = False
    meanwhile: list[Json] = field(default_factory=list)

    @property
    def seed(self) -> int:
        return self.plan.seed


def draw_disruption(seed: int) -> DisruptionCase:
    """The case of this number."""
    return _DrawDisruption(random.Random(f"disruption case {seed}"), seed).disruption()


class _DrawDisruption(_Draw):
    def disruption(self) -> DisruptionCase:
        rng = self.rng
        self.rules = rng.random() < 0.3
        types = rng.sample(_known_types(), rng.choice([5, 12, 25, 40]))
        types += rng.sample([one for one in _known_types() if one.vcpu <= 8], rng.choice([2, 6, 12]))
        types = list({one.name: one for one in types}.values())
        zones = ZONES[: rng.choice([1, 2, 3])]
        sold = {
            (one.name, zone, kind): one.vcpu * 48_000 * (4 if kind == "on-demand" else 1) + rng.randrange(40_000)
            for one in types
            for zone in zones
            for kind in ("on-demand", "spot")
            if rng.random() < 0.9
        }
        types = [one for one in types if any(name == one.name for name, _, _ in sold)]
        case = Case(self.seed, types, sold)
        case.namespaces = {"default": {"stage": "prod"}, "other": {"stage": "test"}}
        case.pools = [self.pool(f"pool-{n}") for n in range(rng.choice([1, 1, 2]))]
        case.daemons = [self.daemon(n) for n in range(rng.choice([0, 0, 1]))]
        found = DisruptionCase(case, spot_to_spot=self.some(0.4))
        self.empty = self.some(0.1)
        for number in range(rng.choice([1, 2, 3, 4, 6, 9])):
            self.machine(found, number)
        for number in range(rng.choice([0, 0, 0, 1])):
            case.pods += self.workload(number, rng.choice([1, 2]))
        found.budgets = [self.budget(n) for n in range(rng.choice([0, 0, 1, 2]))]
        if self.some(0.15):
            found.meanwhile = self.workload(800, rng.choice([1, 2]))
        return found

    def requirement(self, *, of_pool: bool) -> Json:
        """Rarer than for plans are those that nodes do not meet."""
        drawn = super().requirement(of_pool=of_pool)
        if of_pool and self.some(0.9):
            return {
                "key": labels.CAPACITY_TYPE,
                "operator": "In",
                "values": self.rng.choice([["on-demand", "spot"], ["spot", "on-demand"]]),
            }
        return drawn

    def pool(self, name: str) -> Json:
        rng = self.rng
        pool = super().pool(name)
        pool["spec"].pop("limits", None)
        pool["spec"]["template"]["spec"].pop("taints", None)
        if self.some(0.2):
            pool["spec"]["limits"] = {"cpu": rng.choice(["60", "300"])}
        budgets = rng.choice(
            [
                *[[{"nodes": "100%"}]] * 6,
                [{"nodes": rng.choice(["10%", "30%", "50%", "1", "2", "0"])}],
                [{"nodes": "1", "reasons": [rng.choice(["Underutilized", "Empty", "Drifted"])]}],
                [
                    {
                        "nodes": "0",
                        "schedule": rng.choice(["0 9 * * *", "0 1 * * *", "0 12 * * 1-5"]),
                        "duration": "8h",
                    },
                    {"nodes": "60%"},
                ],
            ]
        )
        pool["spec"]["disruption"] = {
            "consolidationPolicy": rng.choice(["WhenEmptyOrUnderutilized"] * 4 + ["Balanced"] * 3 + ["WhenEmpty"]),
            "consolidateAfter": rng.choice(["0s", "0s", "30s", "10m", "10m", "Never"] if self.some(0.5) else ["0s"]),
            "budgets": budgets,
        }
        pool["metadata"]["annotations"] = {HASH: "1", HASH_VERSION: "v3"}
        return pool

    def machine(self, found: DisruptionCase, number: int) -> None:
        rng, case = self.rng, found.plan
        name, zone, kind = rng.choice(sorted(case.sold))
        if self.some(0.7):  # large nodes are those that can give way
            name, zone, kind = max(
                rng.sample(sorted(case.sold), min(4, len(case.sold))), key=lambda one: case.sold[one]
            )
        one = next(each for each in case.types if each.name == name)
        pool = rng.choice(case.pools)
        host = f"node-{number}"
        own = {
            **one.labels(zone, kind),
            **pool["spec"]["template"]["metadata"]["labels"],
            labels.NODE_POOL: pool["metadata"]["name"],
            EC2_NODE_CLASS: "default",
        }
        there = self.some(0.93)
        startup = list(pool["spec"]["template"]["spec"].get("startupTaints", []))
        since = rng.randrange(1200, 90_000)
        conditions = [
            {"type": type_, "status": "True", "reason": type_, "lastTransitionTime": before(since)}
            for type_ in ("Launched", "Registered", *(["Initialized"] if there else []))
        ]
        status: Json = {"providerID": f"aws:///{host}", "nodeName": host, "conditions": conditions}
        if self.some(0.6):
            status["lastPodEventTime"] = before(rng.choice([5, 60, 400, 5000]))
        spec: Json = {
            "nodeClassRef": CLASS,
            "requirements": [],
            "startupTaints": startup,
            "taints": [],
            "expireAfter": "Never",
        }
        if self.some(0.15):
            spec["terminationGracePeriod"] = "1h"
        claim = {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": {
                "name": f"claim-{number}",
                "uid": f"uid-claim-{number}",
                "labels": own,
                "annotations": {HASH: rng.choice(["1"] * 40 + ["2"]), HASH_VERSION: rng.choice(["v3"] * 9 + ["v2"])},
                "creationTimestamp": before(since + 60),
            },
            "spec": spec,
            "status": status,
        }
        registered = own | {labels.REGISTERED: "true", HOSTNAME: host}
        taints = [] if there else [*startup, {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
        if there:
            registered[labels.INITIALIZED] = "true"
        meta: Json = {"name": host, "uid": f"uid-{host}", "labels": registered, "annotations": {}}
        if self.some(0.05):
            meta["annotations"][DO_NOT_DISRUPT] = "true"
        ready = "True" if self.some(0.95) else "False"
        case.nodes.append(
            {
                "name": host,
                "type": one.name,
                "claim": claim,
                "deleting": self.some(0.06),
                "initialized": there,
                "node": {"metadata": meta, "spec": {"providerID": f"aws:///{host}", "taints": taints}},
                "ready": ready,
            }
        )
        found.drifted[host] = before(rng.randrange(10, 9000) // 10 * 10 + number)
        if self.some(0.04):
            found.nominated.add(host)
        if self.empty or self.some(0.02):
            return
        left = case.catalogue.as_map(case.catalogue.with_storage(STORAGE)[1][case.catalogue.index(one.name)])
        alone = True
        for part in range(rng.choice([2, 3, 4, 6])):
            for pod in self.workload(900 + 10 * number + part, 1, node=host):
                asked = _amounts_of(pod)
                if all(amount <= left.get(key, 0) // 2 for key, amount in asked.items()):
                    left = {key: amount - asked.get(key, 0) for key, amount in left.items()}
                    case.pods.append(self.marked(pod))
                    alone = False
        if alone:  # whatever was drawn was too large for it
            for pod in self.workload(900 + 10 * number + 9, rng.choice([1, 2]), node=host):
                small = {"cpu": rng.choice(["100m", "500m", "1"]), "memory": "256Mi"}
                spec = {
                    "containers": [{"name": "main", "resources": {"requests": small, "limits": {}}}],
                    "tolerations": [],
                }
                case.pods.append(self.marked(pod | {"spec": spec | {"nodeName": host}}))

    def marked(self, pod: Json) -> Json:
        """With what makes a pod dear to move, or keeps it where it is."""
        rng = self.rng
        notes = pod["metadata"].setdefault("annotations", {})
        if self.some(0.8):
            notes[DELETION_COST] = str(rng.randrange(-30_000_000, 120_000_000))
        if self.some(0.05):
            notes[DELETION_COST] = str(-(2**31) + 1)
        if self.some(0.05):
            notes[DO_NOT_DISRUPT] = rng.choice(["true", "30m", "2h", "never", "-1h"])
        pod["status"]["startTime"] = before(rng.choice([60, 3000, 8000]))
        pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        if self.some(0.1):
            pod["spec"] = pod["spec"] | {"priority": rng.choice([-(10**8), 10**7, 10**9])}
        if self.some(0.04):
            tolerated = {"key": DISRUPTED, "operator": "Exists", "effect": "NoSchedule"}
            pod["spec"] = pod["spec"] | {"tolerations": [*pod["spec"]["tolerations"], tolerated]}
        return pod

    def budget(self, number: int) -> Json:
        rng = self.rng
        spec: Json = {"selector": {"matchLabels": {"app": rng.choice("abc")}}}
        spec |= rng.choice(
            [{"maxUnavailable": 1}, {"maxUnavailable": "0%"}, {"minAvailable": "100%"}, {"minAvailable": 1}]
        )
        return {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": f"pdb-{number}", "namespace": rng.choice(["default", "default", "other"])},
            "spec": spec,
            "status": {"disruptionsAllowed": rng.choice([0, 1, 1, 2])},
        }


def _amounts_of(pod: Json) -> dict[str, int]:
    from tonnage.objects import quantity

    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    return {name: quantity.amount(name, written) for name, written in requests.items()} | {"pods": 1}


def asked_of_karpenter(case: DisruptionCase) -> Json:
    """The case as a line for karpenter-plan."""
    line = karpenters(case.plan)
    for machine, drawn in zip(line["nodes"], case.plan.nodes, strict=True):
        machine["node"]["status"]["conditions"] = [{"type": "Ready", "status": drawn["ready"]}]
        machine["nominated"] = drawn["name"] in case.nominated
        machine["driftedAt"] = case.drifted[drawn["name"]]
    line["objects"] += case.budgets
    line["disruption"] = {"now": before(0), "spotToSpot": case.spot_to_spot}
    if case.meanwhile:
        line["disruption"]["meanwhile"] = {"seconds": 15, "pods": case.meanwhile}
    line["reservationId"] = RESERVATION
    return line


def round_of(case: DisruptionCase, *, later: bool = False) -> Round:
    """The case as the emulator takes it; ``later``: when a command has waited."""
    plan = case.plan
    given = ours(plan if not later else _with(plan, case.meanwhile))
    now = NOW_NS + (15 * NS_PER_S if later and case.meanwhile else 0)
    pools = {pool.metadata.name: pool for pool in given.pools}
    on: dict[str, list[MovablePod]] = {}
    shapes = {pod.ref: pod for pod in given.pods}
    del shapes
    for pod in plan.pods:
        host = pod["spec"].get("nodeName")
        if host:
            on.setdefault(host, []).append(_movable(pod, case.budgets))
    nodes = []
    for machine, node in zip(plan.nodes, given.nodes, strict=True):
        claim, there = machine["claim"], machine["node"]
        pool = pools[node.node_pool]
        since = from_rfc3339(claim["status"]["conditions"][0]["lastTransitionTime"])
        event = claim["status"].get("lastPodEventTime")
        created = from_rfc3339(claim["metadata"]["creationTimestamp"])
        kind = drift(
            pool, claim["metadata"]["labels"], claim["metadata"]["annotations"], given.catalogue, now - created
        )
        state = NodeState(
            node=node.ref,
            node_pool=node.node_pool,
            price_micro_usd_per_hour=0,
            initialized_ns=since if machine["initialized"] else None,
            last_pod_event_ns=from_rfc3339(event) if event else None,
            ready=machine["ready"] == "True",
            deleted=machine["deleting"],
            nominated=machine["name"] in case.nominated,
            do_not_disrupt=there["metadata"]["annotations"].get(DO_NOT_DISRUPT) == "true",
        )
        nodes.append(
            RunningNode(
                state=state,
                node=node,
                pods=tuple(on.get(machine["name"], ())),
                drifted_ns=from_rfc3339(case.drifted[machine["name"]]) if kind else None,
                grace="terminationGracePeriod" in claim["spec"],
            )
        )
    gates = Gates(spot_to_spot_consolidation=case.spot_to_spot)
    return Round(nodes, given.pods, given.pools, given.catalogue, now, given.settings, gates)


def conditions(case: DisruptionCase, found: Round) -> dict[str, list[str]]:
    """What the emulator says of each NodeClaim."""
    from tonnage.provisioning.candidates import is_held
    from tonnage.provisioning.disruption import consolidate_after_ns

    pools = {pool.metadata.name: pool for pool in found.node_pools}
    said = {}
    for machine, one in zip(case.plan.nodes, found.nodes, strict=True):
        claim = machine["claim"]["metadata"]
        pool: karpenter.NodePool = pools[one.state.node_pool]
        quiet = consolidate_after_ns(pool) is not None and not is_held(pool, one.state, NOW_NS)
        kinds = ["Consolidatable"] if quiet and one.state.initialized_ns is not None else []
        age = NOW_NS - from_rfc3339(claim["creationTimestamp"])
        if kind := drift(pool, claim["labels"], claim["annotations"], found.catalogue, age):
            kinds.append(f"Drifted: {kind}")
        said[claim["name"]] = sorted(kinds)
    return said


def _with(plan: Case, pods: list[Json]) -> Case:
    return Case(**{**{name: getattr(plan, name) for name in plan.__dataclass_fields__}, "pods": [*plan.pods, *pods]})


def _movable(pod: Json, budgets: list[Json]) -> MovablePod:
    from tonnage.decisions import Ref
    from tonnage.objects import core, selectors
    from tonnage.provisioning.pods import PodShape

    meta, spec = pod["metadata"], msgspec.convert(pod["spec"], core.PodSpec)
    ref = Ref("Pod", meta["name"], meta["namespace"], meta["uid"])
    own = [
        one
        for one in budgets
        if one["metadata"]["namespace"] == ref.namespace
        and one["spec"]["selector"]["matchLabels"].items() <= meta["labels"].items()
    ]
    taint = core.Taint(key=DISRUPTED, effect="NoSchedule")
    second = int(meta["creationTimestamp"][17:19])
    extra: dict[str, Any] = {}
    if DELETION_COST in meta.get("annotations", {}):
        extra["deletion_cost"] = int(meta["annotations"][DELETION_COST])
    return MovablePod(
        pod=PendingPod(ref, PodShape.of(spec), second * NS_PER_S, meta["labels"]),
        priority=spec.priority or 0,
        do_not_disrupt=meta.get("annotations", {}).get(DO_NOT_DISRUPT, ""),
        started_ns=from_rfc3339(pod["status"]["startTime"]),
        budgets=tuple(one["metadata"]["name"] for one in own),
        blocked=any(one["status"]["disruptionsAllowed"] == 0 for one in own),
        never=any(
            one["spec"].get("maxUnavailable") == "0%" or one["spec"].get("minAvailable") == "100%" for one in own
        ),
        stays=selectors.untolerated((taint,), spec.tolerations, frozenset({"NoSchedule"})) is None,
        **extra,
    )
