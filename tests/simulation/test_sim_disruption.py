"""Nodes are taken back in the simulated world: when commands begin, what is launched for them, who is evicted."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from disruption_stage import ASKED, TYPES, Stage, pool
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sim_builders import events, pods_on, workload

from deep_seeds import FULL
from tonnage.facts import instances
from tonnage.machines import pods
from tonnage.objects.base import ObjectMeta
from tonnage.objects.core import LabelSelector
from tonnage.objects.policy import PodDisruptionBudget, PodDisruptionBudgetSpec
from tonnage.units import NS_PER_S


def test_pods_that_fit_elsewhere_move_there_and_their_node_goes() -> None:
    stage = Stage(pool())
    stage.run("a", 1, "large", "m5.large")
    stage.run("b", 2, "wide", "m5.xlarge")
    stage.begin().until(120)
    assert stage.done("Launch") == []
    assert [what for _, what in stage.done("Disrupt", "Return")][:1] == ["disrupt large"]
    assert "large" not in stage.cluster.fleet.node_by_name


def test_a_command_begins_fifteen_seconds_after_it_was_found() -> None:
    stage = Stage(pool())
    stage.run("a", 1, "large", "m5.large")
    stage.run("b", 2, "wide", "m5.xlarge")
    stage.begin().until(60)
    first, _ = stage.done("Disrupt")[0]
    assert first == 20.0  # found at 5 s, looked at once more at 20 s


def test_nothing_begins_where_the_room_is_taken_meanwhile() -> None:
    stage = Stage(pool())
    stage.run("a", 1, "large", "m5.large", tolerations=[])
    stage.run("b", 1, "wide", "m5.large")
    late = workload(stage.cluster, "late", 0, gpus=0, container={"resources": ASKED})
    late.server = None
    stage.begin().until(12)
    assert stage.machine is not None
    found = stage.done("Disrupt")
    late.replicas = 1
    pods.reconcile(stage.cluster, late)
    stage.machine.wake()
    stage.until(24)
    assert found == stage.done("Disrupt") == []


def test_a_replacement_is_initialised_before_the_old_node_is_drained() -> None:
    stage = Stage(pool())
    stage.run("a", 1, "huge", "m5.4xlarge")
    stage.begin().until(600)
    (launched,) = stage.done("Launch")
    (evicted,) = stage.done("Evict")
    (returned,) = stage.done("Return")
    assert launched == (20.0, "launch m5.large (on-demand) as bought-00001 for 1 pod")
    new = stage.cluster.nodes["bought-00001"]
    assert new.ready_ns is not None and launched[0] < new.ready_ns / 1e9 <= evicted[0] < returned[0]
    assert len(pods_on(stage.cluster, "bought-00001")) == 1
    assert stage.done("Keep") == []


def test_a_node_stays_where_its_replacement_is_sold_out() -> None:
    stage = Stage(pool())
    stage.run("a", 1, "huge", "m5.4xlarge")
    for type_ in TYPES:
        stage.cluster.cloud.out_of_stock[type_, "us-east-1a", "on-demand"] = 3600 * NS_PER_S
    stage.begin().until(34)
    assert [what for _, what in stage.done("Disrupt", "Keep")] == ["disrupt huge", "keep huge"]
    assert stage.done("Evict") == []
    row = stage.cluster.fleet.node_by_name["huge"]
    assert stage.cluster.fleet.schedulable[row] and not stage.cluster.fleet.node(row).leaving


@pytest.mark.parametrize(
    ("disruption", "goes"),
    [
        ({}, True),
        ({"consolidationPolicy": "WhenEmpty"}, False),
        ({"consolidateAfter": "Never"}, False),
        ({"consolidateAfter": "10m"}, False),
        ({"budgets": [{"nodes": "0"}]}, False),
        ({"budgets": [{"nodes": "0", "reasons": ["Underutilized"]}]}, False),
        ({"budgets": [{"nodes": "0", "reasons": ["Drifted"]}]}, True),
        ({"budgets": [{"nodes": "0", "schedule": "0 9 * * *", "duration": "8h"}]}, False),
        ({"budgets": [{"nodes": "0", "schedule": "0 18 * * *", "duration": "8h"}]}, True),
        ({"consolidationPolicy": "Balanced"}, True),
    ],
)
def test_policies_quiet_time_and_budgets_decide_whether_a_node_goes(disruption: dict[str, Any], goes: bool) -> None:
    stage = Stage(pool(**disruption))
    stage.run("a", 1, "large", "m5.large")
    stage.run("b", 2, "wide", "m5.4xlarge")
    stage.begin().until(60)
    assert bool(stage.done("Disrupt")) == goes


def _budget(app: str, **spec: Any) -> PodDisruptionBudget:
    written = PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": app}), **spec)
    meta = ObjectMeta(name=app, namespace="inference")
    return PodDisruptionBudget(api_version="policy/v1", kind="PodDisruptionBudget", metadata=meta, spec=written)


def test_pods_that_a_budget_of_theirs_keeps_are_evicted_one_after_the_other() -> None:
    stage = Stage(pool(consolidateAfter="3m"))
    stage.run("a", 3, "one", "m5.2xlarge")
    stage.run("b", 4, "other", "m5.2xlarge")
    stage.cluster.declared.disruption_budgets = (_budget("a", max_unavailable=1),)
    stage.begin().until(900)
    times = [at for at, _ in stage.done("Evict")]
    assert len(times) == 3 and len(set(times)) == 3
    assert [what for _, what in stage.done("Return")] == ["terminate one"]


def test_do_not_disrupt_keeps_a_node_for_as_long_as_it_says() -> None:
    stage = Stage(pool())
    stage.run("a", 1, "large", "m5.large")
    stage.run("b", 2, "wide", "m5.xlarge")
    for row in list(stage.cluster.fleet.pod_by_key.values()):
        spec = stage.cluster.fleet.pod(row).spec
        if spec.name.startswith("a-"):
            spec.annotations["karpenter.sh/do-not-disrupt"] = "5m"  # type: ignore[index]
    stage.begin().until(200)
    assert stage.done("Disrupt") == []
    stage.until(400)
    assert stage.done("Disrupt")[0][1] == "disrupt large"
    assert stage.done("Disrupt")[0][0] > 300


def test_expired_nodes_go_whatever_budgets_say_and_nothing_is_launched_first() -> None:
    stage = Stage(pool(budgets=[{"nodes": "0"}], template={"expireAfter": "1m"}))
    stage.run("a", 1, "old", "m5.large")
    stage.begin().until(100)
    assert stage.done("Disrupt", "Return") == [(60.0, "disrupt old"), (stage.done("Return")[0][0], "terminate old")]
    assert stage.done("Disrupt")[0][0] < stage.done("Evict")[0][0] < stage.done("Launch")[0][0]


@pytest.mark.parametrize(
    ("template", "goes"),
    [({}, []), ({"expireAfter": "1m"}, [(60.0, "disrupt large")])],
)
def test_nodes_of_a_pool_marked_do_not_disrupt_stay_until_they_expire(
    template: dict[str, str], goes: list[tuple[float, str]]
) -> None:
    stage = Stage(pool(template=template))
    pools = stage.cluster.physics.pools
    stage.cluster.physics = replace(
        stage.cluster.physics, pools={name: replace(one, do_not_disrupt=True) for name, one in pools.items()}
    )
    stage.run("a", 1, "large", "m5.large")
    stage.begin().until(62)
    assert stage.done("Disrupt") == goes


def test_a_node_that_its_nodepool_no_longer_asks_for_is_replaced() -> None:
    stage = Stage(pool(consolidateAfter="Never"))
    stage.run("a", 1, "old", "m5.large")
    stage.begin().until(30)
    assert stage.done() == []
    only = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.xlarge"]}]
    stage.pool = pool(consolidateAfter="Never", template={"requirements": only})
    stage.until(600)
    assert [what for _, what in stage.done()] == [
        "disrupt old",
        "launch m5.xlarge (on-demand) as bought-00001 for 1 pod",
        "evict Pod inference/a-00001 from old",
        "terminate old",
    ]


def test_a_grace_period_that_is_over_beats_what_protects_a_pod() -> None:
    stage = Stage(pool(consolidateAfter="Never", template={"terminationGracePeriod": "2m"}))
    stage.run("a", 1, "old", "m5.large")
    stage.cluster.declared.disruption_budgets = (_budget("a", max_unavailable=0),)
    stage.begin().until(10)
    only = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.xlarge"]}]
    stage.pool = pool(consolidateAfter="Never", template={"requirements": only, "terminationGracePeriod": "2m"})
    stage.until(900)
    (begun, _), *_ = stage.done("Disrupt")
    (forced, _), *_ = stage.done("Evict")
    assert forced - begun >= 90
    assert "old" not in stage.cluster.fleet.node_by_name


def test_the_optimal_policy_replaces_one_node_by_two_that_cost_less() -> None:
    stage = Stage(pool())
    stage.run("a", 2, "huge", "m5.4xlarge")
    stage.begin("optimal").until(600)
    assert stage.done("Return")[0][1] == "terminate huge"
    assert sum(one.price_micro_usd_per_hour for one in stage.cluster.nodes.values() if one.ended_ns is None) < 800_000


@settings(max_examples=40 if FULL else 6, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(st.integers(0, 10**6))
def test_budgets_are_never_broken(seed: int) -> None:
    """Of a NodePool never more nodes go at once than its budget allows, and of the pods of a PodDisruptionBudget never
    more than that allows, whichever of its nodes go together."""
    rng = random.Random(seed)
    most, allowed = rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 2])
    stage = Stage(pool(budgets=[{"nodes": str(most)}], consolidateAfter=rng.choice(["1m", "2m"])))
    made = []
    for number in range(rng.choice([3, 4, 6])):
        type_ = rng.choice(TYPES)
        room = instances.get(type_).allocatable_cpu_milli // 1000
        made.append(stage.run(f"a{number}", rng.randint(0, min(room, 3)), f"n{number}", type_))
    budgets = (_budget(one.name, max_unavailable=allowed) for one in made)
    stage.cluster.declared.disruption_budgets = tuple(budgets)

    def look() -> None:
        leaving = [one for one in stage.cluster.nodes.values() if one.ended_ns is None and one.leaving]
        assert len(leaving) <= most
        for one in made:
            gone = sum(pod.terminating and pod.ready_ns is not None for pod in one.pods.values())
            assert gone <= allowed

    stage.watched.append(look)
    stage.begin(rng.choice(["karpenter", "karpenter", "optimal"])).until(300)
    counted.append(len(stage.done("Evict")))


counted: list[int] = []


def test_the_random_clusters_had_pods_to_move() -> None:
    assert sum(counted) > 5


def test_why_a_node_stays_is_told_once_as_karpenters_event() -> None:
    stage = Stage(pool())
    stage.run("a", 1, "only", "m5.large")
    stage.begin().until(200)
    assert events(stage.cluster, "Unconsolidatable") == ["Can't replace with a cheaper node"]
    assert stage.done("Disrupt") == []
