"""Which container is a vLLM server, what its command line says, which flags vLLM has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tonnage.inference import servers, vllm_flags
from tonnage.inference.servers import EngineServer, UnknownModel
from tonnage.objects import core, load
from tonnage.objects.base import where

OFFICIAL = "vllm/vllm-openai:v0.11.0"


def pod(*containers: dict[str, Any]) -> core.PodSpec:
    """A pod with these containers."""
    named = [{"name": f"c{index}", **one} for index, one in enumerate(containers)]
    return msgspec.convert({"containers": named}, core.PodSpec)


def only(**container: Any) -> EngineServer:
    """The server in a pod of one container."""
    found = servers.find(pod(container))
    assert found is not None
    return found


@pytest.mark.parametrize(
    "container",
    [
        {"image": OFFICIAL, "args": ["--model=Qwen/Qwen3-8B", "--tensor_parallel_size", "2"]},
        {"image": OFFICIAL, "args": ["Qwen/Qwen3-8B", "-tp", "2"]},
        {"image": "mirror.local/hub/vllm/vllm-openai@sha256:aa", "args": ["--model", "Qwen/Qwen3-8B", "-tp=2"]},
        {"image": "llm-d/cuda", "command": ["vllm", "serve"], "args": ["Qwen/Qwen3-8B", "--tensor-parallel", "2"]},
        {"image": "x", "command": ["/opt/bin/vllm", "serve", "Qwen/Qwen3-8B", "-tp", "2"]},
        {
            "image": "x",
            "command": ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "Qwen/Qwen3-8B", "-tp", "2"],
        },
        {"image": "x", "command": ["tini", "--", "vllm", "serve", "Qwen/Qwen3-8B", "-tp", "2"]},
        {"image": "x", "command": ["bash", "-lc", "ulimit -n 9 && exec vllm serve 'Qwen/Qwen3-8B' -tp 2 | tee /log"]},
        {"image": "x", "command": ["sh", "-c"], "args": ["set -e\nvllm serve Qwen/Qwen3-8B \\\n  -tp ${N:-2}\n"]},
        {
            "image": "x",
            "command": ["sh", "-c", "vllm serve $MODEL -tp $(N)"],
            "env": [{"name": "MODEL", "value": "Qwen/$(NAME)"}, {"name": "N", "value": "2"}],
        },
    ],
)
def test_a_server_is_recognised_however_it_is_started(container: dict[str, Any]) -> None:
    found = only(**container)
    assert found.certain
    assert found.args.tensor_parallel_size == 2
    assert found.args.model in ("Qwen/Qwen3-8B", "Qwen/$(NAME)", None)
    assert (found.args.model is None) == ("--model" in found.open)


@pytest.mark.parametrize(
    "container",
    [
        {"image": "nginx", "args": ["-c", "x"]},
        {"image": OFFICIAL, "command": ["sleep", "infinity"]},
        {"image": OFFICIAL, "command": ["sh", "-c"], "args": ["ray start --address=$(HEAD) --block"]},
        {"image": "lmcache/vllm-router", "args": ["--port", "80"]},
        {"image": "x", "command": ["sh", "-c", "vllm serve 'unfinished"]},
        {"image": "curl", "command": ["sh", "-c", "echo vllm is there"]},
    ],
)
def test_what_only_looks_like_one_is_none(container: dict[str, Any]) -> None:
    assert servers.find(pod(container)) is None


def test_the_server_may_be_any_container_and_knows_where_its_flags_stand() -> None:
    args = ["--model", "Qwen/Qwen3-8B", "--max-model-len", "8k", "--lora-modules", "a=b", "c=d", "--max-model-len=9k"]
    found = servers.find(pod({"image": "fluent-bit"}, {"image": OFFICIAL, "args": args}))
    assert found is not None
    assert (found.index, found.args.max_model_len, found.args.model) == (1, 9000, "Qwen/Qwen3-8B")
    assert found.field("--max-model-len") == "containers[1].args[7]"
    assert found.field("--model") == "containers[1].args[1]"
    assert found.field("--dtype") == "containers[1].args"


SCRIPT = """\
set -eu
# the server
exec vllm serve Qwen/Qwen3-8B \\
  --max-model-len 8192 \\
  --dtype $DTYPE
