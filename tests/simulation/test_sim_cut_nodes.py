"""Nodes whose GPUs are cut as their labels say: those that are there from the start, and those that are launched."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from sim_builders import EXAMPLE, TYPICAL, launch, run_until, world

from tonnage.apiserver.api import Api
from tonnage.apiserver.inprocess import InProcess
from tonnage.errors import InputError
from tonnage.facts.labels import GPU, MIG_CONFIG
from tonnage.fleet.asks import SHARED_GPU
from tonnage.fleet.devices import How
from tonnage.hollow import lockstep
from tonnage.kube.resources import NODE_CLAIMS, NODES
from tonnage.kube.verbs import Client
from tonnage.machines import nodes
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.gpu_faults import GpuUnhealthy, restore_gpu
from tonnage.machines.life import NodeRunning
from tonnage.machines.objects import SimulatedNode, SimulatedNodeClaim
from tonnage.partitioning.node_cuts import MIG_STRATEGY, PLUGIN_CONFIG
from tonnage.simulation import run, scenario
from tonnage.simulation.result import Result
from tonnage.simulation.scenario import load
from tonnage.units import NS_PER_S

MIXED = {MIG_STRATEGY: "mixed"}
ONE_G, THREE_G = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"

MAPS = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: custom-mig-config, namespace: gpu-operator}
data:
  config.yaml: |
    version: v1
    mig-configs:
      halves: [{devices: all, mig-enabled: true, mig-devices: {3g.40gb: 2}}]
      sevenths: [{devices: all, mig-enabled: true, mig-devices: {1g.10gb: 7}}]
      whole: [{devices: all, mig-enabled: false}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: device-plugin-config, namespace: gpu-operator}
data:
  default: |
    version: v1
    flags: {migStrategy: mixed}
  shared: |
    version: v1
    sharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 4}]}}
"""
POOL = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: cut}
spec:
  template:
    spec:
      requirements:
        - {key: node.kubernetes.io/instance-type, operator: In, values: [p5.4xlarge]}
        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
        - {key: nvidia.com/mig.config, operator: In, values: [halves, sevenths, whole]}
        - {key: nvidia.com/device-plugin.config, operator: In, values: [default, shared]}
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpu}
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: gpu}
spec:
  role: nodes
  amiSelectorTerms: [{alias: bottlerocket@v1.50.0}]
  subnetSelectorTerms: [{tags: {cluster: test}}]
  securityGroupSelectorTerms: [{tags: {cluster: test}}]
"""
MAPS_LINES = MAPS.count("\n") + 1
APP = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, namespace: inference}
spec:
  replicas: REPLICAS
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.33.0
          args: ["--model=meta-llama/Llama-3.2-1B", "--max-model-len=4096"]
          resources: {requests: {cpu: "1", memory: 8Gi}, limits: {RESOURCE: 1}}
"""
SERVICE = """\
apiVersion: v1
kind: Service
metadata: {name: small, namespace: inference}
spec: {selector: {app: small}, ports: [{port: 8000}]}
"""
SCENARIO = f"""\
kind: Scenario
name: cut
duration: 6m
slo: {{ttft: 2s, tpot: 50ms}}
fleet: FLEET
traffic:
  - {{service: inference/small, profile: {EXAMPLE}/traffic/azure-2023-conv.yaml, rate: 0.02}}
policies:
  only: {{manifests: manifests}}
"""


def app(name: str, resource: str, replicas: int) -> str:
    written = APP.replace("NAME", name).replace("RESOURCE", resource)
    return written.replace("REPLICAS", str(replicas))


def set_up(folder: Path, *manifests: str, fleet: str = "{}", check: bool = False) -> run.SetUp:
    (folder / "manifests").mkdir()
    (folder / "manifests" / "all.yaml").write_text("---\n".join(manifests), encoding="utf-8")
    (folder / "scenario.yaml").write_text(SCENARIO.replace("FLEET", fleet), encoding="utf-8")
    return run.set_up(load(folder), "only", run.RunOptions(check=check))


