"""`tonnage mig plan` as people and scripts see it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from cli_builders import tonnage

CLUSTER = """\
apiVersion: v1
kind: Node
metadata:
  name: gpu-a
  labels: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3, nvidia.com/gpu.count: "2"}
status:
  allocatable: {nvidia.com/mig-3g.40gb: 1, nvidia.com/mig-1g.10gb: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: there}
spec:
  nodeName: gpu-a
  containers:
    - {name: main, image: a, resources: {limits: {nvidia.com/mig-3g.40gb: 1}}}
---
apiVersion: v1
kind: Pod
metadata: {name: waits}
spec:
  containers:
    - {name: main, image: a, resources: {limits: {nvidia.com/mig-4g.40gb: 1}}}
"""
TABLE = "name,profile,memory,compute,count,weight\nchat,1g.10gb,,,9,\nbatch,,18Gi,2,1,2\n"
LIST = (
    "demands:\n  - {name: chat, profile: 1g.10gb, count: 9}\n  - {name: batch, memory: 18Gi, compute: 2, weight: 2}\n"
)


def test_a_plan_serves_everything_and_says_what_to_do(capfd: pytest.CaptureFixture[str]) -> None:
    done = tonnage(capfd, "mig", "plan", "--gpus", "h100=8", "--demand", "1g.10gb=20,3g.40gb=4")
    assert done.code == 0
    assert "served: 24 of 24" in done.out
    assert "created: 24" in done.out
    assert all(len(line) <= 80 for line in done.out.splitlines())


def test_json_has_the_steps_of_each_card_and_nothing_else_on_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    gpus = "h100:3g.40gb@4*,1g.10gb@0=2"
    answer = json.loads(
        tonnage(capfd, "mig", "plan", "--gpus", gpus, "--demand", "4g.40gb=1,1g.10gb=2", "-o", "json").out
    )
    assert answer["unserved"] == []
    assert (answer["destroyed"], answer["gap"]) == (1, 0.0)
    first = next(one for one in answer["cards"] if any(step["action"] == "destroy" for step in one["steps"]))
    assert first["steps"] == [
        {"action": "destroy", "profile": "1g.10gb", "start": 0},
        {"action": "create", "profile": "4g.40gb", "start": 0},
    ]
    assert {"profile": "3g.40gb", "start": 4, "size": 4, "busy": True} in first["after"]


def test_what_is_not_served_is_explained_and_the_exit_code_is_1(capfd: pytest.CaptureFixture[str]) -> None:
    done = tonnage(capfd, "mig", "plan", "--gpus", "h100:1g.10gb@0*=1", "--demand", "7g.80gb=1,1g.18gb=1")
    assert done.code == 1
    flat = " ".join(done.out.split())
    assert "beside what is in use there is room for 0; without it for 1" in flat
    assert "no GPU in the fleet has a profile for 1g.18gb" in flat


def test_nodes_are_the_fleet_and_pods_without_one_are_demands(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    answer = json.loads(tonnage(capfd, "mig", "plan", tmp_path / "cluster.yaml", "-o", "json").out)
    assert answer["demands"] == [{"name": "default/waits", "count": 1, "served": 1}]
    assert [one["node"] for one in answer["cards"]] == ["gpu-a", "gpu-a"]
    kept = [one for card in answer["cards"] for one in card["after"] if one["busy"]]
    assert [one["profile"] for one in kept] == ["3g.40gb"]


@pytest.mark.parametrize(("name", "text"), [("demands.csv", TABLE), ("demands.yaml", LIST)])
def test_demands_come_as_csv_and_as_yaml(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    answer = json.loads(tonnage(capfd, "mig", "plan", tmp_path / name, "--gpus", "h100=2", "-o", "json").out)
    assert [(one["name"], one["served"]) for one in answer["demands"]] == [("chat", 9), ("batch", 1)]
    taken = [one for card in answer["cards"] for one in card["serves"] if one["demand"] == "batch"]
    assert [one["profile"] for one in taken] == ["2g.20gb"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--gpus", "h10=2", "--demand", "1g.10gb=1"), "unknown GPU 'h10'"),
        (("--gpus", "h100", "--demand", "1g.10gb=1"), "expected NAME=COUNT"),
        (("--gpus", "h100=0", "--demand", "1g.10gb=1"), "expected NAME=COUNT"),
        (("--gpus", "l40s=2", "--demand", "1g.10gb=1"), "no MIG profiles of l40s"),
        (("--gpus", "h100=2", "--demand", "1g.11gb=1"), "did you mean 1g.10gb"),
        (("--gpus", "h100=2", "--demand", "1g.10gb=-1"), "expected NAME=COUNT"),
        (("--gpus", "h100=2", "--demand", "0Gi=1"), "memory and compute slices are above 0"),
        (("--gpus", "h100=2", "--demand", "18Gi/0=1"), "memory and compute slices are above 0"),
        (("--gpus", "h10=2", "--demand", "18Gi=1"), "--gpus: unknown GPU 'h10'"),
        (("--gpus", "h100=2", "--demand", "200Gi=1"), "more than any card of the fleet has"),
        (("--gpus", "h100=2"), "nothing is asked for"),
        (("--demand", "1g.10gb=1"), "no GPU that can be partitioned"),
        (("absent.yaml",), "no such file"),
        (("absent.csv",), "cannot be read"),
    ],
)
def test_bad_options_are_refused_with_the_reason(
    capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    done = tonnage(capfd, "mig", "plan", *arguments)
    assert done.code == 2
    assert words in done.err
    assert not done.out


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("d.csv", "name,profil\nx,1g.10gb\n", "d.csv:1: unknown column 'profil' (did you mean profile?)"),
        ("d.csv", "profile,count\n1g.10gb,many\n", "d.csv:2:count: 'many': it cannot be read"),
        ("d.csv", "profile,count\n1g.10gb,0\n", "d.csv:2:count: 0: expected 1 to 100000"),
        ("d.csv", "profile,weight\n1g.10gb,-1\n", "d.csv:2:weight: -1: expected 0.01 to 100"),
        ("d.csv", "profile,memory\n1g.10gb,18Gi\n", "d.csv:2: expected a profile, or memory and compute"),
        ("d.csv", "memory\n18Q\n", "d.csv:2:memory: '18Q' is not a quantity"),
        ("d.yaml", "demands:\n  - profile: 1g.10gb\n    cuont: 3\n", "d.yaml:3:demands[0].cuont: "),
        (
            "d.yaml",
            "demands:\n  - profile: 1g.10gb\n  - memory: 200Gi\n",
            "d.yaml:3:demands[1].memory: 204800 MiB is more than any card",
        ),
        ("d.csv", "profile,gpu\n1g.10gb,h10\n", "d.csv:2:gpu: unknown GPU 'h10' (did you mean h100"),
        ("d.csv", "profile,count\n", "d.csv: no demand in it"),
        ("d.csv", "", "d.csv: no demand in it"),
        ("d.csv", "profile,profile\n1g.10gb,2g.20gb\n", "d.csv:1: two columns profile"),
        ("d.csv", 'profile\n"1g.10gb\n', "d.csv: not valid CSV"),
        ("d.csv", f"profile\n{'x' * 140_000}\n", "d.csv: not valid CSV"),
        ("d.CSV", "profile\n1g.11gb\n", "d.CSV:2:profile: unknown MIG profile '1g.11gb'"),
        ("d.yaml", "demands: []\n", "d.yaml:1:demands: expected a list"),
    ],
)
def test_bad_demand_files_are_refused_with_file_and_line(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    text: str,
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text)
    done = tonnage(capfd, "mig", "plan", name, "--gpus", "h100=2")
    assert done.code == 2
    assert words in done.err


def test_every_wrong_demand_of_a_file_is_said_in_the_order_of_lines(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("d.csv").write_text("profile,count,gpu\n1g.11gb,1,\n,1,\n1g.10gb,many,\n1g.10gb,0,\n1g.10gb,1,h10\n")
    done = tonnage(capfd, "mig", "plan", "d.csv", "--gpus", "h100=2")
    assert done.code == 2
    assert [line.split()[1] for line in done.errors] == [
        "d.csv:2:profile:",
        "d.csv:3:",
        "d.csv:4:count:",
        "d.csv:5:count:",
        "d.csv:6:gpu:",
    ]


def test_memory_can_be_part_of_a_gib(capfd: pytest.CaptureFixture[str]) -> None:
    done = tonnage(capfd, "mig", "plan", "--gpus", "h100=1", "--demand", "9.5Gi=1,10.5Gi=1", "-o", "json")
    serves = json.loads(done.out)["cards"][0]["serves"]
    assert {one["demand"]: one["profile"] for one in serves} == {"9.5Gi": "1g.10gb", "10.5Gi": "1g.20gb"}


def test_a_demand_of_millions_is_answered_at_once(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("profile,count\n" + "1g.10gb,100000\n" * 500)
    begun = time.monotonic()
    done = tonnage(capfd, "mig", "plan", str(path), "--gpus", "h100=2")
    assert "served: 14 of 50000000" in done.out
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize("quiet", [False, True])
def test_progress_is_drawn_on_a_terminal_unless_quiet(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, quiet: bool
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    options = ("--gpus", "h100=2", "--demand", "1g.10gb=3", "-o", "json", *(["--quiet"] if quiet else []))
    done = tonnage(capfd, "mig", "plan", *options)
    assert done.code == 0
    assert json.loads(done.out)["unserved"] == []
    assert bool(done.err) != quiet
