"""What a NodePool can never do."""

from __future__ import annotations

from pathlib import Path

import pytest
from provisioning_builders import node_pool

from tonnage.decisions import Finding
from tonnage.objects import karpenter, load
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.findings import analyse

TYPE = "node.kubernetes.io/instance-type"
CAPACITY = "karpenter.sh/capacity-type"
GPU_COUNT = "karpenter.k8s.aws/instance-gpu-count"

MANIFEST = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: gpu-training-pool
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpu}
      requirements:
        - key: node.kubernetes.io/instance-type
          operator: In
          values: [p4d.24xlarge, p5.48xlarge, g5.48xlarge]
        - key: karpenter.sh/capacity-type
          operator: In
          values: [on-demand]
  limits:
    cpu: "1000"
    memory: 4000Gi
    nvidia.com/gpu: 64
"""


@pytest.fixture(scope="module")
def aws() -> Catalogue:
    return Catalogue.load()


def rules(found: list[Finding]) -> list[str]:
    return [one.rule for one in found]


def test_64_gpus_are_out_of_reach_when_memory_stops_earlier(aws: Catalogue, tmp_path: Path) -> None:
    file = tmp_path / "pool.yaml"
    file.write_text(MANIFEST)
    (pool,) = load.read([file]).of(karpenter.NodePool)
    (found,) = analyse(pool, aws)
    assert found.rule == "nodepool-limit-unreachable"
    assert (Path(found.where.file).name, found.where.line) == ("pool.yaml", 19)
    reached = dict(found.evidence)
    assert (reached["p5.48xlarge"], reached["p4d.24xlarge"], reached["g5.48xlarge"]) == (16, 24, 40)
    assert reached["limit"] == 64
    assert int(str(reached["bound"])) < 64
    assert "p5.48xlarge: 2 nodes, 16" in found.message


def test_limits_that_can_be_reached_are_not_reported(aws: Catalogue) -> None:
    pool = node_pool(
        "p", (TYPE, "In", ["g5.48xlarge"]), (CAPACITY, "In", ["on-demand"]), limits={"nvidia.com/gpu": "64"}
    )
    assert analyse(pool, aws) == []
    roomy = node_pool(
        "p",
        (TYPE, "In", ["g5.48xlarge"]),
        (CAPACITY, "In", ["on-demand"]),
        limits={"nvidia.com/gpu": "64", "cpu": "1536"},
    )
    assert analyse(roomy, aws) == []


def test_a_node_limit_bounds_gpus_too(aws: Catalogue) -> None:
    pool = node_pool(
        "p",
        (TYPE, "In", ["g5.xlarge", "g5.12xlarge"]),
        (CAPACITY, "In", ["on-demand"]),
        limits={"nvidia.com/gpu": "32", "nodes": "5"},
    )
    (found,) = analyse(pool, aws)
    assert dict(found.evidence)["bound"] == 20


def test_a_spot_pool_of_three_types_is_too_narrow_twice(aws: Catalogue) -> None:
    pool = node_pool("p", (TYPE, "In", ["g5.12xlarge", "g5.24xlarge", "g5.48xlarge"]), (CAPACITY, "In", ["spot"]))
    found = rules(analyse(pool, aws))
    assert "nodepool-no-spot-to-spot" in found or "nodepool-no-price" in found
    assert rules(analyse(node_pool("p", (CAPACITY, "In", ["spot"])), aws)).count("nodepool-few-spot-types") == 0


def test_on_demand_pools_need_no_variety(aws: Catalogue) -> None:
    pool = node_pool("p", (TYPE, "In", ["g5.12xlarge"]), (CAPACITY, "In", ["on-demand"]))
    assert analyse(pool, aws) == []


@pytest.mark.report(505)
def test_a_gpu_count_above_zero_drops_fractional_gpus(aws: Catalogue) -> None:
    pool = node_pool("p", (GPU_COUNT, "Gt", ["0"]), (CAPACITY, "In", ["on-demand"]))
    (found,) = analyse(pool, aws)
    assert found.rule == "nodepool-fractional-gpu-dropped"
    assert "g6f.xlarge" in found.message
    elsewhere = node_pool(
        "p",
        (GPU_COUNT, "Gt", ["0"]),
        ("karpenter.k8s.aws/instance-family", "In", ["g5"]),
        (CAPACITY, "In", ["on-demand"]),
    )
    assert analyse(elsewhere, aws) == []


def test_a_value_that_no_instance_type_has_is_reported(aws: Catalogue) -> None:
    pool = node_pool("p", (TYPE, "In", ["g5.xlarge", "g5.1xlarge"]), (CAPACITY, "In", ["on-demand"]))
    (found,) = analyse(pool, aws)
    assert found.rule == "nodepool-unknown-value"
    assert "g5.1xlarge" in found.message


def test_a_capacity_type_that_nothing_is_reserved_for_is_no_unknown_value(aws: Catalogue) -> None:
    both = node_pool("p", (TYPE, "In", ["g5.xlarge"]), (CAPACITY, "In", ["reserved", "on-demand"]))
    assert analyse(both, aws) == []
    alone = node_pool("p", (TYPE, "In", ["g5.xlarge"]), (CAPACITY, "In", ["reserved"]))
    assert [one.rule for one in analyse(alone, aws)] == ["nodepool-no-offering"]
    misspelt = node_pool("p", (TYPE, "In", ["g5.xlarge"]), (CAPACITY, "In", ["on-demand", "reservation"]))
    assert [one.rule for one in analyse(misspelt, aws)] == ["nodepool-unknown-value"]


def test_a_pool_that_matches_nothing_is_an_error(aws: Catalogue) -> None:
    pool = node_pool("p", (TYPE, "In", ["g5.xlarge"]), ("kubernetes.io/arch", "In", ["arm64"]))
    found = analyse(pool, aws)[-1]
    assert (found.rule, found.severity) == ("nodepool-no-instance-type", "error")


@pytest.mark.parametrize(
    ("key", "refused"),
    [
        ("kubernetes.io/hostname", True),
        ("karpenter.sh/initialized", True),
        ("custom.karpenter.sh/team", True),
        ("karpenter.k8s.aws/instance-colour", True),
        ("karpenter.sh/nodepool", True),
        ("karpenter.k8s.aws/instance-family", False),
        ("example.com/team", False),
        ("topology.kubernetes.io/zone", False),
    ],
)
def test_restricted_labels_are_refused(aws: Catalogue, key: str, refused: bool) -> None:
    found = rules(analyse(node_pool("p", (key, "Exists", [])), aws))
    assert ("nodepool-restricted-label" in found) is refused
