"""Command lines that vLLM's parser, or its check of the configuration, refuses: flags, their values, a command twice.

Texts and rules: vllm-project/vllm vllm/config (model.py, parallel.py) and the parser of the server's flags
(:mod:`tonnage.inference.vllm_flags`)."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.health.blocker import CRASHING, Blocker
from tonnage.health.setting import Pods, Setting
from tonnage.inference import vllm_flags
from tonnage.inference.servers import EngineServer

ERROR = "Error"
"""The reason of a container's state that has ended with an exit code other than 0."""
PARALLEL = ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size")


def crash_blocker(
    pods: Pods, rule: str, field: str, message: str, help_: str, said: str, *, some: bool = False
) -> Blocker:
    """The server starts and ends with an error, again and again."""
    return Blocker(rule, CRASHING, pods.ref, pods.where(field), message, help_, ERROR, said, some)


def doubled(setting: Setting, pods: Pods, server: EngineServer) -> Iterator[Blocker]:
    """The server's command among the arguments of an image whose entrypoint is the server already."""
    container = server.container
    if container.command or not container.args or not vllm_flags.is_official(vllm_flags.repository(container.image)):
        return
    if container.args[0] in ("vllm", "serve", "python", "python3"):
        said = f"api_server.py: error: unrecognized arguments: {' '.join(container.args[:2])}"
        message = (
            f"the image starts the server by itself, and {container.args[0]} is an argument to it that it does not have"
        )
        help_ = "put the command into command, or leave it out of args: the model and the flags are enough"
        field = f"containers[{server.index}].args[0]"
        yield crash_blocker(pods, "engine-command-doubled", field, message, help_, said)


def checkpoint_format(setting: Setting, pods: Pods, server: EngineServer) -> Iterator[Blocker]:
    """A format that only a checkpoint can have which was written in it, of a model that was published without."""
    wanted, model, name = server.args.quantization, server.shape, server.args.model or ""
    if wanted is None or model is None or "--quantization" in server.open:
        return
    if name.lower() not in (model.name.lower(), f"{model.name.lower()}-instruct"):
        return  # others publish what they have made of it
    if wanted not in vllm_flags.OF_CHECKPOINTS or model.precision not in ("bf16", "fp16"):
        return
    message = f"--quantization {wanted} is for a checkpoint that has it, and {name} has weights in {model.precision}"
    help_ = f"leave --quantization out, use fp8, or name a model that is published in {wanted.partition('_')[0]}"
    said = f"ValueError: Cannot find the config file for {wanted}"
    yield crash_blocker(pods, "engine-flag-value", server.field("--quantization"), message, help_, said)


def flags(setting: Setting, pods: Pods, server: EngineServer) -> Iterator[Blocker]:
    """Flags that vLLM does not have."""
    if not server.certain:
        return
    for one in server.given():
        if not one.flag:
            continue
        word = server.words[one.at]
        field = f"containers[{server.index}].{word.field}"
        found = vllm_flags.find(one.flag)
        if found is None and one.flag.startswith("--") and not word.is_open:
            near = vllm_flags.near(one.flag)
            newer = server.version is not None and server.version > vllm_flags.VERSIONS[-1]
            yield crash_blocker(
                pods,
                "engine-flag-unknown",
                field,
                f"vLLM has no flag {one.flag}: the server exits at startup",
                f"did you mean {' or '.join(near)}?" if near else f"leave {one.flag} out",
                f"api_server.py: error: unrecognized arguments: {word.text}",
                some=newer and not near,
            )
        elif found is not None and (missing := found.missing(server.version)):
            yield crash_blocker(
                pods,
                "engine-flag-of-another-release",
                field,
                f"{missing}: such a server exits at startup",
                f"leave {one.flag} out, or use an image of a release that has it",
                f"api_server.py: error: unrecognized arguments: {word.text}",
            )


