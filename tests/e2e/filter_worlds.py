"""Nodes and pods from a seed, for comparing schedulers: every kind of rule that keeps a pod off a node, in all mixes."""

from __future__ import annotations

import random
from typing import Any

from e2e_builders import GPU, HOSTNAME, node

from e2e.api import Json

ZONE, DISK, SIZE, RACK = "topology.kubernetes.io/zone", "disk", "size", "rack"
NIC = "example.com/nic"
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
TAINTS: tuple[Json, ...] = (
    {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
    {"key": "dedicated", "value": "web", "effect": "NoExecute"},
    {"key": "spot", "effect": "NoExecute"},
    {"key": "old", "value": "yes", "effect": "PreferNoSchedule"},
)
APPS, VERSIONS = ("web", "db", "cache"), ("1", "2")
NAMESPACES = ("default", "other")


class World:
    """One cluster and the pods to ask for, all drawn from ``seed``.

    A ``roomy`` one has large nodes with few taints, so that mostly rules about other pods decide."""

    def __init__(self, seed: object, roomy: bool) -> None:
        self._random = random.Random(f"filters/{seed}/{roomy}")
        self._roomy = roomy
        self.nodes = [self._node(i) for i in range(self._random.randint(4, 12))]

    def pods(self, count: int) -> list[Json]:
        """Pods, in the order in which they are asked for."""
        return [self._pod(i) for i in range(count)]

    # ---- nodes ----

    def _node(self, number: int) -> Json:
        draw = self._random
        amounts = {
            "cpu": "32" if self._roomy else str(draw.randint(1, 6)),
            "memory": "64Gi" if self._roomy else f"{draw.choice((2, 4, 8))}Gi",
            "pods": "40" if self._roomy else str(draw.choice((2, 4, 8, 20))),
        }
        if gpus := draw.choice((0, 0, 2, 4)):
            amounts[GPU] = str(gpus)
        if draw.random() < 0.3:
            amounts[NIC] = "1"
        labels = {RACK: f"r{draw.randint(0, 3)}"}
        for key, values in (
            (ZONE, ("a", "b", "c", "")),
            (DISK, ("ssd", "hdd", "")),
            (SIZE, ("3", "7", "007", "x", "")),
        ):
            if value := draw.choice(values):
                labels[key] = value
        taints = [one for one in TAINTS if draw.random() < (0.04 if self._roomy else 0.12)]
        cordoned = draw.random() < 0.1
        if cordoned:  # the node lifecycle controller adds it, a moment later
            taints.append(CORDON)
        return node(f"n{number}", amounts, labels, taints, cordoned)

    # ---- pods ----

    def _pod(self, number: int) -> Json:
        draw = self._random
        labels = {"app": draw.choice(APPS), "version": draw.choice(VERSIONS)}
        spec: Json = {"containers": self._containers(), "terminationGracePeriodSeconds": 0}
        affinity: Json = {}
        if draw.random() < (0.05 if self._roomy else 0.2):
            spec["nodeSelector"] = dict([self._label()])
        if draw.random() < (0.1 if self._roomy else 0.3):
            affinity["nodeAffinity"] = self._node_affinity()
        for kind in ("podAffinity", "podAntiAffinity"):
            if draw.random() < (0.25 if self._roomy else 0.15):
                terms = [self._affinity_term(labels) for _ in range(draw.choice((1, 1, 2)))]
                affinity[kind] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        if affinity:
            spec["affinity"] = affinity
        if draw.random() < 0.5:
            spec["tolerations"] = [self._toleration() for _ in range(draw.randint(1, 3))]
        if draw.random() < (0.5 if self._roomy else 0.25):
            keys = draw.sample((ZONE, HOSTNAME, RACK), draw.choice((1, 1, 2)))
            spec["topologySpreadConstraints"] = [self._spread(key, labels) for key in keys]
        if draw.random() < 0.06:
            spec["schedulingGates"] = [{"name": "example.com/quota"}]
        elif draw.random() < 0.04:
            spec["nodeName"] = draw.choice(self.nodes)["metadata"]["name"]
        meta = {"name": f"p{number}", "namespace": draw.choice(NAMESPACES[:1] * 4 + NAMESPACES[1:]), "labels": labels}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}

    def _containers(self) -> list[Json]:
        draw = self._random
        requests = {
            "cpu": draw.choice(("100m", "500m", "1", "1500m", "3")),
            "memory": draw.choice(("64Mi", "500M", "1Gi", "3Gi")),
        }
        limits: dict[str, str] = {}
        if draw.random() < 0.25:
            limits[GPU] = draw.choice(("1", "1", "2", "4"))
        if draw.random() < 0.06:
            limits[NIC] = draw.choice(("1", "2"))
        if draw.random() < 0.2:
            del requests[draw.choice(("cpu", "memory"))]
        more = (
            [{"name": "side", "image": "none", "resources": {"requests": {"cpu": "50m"}}}]
            if draw.random() < 0.2
            else []
        )
        return [{"name": "main", "image": "none", "resources": {"requests": requests, "limits": limits}}, *more]

    def _label(self) -> tuple[str, str]:
        key, values = self._random.choice(((ZONE, "abc"), (DISK, ("ssd", "hdd")), (RACK, ("r0", "r1"))))
        return key, self._random.choice(values)

    def _node_affinity(self) -> Json:
        terms = [self._node_term() for _ in range(self._random.choice((1, 1, 2)))]
        affinity: Json = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        if self._random.random() < 0.3:
            wish = {"weight": 10, "preference": {"matchExpressions": [self._expression()]}}
            affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [wish]
        return affinity

    def _node_term(self) -> Json:
        draw = self._random
        names = [one["metadata"]["name"] for one in self.nodes]
        field = {"key": "metadata.name", "operator": draw.choice(("In", "In", "NotIn")), "values": [draw.choice(names)]}
        match draw.randint(0, 9):
            case 0:
                return {}
            case 1:
                return {"matchFields": [field]}
            case 2:
                return {"matchFields": [field, field | {"values": [draw.choice(names)]}]}
            case 3:
                return {"matchFields": [field], "matchExpressions": [self._expression()]}
        return {"matchExpressions": [self._expression() for _ in range(draw.choice((1, 1, 2)))]}

    def _expression(self) -> Json:
        draw = self._random
        operator = draw.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        if operator in ("Gt", "Lt"):
            return {"key": draw.choice((SIZE, DISK)), "operator": operator, "values": [draw.choice(("0", "5", "7"))]}
        key, value = self._label()
        values = [value, *draw.sample(("a", "ssd", "r2"), 1)] if operator in ("In", "NotIn") else []
        return {"key": key, "operator": operator, "values": values}

    def _toleration(self) -> Json:
        draw = self._random
        taint = draw.choice([*TAINTS, CORDON])
        form = draw.randint(0, 3)
        if form == 0:
            return {"operator": "Exists"}
        given: Json = {"key": taint["key"], "operator": "Exists" if form == 1 else "Equal"}
        if form != 1:
            given["value"] = taint.get("value", "")
        if draw.random() < 0.7:
            given["effect"] = taint["effect"]
        return given

    def _selector(self, labels: dict[str, str]) -> Json:
        """Often one that selects the pod itself."""
        draw = self._random
        match draw.randint(0, 5):
            case 0:
                return {"matchLabels": {"app": draw.choice(APPS)}}
            case 1:
                return {"matchExpressions": [{"key": "app", "operator": "In", "values": draw.sample(APPS, 2)}]}
            case 2:
                return {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [draw.choice(APPS)]}]}
            case 3:
                return {}
        return {"matchLabels": {"app": labels["app"]}}

    def _affinity_term(self, labels: dict[str, str]) -> Json:
        draw = self._random
        term: Json = {"topologyKey": draw.choice((ZONE, HOSTNAME, RACK)), "labelSelector": self._selector(labels)}
        match draw.randint(0, 7):
            case 0:
                term["namespaces"] = list(draw.sample(NAMESPACES, draw.randint(1, 2)))
            case 1:
                term["namespaceSelector"] = {}
            case 2:
                key = "kubernetes.io/metadata.name"
                term["namespaceSelector"] = {"matchLabels": {key: draw.choice(NAMESPACES)}}
            case 3:
                term["matchLabelKeys"] = ["version"]
            case 4:
                term["mismatchLabelKeys"] = ["version"]
        return term

    def _spread(self, key: str, labels: dict[str, str]) -> Json:
        draw = self._random
        given: dict[str, Any] = {
            "maxSkew": draw.choice((1, 1, 2)),
            "topologyKey": key,
            "whenUnsatisfiable": draw.choice(("DoNotSchedule", "DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": self._selector(labels),
        }
        if given["whenUnsatisfiable"] == "DoNotSchedule" and draw.random() < 0.3:
            given["minDomains"] = draw.randint(1, 4)
        if draw.random() < 0.4:
            given["nodeAffinityPolicy"] = draw.choice(("Honor", "Ignore"))
        if draw.random() < 0.4:
            given["nodeTaintsPolicy"] = draw.choice(("Honor", "Ignore"))
        if draw.random() < 0.2:
            given["matchLabelKeys"] = ["version"]
        return given
