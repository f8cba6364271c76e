"""SGLang and TensorRT-LLM containers behind a Service are engines of a run, and flags that are not followed are told."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tonnage.health.other_engines import too_few_gpus
from tonnage.health.setting import Pods
from tonnage.objects.templates import templates
from tonnage.simulation import scenario
from tonnage.simulation.result import Result
from tonnage.simulation.run import run
from workload_manifests import objects

EXAMPLE = Path(__file__).parents[2] / "examples" / "kv-routing"
SGLANG = """image: lmsysorg/sglang:v0.5.5-cu128
          command: [python3, -m, sglang.launch_server]
          args: [--model-path=meta-llama/Llama-3.1-8B-Instruct, --context-length=16384{}]
"""
TRTLLM = """image: nvcr.io/nvidia/tensorrt-llm/release:1.0.0
          command: [trtllm-serve, meta-llama/Llama-3.1-8B-Instruct]
          args: [--max_seq_len, "16384"{}]
"""


def played(folder: Path, container: str, more: str = "") -> Result:
    shutil.copytree(EXAMPLE, folder / "kv-routing")
    shutil.copytree(EXAMPLE.parent / "traffic-surge", folder / "traffic-surge")
    file = folder / "kv-routing" / "manifests" / "chat.yaml"
    text = re.sub(r"image: vllm.*?(?=          ports:)", container.format(more), file.read_text(), flags=re.DOTALL)
    file.write_text(text)
    main = folder / "kv-routing" / "scenario.yaml"
    main.write_text(main.read_text().replace("duration: 15m", "duration: 1m"))
    return run(scenario.load(main), policy="least-requests")


@pytest.mark.parametrize(
    ("container", "more", "flags"),
    [
        (SGLANG, "", []),
        (
            SGLANG,
            ", --schedule-conservativeness=0.8, --no-such-flag",
            ["--schedule-conservativeness", "--no-such-flag"],
        ),
        (TRTLLM, ', --max_batch_size, "64", --backend, pytorch', ["--backend"]),
    ],
)
def test_requests_are_answered_and_flags_that_are_not_followed_are_findings(
    tmp_path: Path, container: str, more: str, flags: list[str]
) -> None:
    result = played(tmp_path, container, more)
    (service,) = result.services
    assert service.overall.requests > 100
    assert service.overall.met > 0.6 * service.overall.requests
    told = [one for one in result.findings if one.rule == "engine-flag-unread"]
    assert [flag for one in told for flag in flags if flag in one.message.split()] == flags
    assert len(told) == len(flags)
    assert all(one.where.field.startswith("spec.template.spec.containers[0].args[") for one in told)


def test_a_flag_of_the_engine_changes_its_times(tmp_path: Path) -> None:
    (apart,) = played(tmp_path / "apart", SGLANG).services
    (mixed,) = played(tmp_path / "mixed", SGLANG, ", --enable-mixed-chunk").services
    assert apart.tpot_ms.p99 != mixed.tpot_ms.p99
    assert apart.prompt_tokens > 0


def test_an_engine_that_its_gpu_cannot_hold_does_not_start(tmp_path: Path) -> None:
    (service,) = played(tmp_path, SGLANG, ", --mem-fraction-static=0.2").services
    assert (service.overall.met, service.generated_tokens) == (0, 0)


@pytest.mark.parametrize(
    ("command", "arguments", "gpus", "needed"),
    [
        ("python3 -m sglang.launch_server", "--model-path=m/m --tp 2", 1, 2),
        ("sglang serve", "--model-path=m/m --tp-size=2 --dp 2", 2, 4),
        ("sglang serve", "--model-path=m/m --tp=8 --dp=4 --enable-dp-attention", 8, None),
        ("sglang serve", "--model-path=m/m --tp=16 --nnodes=2 --node-rank=0", 8, None),
        ("trtllm-serve", "m/m --tp_size 2 --pp_size 2", 2, 4),
        ("trtllm-serve", "m/m --tp_size 2", 2, None),
        ("trtllm-llmapi-launch trtllm-serve", "m/m --tp_size 16", 8, None),
        ("trtllm-serve", "m/m --tp_size 2", 0, None),
    ],
)
def test_more_ranks_than_gpus_are_a_finding(command: str, arguments: str, gpus: int, needed: int | None) -> None:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    main = {
        "name": "c",
        "image": "x",
        "command": command.split(),
        "args": arguments.split(),
        "resources": {"limits": limits},
    }
    (made,) = objects(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}} | pod_of(main)))
    pods = Pods(made, next(templates(made)))
    found = list(too_few_gpus([pods]))
    assert [one.rule for one in found] == ["gpus-below-parallelism"] * (needed is not None)
    assert all(f"needs {needed} GPUs" in one.message and f"has {gpus}:" in one.message for one in found)
    assert all(one.where.field == "spec.containers[0].resources.limits.nvidia.com/gpu" for one in found)


def pod_of(container: dict[str, object]) -> dict[str, object]:
    return {"spec": {"containers": [container]}}