def labelled(instance_type: str, labels: dict[str, str], count: int = 1) -> str:
    """A fleet of such nodes, as a scenario writes it."""
    written = ", ".join(f"{key}: {value}" for key, value in labels.items())
    return f"\n  nodes:\n    - {{instanceType: {instance_type}, count: {count}, labels: {{{written}}}}}"


def gpus_of(cluster: SimulatedCluster, name: str) -> dict[str, int]:
    """What the devices of a node give its allocatable now."""
    row = cluster.fleet.node_by_name[name]
    return {key: n for key, n in cluster.fleet.allocatable_of(row).items() if key.startswith("nvidia.com/") and n}


# ---- nodes that are there ----


@pytest.mark.parametrize(
    ("labels", "offers", "how"),
    [
        ({MIG_CONFIG: "all-1g.10gb", **MIXED}, {ONE_G: 56}, How.MIG),
        ({MIG_CONFIG: "halves"}, {THREE_G: 16}, How.MIG),  # the device plugin's default says mixed
        ({MIG_CONFIG: "sevenths", MIG_STRATEGY: "single"}, {GPU: 56}, How.REPLICAS),
        ({PLUGIN_CONFIG: "shared"}, {SHARED_GPU: 32}, How.REPLICAS),
    ],
)
def test_a_node_of_the_scenario_is_cut_as_its_labels_say(
    tmp_path: Path, labels: dict[str, str], offers: dict[str, int], how: How
) -> None:
    made = set_up(tmp_path, MAPS, app("small", ONE_G, 0), SERVICE, fleet=labelled("p5.48xlarge", labels))
    fleet = made.cluster.fleet
    assert gpus_of(made.cluster, "base-01") == offers
    node = fleet.node(fleet.node_by_name["base-01"])
    assert [cut.how for cut in node.cuts] == [how] * 8
    assert node.spec.cuts == node.cuts
    assert node.labels["nvidia.com/gpu.family"] == "hopper"
    assert ("nvidia.com/mig.config.state" in node.labels) == (MIG_CONFIG in labels)


def test_the_cluster_policy_says_what_unlabelled_nodes_share(tmp_path: Path) -> None:
    policy = """\
apiVersion: nvidia.com/v1
kind: ClusterPolicy
metadata: {name: cluster-policy}
spec: {mig: {strategy: mixed}, devicePlugin: {config: {name: device-plugin-config, default: DEFAULT}}}
"""
    unlabelled = labelled("p5.48xlarge", {})
    for name, default, offers in (("shared", "shared", {SHARED_GPU: 32}), ("none", '""', {GPU: 8})):
        (tmp_path / name).mkdir()
        manifests = (MAPS, policy.replace("DEFAULT", default), app("small", ONE_G, 0), SERVICE)
        made = set_up(tmp_path / name, *manifests, fleet=unlabelled)
        assert gpus_of(made.cluster, "base-01") == offers


def test_labels_of_feature_discovery_count_what_the_node_has(tmp_path: Path) -> None:
    labels = {MIG_CONFIG: "all-balanced", **MIXED}
    made = set_up(tmp_path, MAPS, app("small", ONE_G, 0), SERVICE, fleet=labelled("p5.48xlarge", labels))
    node = made.cluster.fleet.node(made.cluster.fleet.node_by_name["base-01"])
    assert {
        key: node.labels[f"nvidia.com/mig-{key}"] for key in ("1g.10gb.count", "3g.40gb.count", "2g.20gb.memory")
    } == {
        "1g.10gb.count": "16",
        "3g.40gb.count": "8",
        "2g.20gb.memory": "20096",
    }


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (
            {MIG_CONFIG: "halfs"},
            r"scenario.yaml:7:fleet.nodes\[0\].labels.nvidia.com/mig.config: unknown .*mean halves",
        ),
        ({PLUGIN_CONFIG: "share"}, r"labels.nvidia.com/device-plugin.config: unknown .*did you mean shared"),
        ({MIG_CONFIG: "all-1g.5gb"}, r"h100 cannot hold 7 x 1g.5gb of configuration all-1g.5gb: it has no profile"),
        ({MIG_CONFIG: "all-balanced", MIG_STRATEGY: "single"}, "instances of several profiles"),
    ],
)
def test_labels_that_cannot_be_followed_are_refused_with_their_place(
    tmp_path: Path, labels: dict[str, str], text: str
) -> None:
    with pytest.raises(InputError, match=text):
        set_up(tmp_path, MAPS, app("small", ONE_G, 0), SERVICE, fleet=labelled("p5.48xlarge", labels))


