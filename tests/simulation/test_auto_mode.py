"""EKS Auto Mode: its NodePools, their labels and node class, in plans and in the simulated cluster."""

from __future__ import annotations

from pathlib import Path

from tonnage.cli import plan_input
from tonnage.provisioning import karpenter as planner
from tonnage.provisioning.plans import Plan
from tonnage.simulation import scenario
from tonnage.simulation.run import play, set_up
from tonnage.units import GIB

AUTO = """\
apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
metadata: {name: ml, region: us-east-1}
autoModeConfig: {enabled: true}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: gpu}
spec:
  template:
    spec:
      nodeClassRef: {group: eks.amazonaws.com, kind: NodeClass, name: default}
      taints: [{key: nvidia.com/gpu, effect: NoSchedule}]
      requirements:
      - {key: eks.amazonaws.com/instance-gpu-name, operator: In, values: [l4, a10g]}
      - {key: eks.amazonaws.com/instance-gpu-count, operator: Lt, values: ["3"]}
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
"""
EC2 = """\
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  role: node
  subnetSelectorTerms: [{tags: {a: b}}]
  securityGroupSelectorTerms: [{tags: {a: b}}]
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: own}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: karpenter.k8s.aws/instance-gpu-name, operator: In, values: [l4]}
"""
POD = """\
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  nodeSelector: {{{selector}}}
  tolerations: [{tolerations}]
  containers: [{{name: c, image: busybox, resources: {{requests: {{cpu: 500m, ephemeral-storage: {storage}}}, limits: {{{gpus}}}}}}}]
"""


def pod(name: str, selector: str = "", gpus: int = 0, storage: str = "1Gi") -> str:
    limits, tolerations = (f"nvidia.com/gpu: {gpus}", "{key: nvidia.com/gpu, operator: Exists}") if gpus else ("", "")
    return POD.format(name=name, selector=selector, storage=storage, gpus=limits, tolerations=tolerations)


def planned(folder: Path, text: str) -> Plan:
    file = folder / "all.yaml"
    file.write_text(text)
    given = plan_input.read([file], [], None)
    assert not [one for one in given.findings if one.severity == "error"]
    return planner.plan(given.pods, given.nodes, given.pools.node_pools, given.catalogue, given.settings)


def test_the_built_in_node_pools_take_pods_without_gpus_and_no_others(tmp_path: Path) -> None:
    found = planned(tmp_path, AUTO + pod("web") + pod("infer", gpus=1))
    assert {one.pods[0].name: one.node_pool for one in found.launches} == {"web": "general-purpose", "infer": "gpu"}
    web = next(one for one in found.launches if one.node_pool == "general-purpose")
    assert web.instance_type[0] in "cmr" and web.labels["eks.amazonaws.com/instance-category"] in "cmr"
    assert not any(key.startswith("karpenter.k8s.aws/") for key in web.labels)
    assert web.labels["eks.amazonaws.com/compute-type"] == "auto"


def test_pods_select_labels_of_auto_mode_there_and_karpenters_elsewhere(tmp_path: Path) -> None:
    text = AUTO + EC2
    text += pod("auto", "eks.amazonaws.com/instance-gpu-name: l4", 1)
    text += pod("own", "karpenter.k8s.aws/instance-gpu-name: l4", 1)
    found = planned(tmp_path, text)
    assert {one.pods[0].name: one.node_pool for one in found.launches} == {"auto": "gpu", "own": "own"}
    assert all(one.instance_type.startswith("g6") for one in found.launches)


def test_without_auto_mode_no_node_has_its_labels(tmp_path: Path) -> None:
    found = planned(tmp_path, EC2.removeprefix("---\n") + pod("auto", "eks.amazonaws.com/instance-gpu-name: l4", 1))
    assert not found.launches
    assert "eks.amazonaws.com/instance-gpu-name" in found.waits[0].reason.alternatives[0].why


def test_the_node_class_says_how_large_volumes_are_apart_from_an_ec2_node_class_of_its_name(tmp_path: Path) -> None:
    fits = planned(tmp_path, AUTO + EC2 + pod("web", storage="60Gi"))
    assert [one.node_pool for one in fits.launches] == ["general-purpose"]
    node_class = """\
---
apiVersion: eks.amazonaws.com/v1
kind: NodeClass
metadata: {name: default}
spec: {ephemeralStorage: {size: 160Gi, iops: 3000, throughput: 250}}
"""
    large = planned(tmp_path, AUTO + node_class + pod("web", storage="120Gi"))
    (launch,) = large.launches
    assert 120 * GIB < launch.allocatable["ephemeral-storage"] < 160 * GIB


def test_simulated_nodes_of_auto_mode_have_its_labels_and_pods_that_select_them_run(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    selected = pod("infer", "eks.amazonaws.com/instance-gpu-name: l4", 1)
    (tmp_path / "m" / "all.yaml").write_text(AUTO + selected)
    file = tmp_path / "scenario.yaml"
    file.write_text("kind: Scenario\nname: auto\nduration: 400s\npolicies:\n  p: {manifests: m}\n")
    made = set_up(scenario.load(file), "p")
    play(made)
    fleet = made.cluster.fleet
    (node,) = [fleet.node(row) for row in fleet.node_rows()]
    assert node.labels["eks.amazonaws.com/instance-gpu-name"] == "l4"
    assert not any(key.startswith("karpenter.k8s.aws/instance") for key in node.labels)
    assert not list(fleet.pending)
