"""Modes and intervals of time-slicing that do not exist, or that have no effect."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from tonnage.errors import Where
from tonnage.objects import core, load
from tonnage.objects.base import ObjectMeta
from tonnage.simulation import run, scenario
from tonnage.simulation.findings.time_slicing import unknown_intervals, unknown_modes

EXAMPLE = Path(__file__).parents[2] / "examples" / "mig-day-night"
LABEL = ', tonnage.dev/mig-relayout: "true"'
OF_NODES = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: gpus}
spec:
  template:
    metadata: {labels: {tonnage.dev/gpu-timeslice: "4"}}
    spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpus}, requirements: []}
---
apiVersion: v1
kind: Node
metadata: {name: own, labels: {tonnage.dev/gpu-timeslice: forever}}
---
apiVersion: v1
kind: Node
metadata: {name: right, labels: {tonnage.dev/gpu-timeslice: Medium}}
"""


@pytest.mark.parametrize(
    ("mode", "fraction", "rule"),
    [
        ("strict", "gpu-fraction", ""),
        ("fair", "gpu-memory", ""),
        ("Strict", "gpu-fraction", "gpu-time-slicing-unknown"),
        ("", "gpu-fraction", "gpu-time-slicing-unknown"),
        ("strict", "other", "gpu-time-slicing-no-effect"),
    ],
)
def test_a_mode_that_does_not_exist_or_is_of_no_part_of_a_gpu_is_a_finding(mode: str, fraction: str, rule: str) -> None:
    meta = ObjectMeta(name="a", namespace="b", annotations={"tonnage.dev/gpu-time-slicing": mode, fraction: "0.5"})
    pod = core.Pod(
        api_version="v1", kind="Pod", metadata=meta, spec=core.PodSpec(containers=[core.Container(name="c")])
    )
    made = SimpleNamespace(template=SimpleNamespace(metadata=meta), object=pod, namespace="b", where=Where)
    found = list(unknown_modes([made]))
    assert [one.rule for one in found] == [rule] * bool(rule)
    assert all(repr(mode) in one.message or "no annotation gpu-fraction" in one.message for one in found)


@pytest.mark.parametrize(
    ("kind", "head", "tail", "template"),
    [
        ("apps/v1, kind: Deployment", "selector: {matchLabels: {a: b}}, template: {", "}", "spec.template."),
        ("batch/v1, kind: Job", "template: {", "}", "spec.template."),
        ("jobset.x-k8s.io/v1alpha2, kind: JobSet", "replicatedJobs: [{name: a, template: {spec: {template: {", "}}}}]", "spec.replicatedJobs[0].template.spec.template."),
    ],
)  # fmt: skip
@pytest.mark.parametrize("of_pods", ["", ", tonnage.dev/gpu-time-slicing: fair"])
def test_a_mode_of_a_workload_instead_of_its_pods_is_a_finding_that_says_where_it_goes(
    tmp_path: Path, kind: str, head: str, tail: str, template: str, of_pods: str
) -> None:
    pod = "spec: {restartPolicy: RESTART, containers: [{name: c, image: c}]}".replace(
        "RESTART", "Always" if "apps" in kind else "Never"
    )
    inner = f'metadata: {{labels: {{a: b}}, annotations: {{gpu-fraction: "0.5"{of_pods}}}}}, {pod}'
    own = "metadata: {name: x, namespace: research, annotations: {tonnage.dev/gpu-time-slicing: strict}}"
    (tmp_path / "x.yaml").write_text(f"{{apiVersion: {kind}, {own}, spec: {{{head}{inner}{tail}}}}}\n")
    made = run.set_up(scenario.of_files([tmp_path]), scenario.AS_WRITTEN).configuration
    found = [one for one in made.findings if one.rule == "gpu-time-slicing-no-effect"]
    assert [(one.where.field, one.help) for one in found] == [
        ("metadata.annotations.tonnage.dev/gpu-time-slicing", f"move it to {template}metadata.annotations")
    ] * (not of_pods)


@pytest.mark.parametrize("name", ["gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"])
@pytest.mark.parametrize("of_pods", ["", '"0.5"'])
def test_a_part_of_a_gpu_asked_for_on_the_workload_instead_of_its_pods_is_a_finding(
    tmp_path: Path, name: str, of_pods: str
) -> None:
    template = f"metadata: {{labels: {{a: b}}, annotations: {{{f'{name}: {of_pods}' if of_pods else ''}}}}}"
    (tmp_path / "x.yaml").write_text(
        f'{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: x, annotations: {{{name}: "0.5"}}}}, spec: '
        f"{{selector: {{matchLabels: {{a: b}}}}, template: {{{template}, spec: {{containers: [{{name: c, image: c}}]}}}}}}}}\n"
    )
    made = run.set_up(scenario.of_files([tmp_path]), scenario.AS_WRITTEN).configuration
    found = [one for one in made.findings if one.rule == "gpu-part-no-effect"]
    assert [(one.severity, one.where.field, one.help) for one in found] == [
        ("warning", f"metadata.annotations.{name}", "move it to spec.template.metadata.annotations")
    ] * (not of_pods)


@pytest.mark.parametrize(("written", "told"), [("odd", 1), ("long", 0), ('"3"', 0), ('"-1"', 1)])
def test_an_interval_that_does_not_exist_is_a_finding_at_the_labels_of_the_nodes(
    tmp_path: Path, written: str, told: int
) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "same")
    file = tmp_path / "same" / "scenario.yaml"
    file.write_text(file.read_text().replace(LABEL, f"{LABEL}, tonnage.dev/gpu-timeslice: {written}"))
    made = run.set_up(scenario.load(tmp_path / "same"), "static")
    found = [one for one in made.configuration.findings if one.rule == "gpu-timeslice-unknown"]
    assert [one.where.field for one in found] == ["fleet.nodes[0].labels"] * told
    assert all(
        f"is {written.strip(chr(34))!r}: expected default, short, medium, long, or 0 to 3" in one.message
        for one in found
    )


def test_the_labels_of_nodepools_and_of_nodes_are_looked_at_too(tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text(OF_NODES)
    found = list(unknown_intervals(scenario.load(EXAMPLE), load.read([tmp_path / "nodes.yaml"])))
    assert [(one.object.kind, one.object.name, one.where.line) for one in found] == [
        ("NodePool", "gpus", 6),
        ("Node", "own", 11),
    ]