def joined(labels: dict[str, str]) -> tuple[SimulatedCluster, SimulatedNode]:
    """A cluster in which a p5.4xlarge with these labels was asked for at second 1, and is up."""
    cluster = world()
    made = launch("n", "p5.4xlarge")
    made.labels.update(labels)
    claim = SimulatedNodeClaim(made, cluster.now_ns)
    cluster.cloud.claims["n"] = claim
    cluster.queue.push(cluster.now_ns, NodeRunning(claim))
    run_until(cluster, 1000)
    return cluster, cluster.nodes["n"]


def test_cutting_takes_its_time_after_the_node_is_ready() -> None:
    _, whole = joined({})
    cluster, cut = joined({MIG_CONFIG: "all-1g.10gb", **MIXED})
    assert whole.ready_ns is not None and cut.ready_ns is not None
    cutting_s = TYPICAL.mig_mode_s + 7 * TYPICAL.mig_instance_s + TYPICAL.mig_plugin_s
    assert (cut.ready_ns - whole.ready_ns) / NS_PER_S == pytest.approx(cutting_s)
    assert gpus_of(cluster, "n") == {ONE_G: 7}


def test_a_node_is_there_before_its_instances_are() -> None:
    cluster = world()
    made = launch("n", "p5.4xlarge")
    made.labels.update({MIG_CONFIG: "all-1g.10gb", **MIXED})
    node = nodes.start_node(cluster, SimulatedNodeClaim(made, cluster.now_ns))
    nodes.register_node(cluster, node)
    assert gpus_of(cluster, "n") == {}
    assert cluster.fleet.allocatable_of(cluster.fleet.node_by_name["n"])["cpu"] > 0
    nodes.initialize_node(cluster, node)
    assert gpus_of(cluster, "n") == {ONE_G: 7}


@pytest.mark.parametrize(
    ("labels", "left", "back"),
    [
        ({MIG_CONFIG: "all-3g.40gb", **MIXED}, {THREE_G: 14}, {THREE_G: 16}),
        ({MIG_CONFIG: "all-1g.10gb"}, {GPU: 49}, {GPU: 56}),
    ],
)
def test_a_gpu_that_fails_takes_its_instances_with_it(
    labels: dict[str, str], left: dict[str, int], back: dict[str, int]
) -> None:
    cluster = world()
    made = launch("n", "p5.48xlarge")
    made.labels.update(labels)
    node = nodes.start_node(cluster, SimulatedNodeClaim(made, cluster.now_ns))
    nodes.register_node(cluster, node)
    nodes.initialize_node(cluster, node)
    for _, event in GpuUnhealthy("n").handle(cluster):
        assert list(event.handle(cluster)) == []
    assert gpus_of(cluster, "n") == left
    restore_gpu(cluster, node)
    restore_gpu(cluster, node)
    assert gpus_of(cluster, "n") == back


# ---- nodes that are launched ----


@pytest.fixture(scope="module")
def bought(tmp_path_factory: pytest.TempPathFactory) -> tuple[run.SetUp, Result]:
    """Pods that ask for two kinds of instances, for replicas and for a whole GPU, and a NodePool that offers all."""
    apps = [app("small", ONE_G, 5), app("large", THREE_G, 3), app("sliced", SHARED_GPU, 4), app("whole", GPU, 1)]
    made = set_up(tmp_path_factory.mktemp("bought"), MAPS, POOL, *apps, SERVICE, check=True)
    return made, made.result(run.play(made))


