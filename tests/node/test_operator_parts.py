"""Which programs of the GPU stack run on a node: by its environment, its labels and the ClusterPolicy."""

from __future__ import annotations

import msgspec
import pytest

from tonnage.facts import operands as facts
from tonnage.node.operator_parts import conflicts, environment, operands_of, parts_of
from tonnage.objects.gpu_operator import ClusterPolicySpec

NVIDIA = ["driver", "container-toolkit", "operator-validator"]
ALL = [*NVIDIA, "device-plugin", "gpu-feature-discovery", "mig-manager", "dcgm-exporter"]
AUTO = {"eks.amazonaws.com/compute-type": "auto", "karpenter.sh/nodepool": "gpu-auto-mode"}
KARPENTER = {"karpenter.sh/nodepool": "gpu"}
NODE_GROUP = {"eks.amazonaws.com/nodegroup": "gpu"}
HYBRID = {"eks.amazonaws.com/compute-type": "hybrid"}


def _policy(**fields: bool) -> ClusterPolicySpec:
    return msgspec.convert({name: {"enabled": on} for name, on in fields.items()}, ClusterPolicySpec)


def _runs(labels: dict[str, str], policy: ClusterPolicySpec | None = None) -> set[str]:
    return {one.operand for one in operands_of(policy, labels) if one.runs}


@pytest.mark.parametrize(
    ("labels", "name", "runs", "parts"),
    [
        (AUTO, "eks-auto-mode", {"operator-validator", "gpu-feature-discovery", "dcgm-exporter"},
         ["labels", "metrics", "health"]),
        (KARPENTER, "karpenter", {*ALL} - {"driver", "container-toolkit"},
         ["labels", "device-plugin", "metrics", "health"]),
        (NODE_GROUP, "node-group", {*ALL} - {"driver", "container-toolkit"},
         ["labels", "device-plugin", "metrics", "health"]),
        (HYBRID, "hybrid", {*ALL}, ["labels", "device-plugin", "metrics", "health"]),
    ],
)  # fmt: skip
def test_the_four_environments_have_the_programs_that_they_need(
    labels: dict[str, str], name: str, runs: set[str], parts: list[str]
) -> None:
    found = environment(labels)
    assert found is not None and found.name == name
    assert _runs(labels) == runs
    assert parts_of(operands_of(None, labels)) == parts


@pytest.mark.parametrize("operand", sorted(facts.operands()))
def test_a_label_of_a_node_turns_an_operand_off_there(operand: str) -> None:
    label = facts.operands()[operand].label
    verdict = {one.operand: one for one in operands_of(None, HYBRID | {label: "false"})}[operand]
    assert (verdict.runs, verdict.part, verdict.reason) == (False, "", f"the node has {label}=false")
    assert _runs(HYBRID | {label: "true"}) == _runs(HYBRID)


def test_the_cluster_policy_turns_operands_off_and_on_everywhere() -> None:
    assert _runs(HYBRID, _policy(devicePlugin=False, gfd=False)) == {*ALL} - {"device-plugin", "gpu-feature-discovery"}
    assert _runs(HYBRID, _policy(dcgm=True, nodeStatusExporter=True)) == {*ALL, "dcgm", "node-status-exporter"}
    reasons = {one.operand: one.reason for one in operands_of(_policy(migManager=False), HYBRID)}
    assert reasons["mig-manager"] == "the ClusterPolicy has migManager.enabled: false"
    assert reasons["dcgm"] == "off by default"


def test_a_node_without_mig_needs_no_mig_manager_and_a_driver_that_is_there_none_more() -> None:
    assert "mig-manager" not in _runs(HYBRID | {"nvidia.com/mig.capable": "false"})
    assert "driver" not in _runs({"nvidia.com/gpu.deploy.driver": "pre-installed"})


def test_no_part_runs_where_all_is_off() -> None:
    labels = {one.label: "false" for one in facts.operands().values()}
    assert parts_of(operands_of(None, labels)) == []


def test_a_policy_that_installs_a_driver_over_that_of_the_ami_is_said() -> None:
    assert conflicts(_policy(driver=False, toolkit=False), KARPENTER) == []
    driver, toolkit = conflicts(_policy(driver=True), KARPENTER)
    assert driver.startswith("driver.enabled is true, and on nodes of Karpenter driver must not run: it is part of the")
    assert toolkit.startswith("toolkit.enabled is true by default")
    assert len(conflicts(_policy(), AUTO)) == 4
    assert conflicts(_policy(), HYBRID) == []


def test_every_operand_is_replaced_by_a_part_or_stays_for_a_reason() -> None:
    fields = set(ClusterPolicySpec.__struct_encode_fields__)
    for one in facts.operands().values():
        assert bool(one.part) is not bool(one.stays)
        assert not one.part or one.part in facts.parts()
        assert one.field in fields
    for kind in facts.environments().values():
        assert kind.without <= set(facts.operands())
