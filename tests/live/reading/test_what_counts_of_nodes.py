"""What of a Node keeps pods off it: what kube-scheduler looks at, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from live.reading.watched import HOSTNAME, Json, Watched, node, pod

CORDON = "node.kubernetes.io/unschedulable"
NOT_READY = [{"type": "Ready", "status": "False"}]


def feasible(one: Json, it: Json) -> bool:
    return bool(Watched(one, it).feasible("it"))


def changed(one: Json, **parts: Json) -> Json:
    return one | {part: one[part] | more for part, more in parts.items()}


# ---- cordons, readiness ----


@pytest.mark.parametrize(
    ("effect", "cordoned", "tolerated", "taken", "why"),
    [
        ("NoSchedule", False, False, False, f"untolerated taint {{{CORDON}: }}"),
        ("NoExecute", False, False, False, f"untolerated taint {{{CORDON}: }}"),
        ("PreferNoSchedule", False, False, True, ""),
        ("NoSchedule", False, True, True, ""),
        ("NoSchedule", True, False, False, "were unschedulable"),
        ("NoSchedule", True, True, True, ""),
    ],
)
def test_the_taint_of_a_cordon_counts_without_the_cordon(
    effect: str, cordoned: bool, tolerated: bool, taken: bool, why: str
) -> None:
    one = changed(node("n1", taints=[{"key": CORDON, "effect": effect}]), spec={"unschedulable": cordoned})
    seen = Watched(one, pod("it", tolerations=[{"key": CORDON, "operator": "Exists"}] if tolerated else []))
    assert bool(seen.feasible("it")) is taken
    assert why in seen.answer("it")


@pytest.mark.parametrize("status", ["False", "Unknown", None])
def test_a_node_that_is_not_ready_is_kept_free_by_its_taint_alone(status: str | None) -> None:
    conditions = [{"type": "Ready", "status": status}] if status else []
    bare = changed(node("n1"), status={"conditions": conditions})
    assert feasible(bare, pod("it"))
    tainted = changed(bare, spec={"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]})
    seen = Watched(tainted, pod("it"))
    assert seen.answer("it").endswith("1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }")


def test_a_node_that_was_bought_takes_no_pods_before_it_is_initialised_nor_when_it_is_deleted() -> None:
    bought = node("n1", {HOSTNAME: "n1", "karpenter.sh/nodepool": "gpu"})
    seen = Watched(bought, pod("it"))
    assert seen.answer("it") == "0/1 nodes are available: 1 node(s) were unschedulable"
    bought["metadata"]["labels"]["karpenter.sh/initialized"] = "true"
    seen.see(bought)
    assert seen.answer("it") == "n1"
    bought["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    seen.see(bought)
    assert seen.answer("it") == "0/1 nodes are available: 1 node(s) were being deleted"


# ---- labels ----


@pytest.mark.parametrize(
    ("labels", "wanted", "taken"),
    [
        ({}, "n1", False),
        ({HOSTNAME: "n1"}, "n1", True),
        ({HOSTNAME: "ip-10-0-0-1"}, "n1", False),
        ({HOSTNAME: "ip-10-0-0-1"}, "ip-10-0-0-1", True),
    ],
)
def test_a_node_has_the_hostname_that_its_labels_say(labels: dict[str, str], wanted: str, taken: bool) -> None:
    assert feasible(node("n1", labels), pod("it", nodeSelector={HOSTNAME: wanted})) is taken
    terms = [{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [wanted]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    assert feasible(node("n1", labels), pod("it", affinity={"nodeAffinity": required})) is taken


def test_a_node_without_a_hostname_is_in_no_domain_of_it() -> None:
    rule = {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule"}
    it = pod("it", topologySpreadConstraints=[rule | {"labelSelector": {"matchLabels": {"app": "x"}}}])
    seen = Watched(node("n1", {}), it)
    assert "missing required label" in seen.answer("it")
    seen.see(node("n1"))
    assert seen.answer("it") == "n1"


@pytest.mark.parametrize(
    ("label", "operator", "value", "taken"),
    [
        ("7", "Gt", "5", True),
        ("9223372036854775807", "Gt", "5", True),
        ("9223372036854775808", "Gt", "5", False),
        ("99999999999999999999999", "Gt", "5", False),
        ("7", "Lt", "9223372036854775808", False),
        ("-9223372036854775808", "Lt", "5", True),
        ("-9223372036854775809", "Lt", "5", False),
        ("7" * 63, "Gt", "5", False),
    ],
)
def test_labels_are_compared_as_integers_of_64_bits(label: str, operator: str, value: str, taken: bool) -> None:
    terms = [{"matchExpressions": [{"key": "size", "operator": operator, "values": [value]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    assert feasible(node("n1", {"size": label}), pod("it", affinity={"nodeAffinity": required})) is taken


@pytest.mark.parametrize(
    ("taint", "operator", "value", "taken"),
    [
        ("950", "Gt", "900", True),
        ("900", "Gt", "900", False),
        ("850", "Lt", "900", True),
        ("0950", "Gt", "900", False),
        ("+950", "Gt", "900", False),
        ("high", "Gt", "900", False),
        ("99999999999999999999", "Gt", "900", False),
    ],
)
def test_a_toleration_may_compare_a_taint(taint: str, operator: str, value: str, taken: bool) -> None:
    tolerations = [{"key": "sla", "operator": operator, "value": value, "effect": "NoSchedule"}]
    one = node("n1", taints=[{"key": "sla", "value": taint, "effect": "NoSchedule"}])
    assert feasible(one, pod("it", tolerations=tolerations)) is taken


# ---- features ----

RESTART = {"restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]}


@pytest.mark.parametrize(
    ("needs", "declared", "taken"),
    [
        ({"container": RESTART}, [], False),
        ({"container": RESTART}, ["RestartAllContainersOnContainerExits"], True),
        ({"container": RESTART}, ["UserNamespacesHostNetworkSupport"], False),
        ({"initContainers": [{"name": "i", **RESTART}]}, [], False),
        ({"container": {"restartPolicyRules": [{"action": "Restart"}]}}, [], True),
        ({"hostNetwork": True, "hostUsers": False}, [], False),
        ({"hostNetwork": True, "hostUsers": False}, ["UserNamespacesHostNetworkSupport"], True),
        ({"hostNetwork": True, "hostUsers": True}, [], True),
        ({"hostUsers": False}, [], True),
    ],
)
def test_a_pod_stands_where_the_kubelet_declares_what_it_needs(
    needs: dict[str, Any], declared: list[str], taken: bool
) -> None:
    one = changed(node("n1"), status={"declaredFeatures": declared})
    seen = Watched(one, pod("it", **needs))
    assert bool(seen.feasible("it")) is taken
    if not taken:
        assert seen.answer("it") == "0/1 nodes are available: 1 node(s) didn't match Pod's required features"
        seen.see(changed(one, status={"declaredFeatures": ["RestartAllContainersOnContainerExits"]}))
        assert bool(seen.feasible("it")) is ("hostUsers" not in needs)
