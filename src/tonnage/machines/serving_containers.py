"""What a pod's container serves: an LLM behind vLLM, SGLang or TensorRT-LLM, with the settings of its command line."""

from __future__ import annotations

import re

import msgspec

from tonnage.errors import InputError
from tonnage.facts.models import ModelShape
from tonnage.inference import servers
from tonnage.inference.config import weight_bytes
from tonnage.inference.memory.kinds import engine_kind
from tonnage.inference.servers import UnknownModel, other_servers
from tonnage.inference.servers.other_servers import OtherServer
from tonnage.inference.servers.starting import is_eager
from tonnage.inference.vllm_args import VllmArgs
from tonnage.machines.objects import ModelServer
from tonnage.objects import core

SHUTDOWN = re.compile(r"--shutdown[-_]timeout[= ](\d+)")
NO_PREFIX_CACHING = "--no-enable-prefix-caching"
"""vLLM keeps and shares prefixes unless told otherwise."""
_NONE: servers.Shapes = {}


def server_of(spec: core.PodSpec, shapes: servers.Shapes = _NONE) -> ModelServer | None:
    """The LLM server of a pod; None where it has none, or one with a model of which nothing is known, or with weights
    in host memory: that is any container. One whose model does not exist, or whose command line cannot be read, never
    starts. ``shapes``: of models beside those in the table, by their names."""
    found = servers.find(spec, shapes)
    if found is None:
        return _other_server(other_servers.find(spec, shapes))
    if not found.args.model or found.known is None:
        return None
    args, shape = found.args, found.known
    unknown = isinstance(shape, UnknownModel) and not shape.never
    if not found.problem and (unknown or any(_flag(word.text) in _NOT_SIMULATED for word in found.words)):
        return None
    timeout = SHUTDOWN.search(" ".join(word.text for word in found.words))
    return ModelServer(
        args,
        _weights(args, shape),
        found.args.model,
        int(timeout[1]) if timeout else 0,
        prefix_caching=not any(word.replace("_", "-") == NO_PREFIX_CACHING for word in args.ignored),
        refused=found.problem.message if found.problem else shape.message if isinstance(shape, UnknownModel) else "",
        container=found.index,
        eager=is_eager(found),
        shape=found.shape,
    )


def _other_server(found: OtherServer | None) -> ModelServer | None:
    """The same of a server of SGLang or TensorRT-LLM."""
    if found is None or not found.line.args.model or found.known is None:
        return None
    args, shape, problem = found.line.args, found.known, found.line.problem
    if not problem and isinstance(shape, UnknownModel) and not shape.never:
        return None
    size = args.block_size or engine_kind(found.engine).page_size
    return ModelServer(
        msgspec.structs.replace(args, block_size=size),
        _weights(args, shape),
        args.model or "",
        prefix_caching=not found.line.no_prefix_cache,
        refused=problem.message if problem else shape.message if isinstance(shape, UnknownModel) else "",
        container=found.index,
        shape=shape if isinstance(shape, ModelShape) else None,
    )


_NOT_SIMULATED = ("--cpu-offload-gb", "--cpu-offload-params")


def _flag(word: str) -> str:
    return word.partition("=")[0].replace("_", "-")


def _weights(args: VllmArgs, shape: ModelShape | UnknownModel) -> int:
    """Bytes of the weights; 0 where nothing is known of the model, or of the format."""
    if isinstance(shape, UnknownModel):
        return 0
    try:
        return weight_bytes(shape, args.dtype, args.quantization)
    except InputError:
        return 0
