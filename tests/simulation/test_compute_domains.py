"""A gang with a ComputeDomain: all of its nodes are of one NVLink clique, or it waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from compute_domain_builders import MANIFESTS, written
from tonnage.simulation import run, scenario
from tonnage.simulation.result import Result


def played(path: Path) -> Result:
    return run.run(scenario.load(path), "one")


def nodes_of(result: Result) -> list[str]:
    return sorted(one.message.removeprefix("assigned to ") for one in result.events if one.reason == "Scheduled")


@pytest.mark.parametrize("cliques", [{"1": 18, "2": 17}, {"1": 17, "2": 18}, {"1": 10, "": 20, "2": 19}])
def test_a_gang_of_eighteen_nodes_gets_one_clique(tmp_path: Path, cliques: dict[str, int]) -> None:
    result = played(written(tmp_path, cliques))
    names = nodes_of(result)
    assert len(set(names)) == 18
    first, of = 1, dict[str, str]()
    for clique, count in cliques.items():
        of |= {f"base-{number:02}": clique for number in range(first, first + count)}
        first += count
    found = {of[name] for name in names}
    assert len(found) == 1 and cliques[found.pop()] >= 18


def test_a_gang_waits_where_no_clique_has_eighteen_nodes_though_the_cluster_has(tmp_path: Path) -> None:
    result = played(written(tmp_path, {"1": 17, "2": 17, "": 18}))
    assert nodes_of(result) == []
    (blocked,) = [one.message for one in result.events if one.reason == "FailedScheduling"][:1]
    assert "needs 18 pods in one nvidia.com/gpu.clique; the best, us-east-1/us-east-1a/fabric.1, holds 17" in blocked


def test_without_a_compute_domain_the_gang_stands_anywhere(tmp_path: Path) -> None:
    plain = (
        MANIFESTS.split("---\n", 1)[1]
        .replace(", {name: channel}", "")
        .replace("            - {name: channel, resourceClaimTemplateName: rack-channel}\n", "")
    )
    result = played(written(tmp_path, {"1": 10, "2": 10}, plain))
    assert len(nodes_of(result)) == 18
