"""`tonnage share` as people and scripts see it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_builders import tonnage

from tonnage.partitioning import device_plugin, documents

QUARTERS = ("--workload", "chat:memory=10GiB,util=25%,count=8", "--gpu", "a100-80")

PODS = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat, namespace: serving}
spec:
  replicas: 3
  selector: {matchLabels: {app: chat}}
  template:
    metadata: {labels: {app: chat}}
    spec:
      containers: [{name: main, image: app, resources: {limits: {nvidia.com/gpu: 1}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: chat-1, namespace: serving, labels: {app: chat}}
spec:
  containers: [{name: main, image: app, resources: {limits: {nvidia.com/gpu: 1}}}]
---
apiVersion: v1
kind: Pod
metadata:
  name: half
  annotations: {gpu-fraction: "%s"}
spec:
  containers: [{name: main, image: app}]
---
apiVersion: v1
kind: Pod
metadata: {name: slice}
spec:
  containers: [{name: main, image: app, resources: {limits: {nvidia.com/mig-1g.10gb: 1}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: limited}
spec:
  containers:
    - name: main
      image: app
      resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 8192, nvidia.com/gpucores: 20}}
---
apiVersion: v1
kind: Pod
metadata: {name: large}
spec:
  containers: [{name: main, image: app, resources: {limits: {nvidia.com/gpu: 4}}}]
"""


@pytest.fixture
def pods(tmp_path: Path) -> Path:
    path = tmp_path / "pods.yaml"
    path.write_text(PODS % "0.5")
    return path


def test_the_table_is_80_columns_wide_and_ends_with_a_recommendation(capfd: pytest.CaptureFixture[str]) -> None:
    done = tonnage(capfd, "share", *QUARTERS)
    assert all(len(line) <= 80 for line in done.out.splitlines())
    assert "Recommended: mps (sharing.mps, 4 replicas)" in done.out
    rows = {line.split()[0]: line.split()[1] for line in done.out.splitlines() if "/" in line and "$" in line[:40]}
    assert rows["mig"] == "3"


def test_json_has_every_way_and_the_reasons(capfd: pytest.CaptureFixture[str]) -> None:
    answer = json.loads(tonnage(capfd, "share", *QUARTERS, "-o", "json").out)
    assert answer["schema"] == "tonnage.dev/share/v1"
    assert [way["name"] for way in answer["ways"]] == ["whole", "mig", "time-slicing", "leases", "mps", "smaller"]
    assert answer["recommended"] == "mps"
    assert answer["load"] == 2.0
    assert answer["reasons"]


def test_step_and_every_say_the_same_as_util(capfd: pytest.CaptureFixture[str]) -> None:
    both = [
        json.loads(tonnage(capfd, "share", "--workload", f"w:memory=1Gi,{keys}", "--gpu", "h100", "-o", "json").out)
        for keys in ("step=20ms,util=25%", "step=20ms,every=80ms", "step=20ms,util=0.25")
    ]
    assert both[0] == both[1] == both[2]


def test_pods_are_read_with_what_they_ask_for(capfd: pytest.CaptureFixture[str], pods: Path) -> None:
    done = tonnage(capfd, "share", str(pods), "--gpu", "a100-80", "-o", "json")
    found = {one["name"]: one for one in json.loads(done.out)["workloads"]}
    assert found["serving/chat"] | {"load": 1.0, "count": 3, "memory_mib": 81920} == found["serving/chat"]
    assert found["default/half"] | {"load": 0.5, "memory_mib": 40960} == found["default/half"]
    assert found["default/slice"] | {"load": 14 / 108, "memory_mib": 9856} == found["default/slice"]
    assert found["default/limited"] | {"load": 0.2, "memory_mib": 8192} == found["default/limited"]
    assert "default/large: left out: it needs 4 GPUs at once" in done.err


def test_used_says_what_pods_really_use(capfd: pytest.CaptureFixture[str], pods: Path) -> None:
    used = ("--used", "memory=10GiB,util=25%")
    answer = json.loads(tonnage(capfd, "share", str(pods), "--gpu", "a100", *used, "-o", "json").out)
    assert {(one["load"], one["memory_mib"]) for one in answer["workloads"]} == {(0.25, 10240)}


