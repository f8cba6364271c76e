"""Nodes and pods from a seed, for comparing schedulers: every field of nodes and pods by which kube-scheduler 1.36 keeps
a pod off a node, in all mixes; extended resources are a device plugin's or served by devices of classes. Left out are
ResourceClaims that pods name, pod groups, and what makes room (priorities)."""

from __future__ import annotations

import random
from typing import Any

from e2e_builders import GPU, HOSTNAME, node

from e2e.api import Json

PRODUCT = "nvidia.com/gpu.product"
CUT = {"nvidia.com/mig-1g.10gb": "4", "nvidia.com/mig-2g.20gb": "2", "nvidia.com/mig-3g.40gb": "2"}
"""Two H100, all-balanced: such a node has no whole GPU."""
GPUMEM, CORES = "nvidia.com/gpumem", "nvidia.com/gpucores"
"""Plain numbers, of every node of a world or of none."""
EPC, HUGE, LOCAL = "example.com/epc", "hugepages-2Mi", "ephemeral-storage"
GATES = ("TaintTolerationComparisonOperators", "UserNamespacesHostNetworkSupport")
"""Feature gates that are off in 1.36, and on here."""
RESTART_ALL, USER_NAMESPACES = "RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"
ZONE, DISK, SIZE, RACK = "topology.kubernetes.io/zone", "disk", "size", "rack"
NIC = "example.com/nic"
DRIVER = "devices.example.com"
CLASSES: dict[str, str | None] = {"nic": NIC, "fpga": "example.com/fpga", "nvme": None}
"""Classes of devices, each with the extended resource that it serves beside that of its own name."""
OWN_NAME = "deviceclass.resource.kubernetes.io/"
BY_CLAIMS = (NIC, NIC, "example.com/fpga", "example.com/fpga", f"{OWN_NAME}nvme", f"{OWN_NAME}nic")
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
TAINTS: tuple[Json, ...] = (
    {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
    {"key": "dedicated", "value": "web", "effect": "NoExecute"},
    {"key": "spot", "effect": "NoExecute"},
    {"key": "old", "value": "yes", "effect": "PreferNoSchedule"},
    {"key": "level", "value": "7", "effect": "NoSchedule"},
    {"key": "level", "value": "07", "effect": "NoSchedule"},
)
APPS, VERSIONS = ("web", "db", "cache"), ("1", "2")
NAMESPACES = ("default", "other", "third")
TEAMS: dict[str, dict[str, str]] = {"default": {}, "other": {"team": "a"}, "third": {"team": "b", "tier": "gold"}}
"""The labels that the namespaces have."""
CLAIMS = ("in-a", "in-b", "alone")
"""Claims of each namespace: bound to volumes of zones a and b, and to one that a single pod may use."""
RUNTIMES: dict[str, Json] = {
    "heavy": {"overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}}},
    "picky": {"scheduling": {"nodeSelector": {SIZE: "7"}, "tolerations": [{"key": "spot", "operator": "Exists"}]}},
}
"""RuntimeClasses, and what admission makes of them in pods."""
HOLD = "example.com/hold"
"""A finalizer: a pod with it is being deleted until somebody takes it away."""


class World:
    """One cluster and the pods to ask for, all drawn from ``seed``.

    A ``roomy`` one has large nodes with few taints, so that mostly rules about other pods decide."""

    def __init__(self, seed: object, roomy: bool) -> None:
        self._random = random.Random(f"filters/{seed}/{roomy}")
        self._roomy = roomy
        self._numbers = self._random.random() < 0.5
        self.nodes = [self._node(i) for i in range(self._random.randint(4, 12))]
        self.slices = [made for one in self.nodes if (made := self._slice(one["metadata"]["name"])) is not None]

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
        if self._numbers:
            amounts |= {GPUMEM: str(draw.choice((1, 8000, 16000))), CORES: str(draw.choice((1, 100)))}
        amounts[LOCAL] = f"{draw.choice((2, 20))}Gi"
        if draw.random() < 0.3:
            amounts |= {EPC: "94371840", HUGE: "64Mi"}
        labels = {RACK: f"r{draw.randint(0, 3)}"}
        if draw.random() < 0.2:
            amounts = {key: value for key, value in amounts.items() if key != GPU} | CUT
            labels[PRODUCT] = "NVIDIA-H100-80GB-HBM3"
        for key, values in (
            (ZONE, ("a", "b", "c", "")),
            (DISK, ("ssd", "hdd", "")),
            (SIZE, ("3", "7", "007", "x", "9223372036854775807", "9223372036854775808", "")),
        ):
            if value := draw.choice(values):
                labels[key] = value
        taints = [one for one in TAINTS if draw.random() < (0.04 if self._roomy else 0.12)]
        taints = list({(one["key"], one["effect"]): one for one in taints}.values())
        cordoned = draw.random() < 0.1
        if draw.random() < (0.8 if cordoned else 0.04):  # the node lifecycle controller adds it, a moment later
            taints.append(CORDON)
        made = node(f"n{number}", amounts, labels, taints, cordoned)
        if draw.random() < 0.1:
            del made["metadata"]["labels"][HOSTNAME]
        elif draw.random() < 0.1:
            made["metadata"]["labels"][HOSTNAME] = f"host-{number}"
        made["status"]["declaredFeatures"] = [one for one in (RESTART_ALL, USER_NAMESPACES) if draw.random() < 0.7]
        if draw.random() < 0.1:
            made["status"]["conditions"][0]["status"] = draw.choice(("False", "Unknown"))
        return made

    def _slice(self, on: str) -> Json | None:
        """What a driver has published of the node, if one has."""
        draw = self._random
        kinds = [kind for kind in CLASSES for _ in range(draw.choice((0, 1, 3)))] if draw.random() < 0.6 else []
        devices = [
            {"name": f"{kind}-{number}", "attributes": {"kind": {"string": kind}}} for number, kind in enumerate(kinds)
        ]
        spec = {"driver": DRIVER, "nodeName": on, "pool": {"name": on, "generation": 1, "resourceSliceCount": 1}}
        meta = {"name": f"{on}-devices"}
        kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": meta}
        return {**kind, "spec": {**spec, "devices": devices}} if devices else None

    # ---- pods ----

    def _pod(self, number: int) -> Json:
        draw = self._random
        labels = {"app": draw.choice(APPS), "version": draw.choice(VERSIONS)}
        spec: Json = {"containers": self._containers(), "terminationGracePeriodSeconds": 0}
        spec |= self._starting()
        self._whole(spec)
        self._host(spec)
        if volumes := self._volumes():
            spec["volumes"] = volumes
        if draw.random() < 0.05:
            spec["runtimeClassName"] = draw.choice(tuple(RUNTIMES))
        affinity: Json = {}
        if draw.random() < (0.05 if self._roomy else 0.2):
            spec["nodeSelector"] = dict([self._label()])
        if draw.random() < (0.1 if self._roomy else 0.3):
            affinity["nodeAffinity"] = self._node_affinity()
        for kind in ("podAffinity", "podAntiAffinity"):
            if draw.random() < (0.25 if self._roomy else 0.15):
                terms = [self._affinity_term(labels, kind) for _ in range(draw.choice((1, 1, 2)))]
                affinity[kind] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        if affinity:
            spec["affinity"] = affinity
        if draw.random() < 0.5:
            spec["tolerations"] = [self._toleration() for _ in range(draw.randint(1, 3))]
        if draw.random() < (0.5 if self._roomy else 0.25):
            keys = draw.sample((ZONE, HOSTNAME, RACK), draw.choice((1, 1, 2)))
            spec["topologySpreadConstraints"] = [self._spread(key, labels) for key in keys]
        if draw.random() < (0.3 if "LabelKeys" in repr(affinity) else 0.06):
            spec["schedulingGates"] = [{"name": "example.com/quota"}]
        elif draw.random() < 0.1:
            spec["nodeName"] = draw.choice(self.nodes)["metadata"]["name"]
        meta: Json = {
            "name": f"p{number}",
            "namespace": draw.choice(NAMESPACES[:1] * 4 + NAMESPACES[1:]),
            "labels": labels,
        }
        if draw.random() < 0.08:
            meta["finalizers"] = [HOLD]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}

    def _starting(self) -> Json:
        """Init containers, some of which go on beside the others."""
        draw = self._random
        found: list[Json] = []
        while draw.random() < 0.15:
            requests = {"cpu": draw.choice(("100m", "2", "4")), "memory": draw.choice(("64Mi", "2Gi"))}
            one: Json = {"name": f"init-{len(found)}", "image": "none", "resources": {"requests": requests}}
            if draw.random() < 0.4:
                one["restartPolicy"] = "Always"
            if draw.random() < 0.2:
                requests[draw.choice(BY_CLAIMS)] = draw.choice("12")
                one["resources"]["limits"] = {name: n for name, n in requests.items() if "/" in name}
            found.append(one)
        return {"initContainers": found} if found else {}

    def _whole(self, spec: Json) -> None:
        """Requests of the pod as a whole, no smaller than those of its containers."""
        if self._random.random() < 0.06 and "initContainers" not in spec:
            for one in spec["containers"]:
                one["resources"]["requests"] = {"cpu": "100m", "memory": "64Mi"}
            spec["resources"] = {"requests": {"cpu": self._random.choice(("1", "4")), "memory": "1Gi"}}

    def _host(self, spec: Json) -> None:
        """What it wants of its host: ports, the network, the user namespace, restart rules of the kubelet."""
        draw = self._random
        main = spec["containers"][0]
        if draw.random() < 0.12:
            number = draw.choice((80, 80, 8080))
            port: Json = {"containerPort": number, "hostPort": number, "protocol": draw.choice(("TCP", "TCP", "UDP"))}
            if draw.random() < 0.3:
                port["hostIP"] = draw.choice(("127.0.0.1", "10.0.0.1"))
            main["ports"] = [port]
        elif draw.random() < 0.06:
            spec["hostNetwork"] = True
            main["ports"] = [{"containerPort": draw.choice((80, 8080))}]
            if draw.random() < 0.5:
                spec["hostUsers"] = False
        if draw.random() < 0.06:
            rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
            main |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}

    def _volumes(self) -> list[Json]:
        draw = self._random
        found: list[Json] = []
        read_only = draw.random() < 0.3
        if draw.random() < 0.12:
            found.append(
                draw.choice(
                    (
                        {"iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2001-04.com.example:s", "lun": 0}},
                        {"gcePersistentDisk": {"pdName": "data"}},
                        {"awsElasticBlockStore": {"volumeID": "vol-1"}},
                        {"rbd": {"monitors": draw.sample(("m1", "m2", "m3"), 2), "image": "data"}},
                    )
                )
            )
            for source in found[0].values():
                source["readOnly"] = read_only
        if draw.random() < 0.1:
            found.append({"persistentVolumeClaim": {"claimName": draw.choice(CLAIMS)}})
        return [{"name": f"v{index}", **one} for index, one in enumerate(found)]

    def _containers(self) -> list[Json]:
        draw = self._random
        requests = {
            "cpu": draw.choice(("100m", "500m", "1", "1500m", "3")),
            "memory": draw.choice(("64Mi", "500M", "1Gi", "3Gi")),
        }
        limits: dict[str, str] = {}
        if draw.random() < 0.25:
            limits[GPU] = draw.choice(("1", "1", "2", "4"))
        for resource in draw.sample(BY_CLAIMS, draw.choice((1, 1, 2))) if draw.random() < 0.2 else ():
            limits[resource] = draw.choice(("1", "1", "2"))
        for resource, amounts, often in (
            (LOCAL, ("1Gi", "3Gi", "30Gi"), 0.15),
            (EPC, ("1", "90000000"), 0.05),
            (HUGE, ("2Mi", "48Mi"), 0.05),
            *((name, ("1", "2"), 0.04) for name in CUT),
            (GPUMEM, ("1", "5000", "16001"), 0.1 * self._numbers),
            (CORES, ("1", "60"), 0.05 * self._numbers),
        ):
            if resource in (GPUMEM, CORES) and limits.keys() & CUT.keys():
                continue  # parts of a GPU and MIG instances exclude each other, for us
            if draw.random() < often:
                requests[resource] = limits[resource] = draw.choice(amounts)
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
            value = draw.choice(("0", "5", "7", "9223372036854775808"))
            return {"key": draw.choice((SIZE, SIZE, DISK)), "operator": operator, "values": [value]}
        key, value = self._label()
        if draw.random() < 0.1:
            key, value = HOSTNAME, draw.choice(("n0", "n1", "host-1"))
        values = [value, *draw.sample(("a", "ssd", "r2"), 1)] if operator in ("In", "NotIn") else []
        return {"key": key, "operator": operator, "values": values}

    def _toleration(self) -> Json:
        draw = self._random
        taint = draw.choice([*TAINTS, CORDON])
        form = draw.randint(0, 3)
        if form == 0:
            return {"operator": "Exists"}
        if taint["key"] == "level" and form != 1:
            return {"key": "level", "operator": draw.choice(("Gt", "Lt")), "value": draw.choice(("3", "7", "9"))}
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

    def _affinity_term(self, labels: dict[str, str], kind: str) -> Json:
        draw = self._random
        term: Json = {"topologyKey": draw.choice((ZONE, HOSTNAME, RACK)), "labelSelector": self._selector(labels)}
        match draw.randint(0, 9):
            case 8:
                term["namespaceSelector"] = {"matchLabels": {"team": draw.choice("ab")}}
            case 9:
                absent = draw.random() < (0.5 if kind == "podAntiAffinity" else 0.05)  # the latter: see Term.widened
                wanted = {"key": "tier", "operator": "DoesNotExist" if absent else "Exists"}
                term["namespaceSelector"] = {"matchExpressions": [wanted]}
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
