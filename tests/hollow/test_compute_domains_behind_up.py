"""ComputeDomains behind `tonnage up`: the controller makes their templates, and gangs get nodes of one clique."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compute_domain_builders import written
from hollow.running_api import Json
from hollow.up_in_step import UpInStep
from tonnage.facts.labels import GPU_CLIQUE
from tonnage.kube.resources import COMPUTE_DOMAINS, NODES, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from tonnage.objects.compute_domains import domain_of
from tonnage.objects.dra_versions import from_dict
from tonnage.simulation import run, scenario


@pytest.fixture
def up(tmp_path: Path) -> Iterator[UpInStep]:
    """A gang of eighteen pods; two cliques, of which the second has a node for each."""
    made = UpInStep(run.set_up(scenario.load(written(tmp_path, {"1": 17, "2": 18})), "one"))
    yield made
    made.close()


def bound(up: UpInStep) -> list[str]:
    return sorted(one["spec"]["nodeName"] for one in up.list_pods() if one["spec"].get("nodeName"))


def cliques(up: UpInStep, nodes: list[str]) -> set[str]:
    return {up.client.get(NODES, name)["metadata"]["labels"].get(GPU_CLIQUE, "") for name in nodes}


def domain(up: UpInStep, name: str = "rack") -> Json:
    return up.client.get(COMPUTE_DOMAINS, name, "research")


def test_a_gang_of_eighteen_gets_one_clique_and_its_domain_says_which_nodes(up: UpInStep) -> None:
    up.run_for(30)
    assert len(set(bound(up))) == 18
    assert cliques(up, bound(up)) == {"fabric.2"}
    status = domain(up)["status"]
    assert status["status"] == "Ready"
    assert [one["name"] for one in status["nodes"]] == bound(up)
    assert {one["cliqueID"] for one in status["nodes"]} == {"fabric.2"}


def test_the_template_of_a_domain_is_made_once_goes_with_it_and_comes_again_where_it_is_deleted(up: UpInStep) -> None:
    name = "rack-channel"
    made = up.client.get(RESOURCE_CLAIM_TEMPLATES, name, "research")
    assert made["metadata"]["ownerReferences"][0]["uid"] == domain(up)["metadata"]["uid"]
    read = from_dict(made)
    assert domain_of(read.spec.spec) == domain(up)["metadata"]["uid"]  # type: ignore[union-attr]
    up.client.delete(RESOURCE_CLAIM_TEMPLATES, name, "research")
    up.run_for(10)
    again = up.client.get(RESOURCE_CLAIM_TEMPLATES, name, "research")
    assert again["metadata"]["uid"] != made["metadata"]["uid"]
    up.client.delete(COMPUTE_DOMAINS, "rack", "research")
    up.run_for(10)
    assert [one["metadata"]["name"] for one in up.client.list(RESOURCE_CLAIM_TEMPLATES)] == ["gpus"]


def test_a_gang_waits_where_no_clique_is_large_enough(tmp_path: Path) -> None:
    up = UpInStep(run.set_up(scenario.load(written(tmp_path, {"1": 17, "2": 17, "": 2})), "one"))
    try:
        up.run_for(30)
        assert bound(up) == []
        assert not [one for one in up.client.list(RESOURCE_CLAIMS) if one.get("status", {}).get("allocation")]
        said = [one["message"] for one in up.events("Pod", up.list_pods()[0]["metadata"]["name"])]
        assert any("needs 18 pods in one nvidia.com/gpu.clique; the best" in one for one in said)
        assert domain(up)["status"]["status"] == "NotReady"
    finally:
        up.close()
