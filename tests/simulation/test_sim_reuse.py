"""What engines find in their caches, and what the slo policy makes of it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import yaml_text
from tonnage.simulation.result import Result
from tonnage.simulation.run import RunOptions, run
from tonnage.simulation.scenario import load

EXAMPLES = Path(__file__).parents[2] / "examples"
CORRECTED = EXAMPLES / "traffic-surge" / "manifests" / "corrected"

AUTOSCALED = """
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: chat, namespace: inference}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: chat}
  minReplicas: 4
  maxReplicas: 16
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: gpus}
spec:
  template:
    spec:
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
        - {key: node.kubernetes.io/instance-type, operator: In, values: [g6e.12xlarge]}
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpu-nodeclass}
"""

MONITORED = """
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: chat, namespace: inference}
spec:
  selector: {matchLabels: {app: chat}}
  endpoints: [{port: http}]
"""


def _scaled(folder: Path, more: str) -> Result:
    """The chats of the example under the slo policy, on nodes that can be terminated."""
    manifests = folder / "manifests"
    manifests.mkdir(parents=True)
    deployment, service = yaml_text.load_all(
        (EXAMPLES / "kv-routing" / "manifests" / "chat.yaml").read_text(encoding="utf-8")
    )
    deployment["spec"]["replicas"] = 4
    pod = deployment["spec"]["template"]["spec"]
    pod["terminationGracePeriodSeconds"] = 90
    pod["containers"][0]["args"].append("--shutdown-timeout=90")
    service["metadata"]["labels"] = {"app": "chat"}
    text = yaml_text.dump_all([deployment, service]) + AUTOSCALED + more
    (manifests / "all.yaml").write_text(text, encoding="utf-8")
    (manifests / "class.yaml").write_text((CORRECTED / "ec2nodeclass.yaml").read_text(encoding="utf-8"))
    document = yaml_text.load((EXAMPLES / "kv-routing" / "scenario.yaml").read_text(encoding="utf-8"))
    traffic = document["traffic"][0]
    traffic |= {"profile": str(EXAMPLES / "kv-routing" / traffic["profile"]), "rate": 0.95, "balancing": "tonnage"}
    document |= {
        "duration": "8m",
        "slo": {"ttft": "3s", "tpot": "80ms"},
        "fleet": {"nodes": [{"instanceType": "g6e.12xlarge", "count": 4, "nodePool": "gpus"}]},
        "policies": {"slo": {"manifests": "manifests", "scaling": "slo"}},
        "default": "slo",
    }
    (folder / "scenario.yaml").write_text(yaml_text.dump(document), encoding="utf-8")
    return run(load(folder), "slo", RunOptions(seed=1))


def _reuse_planned_with(result: Result) -> list[object]:
    return [value for one in result.decisions for name, value in one.evidence if name == "reuse"]


@pytest.mark.fuzz
def test_the_slo_policy_that_sees_shared_prefixes_needs_fewer_replicas_and_meets_the_slo(tmp_path: Path) -> None:
    blind, seeing = _scaled(tmp_path / "blind", ""), _scaled(tmp_path / "seeing", MONITORED)
    most = [max(result.series.services[0].replicas_wanted) for result in (blind, seeing)]
    assert most[1] <= most[0] / 2
    assert all((result.services[0].overall.share or 0) > 0.99 for result in (blind, seeing))
    routing = seeing.services[0].routing
    assert routing is not msgspec.UNSET and routing.reuse is not None
    planned = _reuse_planned_with(seeing)
    assert all(isinstance(reuse, float) and 0 < reuse <= routing.reuse for reuse in planned)
    assert planned or most[1] == 4, "it needs no more than it has"
    assert _reuse_planned_with(blind) == []
