"""`tonnage init` on folders as people have them: Helm's output, kustomize's sources, one StatefulSet, gangs, engines whose
model nobody knows, kinds that are defined nowhere. Each gets a scenario that runs, from the folder and from a cluster."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from cli_builders import Ran, tonnage

from docs_outputs import REPOSITORY
from tonnage.apiserver import kubeconfig
from tonnage.apiserver.api import Api
from tonnage.apiserver.http import Server
from tonnage.apiserver.inprocess import InProcess
from tonnage.hollow.definitions import define_missing_kinds
from tonnage.kube.resources import ALL, NAMESPACES
from tonnage.kube.verbs import Client
from tonnage.live.group_kinds import WORKLOADS
from tonnage.objects import load, tree
from tonnage.simulation import run, scenario

FOLDERS = REPOSITORY / "tests" / "cli" / "folders"


@dataclass(frozen=True)
class Written:
    """What is to be in the scenario of a folder: Services with traffic, workloads with work, what is left out with a
    part of the reason, and parts of what is said on standard error."""

    services: tuple[str, ...] = ()
    training: tuple[str, ...] = ()
    left: dict[str, str] = field(default_factory=dict)
    warned: tuple[str, ...] = ()


WRITTEN = {
    "helm-output": Written(
        ("default/release-chat",),
        ("default/job/release-chat-migrate",),
        warned=("2 objects are of kinds that are not read here: Role, Secret",),
    ),
    "kustomize": Written(
        ("llm/chat",),
        warned=(
            "overlays/prod/kustomization.yaml: what kustomize changes or generates is left out",
            "kubectl kustomize",
            *(f"{name}: passed over" for name in ("dashboard.json", "numbers.json", "list.yaml", "values.yaml")),
        ),
    ),
    "only-a-stateful-set": Written(left={"default/statefulset/llama": "no Service selects"}),
    "groups": Written(
        training=("default/leaderworkerset/big", "default/raycluster/ray"),
        left={"default/big-leader": "selects no workload's pods"},
    ),
    "unnamed-models": Written(
        left={
            "default/sgl": "nothing is known of the model at /models/ours",
            "default/trt": "models: {/engines/ours: …} in the scenario",
        }
    ),
    "missing-definitions": Written(
        ("llm/chat",),
        warned=("Certificate, InferencePool, InferenceService, PodMonitor, VirtualService",),
    ),
}


def taken(folder: Path, wanted: Written, ran: Ran) -> None:
    """The scenario says what it is to say, and can be played."""
    assert ran.code == 0, ran.err
    made = scenario.load(folder)
    assert tuple(one.service for one in made.spec.traffic) == wanted.services
    assert tuple(one.workload for one in made.spec.training) == wanted.training
    text = (folder / "scenario.yaml").read_text(encoding="utf-8")
    for key, why in wanted.left.items():
        assert any(line.startswith(f"#   {key}: ") and why in line for line in text.splitlines()), text
    run.play(run.set_up(made, scenario.AS_WRITTEN))


def test_every_folder_is_looked_at() -> None:
    assert sorted(WRITTEN) == sorted(one.name for one in FOLDERS.iterdir())


@pytest.mark.parametrize("name", WRITTEN)
def test_a_folder_as_people_have_it_gets_a_scenario_that_runs(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    ran = tonnage(capfd, "init", FOLDERS / name, "--to", tmp_path / "made")
    taken(tmp_path / "made", WRITTEN[name], ran)
    assert [part for part in WRITTEN[name].warned if part not in ran.err] == []
    assert bool(ran.err) == bool(WRITTEN[name].warned)


@pytest.mark.parametrize("name", WRITTEN)
def test_the_same_on_a_cluster_gets_a_scenario_that_runs(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    api = Api()
    put_on(api, FOLDERS / name)
    with Server(api) as server:
        config = kubeconfig.write(tmp_path / "config", server.url)
        ran = tonnage(capfd, "init", "--kubeconfig", config, "--to", tmp_path / "made")
    taken(tmp_path / "made", WRITTEN[name], ran)
    assert json.loads((tmp_path / "made" / "manifests" / "cluster.json").read_text(encoding="utf-8"))["items"]


def put_on(api: Api, folder: Path) -> None:
    """Create the objects of a folder, but for kinds that the cluster does not have."""
    client = Client(InProcess(api))
    served = (*ALL, *(kind for kind, _ in WORKLOADS))
    define_missing_kinds(client, served)
    kinds = {(one.api_version, one.kind): one for one in served}
    for one in load.read([folder]).objects:
        kind = kinds.get((one.api_version, one.kind))
        if kind is None:
            continue
        text = Path(one.origin.file).read_text(encoding="utf-8")
        (body,) = (
            document
            for document in yaml.load_all(text, Loader=tree.LOADER)
            if document and (document["kind"], document["metadata"]["name"]) == (one.kind, one.name)
        )
        namespace = one.namespace or "default"
        if namespace not in {there["metadata"]["name"] for there in client.list(NAMESPACES)}:
            client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        client.create(kind, body, namespace)


def test_a_model_that_is_named_afterwards_gets_its_traffic(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tonnage(capfd, "init", FOLDERS / "unnamed-models", "--to", tmp_path / "made")
    file = tmp_path / "made" / "scenario.yaml"
    shape = "{params: 8B, layers: 32, hidden: 4096, heads: 32, kvHeads: 8}"
    more = f"""
models: {{/models/ours: {shape}, /engines/ours: {shape}}}
slo: {{ttft: 2s, tpot: 50ms}}
traffic:
  - {{service: default/sgl, profile: traffic/azure-2023-conv.yaml, rate: 0.2}}
  - {{service: default/trt, profile: traffic/azure-2023-conv.yaml, rate: 0.2}}
"""
    file.write_text(file.read_text(encoding="utf-8") + more, encoding="utf-8")
    made = run.set_up(scenario.load(tmp_path / "made"), scenario.AS_WRITTEN)
    assert [one.name for one in made.cluster.services] == ["default/sgl", "default/trt"]


def test_traffic_to_a_model_of_which_nothing_is_known_is_left_out_of_any_engines_pods(tmp_path: Path) -> None:
    """Of SGLang and TensorRT-LLM as of vLLM: a finding, and no error."""
    file = tmp_path / "scenario.yaml"
    profile = REPOSITORY / "examples" / "traffic-surge" / "traffic" / "azure-2023-conv.yaml"
    file.write_text(
        f"""kind: Scenario
name: unknown
duration: 10m
fleet: {{assumed: true}}
slo: {{ttft: 2s, tpot: 50ms}}
traffic: [{{service: default/sgl, profile: {profile}}}]
policies: {{as-written: {{manifests: {FOLDERS / "unnamed-models"}}}}}
""",
        encoding="utf-8",
    )
    (found,) = [
        one
        for one in run.set_up(scenario.load(file), scenario.AS_WRITTEN).configuration.findings
        if one.rule == "traffic-left-out"
    ]
    assert "nothing is known of the model at /models/ours" in found.message
    assert "models: {/models/ours: …}" in str(found.help)
