"""Pods and gangs that wait on a large cluster, one for each kind of refusal."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tonnage.fleet.gangs import Gang, SubGroup, TopologyRule
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet, FleetNode, FleetPod
from tonnage.fleet.volumes import Reach, VolumeNeed
from tonnage.objects import core
from tonnage.units import GIB

GPU, MIG, FPGA = "nvidia.com/gpu", "nvidia.com/mig-3g.40gb", "example.com/fpga"
ZONE, RACK, HOSTNAME = "topology.kubernetes.io/zone", "example.com/rack", "kubernetes.io/hostname"
PRODUCT, DRIVER = "nvidia.com/gpu.product", "nvidia.com/cuda.driver-version.full"
POOL = "example.com/pool"
TOLERATIONS = [{"key": GPU, "operator": "Exists"}, {"key": "team", "operator": "Exists"}]
TORCH = "pytorch/pytorch:2.11.0-cuda13.0-cudnn9-runtime"


@dataclass(frozen=True)
class Case:
    """What waits: pods, or a gang of them; ``key`` names the one that is asked about. ``changes``: whether some change
    would help."""

    about: str
    key: str
    pods: tuple[FleetPod, ...]
    gang: Gang | None = None
    changes: bool = True


def packed(nodes: int) -> Fleet:
    """Nodes of 8 GPUs in racks of 32 and four zones; no GPU free, some shared, and a twentieth cordoned."""
    rng = random.Random("placement/why")
    fleet = Fleet()
    for i in range(nodes):
        labels = {ZONE: f"zone-{i * 4 // nodes}", RACK: f"rack-{i // 32}"}
        allocatable = {"cpu": 191_450, "memory": 1_900 * GIB, "pods": 110, GPU: 8}
        spec = FleetNode(f"node-{i:05d}", allocatable, labels, device_resource=GPU)
        row = fleet.add_node(spec, schedulable=rng.random() < 0.95)
        left = 8
        while left > 0:
            gpus = min(left, rng.choice((1, 1, 2, 4, 8)))
            left -= gpus
            name = f"there-{i:05d}-{left}"
            pod = _pod(name, {"cpu": str(22 * gpus), GPU: str(gpus)}, labels={"app": "there"})
            if gpus == 1 and rng.random() < 0.5:
                share = {"gpu-fraction": rng.choice(("0.6", "0.7"))}
                pod = _pod(name, {"cpu": "22"}, labels={"app": "there"}, annotations=share)
            fleet.bind(fleet.add_pod(pod), row)
    return fleet


def of_packed() -> Iterator[Case]:
    """What waits in :func:`packed`."""
    yield _alone("pod of 8 GPUs, 48 cores", {"cpu": "48", GPU: "8"})
    yield _alone("pod of 1 GPU, nothing is free", {"cpu": "4", GPU: "1"})
    yield _alone("pod of 1 GPU, 128 cores, nothing is free", {"cpu": "128", GPU: "1"})
    yield _alone("pod of 0.9 GPU", {"cpu": "4"}, annotations={"gpu-fraction": "0.9"})
    yield _alone("pod of 2 GPUs, one a rack", {GPU: "2"}, labels={"app": "there"}, affinity=_away("there", RACK))
    yield _alone("resource that no node has", {"cpu": "4", FPGA: "1"})
    yield _alone("resource that no node has, 1 GPU", {"cpu": "4", GPU: "1", FPGA: "1"})
    yield _gang("gang of 64 in one rack", 64, 8, TopologyRule(required=RACK))
    yield _gang("gang of 64, anywhere", 64, 8, TopologyRule())
    yield _gang("gang of 256 in 8 subgroups", 256, 1, TopologyRule(required=ZONE), parts=8)


def mixed(nodes: int) -> Fleet:
    """A third of the nodes with 8 H100 and the usual taint, a third with 8 A100 of six teams, each with a taint of its
    own, cut by MIG in every other node, a third without GPUs; a third of each is in use, and each has a label of its
    own. Port 9400 is taken on every node."""
    rng = random.Random("placement/why/mixed")
    fleet = Fleet()
    agent = {"ports": [{"containerPort": 9400, "hostPort": 9400}]}
    for i in range(nodes):
        kind = i % 3
        labels = {ZONE: f"zone-{i % 4}", RACK: f"rack-{i // 32}", POOL: ("h100", "a100", "cpu")[kind]}
        allocatable = {"cpu": 191_450, "memory": 1_900 * GIB, "pods": 110}
        taints: tuple[core.Taint, ...] = ()
        instances = 0
        if kind == 0:
            labels |= {PRODUCT: "NVIDIA-H100-80GB-HBM3", DRIVER: "535.161.08"}
            taints = (core.Taint(key=GPU, value="present", effect="NoSchedule"),)
        elif kind == 1:
            labels |= {PRODUCT: "NVIDIA-A100-SXM4-80GB", DRIVER: "550.90.07"}
            taints = (core.Taint(key="team", value=f"t{i % 6}", effect="NoSchedule"),)
            instances = 16 * (i % 2)
        if kind < 2 and not instances:
            allocatable[GPU] = 8
        if instances:
            labels["nvidia.com/mig.strategy"] = "mixed"
            allocatable[MIG] = instances
        name = f"node-{i:05d}"
        labels["example.com/machine"] = f"m-{i:05d}"
        row = fleet.add_node(FleetNode(name, allocatable, labels, taints, device_resource=GPU if kind < 2 else ""))
        fleet.bind(fleet.add_pod(_pod(f"agent-{i:05d}", {"cpu": "1"}, container=agent, daemon=True)), row)
        pods = rng.randint(1, 5)
        for n in range(pods):
            asked = {"cpu": str(rng.choice((4, 8, 16)))}
            if kind < 2:
                asked |= {MIG: "2"} if instances else {GPU: "1"}
            app = {"app": "web" if i % 4 == 0 and n == 0 else "other"}
            fleet.bind(fleet.add_pod(_pod(f"there-{i:05d}-{n}", asked, labels=app)), row)
        for n in range(8 - pods if instances else 0):
            fleet.bind(fleet.add_pod(_pod(f"slice-{i:05d}-{n}", {"cpu": "4", MIG: "2"})), row)
    return fleet


def of_mixed(nodes: int) -> Iterator[Case]:
    """What waits in :func:`mixed`."""
    tolerant: dict[str, Any] = {"tolerations": TOLERATIONS}
    yield _alone("taints of all GPU nodes", {GPU: "1"})
    terms = [
        {"matchExpressions": [_in(POOL, "h100"), _in(ZONE, "zone-9")]},
        {"matchExpressions": [_in(POOL, "a100"), _in(ZONE, "zone-8"), _in(RACK, "rack-1")]},
    ]
    yield _alone("node affinity of two terms", {GPU: "1"}, affinity=_on(*terms), **tolerant)
    named = {"matchFields": [_in("metadata.name", f"node-{nodes:05d}")]}
    yield _alone("node affinity by name", {GPU: "1"}, affinity=_on(named, terms[0]), **tolerant)
    yield _alone("node selector", {"cpu": "4"}, nodeSelector={POOL: "h200", ZONE: "zone-1"}, **tolerant)
    yield _alone("host name", {"cpu": "4"}, nodeSelector={HOSTNAME: "node-99999"}, **tolerant)
    yield _alone("node name", {"cpu": "4"}, nodeName="node-99999", **tolerant)
    spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    spread["labelSelector"] = {"matchLabels": {"app": "web"}}
    crowd = {"nodeSelector": {ZONE: "zone-0"}, "topologySpreadConstraints": [spread | {"nodeAffinityPolicy": "Ignore"}]}
    yield _alone("spread over zones", {"cpu": "4"}, labels={"app": "web"}, **crowd, **tolerant)
    yield _alone("anti-affinity to all", {GPU: "1"}, affinity=_away("other", ZONE), **tolerant)
    yield _alone("anti-affinity a host", {GPU: "8"}, affinity=_away("other", HOSTNAME), **tolerant)
    yield _alone("affinity to nobody", {"cpu": "4"}, affinity=_near("nobody", ZONE), **tolerant)
    yield _alone("MIG instance, none is free", {MIG: "3"}, **tolerant)
    yield _alone("MIG instance that no card is cut to", {"nvidia.com/mig-7g.80gb": "1"}, **tolerant)
    yield _alone("share on more devices", {}, annotations={"gpu-fraction": "0.5", "gpu-fraction-num-devices": "9"})
    port = {"ports": [{"containerPort": 9400, "hostPort": 9400}]}
    yield _alone("host port", {"cpu": "1"}, container=port, changes=False, **tolerant)
    zonal = core.NodeSelector(
        node_selector_terms=[msgspec.convert({"matchExpressions": [_in(ZONE, "zone-7")]}, core.NodeSelectorTerm)]
    )
    volumes = VolumeNeed(reach=(Reach("node(s) had volume node affinity conflict", zonal),))
    yield _alone("volume of another zone", {GPU: "1"}, volumes=volumes, changes=False, **tolerant)
    yield _alone("CUDA that no driver runs", {GPU: "1"}, container={"image": TORCH}, changes=False, **tolerant)
    yield _alone("pod of 9 GPUs", {GPU: "9"}, **tolerant)
    yield _alone("pod of 4 TiB", {GPU: "1", "memory": "4Ti"}, **tolerant)
    yield _gang("gang of 64 in one rack, of mixed nodes", 64, 8, TopologyRule(required=RACK), tolerant)
    ahead = [_pod(f"ahead-{i:04d}", {GPU: "9"}, tolerations=TOLERATIONS, created_ns=-1) for i in range(200)]
    last = _alone("200 wait before it", {GPU: "9", "cpu": "5"}, **tolerant)
    yield Case(last.about, last.key, (*ahead, *last.pods))


def snapshot(fleet: Fleet, case: Case) -> Snapshot:
    """The fleet with what waits in it."""
    for pod in case.pods:
        fleet.add_pod(pod)
    return Snapshot(0, fleet, gangs={case.gang.key: case.gang} if case.gang else {})


def forget(fleet: Fleet, case: Case) -> None:
    """Take away what waits."""
    for pod in case.pods:
        fleet.remove_pod(fleet.pod_by_key[pod.namespace, pod.name])


def _alone(about: str, requests: dict[str, str], *, changes: bool = True, **more: Any) -> Case:
    return Case(about, "default/waiting", (_pod("waiting", requests, **more),), changes=changes)


def _gang(
    about: str, pods: int, gpus: int, rule: TopologyRule, more: dict[str, Any] | None = None, parts: int = 0
) -> Case:
    groups = tuple(SubGroup(f"part-{p}", pods // parts, TopologyRule(required=RACK)) for p in range(parts))
    gang = Gang("default/gang", pods, groups, rule)
    members = []
    for i in range(pods):
        part = groups[i * parts // pods].name if groups else ""
        pod = _pod(f"gang-{i:03d}", {GPU: str(gpus)}, **(more or {}))
        members.append(replace(pod, gang=gang.key, subgroup=part))
    return Case(about, gang.key, tuple(members), gang)


def _pod(
    name: str,
    requests: dict[str, str],
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    container: dict[str, Any] | None = None,
    daemon: bool = False,
    created_ns: int = 0,
    volumes: VolumeNeed | None = None,
    **fields: Any,
) -> FleetPod:
    """A pod of one container; ``fields`` are those of the manifest."""
    one = {"name": "main", "resources": {"requests": {"memory": "8Gi"} | requests}} | (container or {})
    spec = msgspec.convert({"containers": [one]} | fields, core.PodSpec)
    return FleetPod(
        "default",
        name,
        name,
        labels or {},
        spec,
        annotations=annotations or {},
        daemon=daemon,
        created_ns=created_ns,
        volumes=volumes or VolumeNeed(),
    )


def _in(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def _on(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def _away(app: str, key: str) -> dict[str, Any]:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_term(app, key)]}}


def _near(app: str, key: str) -> dict[str, Any]:
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_term(app, key)]}}


def _term(app: str, key: str) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
