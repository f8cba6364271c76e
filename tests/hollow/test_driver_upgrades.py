"""Drivers of simulated nodes: upgraded as the GPU operator does it, alone and in a rollout's waves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hollow.rollouts import (
    CUDA,
    DRIVER,
    NEW,
    OLD,
    ON,
    drivers,
    labels,
    name_driver,
    node,
    roll,
    with_drivers,
    without_budgets,
)
from live.contract.small import Small
from live.contract.worlds import opened
from tonnage.cuda_fit.rollout import STAGE, RolloutSettings, retry
from tonnage.facts.labels import DRIVER_UPGRADE_SKIP, DRIVER_UPGRADE_STATE
from tonnage.hollow.driver_upgrades import UNTIL_GONE_NS
from tonnage.kube.resources import CLUSTER_POLICIES, NODES
from tonnage.live.driver_rollout import ClusterRollout
from tonnage.machines import gpu_faults
from tonnage.units import NS_PER_S


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Small]:
    with opened("embedded") as transport:
        assert transport is not None
        with with_drivers(tmp_path, transport) as made:
            yield made


def test_the_cluster_policy_names_a_driver_and_nodes_get_it_one_after_another(small: Small) -> None:
    name_driver(small, NEW)
    states = {name: labels(small, name)[DRIVER_UPGRADE_STATE] for name in ON}
    assert sorted(states.values()) == ["pod-deletion-required", "upgrade-required", "upgrade-required"]
    first = next(name for name, state in states.items() if state == "pod-deletion-required")
    assert first == "base-01"
    assert node(small, first)["spec"]["unschedulable"] is True
    small.run(UNTIL_GONE_NS / NS_PER_S + 1)
    assert labels(small, first)[DRIVER] == OLD, "a pod with a GPU is there"
    small.client.evict(small.pod(0).name, "inference")
    small.settle()
    small.run(2000)
    assert drivers(small) == dict.fromkeys(ON, NEW)
    assert {labels(small, name)[CUDA] for name in ON} == {"13.0"}
    assert not any(node(small, name)["spec"].get("unschedulable") for name in ON)


def test_a_node_that_is_to_be_skipped_keeps_its_driver(small: Small) -> None:
    small.client.patch(NODES, "base-02", {"metadata": {"labels": {DRIVER_UPGRADE_SKIP: "true"}}})
    small.client.evict(small.pod(0).name, "inference")
    small.settle()
    name_driver(small, NEW)
    small.run(2000)
    assert drivers(small) == {"base-01": NEW, "base-02": OLD, "base-03": NEW}


def test_a_rollout_takes_every_node_in_waves_and_leaves_nothing_behind(small: Small) -> None:
    without_budgets(small)
    turn = roll(small)
    assert turn.state == "done", turn
    assert drivers(small) == dict.fromkeys(ON, NEW)
    for name in ON:
        assert not [key for key in labels(small, name) if key.startswith(STAGE)]
        assert DRIVER_UPGRADE_SKIP not in labels(small, name)
        assert not node(small, name)["spec"].get("unschedulable")
    assert small.client.get(CLUSTER_POLICIES, "cluster-policy")["spec"]["driver"]["version"] == NEW


def test_a_pod_that_a_budget_protects_keeps_its_node_until_the_time_is_over(small: Small) -> None:
    pod = small.pod(0)
    turn = roll(small, settings=RolloutSettings(wave=1, pending=True, drain_s=300))
    assert (turn.state, turn.waits) == ("stopped", (f"base-01: not drained after 300 s: {pod.namespace}/{pod.name}",))
    assert drivers(small)["base-01"] == OLD
    assert small.made.cluster.pods[pod.namespace, pod.name].node == "base-01"


def test_a_gpu_that_is_broken_fails_its_node_and_stops_the_rollout(small: Small) -> None:
    without_budgets(small)
    cluster = small.made.cluster
    cluster.queue.push(cluster.now_ns, gpu_faults.GpuUnhealthy("base-02"))
    small.run(5)
    turn = roll(small, settings=RolloutSettings(wave=1, pending=True))
    assert (turn.state, len(turn.waits)) == ("stopped", 1)
    assert turn.waits[0].startswith("base-02: the GPU operator says upgrade-failed")
    assert drivers(small) == {"base-01": OLD, "base-02": OLD, "base-03": OLD}
    assert node(small, "base-02")["spec"]["unschedulable"] is True
    gpu_faults.restore_gpu(cluster, cluster.nodes["base-02"])
    small.settle()
    again = ClusterRollout(small.client)
    again.edit(retry(again.read(), cluster.now_ns // NS_PER_S))
    small.settle()
    turn = roll(small, settings=RolloutSettings(wave=1, pending=True))
    assert turn.state == "done", turn
    assert drivers(small) == dict.fromkeys(ON, NEW)
