"""`tonnage size MANIFEST`: the model and the engine's settings as a Deployment, or another workload, has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tonnage.cli.cluster import given as files_of
from tonnage.cli.piped import FILE, STDIN
from tonnage.errors import InputError, Problem
from tonnage.facts.labels import GPU_PRODUCT

if TYPE_CHECKING:
    from tonnage.facts.models import ModelShape
    from tonnage.inference.servers import UnknownModel
    from tonnage.inference.vllm_args import VllmArgs
    from tonnage.objects import core
    from tonnage.objects.load import Manifest

_SUFFIXES = (".yaml", ".yml")
_EAGER = "--enforce-eager"


def is_manifest(model: str) -> bool:
    """Whether MODEL names manifests: a YAML file, a folder that has no config.json, or standard input."""
    path = Path(model)
    if path == STDIN or model.endswith(_SUFFIXES):
        return True
    return path.is_dir() and not (path / "config.json").exists()


def fill(model: str, workload: str | None, given: dict[str, Any]) -> tuple[ModelShape, tuple[str, ...]]:
    """The model that the manifests serve, or with an empty name the cluster that ``given`` has, and what is taken from
    there: options that are not on the command line are set in ``given`` as the workload has them. Raises InputError
    where there is no such workload, or more than one."""
    from tonnage.facts.models import ModelShape
    from tonnage.objects import load

    cluster = (given["kube_context"], given["kubeconfig"], given["namespace"])
    named = FILE.convert(model, None, click.get_current_context()) if model else None
    manifest = load.read(files_of([named]) if named is not None else files_of([], *cluster))
    model = model or "the cluster"
    found = list(_engines(manifest))
    asked = workload.lower() if workload else None
    wanted = [one for one in found if asked in (None, one[0].lower(), one[0].partition("/")[2].lower())]
    names = ", ".join(dict.fromkeys(name for name, *_ in found))
    if not wanted:
        hint = f"there are {names}" if found else "expected a workload that runs vLLM, SGLang or TensorRT-LLM"
        raise InputError.at(f"no engine{f' of {workload}' if workload else ''}", file=model, hint=hint)
    if len({name for name, *_ in wanted}) > 1:
        raise InputError.at(f"several workloads have engines: {names}", file=model, hint="name one with --workload")
    name, args, known, spec, eager, problem = wanted[0]
    if problem is not None:
        raise InputError.at(f"{name}: {problem.message}", file=model, field=problem.where.field, hint=problem.hint)
    if not isinstance(known, ModelShape):
        hint = known.hint if known is not None else "name the model with --model"
        raise InputError.at(known.message if known is not None else f"{name} names no model", file=model, hint=hint)
    taken = [f"{option} {value}" for option, value in _set(args, spec, eager, given)]
    if args.pipeline_layers and (given["pipeline_parallel"] or 1) == args.pipeline_parallel_size:
        given["pipeline_layers"] = _stages(known, args, model)
        taken.append(f"layers of stages {','.join(map(str, args.pipeline_layers))}")
    return known, (f"{name}: {', '.join((known.name, *taken))}",)


def _stages(shape: ModelShape, args: VllmArgs, file: str) -> tuple[int, ...]:
    """Layers of each pipeline stage. Raises InputError where they are not those of the model and its stages."""
    from tonnage.inference.config import stages
    from tonnage.inference.memory import kinds
    from tonnage.inference.servers import PARTITION, other_servers

    variable = PARTITION if args.engine == kinds.VLLM else other_servers.PARTITION
    try:
        return tuple(stages(shape, args.pipeline_parallel_size, args.pipeline_layers, variable))
    except InputError as error:
        problem = error.problems[0]
        raise InputError.at(problem.message, file=file, field=variable, hint=problem.hint) from None


def _engines(
    manifest: Manifest,
) -> Iterator[tuple[str, VllmArgs, ModelShape | UnknownModel | None, core.PodSpec, bool, Problem | None]]:
    """(kind/name, settings, model, pod, without CUDA graphs, the first setting that cannot be read) of each workload
    with an engine."""
    from tonnage.inference import servers
    from tonnage.inference.servers import other_servers
    from tonnage.objects.apps import is_owned
    from tonnage.objects.templates import templates

    for one in manifest.objects:
        for template in () if is_owned(one) else templates(one):
            name = f"{one.kind}/{one.metadata.name}"
            vllm = servers.find(template.spec, manifest.models)
            if vllm is not None:
                eager = any(word.text == _EAGER for word in vllm.words)
                yield name, vllm.args, vllm.known, template.spec, eager, vllm.problem
                continue
            other = other_servers.find(template.spec, manifest.models)
            if other is not None:
                yield name, other.line.args, other.known, template.spec, False, other.line.problem


def _set(args: VllmArgs, spec: core.PodSpec, eager: bool, given: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """Set what the command line leaves open, and say what."""
    from tonnage.facts import gpus
    from tonnage.inference.memory import kinds

    product = spec.node_selector.get(GPU_PRODUCT, "")
    gpu = ""
    if product:
        try:
            gpu = gpus.get(product).name
        except InputError:
            gpu = ""  # a label of a GPU without facts: all of EC2's are tried, as without one
    context = click.get_current_context()
    pp = args.pipeline_parallel_size
    values = (
        ("system", "--system", args.engine if args.engine != kinds.VLLM else None),
        ("tensor_parallel", "--tensor-parallel", args.tensor_parallel_size),
        ("pipeline_parallel", "--pipeline-parallel", pp if pp > 1 else None),
        ("context", "--context", args.max_model_len if (args.max_model_len or 0) > 0 else None),
        ("utilization", "--utilization", args.gpu_memory_utilization),
        ("max_num_seqs", "--max-num-seqs", args.max_num_seqs),
        ("max_num_batched_tokens", "--max-num-batched-tokens", args.max_num_batched_tokens),
        ("precision", "--precision", args.quantization),
        ("kv_precision", "--kv-precision", args.kv_cache_dtype if args.kv_cache_dtype.startswith("fp8") else None),
        ("enforce_eager", "--enforce-eager", eager or None),
        ("gpu_names", "--gpu", (gpu,) if gpu else None),
    )  # fmt: skip
    for field, option, value in values:
        if value is not None and context.get_parameter_source(field) is not ParameterSource.COMMANDLINE:
            given[field] = value
            yield option, value[0] if isinstance(value, tuple) else "" if value is True else value