"""


def test_a_flag_of_a_script_stands_on_its_own_line() -> None:
    found = only(image="x", command=["bash", "-c"], args=[SCRIPT])
    assert found.field("--max-model-len") == "containers[0].args[0]@3"
    assert found.field("--dtype") == "containers[0].args[0]@4"
    one_line = only(image="x", command=["bash", "-c", "vllm serve Qwen/Qwen3-8B --dtype half"])
    assert one_line.field("--dtype") == "containers[0].command[2]"


@pytest.mark.parametrize(("style", "line"), [("|", 13), ("|-", 13), (">", 10)])
def test_a_flag_of_a_script_is_told_at_its_line_where_its_lines_are_those_of_the_file(
    style: str, line: int, tmp_path: Path
) -> None:
    script = "".join(f"      {text}\n" for text in SCRIPT.splitlines())
    (tmp_path / "pod.yaml").write_text(f"""\
apiVersion: v1
kind: Pod
metadata: {{name: p}}
spec:
  containers:
  - name: c
    image: x
    command: [bash, -c]
    args:
    - {style}
{script}""")
    (read,) = load.read([tmp_path / "pod.yaml"]).objects
    at = where(read, "spec.containers[0].args[0]@2")
    assert (at.line, at.field) == (line, "spec.containers[0].args[0]")


def test_values_from_elsewhere_are_open_and_left_out() -> None:
    env = [core.EnvVar(name="L"), core.EnvVar(name="TP")]
    found = only(image=OFFICIAL, args=["--model=Qwen/Qwen3-8B", "--max-model-len=$(L)", "-tp", "$(TP)"], env=env)
    assert found.open == {"--max-model-len", "--tensor-parallel-size"}
    assert (found.args.max_model_len, found.args.tensor_parallel_size) == (None, 1)


def test_what_nothing_is_put_into_stays_as_it_is_written() -> None:
    for text in ("$(L)", "$L", "${L}"):
        found = only(image=OFFICIAL, args=["--model=Qwen/Qwen3-8B", f"--max-model-len={text}"])
        assert not found.open
        assert found.problem is not None and text in found.problem.message
    anywhere = [core.EnvVar(name="*")]  # some variables come from an object that is not here
    assert only(image=OFFICIAL, args=["--model=Qwen/Qwen3-8B", "--max-model-len=$(L)"], env=anywhere).open


def test_a_value_that_cannot_be_read_is_told_and_the_rest_is_read() -> None:
    found = only(image=OFFICIAL, args=["--model=Qwen/Qwen3-8B", "--max-model-len=8,192", "-pp", "2"])
    assert found.problem is not None
    assert "8,192" in found.problem.message
    assert found.args.pipeline_parallel_size == 2
    assert found.args.gpus == 2


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "int4"),
        ("Qwen/Qwen3-8B-FP8", "fp8"),
        ("RedHatAI/Qwen2.5-7B-Instruct-quantized.w8a8", "int8"),
        ("nvidia/Llama-3.1-8B-Instruct-FP4", "fp4"),
        ("unsloth/Llama-3.1-8B-Instruct-bnb-4bit", "nf4"),
        ("/models/Qwen3-8B/", "bf16"),
    ],
)
def test_a_model_is_known_by_the_name_of_its_quantized_form(name: str, precision: str) -> None:
    found = servers.shape_of(name)
    assert not isinstance(found, UnknownModel)
    assert found.precision == precision


def test_of_a_model_that_is_not_known_near_names_are_told() -> None:
    found = servers.shape_of("Qwen/Qwen2.5-7B-Instrct")
    assert isinstance(found, UnknownModel)
    assert found.near[0] == "Qwen/Qwen2.5-7B-Instruct"
    assert not found.local
    assert isinstance(there := servers.shape_of("/models/house"), UnknownModel)
    assert there.local


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("--max_model_len", "--max-model-len"),
        ("--max-model", "--max-model-len"),
        ("-tp", "--tensor-parallel-size"),
        ("-O3", "--compilation-config"),
        ("--no-enable-prefix-caching", "--enable-prefix-caching"),
        ("--kv-transfer-config.kv_role", "--kv-transfer-config"),
    ],
)
def test_a_flag_is_found_as_the_parser_finds_it(written: str, name: str) -> None:
    found = vllm_flags.find(written)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("written", ["--max-model-length", "--no-max-model-len", "--mem-fraction-static", "-zz"])
def test_other_flags_do_not_exist(written: str) -> None:
    assert vllm_flags.find(written) is None


def test_releases_have_the_flags_that_their_parsers_had() -> None:
    known = vllm_flags.flags()
    assert "yet" in known["--shutdown-timeout"].missing((0, 11, 0))
    assert "any more" in known["--swap-space"].missing((0, 33, 0))
    assert not known["--swap-space"].missing((0, 11, 0))
    assert not known["--shutdown-timeout"].missing((0, 18, 0))  # between two releases that were read: not known
    assert vllm_flags.version_of("mirror/vllm/vllm-openai:v0.6.6.post1") == (0, 6, 6)
    assert vllm_flags.version_of("vllm/vllm-openai:latest") is None
