"""A run whose pods request nvidia.com/gpu on nodes that have NVIDIA's DRA driver and no device plugin."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from shared_runs import EXAMPLES
from tonnage.fleet.invariants import violations
from tonnage.machines.cluster import SimulatedCluster
from tonnage.simulation import run, scenario
from tonnage.simulation.result import Result

GPUS = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scenario of claims with pods that name none: they request a GPU, and no manifest has a DeviceClass."""
    folder = tmp_path_factory.mktemp("extended")
    shutil.copytree(EXAMPLES / "dra-scale-out", folder / "it")
    shutil.copytree(EXAMPLES / "traffic-surge", folder / "traffic-surge")
    it = folder / "it"
    (it / "manifests/node-group/claims.yaml").unlink()
    chat = it / "manifests/node-group/chat.yaml"
    deployment, *others = yaml.safe_load_all(chat.read_text())
    spec = deployment["spec"]["template"]["spec"]
    del spec["resourceClaims"]
    resources = spec["containers"][0]["resources"]
    del resources["claims"]
    resources["limits"]["nvidia.com/gpu"] = "1"
    chat.write_text(yaml.safe_dump_all([deployment, *others]))
    text = (it / "scenario.yaml").read_text().replace("duration: 40m", "duration: 30m")
    (it / "scenario.yaml").write_text(text.replace("duration: 20m", "duration: 12m"))
    return it


@pytest.fixture(scope="module")
def made(folder: Path) -> tuple[Result, SimulatedCluster]:
    one = run.set_up(scenario.load(folder), "node-group", run.RunOptions(check=True))
    return one.result(run.play(one)), one.cluster


def test_its_pods_run_and_each_has_a_gpu_of_its_own_by_a_claim(made: tuple[Result, SimulatedCluster]) -> None:
    result, cluster = made
    assert result.services[0].generated_tokens > 0
    assert result.check.violations == []
    claims = cluster.fleet.device_claims
    held = [one for given in claims.ledger.given.values() for one in given.devices.results]
    standing = [pod for pod in cluster.fleet.pods if pod is not None and pod.node >= 0]
    assert len(held) == len(standing) >= 3
    assert len({(one.pool, one.device) for one in held}) == len(held)
    assert all("-extended-resources-" in name for _, name in claims.claims)
    assert violations(cluster.fleet) == []


def test_a_node_group_is_sized_for_those_that_find_no_device(made: tuple[Result, SimulatedCluster]) -> None:
    result, _ = made
    assert any(one.reason == "Launched" for one in result.events)
    assert len([one for one in result.nodes if one.name]) > 1


def test_what_pods_hold_by_claims_is_charged_to_them(made: tuple[Result, SimulatedCluster]) -> None:
    result, _ = made
    (chat,) = [one for one in result.cost.lines if "chat" in one.owner]
    assert chat.used_micro_usd > 0
