"""The `optimal` provisioning policy in a run: the same pods run on cheaper nodes, and a gang waits whole."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from docs_outputs import REPOSITORY
from tonnage.errors import InputError
from tonnage.simulation import run, scenario

FILES = REPOSITORY / "docs" / "files" / "plan-nodes"


def written(folder: Path, **policies: str) -> scenario.Scenario:
    """Ten GPU pods and a NodePool for half an hour, under these provisioning policies."""
    manifests = folder / "manifests"
    manifests.mkdir()
    for file in FILES.iterdir():
        shutil.copy(file, manifests)
    spec = {
        "kind": "Scenario",
        "name": "ten-pods",
        "duration": "20m",
        "policies": {name: {"manifests": "manifests", "provisioning": of} for name, of in policies.items()},
    }
    (folder / "scenario.yaml").write_text(yaml.safe_dump(spec))
    return scenario.load(folder)


def test_the_same_pods_run_on_cheaper_nodes(tmp_path: Path) -> None:
    loaded = written(tmp_path, like="karpenter", cheap="optimal")
    like, cheap = (run.run(loaded, name) for name in ("like", "cheap"))
    launches = {one.policy: [d for d in one.decisions if d.kind == "Launch"] for one in (like, cheap)}
    assert len(launches["like"]) == 2
    assert len(launches["cheap"]) == 10
    assert all(d.verdict == "part of the cheapest set of nodes for all pods" for d in launches["cheap"])
    assert cheap.cost.total_micro_usd < 0.7 * like.cost.total_micro_usd
    binds = [sum(d.kind == "Bind" for d in one.decisions) for one in (like, cheap)]
    assert binds == [10, 10]


def test_an_unknown_provisioning_policy_is_named_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r'policies.one.provisioning.*"optimum", expected one of karpenter, optimal'):
        written(tmp_path, one="optimum")
