"""A node that is launched is the node that was planned: the pods it was launched for land on it. And its cost has owners."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sim_builders import EXAMPLE, variant, workload, world
from sim_builders import node as ready_node

from deep_seeds import deep
from tonnage.decisions import Applied, Bind
from tonnage.fleet.snapshot import Snapshot
from tonnage.machines import pods
from tonnage.scheduling import place
from tonnage.simulation import run
from tonnage.simulation.result import Result
from tonnage.units import NS_PER_HOUR

Change = Callable[[Path], None]


def _edit(folder: Path, file: str, old: str, new: str) -> None:
    path = folder / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def _storage(folder: Path) -> None:
    _edit(folder, "model-a.yaml", 'memory: "32Gi"', 'memory: "32Gi"\n              ephemeral-storage: 60Gi')


def _label(folder: Path) -> None:
    _edit(folder, "model-a.yaml", "      nodeSelector:\n", "      nodeSelector:\n        team: ml\n")
    requirement = "      requirements:\n        - {key: team, operator: In, values: [ml]}\n"
    _edit(folder, "nodepool-inference.yaml", "      requirements:\n", requirement)


def _run(tmp_path: Path, change: Change) -> Result:
    manifests = tmp_path / "manifests"
    shutil.copytree(EXAMPLE / "manifests" / "corrected", manifests)
    change(manifests)
    scenario = variant(tmp_path, policies={"corrected": {"manifests": str(manifests)}}, default="corrected")
    return run.run(scenario, "corrected", run.RunOptions(check=True))


@pytest.mark.parametrize(
    "change", [_storage, *deep([_label])], ids=["ephemeral storage", "a label of the NodePool's requirements"]
)
def test_pods_land_on_the_nodes_that_are_bought_for_them(tmp_path: Path, change: Change) -> None:
    result = _run(tmp_path, change)
    service = result.services[0]
    bought = [node for node in result.nodes if node.launched_s > 0]
    assert service.max_ready_replicas > 4
    assert 0 < len(bought) <= 12, "no buying and returning of nodes on which nothing lands"
    assert result.check.violations == []


def test_a_node_without_gpus_is_charged_to_whom_it_serves() -> None:
    cluster = world()
    made = workload(cluster, "front", gpus=0, container={"resources": {"requests": {"cpu": "2", "memory": "1Gi"}}})
    one = ready_node(cluster, "cpu-1", "m5.xlarge")
    pods.reconcile(cluster, made)
    (bind,) = place.decide(Snapshot(cluster.now_ns, cluster.fleet))
    assert isinstance(bind, Bind) and isinstance(cluster.apply(bind), Applied)
    cluster.advance_to(cluster.now_ns + NS_PER_HOUR)
    (bill,) = cluster.records.ledger.settle(cluster.now_ns).nodes
    by_owner = {line.owner: line for line in bill.lines}
    assert bill.node == one.name
    assert by_owner["inference/front"].used_micro_usd == bill.cost_micro_usd // 2, "2 of 4 CPUs"
    assert cluster.records.ledger.check(cluster.now_ns) == []