def test_cut_nodes_are_bought_for_the_pods_that_ask_for_their_parts(bought: tuple[run.SetUp, Result]) -> None:
    made, result = bought
    cluster = made.cluster
    assert result.check.violations == []
    (ambiguous,) = [one for one in result.findings if one.object.kind == "NodePool"]
    assert (ambiguous.rule, ambiguous.where.line) == ("nodepool-gpu-ambiguous", MAPS_LINES + 10)
    on: dict[str, list[str]] = {}
    for pod in cluster.pods.values():
        assert pod.node, f"{pod.name} waits"
        on.setdefault(pod.node, []).append(re.sub(r"-\d+$", "", pod.name))
    there = sorted((sorted(pods), gpus_of(cluster, name)) for name, pods in on.items())
    assert there == [
        (["large"], {THREE_G: 2}),
        (["large", "large"], {THREE_G: 2}),
        (["sliced"] * 4, {SHARED_GPU: 4}),
        (["small"] * 5, {ONE_G: 7}),
        (["whole"], {GPU: 1}),
    ]
    assert sorted(on) == sorted(name for name, node in cluster.nodes.items() if node.ended_ns is None)


def test_a_bought_node_has_the_labels_and_the_allocatable_of_its_plan(bought: tuple[run.SetUp, Result]) -> None:
    cluster = bought[0].cluster
    configs = set()
    for node in cluster.nodes.values():
        row = cluster.fleet.node_by_name[node.name]
        labels = cluster.fleet.node(row).labels
        configs.add((labels[MIG_CONFIG], labels[PLUGIN_CONFIG]))
        assert {key: n for key, n in cluster.fleet.allocatable_of(row).items() if n} == node.allocatable
    assert configs == {("halves", "default"), ("sevenths", "default"), ("whole", "shared"), ("whole", "default")}


def test_behind_an_api_the_label_stands_on_claim_and_node(tmp_path: Path) -> None:
    made = set_up(tmp_path, MAPS, POOL, app("small", ONE_G, 2), SERVICE)
    api = Api()
    _, steps = lockstep.play(made, InProcess(api), 320 * NS_PER_S)
    client = Client(InProcess(api))
    (claim,) = client.list(NODE_CLAIMS)
    (node,) = client.list(NODES)
    steps.close()
    assert claim["metadata"]["labels"][MIG_CONFIG] == "sevenths"
    assert {"key": MIG_CONFIG, "operator": "In", "values": ["sevenths"]} in claim["spec"]["requirements"]
    assert node["metadata"]["labels"][MIG_CONFIG] == "sevenths"
    assert node["metadata"]["labels"][f"{ONE_G}.count"] == node["status"]["allocatable"][ONE_G] == "7"
    assert {pod.node for pod in made.cluster.pods.values()} == {node["metadata"]["name"]}


def test_a_name_that_no_config_map_has_is_a_finding_of_the_run(tmp_path: Path) -> None:
    misspelt = POOL.replace("halves, sevenths", "halfs, sevenths")
    made = set_up(tmp_path, MAPS, misspelt, app("small", ONE_G, 1), SERVICE)
    (finding,) = [one for one in made.configuration.findings if one.rule == "nodepool-unknown-configuration"]
    assert (Path(finding.where.file).name, finding.severity) == ("all.yaml", "error")
    assert "did you mean halves?" in finding.message


@pytest.mark.parametrize("resource", [GPU, SHARED_GPU])
def test_a_node_that_is_there_hands_out_its_replicas_under_the_name_that_it_offers(
    resource: str, tmp_path: Path
) -> None:
    """With renameByDefault the device plugin offers nvidia.com/gpu.shared, which no label says."""
    labels = {
        "kubernetes.io/hostname": "a",
        "nvidia.com/gpu.product": "NVIDIA-L4",
        "nvidia.com/gpu.count": "1",
        "nvidia.com/gpu.replicas": "2",
    }
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", resource: "2"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": labels}}
    container = {"name": "c", "image": "nginx:1.29", "resources": {"limits": {resource: 1}}}
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}
        for name in ("first", "second")
    ]
    there = {**node, "status": {"allocatable": amounts, "capacity": amounts}}
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all([there, *pods]))
    made = run.set_up(scenario.load(tmp_path), "as-written")
    run.play(made)
    fleet = made.cluster.fleet
    assert [fleet.pod(pod.row).devices for pod in made.cluster.pods.values()] == [(0,), (0,)]
