"""`tonnage cuda`: answers, exit codes, bad input, width."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_builders import tonnage

FLEET = """\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata:
    name: gpu-a
    labels: {nvidia.com/cuda.driver-version.full: 535.161.08, nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
  status: {allocatable: {nvidia.com/gpu: "8"}}
- apiVersion: v1
  kind: Node
  metadata:
    name: gpu-b
    labels: {nvidia.com/cuda.driver.major: "570", nvidia.com/cuda.driver.minor: "124", nvidia.com/gpu.product: NVIDIA-L40S}
  status: {allocatable: {nvidia.com/gpu: "4"}}
- apiVersion: v1
  kind: Pod
  metadata: {name: train, namespace: ml}
  spec:
    nodeName: gpu-a
    containers:
    - name: main
      image: pytorch/pytorch:2.11.0-cuda13.0-cudnn9-runtime
      resources: {limits: {nvidia.com/gpu: 4}}
- apiVersion: v1
  kind: Pod
  metadata: {name: chat, namespace: ml}
  spec:
    nodeName: gpu-b
    containers:
    - name: main
      image: vllm/vllm-openai:v0.20.0
      resources: {limits: {nvidia.com/gpu: 1}}
"""


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    file = tmp_path / "dump.yaml"
    file.write_text(FLEET)
    return file


def run(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    ran = tonnage(capfd, "cuda", *arguments)
    return ran.code, ran.out, ran.err


def test_check_can_be_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["nvidia/cuda:12.4.1-runtime-ubuntu22.04", "--driver", "550.54.14", "--gpu", "h100"]
    assert run(capfd, *words) == run(capfd, "check", *words)


def test_an_image_that_fits_exits_with_0_and_one_that_does_not_with_1(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, "vllm/vllm-openai:v0.20.0", "--driver", "535.161.08", "--gpu", "h100")
    assert (code, err) == (0, "")
    assert "vllm/vllm-openai:v0.20.0: fits" in out
    code, out, err = run(capfd, "vllm/vllm-openai:v0.20.0", "--driver", "545.23.08", "--gpu", "h100")
    assert (code, err) == (1, "")
    assert "does not fit" in out
    assert "helps: upgrade the driver" in out


@pytest.mark.parametrize(
    "words",
    [
        ("acme/own:1", "--driver", "535.161.08", "--gpu", "h100"),
        ("vllm/vllm-openai:v0.10.0", "--gpu", "h100"),
        ("vllm/vllm-openai:v0.10.0", "--driver", "570.124.06"),
        ("acme/own:1", "--image-cuda", "12.4", "--gpu", "l40s"),
    ],
    ids=["nothing of the image", "no driver", "no GPU", "no architectures"],
)
def test_what_is_not_known_exits_with_1_unless_that_is_allowed(
    capfd: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    code, out, _ = run(capfd, *words)
    assert (code, "not known whether it fits" in out) == (1, True)
    assert run(capfd, *words, "--allow-unknown")[0] == ("--image-cuda" in words)


def test_json_has_every_question_and_remedy(capfd: pytest.CaptureFixture[str]) -> None:
    image = "pytorch/pytorch:2.11.0-cuda12.8-cudnn9-runtime"
    code, out, _ = run(capfd, image, "--driver", "570.124.06", "--gpu", "v100", "-o", "json")
    made = json.loads(out)
    assert code == 1
    assert made["node"] == {"driver": "570.124.06", "cuda": "12.8", "gpu": "v100", "arch": "7.0"}
    (answer,) = made["answers"]
    assert (answer["fits"], answer["cuda"], answer["mode"]) == (False, "12.8", "exact")
    assert [one["name"] for one in answer["checks"] if one["fits"] is False] == ["kernels"]
    assert [one["kind"] for one in answer["remedies"]] == ["image", "gpu"]


@pytest.mark.parametrize(
    ("expression", "code"),
    [("cuda>=12.2", 0), ("cuda>=12.4", 1), ("NVIDIA_REQUIRE_CUDA=cuda>=12.4 driver>=535,driver<536", 0)],
)
def test_an_expression_is_asked_by_itself(capfd: pytest.CaptureFixture[str], expression: str, code: int) -> None:
    found, out, _ = run(capfd, expression, "--driver", "535.161.08", "--gpu", "h100")
    assert found == code
    assert "code" not in out


def test_labels_and_a_node_file_say_the_node(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(FLEET.split("items:\n- ")[1].split("\n- ")[0].replace("\n  ", "\n"))
    by_file = run(capfd, "nvidia/cuda:12.8.1-base", "--node", file)
    labels = ["nvidia.com/cuda.driver-version.full=535.161.08", "nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3"]
    by_labels = run(capfd, "nvidia/cuda:12.8.1-base", *(word for one in labels for word in ("--label", one)))
    by_name = run(capfd, "nvidia/cuda:12.8.1-base", "--driver", "535.161.08", "--gpu", "h100")
    assert by_file == by_labels == by_name


def test_a_file_with_pods_is_checked_container_by_container(capfd: pytest.CaptureFixture[str], dump: Path) -> None:
    code, out, _ = run(capfd, dump, "--driver", "580.65.06", "--gpu", "h100", "-o", "json")
    assert code == 0
    assert [one["name"].split(":")[0] for one in json.loads(out)["answers"]] == ["Pod train, main", "Pod chat, main"]


def test_what_a_user_says_of_an_image_counts(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["acme/own:1", "--image-cuda", "12.4", "--driver", "550.54.14", "--gpu", "l40s"]
    assert run(capfd, *words, "--image-archs", "8.0 8.6")[0] == 0
    assert run(capfd, *words, "--image-archs", "9.0")[0] == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "nothing to check"),
        (("nvidia/cuda:12.4.1-base", "--gpu", "h1000"), "did you mean"),
        (("nvidia/cuda:12.4.1-base", "--driver", "535.x"), "--driver: '535.x' is not a version"),
        (("nvidia/cuda:12.4.1-base", "--arch", "sm_90"), "is not a version"),
        (("nvidia/cuda:12.4.1-base", "--label", "x"), "expected NAME=VALUE"),
        (("nvidia/cuda:12.4.1-base", "--label", "x=y"), "no label says anything"),
        (("acme/own:1", "--env", "NVIDIA_REQUIRE_CUDA=cuda>12,foo=1"), "no key 'foo'"),
        (("acme/own:1", "--image-archs", "nine"), "'nine' is not an architecture"),
        (("cuda>=12 foo",), "expected a key, an operator and a value"),
        (("missing.yaml",), "no such file"),
        (("",), "an empty name"),
        (("NVIDIA_REQUIRE_CUDA=",), "has no condition"),
        (("cuda>=" + "9" * 5000,), "is not a version"),
        (("nvidia/cuda:12.4.1-base", "--driver", "9" * 5000), "is not a version"),
        (("nvidia/cuda:12.4.1-base", "--label", "nvidia.com/gpu.product=NVIDIA-H100-PCIe", "--arch", "8.0"), "not 8.0"),
    ],
)
def test_bad_input_is_refused_with_what_to_do(
    capfd: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    code, out, err = run(capfd, "check", *words)
    assert (code, out) == (2, "")
    assert said in err
    assert err.startswith("error: ")


def test_the_drivers_of_a_cluster_and_what_they_do_not_run(capfd: pytest.CaptureFixture[str], dump: Path) -> None:
    code, out, err = run(capfd, "fleet", dump)
    assert (code, err) == (1, "")
    assert "535.161.08" in out
    assert "Pods that do not run where they are: 1" in out
    assert "ml/train on gpu-a" in out


def test_an_upgrade_that_mends_everything_exits_with_0_where_nothing_is_stranded(
    capfd: pytest.CaptureFixture[str], dump: Path
) -> None:
    code, out, _ = run(capfd, "fleet", dump, "--to", "580.65.06", "-o", "json")
    made = json.loads(out)
    steps = made["upgrade"]["steps"]
    assert code == 0
    assert [one["node"] for one in steps] == ["gpu-a", "gpu-b"]
    assert [one["pod"] for one in steps[0]["mends"]] == ["ml/train"]
    assert [one["stranded"] for one in steps] == [[], []]
    assert steps[1]["moves"] == ["ml/chat"]


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--to", "newest"), "'newest' is not a version"), ((), "no node with a GPU")],
)
def test_a_cluster_that_cannot_be_looked_at_is_refused(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, dump: Path, words: tuple[str, ...], said: str
) -> None:
    file = dump if words else tmp_path / "pod.yaml"
    if not words:
        pods = FLEET.split("- apiVersion: v1\n  kind: Pod")[1]
        file.write_text("apiVersion: v1\nkind: Pod" + pods.replace("\n  ", "\n"))
    code, _, err = run(capfd, "fleet", file, *words)
    assert code == 2
    assert said in err


def test_a_name_too_long_for_a_file_is_an_image(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, "a" * 300, "--driver", "535.161.08")
    assert (code, err) == (1, "")
    assert "not known whether it fits" in out


def test_tables_fit_80_columns(capfd: pytest.CaptureFixture[str], dump: Path) -> None:
    outs = [
        run(capfd, "fleet", dump, "--to", "590.44.01")[1],
        run(capfd, dump, "nvidia/cuda:13.0.1-base", "cuda>=99 brand=tesla", "--driver", "470.57", "--gpu", "v100")[1],
    ]
    assert max(len(line) for out in outs for line in out.splitlines()) <= 80


@pytest.mark.parametrize(
    "words",
    [
        ["vllm/vllm-openai:v0.9.1", "--gpu", "v100", "--driver", "570.124.06"],
        ["acme/serve:1-cu128", "--gpu", "b200"],
        ["vllm/vllm-openai:v0.7.3", "--arch", "6.0"],
        ["acme/own:1", "--image-cuda", "12.8", "--gpu", "h100", "--driver", "580.65.06"],
    ],
)
def test_an_image_that_nothing_says_was_built_for_the_gpu_exits_with_1(
    capfd: pytest.CaptureFixture[str], words: list[str]
) -> None:
    code, out, err = run(capfd, *words)
    assert (code, err) == (1, "")
    assert ": fits" not in out
    assert run(capfd, *words, "--image-archs", "6.0 7.0 9.0 10.0", "--driver", "580.65.06")[0] == 0


NODE = """\
apiVersion: v1
kind: Node
metadata:
  name: shared
  labels: {nvidia.com/cuda.driver-version.full: 570.124.06, %s}
status: {allocatable: {%s}}
"""


@pytest.mark.parametrize(
    ("labels", "allocatable", "cards"),
    [
        (
            "nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3-SHARED, nvidia.com/gpu.replicas: '4'",
            "nvidia.com/gpu: '32'",
            8,
        ),
        ("node.kubernetes.io/instance-type: p5.48xlarge", "nvidia.com/gpu: '32'", 8),
        ("nvidia.com/gpu.product: NVIDIA-L4, nvidia.com/gpu.replicas: '10'", "nvidia.com/gpu.shared: '40'", 4),
        ("nvidia.com/gpu.product: NVIDIA-L4, nvidia.com/gpu.count: '2'", "nvidia.com/gpu: '6'", 2),
        ("nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3", "nvidia.com/mig-1g.10gb: '14'", 2),
        (
            "nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3-MIG-1g.10gb, nvidia.com/gpu.count: '56'",
            "nvidia.com/gpu: '56'",
            8,
        ),
        ("nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu: '8'", 8),
    ],
)
def test_the_gpus_of_a_fleet_are_cards_not_replicas_or_instances(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, labels: str, allocatable: str, cards: int
) -> None:
    (tmp_path / "node.yaml").write_text(NODE % (labels, allocatable))
    code, out, _ = run(capfd, "fleet", tmp_path / "node.yaml", "-o", "json")
    assert code == 0
    assert [one["gpus"] for one in json.loads(out)["drivers"]] == [cards]
