"""`tonnage savings` of a scenario: each strategy is a run on top of the one before."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs_outputs import REPOSITORY
from tonnage.costs.strategies import BusinessHours, SavingsSettings
from tonnage.costs.usage import total
from tonnage.objects import karpenter, keda, load
from tonnage.provisioning.catalogue import Catalogue
from tonnage.simulation import savings, scenario

FILES = REPOSITORY / "docs" / "files" / "plan-nodes"


def written(folder: Path, **spec: Any) -> scenario.Scenario:
    """Ten GPU pods and a NodePool for six minutes."""
    shutil.copytree(FILES, folder / "manifests")
    policies = {"mine": {"manifests": "manifests"}}
    base = {"kind": "Scenario", "name": "ten-pods", "duration": "6m", "policies": policies}
    (folder / "scenario.yaml").write_text(yaml.safe_dump(base | spec))
    return scenario.load(folder)


def setting(loaded: scenario.Scenario, *, keep: tuple[str, ...] = (), **settings: Any) -> savings.SavingsCase:
    manifest = load.read([loaded.folder / "manifests"])
    return savings.SavingsCase(loaded, "mine", manifest, Catalogue.load(), SavingsSettings(**settings), keep)


def test_runs_one_on_top_of_the_other_add_up_to_the_ledgers_difference(tmp_path: Path) -> None:
    order = ("right-sizing", "spot", "checkpointing", "commitments")
    found = savings.on_scenario(written(tmp_path), "mine", order, SavingsSettings())
    bills = [one.cost.total_micro_usd for one in found.results]
    steps = {step.strategy: step for step in found.savings.steps}
    assert len(bills) == 3  # there is no training: checkpoints change nothing
    assert [before - after for before, after in pairwise(bills)] == [
        steps[name].saved_micro_usd for name in ("right-sizing", "spot")
    ]
    assert steps["checkpointing"].change == "nothing to change"
    assert found.savings.saved_micro_usd == bills[0] - found.savings.end_micro_usd
    assert {node.capacity_type for node in found.results[-1].nodes} == {"spot"}
    assert found.commitment is not None
    assert found.commitment.paid_micro_usd == steps["commitments"].saved_micro_usd == 0
    assert 0.3 < steps["right-sizing"].saved_micro_usd / bills[0] < 0.6
    assert total(savings.usage_of(found.results[-1])) == bills[-1]


def test_nodepools_keep_their_gpus_when_they_may_have_any_size(tmp_path: Path) -> None:
    loaded = written(tmp_path)
    before = setting(loaded)
    wanted = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["g6e.48xlarge", "g6.48xlarge"]}]
    pool = before.manifest.of(karpenter.NodePool)[0]
    pinned = savings._with_requirements(pool, [karpenter.NodeRequirement(**one) for one in wanted])
    before = savings.replace(before, manifest=savings.replace(before.manifest, objects=(pinned,)))
    after, said = savings.right_sized(before)
    (changed,) = after.manifest.of(karpenter.NodePool)
    (left,) = changed.spec.template.spec.requirements
    assert (left.key, left.values) == ("karpenter.k8s.aws/instance-gpu-name", ["l4", "l40s"])
    assert changed.origin == pool.origin
    assert "1 NodePools" in said
    assert after.chosen.provisioning == "optimal"


def test_spot_leaves_what_must_not_be_interrupted_and_what_one_owns(tmp_path: Path) -> None:
    nodes = [
        {"instanceType": "g6e.12xlarge", "nodePool": "gpu"},
        {"instanceType": "g6e.12xlarge", "capacityType": "owned"},
        {"instanceType": "g6e.12xlarge"},
    ]
    loaded = written(tmp_path, fleet={"nodes": nodes})
    after, said = savings.on_spot(setting(loaded))
    assert [one.capacity_type for one in after.scenario.spec.fleet.nodes] == ["spot", "owned", "on-demand"]
    assert said == "1 NodePools prefer spot; 1 nodes of the fleet on spot"
    kept, said = savings.on_spot(setting(loaded, keep=("gpu",)))
    assert (kept.scenario.spec.fleet.nodes, said) == (loaded.spec.fleet.nodes, "")


def test_schedules_keep_a_replica_where_there_is_traffic_and_none_elsewhere(tmp_path: Path) -> None:
    after, said = savings.scheduled(setting(written(tmp_path), hours=BusinessHours((0, 1), 9, 17)))
    made = {one.name: one.spec for one in after.manifest.of(keda.ScaledObject)}
    assert said == "2 workloads by business hours"
    assert (made["embed"].min_replica_count, made["embed"].max_replica_count) == (0, 8)
    (trigger,) = made["embed"].triggers
    assert trigger.metadata == {
        "timezone": "Etc/UTC",
        "start": "0 9 * * 1,2",
        "end": "0 17 * * 1,2",
        "desiredReplicas": "8",
    }


def test_consolidation_is_asked_of_every_nodepool_once(tmp_path: Path) -> None:
    after, said = savings.consolidated(setting(written(tmp_path)))
    assert said == "1 NodePools: WhenEmptyOrUnderutilized after 30s"
    assert savings.consolidated(after)[1] == ""


def test_training_that_saves_nothing_gets_checkpoints(tmp_path: Path) -> None:
    entry = {"workload": "search/job/fit", "work": {"duration": "5m"}}
    loaded = written(tmp_path, training=[entry])
    after, said = savings.checkpointed(setting(loaded, checkpoint_s=120.0, write_s=5.0))
    (changed,) = after.scenario.spec.training
    assert changed.checkpoint is not None
    assert (changed.checkpoint.every, changed.checkpoint.write) == ("120s", "5s")
    assert said == "1 training workloads save a checkpoint every 120s"
    assert savings.checkpointed(after)[1] == ""


def test_an_owned_machine_costs_what_the_price_file_says_and_carries_no_capacity_type(tmp_path: Path) -> None:
    (tmp_path / "prices.csv").write_text("instance_type,usd_per_hour,capacity_type\ng6e.48xlarge,6,owned\n")
    nodes = [{"instanceType": "g6e.48xlarge", "capacityType": "owned"}]
    loaded = written(tmp_path, fleet={"nodes": nodes}, prices="prices.csv")
    (result,) = savings.on_scenario(loaded, "mine", (), SavingsSettings()).results
    owned = result.nodes[0]
    assert (owned.capacity_type, owned.price_micro_usd_per_hour, owned.cost_micro_usd) == ("owned", 6_000_000, 600_000)
    assert all(node.capacity_type != "owned" for node in result.nodes[1:])


def test_commitments_come_last(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="commitments last"):
        savings.on_scenario(written(tmp_path), "mine", ("commitments", "spot"), SavingsSettings())