def values(setting: Setting, pods: Pods, server: EngineServer) -> Iterator[Blocker]:
    """Values that the parser refuses."""
    if not server.certain:
        return
    if server.problem is not None:
        flag = server.problem.where.field
        said = f"api_server.py: error: argument {flag}: invalid value: {server.value(flag)!r}"
        yield crash_blocker(
            pods, "engine-flag-value", server.field(flag), server.problem.message, server.problem.hint, said
        )
        return
    for flag in ("--dtype", "--quantization", "--kv-cache-dtype", "--distributed-executor-backend"):
        value, allowed = server.value(flag), vllm_flags.choices(flag)
        if value is None or flag in server.open or value.lower() in allowed or "." in value:
            continue
        near = vllm_flags.near_choice(flag, value)
        yield crash_blocker(
            pods,
            "engine-flag-value",
            server.field(flag),
            f"{flag} has no value {value!r}",
            f"did you mean {' or '.join(near)}?" if near else f"use one of {', '.join(allowed)}",
            f"api_server.py: error: argument {flag}: invalid choice: {value!r}",
        )
    yield from _shapes_of_values(pods, server)
    args, util = server.args, "--gpu-memory-utilization"
    share = args.gpu_memory_utilization
    if share is not None and not 0 < share <= 1:
        yield crash_blocker(
            pods,
            "engine-flag-value",
            server.field(util),
            f"{util} is {share:g}: it is a share of the GPU's memory",
            "expected a share above 0 and up to 1, such as 0.9",
            f"ValueError: GPU memory utilization must be less than 1.0. Got {share}."
            if share > 1
            else f"ValueError: Free memory on device is not more than the desired GPU memory utilization ({share}).",
        )
    counts = (("--block-size", args.block_size), ("--max-num-seqs", args.max_num_seqs))
    for flag, number in (*zip(PARALLEL, sizes(server), strict=True), *counts):
        if number is not None and number < 1:
            message, said = f"{flag} is {number}", f"ValueError: {flag} must be greater than 0, got {number}"
            yield crash_blocker(pods, "engine-flag-value", server.field(flag), message, "expected 1 or more", said)
    seqs, tokens = args.max_num_seqs, args.max_num_batched_tokens
    if seqs is not None and tokens is not None and tokens < seqs:
        yield crash_blocker(
            pods,
            "engine-flag-value",
            server.field("--max-num-batched-tokens"),
            f"--max-num-batched-tokens is {tokens} with --max-num-seqs {seqs}: each sequence needs a token of a batch",
            f"set --max-num-batched-tokens to {seqs} or more",
            f"ValueError: max_num_batched_tokens ({tokens}) must be greater than or equal to max_num_seqs ({seqs}).",
        )


def _shapes_of_values(pods: Pods, server: EngineServer) -> Iterator[Blocker]:
    """Numbers, JSON objects and switches that are written as something else."""
    for one in server.given():
        found, word = vllm_flags.find(one.flag) if one.flag else None, server.words[one.value_at]
        if found is None or found.name in server.open or word.is_open:
            continue
        why, help_ = vllm_flags.refused_value(found, one.flag, one.value, server.version)
        if why:
            said = f"api_server.py: error: argument {found.name}: {why}"
            field = f"containers[{server.index}].{word.field}"
            yield crash_blocker(pods, "engine-flag-value", field, f"{found.name}: {why}", help_, said)
    if server.value("--enable-auto-tool-choice") is not None and not _is_given(server, "--tool-call-parser"):
        said = "TypeError: Error: --enable-auto-tool-choice requires --tool-call-parser"
        message, help_ = (
            "--enable-auto-tool-choice needs a --tool-call-parser",
            "add --tool-call-parser, such as hermes",
        )
        yield crash_blocker(pods, "engine-flag-value", server.field("--enable-auto-tool-choice"), message, help_, said)


def _is_given(server: EngineServer, flag: str) -> bool:
    return flag in server.open or server.value(flag) is not None


def sizes(server: EngineServer) -> tuple[int, int, int]:
    args = server.args
    return args.tensor_parallel_size, args.pipeline_parallel_size, args.data_parallel_size
