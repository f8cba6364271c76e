"""Simulated machines behind an API that fails, or in which names come again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from live.contract.faulty import Faulty
from live.contract.small import Small, embedded
from tonnage.decisions import Applied
from tonnage.kube.resources import NODE_CLAIMS, NODES, PODS
from tonnage.kube.verbs import Client
from tonnage.machines import nodes


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Small]:
    with embedded(tmp_path) as made:
        yield made


def _through_faults(small: Small) -> Faulty:
    """The machines' calls meet faults from now on."""
    assert small.steps is not None
    faulty = Faulty(small.steps.tracked, 0)
    small.steps.machines.pods._client = small.steps.machines._nodes._client = Client(faulty)
    return faulty


@pytest.mark.parametrize("fault", ["conflict", "error", "throttled", "unreachable", "lost-undone", "lost-done"])
def test_what_could_not_be_written_is_written_later(small: Small, fault: str) -> None:
    faulty = _through_faults(small)
    small.apply(small.launch("more"))
    until = small.made.cluster.now_ns + 420 * 10**9
    while small.made.cluster.now_ns < until:
        faulty.next_write(fault)
        small.run(20)
    pod = small.client.get(PODS, small.pod(0).name, "inference")
    assert pod["status"]["phase"] == "Running"
    for name in ("coming", "more"):
        conditions = small.client.get(NODE_CLAIMS, name)["status"]["conditions"]
        assert {c["type"]: c["status"] for c in conditions}["Ready"] == "True"
        assert small.client.get(NODES, name)["metadata"]["labels"]["karpenter.sh/initialized"] == "true"
    nodes.lose_node(small.made.cluster, small.made.cluster.nodes["more"], "test")
    faulty.next_write(fault, fault)
    small.settle()
    assert "more" not in [one["metadata"]["name"] for one in small.client.list(NODES) + small.client.list(NODE_CLAIMS)]
    assert small.steps is not None and small.steps.machines.errors == {}


def test_a_claim_that_cannot_be_met_is_deleted_though_the_first_call_fails(small: Small) -> None:
    faulty = _through_faults(small)
    small.made.cluster.cloud.out_of_stock["g6e.12xlarge", "us-east-1a", "on-demand"] = 10**15
    faulty.next_write("unreachable", "error")
    assert small.apply(small.launch("more")) == Applied()
    assert [one["metadata"]["name"] for one in small.client.list(NODE_CLAIMS)] == ["coming"]
    assert ("g6e.12xlarge", "us-east-1a", "on-demand") in small.world.snapshot().unavailable


def test_a_claim_of_a_name_that_was_used_before_gets_a_machine_of_its_own(small: Small) -> None:
    """A restarted controller counts on from what is there, and names come again."""
    for round_ in (1, 2):
        assert small.apply(small.launch("more")) == Applied()
        small.run(420)
        claim = small.client.get(NODE_CLAIMS, "more")
        machine = claim["status"]["nodeName"]
        assert machine == ("more" if round_ == 1 else "more-2")
        fleet = small.world.snapshot().fleet
        assert fleet.node(fleet.node_by_name[machine]).initialized
        small.client.delete(NODE_CLAIMS, "more")
        small.settle()
        small.run(5)
        assert not [one for one in small.client.list(NODE_CLAIMS) if one["metadata"]["name"] == "more"]
        assert small.made.cluster.nodes[machine].ended_ns is not None


def test_a_pod_that_does_not_fit_where_another_has_put_it_is_replaced(small: Small) -> None:
    """Two pods on one GPU: the kubelet turns the second away, and its workload makes another."""
    cluster = small.made.cluster
    for name in ("base-01", "base-02", "spare"):
        row = cluster.fleet.node_by_name[name]
        cluster.fleet.set_allocatable(row, {**cluster.fleet.allocatable_of(row), "nvidia.com/gpu": 1})
    pod = small.pod(1)
    small.client.bind(pod.name, pod.namespace, pod.uid, "base-01")
    small.settle()
    names = [one["metadata"]["name"] for one in small.client.list(PODS, "inference")]
    assert pod.name not in names
    assert "model-a-serving-00003" in names


def test_a_pod_bound_to_a_machine_that_has_not_joined_waits(small: Small) -> None:
    pod = small.pod(1)
    small.client.bind(pod.name, pod.namespace, pod.uid, "coming")
    small.settle()
    assert small.made.cluster.pods[pod.namespace, pod.name].bound_ns is None
