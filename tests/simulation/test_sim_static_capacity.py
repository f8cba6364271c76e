"""Static NodePools in the simulated world: as many nodes as they say, whatever pods there are."""

from __future__ import annotations

from typing import Any

from disruption_stage import Stage, pool
from sim_builders import pods_on

ONLY_LARGE = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]}]
ONLY_XLARGE = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.xlarge"]}]


def static(replicas: int, requirements: list[dict[str, Any]] = ONLY_LARGE, **more: Any) -> Stage:
    return Stage(pool(replicas=replicas, template={"requirements": requirements} | more.pop("template", {}), **more))


def there(stage: Stage) -> list[str]:
    """Nodes that stay, by name."""
    return sorted(one.name for one in stage.cluster.nodes.values() if one.ended_ns is None and not one.leaving)


def test_a_static_nodepool_has_its_nodes_though_no_pod_asks_for_one() -> None:
    stage = static(3).begin().until(600)
    assert [what for _, what in stage.done("Launch")] == [
        f"launch m5.large (on-demand) as bought-{number:05d} for 0 pods" for number in (1, 2, 3)
    ]
    assert all(stage.cluster.nodes[name].ready_ns is not None for name in there(stage))
    assert stage.done("Disrupt", "Return") == []  # empty for minutes, and consolidateAfter is 0s


def test_its_limit_of_nodes_is_kept() -> None:
    stage = static(3, limits={"nodes": "2"}).begin().until(300)
    assert len(there(stage)) == 2


def test_replicas_that_are_added_are_launched_and_those_taken_away_go_empty_ones_first() -> None:
    stage = static(1).begin().until(300)
    stage.run("a", 1, "busy", "m5.large")
    stage.pool = pool(replicas=3, template={"requirements": ONLY_LARGE})
    stage.until(600)
    assert there(stage) == ["bought-00001", "bought-00002", "busy"]
    stage.pool = pool(replicas=1, template={"requirements": ONLY_LARGE})
    stage.until(900)
    assert there(stage) == ["busy"]
    assert stage.done("Evict") == []
    stage.pool = pool(replicas=0, template={"requirements": ONLY_LARGE})
    stage.until(1200)
    assert there(stage) == []
    assert [what for _, what in stage.done("Evict")] == ["evict Pod inference/a-00001 from busy"]


def test_a_drifted_node_is_replaced_by_one_like_the_nodepool_before_it_goes() -> None:
    stage = static(2, budgets=[{"nodes": "1"}]).begin().until(300)
    stage.pool = pool(replicas=2, budgets=[{"nodes": "1"}], template={"requirements": ONLY_XLARGE})
    stage.until(1500)
    summaries = [what for _, what in stage.done("Disrupt", "Launch", "Return")][2:]
    assert summaries == [
        "disrupt bought-00001",
        "launch m5.xlarge (on-demand) as bought-00003 for 0 pods",
        "terminate bought-00001",
        "disrupt bought-00002",
        "launch m5.xlarge (on-demand) as bought-00004 for 0 pods",
        "terminate bought-00002",
    ]


def test_no_drifted_node_is_replaced_where_the_limit_leaves_no_room_for_another() -> None:
    stage = static(2, limits={"nodes": "2"}).begin().until(300)
    stage.pool = pool(replicas=2, limits={"nodes": "2"}, template={"requirements": ONLY_XLARGE})
    stage.until(900)
    assert there(stage) == ["bought-00001", "bought-00002"]


def test_an_expired_static_node_is_launched_again() -> None:
    stage = static(1, template={"expireAfter": "5m"}).begin().until(700)
    assert [what for _, what in stage.done("Disrupt", "Launch")][:3] == [
        "launch m5.large (on-demand) as bought-00001 for 0 pods",
        "disrupt bought-00001",
        "launch m5.large (on-demand) as bought-00002 for 0 pods",
    ]


def test_waiting_pods_take_static_nodes_and_launch_none() -> None:
    stage = static(1).begin().until(300)
    made = stage.run("a", 1, "other", "m5.large")
    stage.pool = pool(replicas=2, template={"requirements": ONLY_LARGE})
    made.replicas = 2
    from tonnage.machines import pods

    pods.reconcile(stage.cluster, made)
    stage.until(400)
    assert sum(len(pods_on(stage.cluster, name)) for name in ("other", "bought-00001")) == 2
    assert len(stage.done("Launch")) == 1
