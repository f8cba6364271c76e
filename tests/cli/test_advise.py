"""`tonnage advise devices` as people and scripts see it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from cli_builders import tonnage

DEAD = Path(__file__).parents[1] / "data" / "dead-claims"
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: chat, namespace: team}
spec:
  containers: [{name: main, image: app, resources: {limits: {nvidia.com/gpu: 1}}}]
"""
POOL = "---\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: gpus}\nspec: {}\n"


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    file = tmp_path / "m.yaml"
    file.write_text(POD + POOL)
    return file


def test_the_choice_of_each_version_is_told_with_its_reasons(manifest: Path, capfd: pytest.CaptureFixture[str]) -> None:
    answer = json.loads(tonnage(capfd, "advise", "devices", manifest, "--kubernetes", "1.36", "-o", "json").out)
    assert answer["nodes"] == ["karpenter"]
    (verdict,) = answer["workloads"][0]["verdicts"]
    assert (verdict["kubernetes"], verdict["choice"]) == ("1.36", "device plugin")
    assert (
        "1.36  either" in tonnage(capfd, "advise", "devices", manifest, "--kubernetes", "1.36", "--nodes", "none").out
    )


def test_what_is_written_is_what_is_read_with_claims(
    manifest: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert tonnage(capfd, "advise", "devices", manifest, "--write", tmp_path / "out.yaml").code == 0
    kinds = [one["kind"] for one in yaml.safe_load_all((tmp_path / "out.yaml").read_text())]
    assert kinds == ["DeviceClass", "ResourceClaimTemplate", "Pod", "NodePool"]
    printed = tonnage(capfd, "advise", "devices", manifest, "--write", "-")
    assert printed.out == (tmp_path / "out.yaml").read_text()
    assert "are devices of the ResourceClaimTemplate chat-gpus" in printed.err


def test_the_exit_code_says_that_something_is_lost(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ran = tonnage(capfd, "advise", "devices", DEAD / "mig.yaml", "--write", tmp_path / "out.yaml")
    assert ran.code == 1 and "lost: ResourceClass gpu.nvidia.com/mig" in " ".join(ran.out.split())
    assert tonnage(capfd, "advise", "devices", DEAD / "mig.yaml").code == 0


def test_a_version_is_taken_as_a_server_says_it(manifest: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ran = tonnage(
        capfd,
        "advise",
        "devices",
        manifest,
        "--kubernetes",
        "v1.36.3-eks-3025e55",
        "--kubernetes",
        "1.9",
        "--nodes",
        "none",
    )
    assert "\n  1.36  either         DRA" in ran.out and "\n  1.9   device plugin  Res" in ran.out


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        (POD, ("--kubernetes", "new"), "--kubernetes: new is not a version of Kubernetes"),
        ("- 1\n", (), "the document is not an object"),
        ("a: [", (), "m.yaml"),
        (POD, ("--write", "/nowhere/out.yaml"), "there is no folder /nowhere"),
        (POD, ("--write", "-", "-o", "json"), "--write: - and -o json both print"),
        (POD, ("--nodes", "none", "--nodes", "karpenter"), "--nodes: none beside others"),
        (
            POD.replace("gpu: 1", "gpu: 0.5"),
            (),
            "m.yaml:5:spec.containers[0].resources.limits.nvidia.com/gpu: 0.5: must",
        ),
        (POD.replace("gpu: 1", "gpu: one"), (), 'limits.nvidia.com/gpu: "one": expected a quantity'),
        (POD.replace("image: app", "image: y"), (), "image: y: expected a string, YAML reads it as true"),
        (POD + "spec: {}\n", (), "m.yaml:6:spec: the key 'spec' appears twice"),
    ],
)
def test_what_cannot_be_read_or_written_is_said(
    content: str, options: tuple[str, ...], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(content)
    ran = tonnage(capfd, "advise", "devices", file, *options)
    assert ran.code == 2 and said in ran.err
