"""NodePools, NodeOverlays and EC2NodeClasses drawn at random, of which each has at most a few things wrong."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

Json = dict[str, Any]
DIFFERENCES = {
    "negative-limits": r"spec\.limits\.[^:]+: .*expected a quantity of at least 0",
    "cron-fields": r"budgets\[\d+\]\.schedule: .*expected the 5 fields of cron",
    "label-values": r"values\[\d+\]: .*(a valid label must be|must be no more than 63)",
}
"""What `tonnage check` refuses and the API server takes, by the name that docs/reference/karpenter-differences.md has for
it: Karpenter itself takes no such object (the NodePool is not Ready) or launches nothing for it."""
KINDS = ("NodePool", "NodeOverlay", "EC2NodeClass")
_LABELS = (
    *("karpenter.k8s.aws/instance-gpu-count", "karpenter.k8s.aws/instance-family", "karpenter.sh/capacity-type"),
    *(
        "kubernetes.io/arch",
        "topology.kubernetes.io/zone",
        "team",
        "example.com/rack",
        "eks.amazonaws.com/instance-cpu",
    ),
)
_STRANGE_LABELS = (
    *("karpenter.sh/nodepool", "karpenter.sh/custom", "kubernetes.io/hostname", "karpenter.k8s.aws/instance-color"),
    *("sub.karpenter.sh/x", "node.karpenter.k8s.aws/x", "Bad.Example/x", "-x", "a/b/c", "", "x" * 320),
    *("karpenter.k8s.aws/capacity-reservation-id", "karpenter.k8s.aws/instance-tenancy"),
)
_VALUES = ("g6", "spot", "4", "0", "us-east-1a", "", "-1", "a b", "x" * 64, "4.5", "1e3", "A_b.c-d", "-", "007")


def objects(count: int, seed: int = 19) -> list[Json]:
    """So many objects, the kinds in turn."""
    rng = random.Random(seed)
    return [_one(KINDS[number % len(KINDS)], number, rng) for number in range(count)]


def _one(kind: str, number: int, rng: random.Random) -> Json:
    make, changes, version = {
        "NodePool": (_node_pool, _POOL, "karpenter.sh/v1"),
        "NodeOverlay": (_overlay, _OVERLAY, "karpenter.sh/v1alpha1"),
        "EC2NodeClass": (_node_class, _CLASS, "karpenter.k8s.aws/v1"),
    }[kind]
    spec = copy.deepcopy(make(rng))
    for change in rng.sample(changes, rng.choice((0, 1, 1, 1, 2))):
        change(spec, rng)
    return {"apiVersion": version, "kind": kind, "metadata": {"name": f"x{number:04d}"}, "spec": spec}


def _requirement(rng: random.Random, keys: Sequence[str] = _LABELS) -> Json:
    operator = rng.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"))
    if operator in ("In", "NotIn"):
        values = rng.sample(("g5", "g6", "p5", "spot", "4"), rng.choice((1, 2, 3)))
    else:
        values = [str(rng.randrange(9))] if operator[:1] in "GL" else []
    return {"key": rng.choice(keys), "operator": operator, **({"values": values} if values else {})}


def _node_pool(rng: random.Random) -> Json:
    return {
        "template": {
            "spec": {
                "requirements": [_requirement(rng) for _ in range(rng.choice((1, 2, 3)))],
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            }
        },
        "disruption": {"consolidateAfter": rng.choice(("0s", "30s", "Never"))},
    }


def _overlay(rng: random.Random) -> Json:
    return {"requirements": [_requirement(rng, (*_LABELS, "karpenter.sh/nodepool")) for _ in range(rng.choice((1, 2)))]}


def _node_class(rng: random.Random) -> Json:
    return {
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "role": "node",
        "subnetSelectorTerms": [{"tags": {"a": "b"}}],
        "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
    }


Change = Callable[[Json, random.Random], None]


def _set(path: str, *values: Any) -> Change:
    """Put one of these values there."""

    def change(spec: Json, rng: random.Random) -> None:
        *outer, last = path.split(".")
        for name in outer:
            spec = spec.setdefault(name, {})
        spec[last] = copy.deepcopy(rng.choice(values))

    return change


def _strange_requirement(at: str) -> Change:
    def change(spec: Json, rng: random.Random) -> None:
        for name in at.split("."):
            spec = spec[name]
        one = rng.choice(list(spec))
        if rng.random() < 0.4:
            one["key"] = rng.choice(_STRANGE_LABELS)
        else:
            one["operator"] = rng.choice(("In", "NotIn", "Gt", "Lt", "Gte", "Lte", "Exists", "Equals", "in", ""))
            one["values"] = rng.sample(_VALUES, rng.choice((0, 1, 1, 2)))

    return change


def _min_values(spec: Json, rng: random.Random) -> None:
    one = rng.choice(spec["template"]["spec"]["requirements"])
    one["minValues"] = rng.choice((0, 1, 2, 3, 50, 51))


_DURATIONS = ("30s", "1h30m", "Never", "0", "-1h", "1d", "1h 30m", "", "1.5h", "never", "90m0s")
_POOL: list[Change] = [
    _strange_requirement("template.spec.requirements"),
    _strange_requirement("template.spec.requirements"),
    _strange_requirement("template.spec.requirements"),
    _min_values,
    _set("weight", 0, 1, 100, 101, -1),
    _set("replicas", 0, 3, -1),
    _set("limits", {"cpu": "10"}, {"nodes": "3"}, {"cpu": "-1"}, {"memory": "many"}, {"nvidia.com/gpu": 4}, {}),
    _set("disruption.consolidationPolicy", "WhenEmpty", "Balanced", "WhenUnderutilized", "Always", ""),
    _set("disruption.consolidateAfter", *_DURATIONS),
    _set("template.spec.expireAfter", *_DURATIONS),
    _set("template.spec.terminationGracePeriod", *_DURATIONS),
    _set(
        "disruption.budgets",
        *([{"nodes": nodes}] for nodes in ("10%", "100%", "101%", "5", "-1", "1.5", "ten", "", "010%")),
        *([{"nodes": "1", "reasons": [reason]}] for reason in ("Empty", "Drifted", "Expired", "underutilized")),
        *(
            [{"nodes": "1", "schedule": when, "duration": "8h"}]
            for when in ("0 9 * * 1-5", "@daily", "@reboot", "0 9 * *", "often", "@dailyish", "0 9 * * * *")
        ),
        *(
            [{"nodes": "1", "schedule": "@daily", "duration": how}]
            for how in ("30m", "1h30m", "90s", "1h0s", "8h30m0s")
        ),
        [{"nodes": "1", "schedule": "@daily"}],
        [{"nodes": "1", "duration": "8h"}],
        [{"nodes": "1"}] * 50,
        [{"nodes": "1"}] * 51,
    ),
    _set(
        "template.spec.taints",
        [{"key": "gpu", "effect": "NoSchedule"}],
        [{"key": "gpu", "effect": "Never"}],
        [{"key": "", "effect": "NoSchedule"}],
        [{"key": "a b", "effect": "NoExecute"}],
        [{"key": "gpu", "value": "x y", "effect": "NoExecute"}],
    ),
    _set(
        "template.metadata.labels",
        {"team": "ml"},
        {"karpenter.sh/nodepool": "x"},
        {"karpenter.sh/custom": "x"},
        {"kubernetes.io/hostname": "x"},
        {"team": "a b"},
        {"team": "x" * 64},
        {"karpenter.k8s.aws/instance-family": "g6"},
        {"karpenter.k8s.aws/custom": "x"},
    ),
    _set("template.spec.nodeClassRef.group", "karpenter.k8s.aws", "", "karpenter.k8s.aws/v1", "eks.amazonaws.com"),
    _set("template.spec.nodeClassRef.name", "", "other"),
    _set("template.spec.nodeClassRef.kind", "", "NodeClass"),
]
_OVERLAY: list[Change] = [
    _strange_requirement("requirements"),
    _strange_requirement("requirements"),
    _set("price", "1", "1.25", "-1", "", "1.", "+1", "1e3", ".5"),
    _set("priceAdjustment", "+10%", "-15%", "-100%", "-101%", "+0.5", "-0.5", "10%", "5", "+150%", "-", "+", "-15.5%"),
    _set(
        "capacity", {"example.com/dongle": "4"}, {"cpu": "4"}, {"pods": 5}, {"example.com/x": "many"}, {"a.b/c": "1Gi"}
    ),
    _set("weight", 0, 1, 10_000, 10_001),
]
_CLASS: list[Change] = [
    _set("role", "", "node"),
    _set("instanceProfile", "", "profile"),
    _set("amiFamily", "AL2023", "AL2", "Custom", "Ubuntu", "Bottlerocket", "al2023"),
    _set(
        "amiSelectorTerms",
        *([{"alias": alias}] for alias in ("al2@v20240807", "bottlerocket@latest", "windows2022@latest", "ubuntu@22")),
        *(
            [{"alias": alias}]
            for alias in ("al2023", "windows2019@v1", "@latest", "al2023@" + "x" * 30, "AL2023@latest")
        ),
        *([{"id": id_}] for id_ in ("ami-0123", "123", "AMI-1")),
        [{}],
        [],
        [{"name": "mine", "owner": "self"}],
        [{"id": "ami-1", "name": "mine"}],
        [{"alias": "al2023@latest"}, {"id": "ami-1"}],
        [{"alias": "al2023@latest", "owner": "self"}],
        [{"tags": {"a": ""}}],
        [{"tags": {"a": "*"}}],
        [{"ssmParameter": "/mine"}],
    ),
    _set(
        "subnetSelectorTerms",
        *(
            [],
            [{}],
            [{"id": "subnet-1"}],
            [{"id": "x"}],
            [{"id": "subnet-1", "tags": {"a": "b"}}],
            [{"tags": {"a": ""}}],
        ),
        [{"id": "subnet-1", "tags": {"a": "b"}}, {"tags": {"a": "b"}}],
        [{"tags": {"a": "b"}}] * 31,
        [{"tags": {f"t{number}": "x" for number in range(21)}}],
    ),
    _set(
        "securityGroupSelectorTerms",
        *([], [{}], [{"id": "sg-1"}], [{"id": "x"}], [{"name": "n"}], [{"id": "sg-1", "name": "n"}]),
    ),
    _set(
        "capacityReservationSelectorTerms",
        *(
            [],
            [{}],
            [{"id": "cr-1"}],
            [{"id": "cr_1"}],
            [{"ownerID": "123456789012"}],
            [{"id": "cr-1", "tags": {"a": "b"}}],
        ),
        *([{"tags": {"a": "b"}, "ownerID": owner}] for owner in ("123456789012", "12", "me")),
        *([{"instanceMatchCriteria": one}] for one in ("open", "targeted", "closed")),
    ),
    _set(
        "blockDeviceMappings",
        *(
            [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": size}}]
            for size in ("100Gi", "0Gi", "60000Gi", "100", "1Ti")
        ),
        *(
            [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": size}}]
            for size in ("59Ti", "100Mi", "64T", "1.5Ti", "Ti")
        ),
        *([{"ebs": {"volumeSize": "1Gi", "volumeType": kind}}] for kind in ("gp2", "gp3", "gp4")),
        *([{"ebs": {"snapshotID": "s", "volumeInitializationRate": rate}}] for rate in (99, 100, 300, 301)),
        [{"ebs": {"volumeSize": "1Gi", "volumeInitializationRate": 200}}],
        [{"ebs": {}}],
        [{"rootVolume": True}, {"rootVolume": True}],
        [{"rootVolume": True}, {"rootVolume": False}],
    ),
    _set("instanceStorePolicy", "RAID0", "RAID1", ""),
    _set("tags", {"a": "b"}, {"": "b"}, {"eks:eks-cluster-name": "x"}, {"kubernetes.io/cluster/x": "y"}, {"Name": "n"}),
    _set(
        "tags", {"karpenter.sh/nodepool": "x"}, {"karpenter.sh/nodeclaim": "x"}, {"karpenter.k8s.aws/ec2nodeclass": "x"}
    ),
    _set("metadataOptions.httpTokens", "required", "optional", "no"),
    _set("metadataOptions.httpPutResponseHopLimit", 0, 1, 64, 65),
    _set("kubelet.maxPods", -1, 0, 110),
    _set("kubelet.kubeReserved", {"cpu": "1"}, {"gpu": "1"}, {"memory": "-1Gi"}, {"memory": "much"}),
    _set("kubelet.evictionHard", {"memory.available": "5%"}, {"memory": "5%"}, {"nodefs.available": "101%"}),
    _set("kubelet.evictionSoft", {"memory.available": "5%"}),
    _set("kubelet.evictionSoftGracePeriod", {"memory.available": "1m"}),
    _set("kubelet", {"imageGCHighThresholdPercent": 80, "imageGCLowThresholdPercent": 80}, {"podsPerCore": -1}),
    _set(
        "kubelet",
        {"imageGCHighThresholdPercent": 85, "imageGCLowThresholdPercent": 80},
        {"imageGCLowThresholdPercent": 101},
    ),
    _set(
        "placementGroupSelector",
        {},
        {"name": "a"},
        {"id": "pg-1"},
        {"id": "x"},
        {"name": "a", "id": "pg-1"},
        {"name": ""},
    ),
    _set("connectionTracking", {}, {"udpTimeout": 29}, {"udpTimeout": 30}, {"tcpEstablishedTimeout": 59}),
    _set("cpuOptions", {"nestedVirtualization": "enabled"}, {"nestedVirtualization": "on"}),
    _set("ipPrefixCount", -1, 0, 4),
    _set(
        "networkInterfaces",
        [],
        [{"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}],
        [{"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "interface"}],
        [{"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "efa"}],
        [{"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}] * 2,
        [
            {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
            {"networkCardIndex": 1, "deviceIndex": 0, "interfaceType": "efa-only"},
            {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "efa-only"},
        ],
        [{"networkCardIndex": 0, "deviceIndex": 0}],
    ),
]