def test_a_fraction_outside_0_to_1_in_a_file_is_refused_with_its_line(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "pods.yaml"
    path.write_text(PODS % "1.5")
    done = tonnage(capfd, "share", str(path), "--gpu", "a100")
    assert done.code == 2
    assert f"{path}:22:default/half" in done.err
    assert "'1.5' is not a number between 0 and 1" in done.err


def test_a_profile_that_the_gpu_has_not_is_refused_with_the_line_of_its_pod(
    capfd: pytest.CaptureFixture[str], pods: Path
) -> None:
    done = tonnage(capfd, "share", str(pods), "--gpu", "h200")
    assert done.code == 2
    assert f"{pods}:26:default/slice: unknown MIG resource 'nvidia.com/mig-1g.10gb'" in done.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workload", "w:memory=1Gi,util=125%"], "--workload w:util: 1.25 is not in (0, 1]"),
        (["--workload", "w:memory=1Gi,util=0"], "--workload w:util: 0 is not in (0, 1]"),
        (["--workload", "w:memory=1Gi,util=nan"], "--workload w:util: 'nan' is not a number"),
        (["--workload", "w:memory=100Gi,util=5%"], "--workload w:memory: 102400 MiB is more than a100-80 has"),
        (["--workload", "w:memory=1Gi,util=5%,count=0"], "--workload w:count: 0 processes"),
        (["--workload", "w:memory=1Gi,util=5%,count=-3"], "--workload w:count: -3 processes"),
        (["--workload", "w:memory=1Gi,util=5%,count=1000000000"], "1000000000 processes (expected 1 to 100000)"),
        (["--workload", "w:memory=1Gi,util=5%,count=x"], "--workload w:count: 'x' is not a whole number"),
        (["--workload", "w:memory=1Gi,util=5%,lateny=3ms"], "did you mean latency?"),
        (["--workload", "w:memory=1Gi,util=5%,latency=3"], "--workload w:latency: '3' is not a time"),
        (["--workload", "w:memory=1Gi"], "memory, and util or every, must be given"),
        (["--workload", "w"], "no name and keys"),
        (["--workload", "w:memory=lots,util=5%"], "--workload w:memory"),
        (["--workload", "w:memory=1Gi,every=10ms"], "every without step"),
        (["--workload", "w:memory=1Gi,step=10ms,every=0s"], "--workload w:every: '0s'"),
        (["--workload", "w:memory=1Gi,util=5%", "--keep", "2"], "--keep: 2 is not in (0, 1]"),
        (["--workload", "w:memory=1Gi,util=5%", "--way", "mpx"], "did you mean mps?"),
        (["--workload", "w:memory=1Gi,util=5%", "--used", "util=5%"], "--used: no FILES"),
        ([], "no workload"),
    ],
)
def test_bad_input_is_refused_with_the_field(
    capfd: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    done = tonnage(capfd, "share", *options, "--gpu", "a100-80")
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("gpu", "message"),
    [
        ("h10", "--gpu: unknown GPU 'h10' (did you mean h100 or h20 or a10?)"),
        ("h100:", "--gpu: unknown MIG profile ''"),
        ("h100:3g.41gb", "--gpu: unknown MIG profile '3g.41gb' (did you mean 3g.40gb"),
    ],
)
def test_an_unknown_gpu_or_instance_is_refused_with_near_names(
    capfd: pytest.CaptureFixture[str], gpu: str, message: str
) -> None:
    done = tonnage(capfd, "share", "--workload", "w:memory=1Gi,util=5%", "--gpu", gpu)
    assert done.code == 2
    assert done.err.startswith(f"error: {message}")


def test_memory_above_the_card_in_a_file_is_refused_once_with_its_line(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "pods.yaml"
    path.write_text((PODS % "0.5").replace('gpu-fraction: "0.5"', 'gpu-memory: "99999"'))
    done = tonnage(capfd, "share", str(path), "--gpu", "a100")
    assert done.code == 2
    assert done.errors == [
        f"error: {path}:18:default/half:memory: 99999 MiB is more than a100-80 has (it has 81920 MiB)"
    ]


def test_mps_on_a_mig_instance_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    options = ("--workload", "w:memory=1Gi,util=5%", "--gpu", "a100:3g.40gb", "--way", "mps")
    done = tonnage(capfd, "share", *options)
    assert done.code == 2
    assert "--way: MPS on the MIG instance a100:3g.40gb" in done.err


def test_where_no_way_does_what_is_asked_the_code_is_1(capfd: pytest.CaptureFixture[str]) -> None:
    options = ("--workload", "w:memory=1Gi,util=90%,count=2", "--gpu", "a100-80", "--way", "mps")
    done = tonnage(capfd, "share", *options)
    assert done.code == 1
    assert "No option meets the requirements." in done.out
    assert "mps: no, w keeps" in done.out


def test_render_writes_a_config_map_that_the_device_plugin_reads(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    done = tonnage(
        capfd, "share", "render", "chat=time-slicing:4", "batch=mps:8", "whole=none", "--namespace", "gpu-operator"
    )
    assert (done.code, done.err) == (0, "")
    file = tmp_path / "map.yaml"
    file.write_text(done.out)
    found = {one.key: device_plugin.parse(one).sharing for one in documents.read(done.out, "map.yaml")}
    made = {name: (one.strategy, one.replicas("nvidia.com/gpu")) for name, one in found.items()}
    assert made == {"chat": ("time-slicing", 4), "batch": ("mps", 8), "whole": ("none", 1)}
    node = tonnage(capfd, "mig", "node", "--gpu", "h100", "--sharing", file, "--config", "chat", "-o", "json")
    assert json.loads(node.out)["resources"] == {"nvidia.com/gpu": 4}


def test_render_can_rename_what_is_shared_and_refuse_more_than_one(capfd: pytest.CaptureFixture[str]) -> None:
    words = ("share", "render", "a=time-slicing:2", "--rename", "--one-each", "--resource", "nvidia.com/mig-1g.10gb")
    (one,) = documents.read(tonnage(capfd, *words).out, "map.yaml")
    sharing = device_plugin.parse(one).sharing
    assert sharing.one_each
    assert sharing.advertised("nvidia.com/mig-1g.10gb") == "nvidia.com/mig-1g.10gb.shared"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("chat=slices:4",), "'chat=slices:4' is not a configuration"),
        (("chat=time-slicing:many",), "'many' is not a number of replicas"),
        (("chat=time-slicing:1",), "expected 2 or more"),
        (("chat=none:3",), "'chat=none:3' is not a configuration"),
        (("a=mps:2", "a=mps:4"), "'a' appears twice"),
        (("a=mps:2", "--resource", "mig-1g.10gb"), "MPS is refused on MIG devices"),
        (("a=mps:2", "--config-map", "No Name"), "--config-map"),
    ],
)
def test_render_refuses_what_the_device_plugin_would(
    capfd: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    done = tonnage(capfd, "share", "render", *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
