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
from tonnage.errors import InputError
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


DEPLOYMENT = """apiVersion: apps/v1
kind: Deployment
metadata: {name: chat}
spec:
  selector: {matchLabels: {app: chat}}
  template:
    metadata: {labels: {app: chat}}
    spec: {containers: [{name: chat, image: chat}]}
"""


def chart(folder: Path, name: str = "chat") -> Path:
    """A Helm chart with a template that is no YAML, one that is, values, and an object that needs no rendering."""
    files = {
        "Chart.yaml": f"apiVersion: v2\nname: {name}\nversion: 0.1.0\n",
        "values.yaml": "replicas: 2\n",
        "templates/chat.yaml": "{{- if .Values.replicas }}\nkind: Deployment\n{{- end }}\n",
        "templates/plain.yaml": DEPLOYMENT.replace("name: chat", "name: plain"),
        "crds/own.yaml": DEPLOYMENT.replace("name: chat", f"name: {name}-own"),
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def test_of_a_chart_only_what_needs_no_rendering_is_read(tmp_path: Path) -> None:
    """The subchart is rendered with the chart, so that it is told of once."""
    whole = chart(tmp_path / "my charts" / "chat")
    chart(whole / "charts" / "cache", "cache")
    (tmp_path / "beside.yaml").write_text(DEPLOYMENT, encoding="utf-8")
    found = load.read([tmp_path])
    assert sorted(one.name for one in found.objects) == ["cache-own", "chat", "chat-own"]
    assert [(one.where.file, one.hint) for one in found.problems] == [
        (str(whole / "Chart.yaml"), f"helm template '{whole}' | tonnage … -")
    ]


def test_a_folder_of_nothing_but_a_chart_says_how_to_render_it(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = chart(tmp_path / "chat")
    (folder / "crds" / "own.yaml").unlink()
    for command in (("check", folder), ("init", folder, "--to", tmp_path / "made")):
        ran = tonnage(capfd, *command)
        assert (ran.code, len(ran.err.splitlines())) == (2, 1)
        assert "no objects found: a Helm chart is not rendered here" in ran.err
        assert f"helm template {folder} | tonnage" in ran.err
    assert not (tmp_path / "made").exists()


def test_an_overlay_whose_objects_are_elsewhere_says_how_to_build_it(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    overlay = tmp_path / "prod"
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text("resources: [../base]\n", encoding="utf-8")
    ran = tonnage(capfd, "init", overlay, "--to", tmp_path / "made")
    assert ran.code == 2
    assert "no objects found: what kustomize changes or generates" in ran.err
    assert f"kubectl kustomize {overlay} | tonnage" in ran.err


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("kind: Pod\n{{- with .x }}\nmetadata: {}\n{{- end }}\n", "helm template CHART"),
        ('{{ if .x }}\nkind: Pod\n{{ end }}\n', "helm template CHART"),
        ('kind: Pod\nmetadata:\n  note: "{{ $labels.pod }}"\n name: x\n', "check the indentation"),
    ],
)  # fmt: skip
def test_a_template_is_told_from_yaml_with_a_mistake(tmp_path: Path, text: str, hint: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as raised:
        load.read([file])
    assert hint in str(raised.value)


def test_a_scenario_is_not_put_below_a_file(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(DEPLOYMENT, encoding="utf-8")
    for to in (file, file / "made"):
        ran = tonnage(capfd, "init", file, "--to", to)
        assert (ran.code, ran.err) == (2, f"error: {file}:--to: is a file (name a folder)\n")
    assert file.read_text(encoding="utf-8") == DEPLOYMENT
