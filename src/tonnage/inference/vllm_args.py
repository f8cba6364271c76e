"""The command line of a vLLM server, as found in a container's command and args."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from tonnage.errors import InputError
from tonnage.inference import vllm_flags

AUTO_MODEL_LEN = -1
"""``--max-model-len auto``: the longest context that the KV cache can hold."""


class VllmArgs(msgspec.Struct, frozen=True):
    """What Tonnage reads of a vLLM command line; None where a flag is absent. ``ignored`` is the rest.

    ``pipeline_layers``: layers of each pipeline stage, of the variable VLLM_PP_LAYER_PARTITION; empty: vLLM deals them
    out. ``engine``: the kind of engine (:mod:`tonnage.inference.memory.kinds`): SGLang and TensorRT-LLM have settings
    of the same meaning under other names. ``kv_tokens``: the most in the KV cache, and ``mixed_steps``: of SGLang
    alone."""

    model: str | None = None
    served_model_name: str | None = None
    tensor_parallel_size: int = 1
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    gpu_memory_utilization: float | None = None
    max_model_len: int | None = None
    block_size: int | None = None
    dtype: str = "auto"
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    disable_hybrid_kv_cache_manager: bool = False
    ignored: tuple[str, ...] = ()
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    context_extended: bool = False
    pipeline_layers: tuple[int, ...] = ()
    engine: str = "vllm"
    kv_tokens: int | None = None
    mixed_steps: bool = False

    @property
    def gpus(self) -> int:
        """How many GPUs the server uses: those of TP × PP × DP."""
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.data_parallel_size


class GivenFlag(NamedTuple):
    """A flag as it was written, without ``=``; empty for a word that belongs to none. ``value``: None where it has
    none. ``at``, ``value_at``: the words (by index) that it and its value stand in."""

    flag: str
    value: str | None
    at: int
    value_at: int


def parse_vllm_args(args: Sequence[str]) -> VllmArgs:
    """Read ``--flag value`` and ``--flag=value`` (underscores for hyphens are fine; the last one of a flag
    wins).

    A leading ``vllm serve`` or ``python -m vllm.entrypoints…`` is skipped; a word that belongs to no flag is
    the model. An unknown flag is listed in ``ignored`` together with the word after it, unless it is known to
    take none. ``context_extended``: flags change how far the model's context goes. Raises InputError for a value that
    cannot be read.
    """
    values: dict[str, str | int | float | bool] = {}
    ignored: list[str] = []
    for flag, value, at, value_at in given(words := _without_program(args)):
        name = known.name if (known := vllm_flags.find(flag)) is not None else flag.replace("_", "-")
        if not flag:
            values["model"] = value or ""
        elif flag.replace("_", "-") in _BOOLEANS and value is None:
            field, meant = _BOOLEANS[flag.replace("_", "-")]
            values[field] = meant
        elif name in _FLAGS:
            values[name[2:].replace("-", "_")] = _convert(name, value or "")
        else:
            ignored.append(words[at] if value_at == at else f"{words[at]} {value}")
            if name in _EXTENDS_CONTEXT:
                values["context_extended"] = True
    return msgspec.convert({**values, "ignored": tuple(ignored)}, VllmArgs)


def given(words: Sequence[str]) -> Iterator[GivenFlag]:
    """The flags and the other words of a command line, the program left out. Further words of a flag that takes several
    are passed over."""
    index = 0
    while index < len(words):
        at = index
        word = words[at]
        index += 1
        if not word.startswith("-"):
            yield GivenFlag("", word, at, at)
            continue
        flag, equals, value = word.partition("=")
        known = vllm_flags.find(flag)
        end = index == len(words)
        bare = end or words[index].startswith("--") or (known is not None and known.bare)
        if known is not None and known.bare and not end and words[index].lower() in ("true", "false"):
            bare = False
        if equals:
            yield GivenFlag(flag, value, at, at)
        elif bare:
            yield GivenFlag(flag, None, at, at)
        else:
            yield GivenFlag(flag, words[index], at, index)
            index += 1
        if known is not None and known.kind == "list":
            while index < len(words) and not words[index].startswith("-"):
                index += 1


def _without_program(args: Sequence[str]) -> list[str]:
    words = list(args)
    if "serve" in words[:2]:
        return words[words.index("serve") + 1 :]
    if "-m" in words[:3]:
        return words[words.index("-m") + 2 :]
    return words


def _convert(flag: str, value: str) -> str | int | float:
    try:
        return _FLAGS[flag](value)
    except ValueError:
        kind = "a number" if _FLAGS[flag] is float else "an integer, or one like 32k (32,000) or 32K (32,768)"
        raise InputError.at(f"{flag} has the value {value!r}", field=flag, hint=f"expected {kind}") from None


def _count(value: str) -> int:
    """vLLM's human-readable integers: decimal suffixes in lower case, binary ones in upper case."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgtKMGT])", value)
    if match is None:
        return int(value)
    digits, suffix = str(match[1]), str(match[2])
    power = "kmgt".index(suffix.lower()) + 1
    scale: int = (1000 if suffix.islower() else 1024) ** power
    return round(float(digits) * scale) if suffix.islower() else int(digits) * scale


def _model_len(value: str) -> int:
    return AUTO_MODEL_LEN if value == "auto" else _count(value)


def _name(value: str) -> str:
    if not value:
        raise ValueError("empty")
    return value


_FLAGS: dict[str, Callable[[str], str | int | float]] = {
    "--model": _name,
    "--served-model-name": _name,
    "--tensor-parallel-size": int,
    "--pipeline-parallel-size": int,
    "--data-parallel-size": int,
    "--max-num-batched-tokens": _count,
    "--max-num-seqs": int,
    "--gpu-memory-utilization": float,
    "--max-model-len": _model_len,
    "--block-size": int,
    "--dtype": _name,
    "--quantization": _name,
    "--kv-cache-dtype": _name,
}
_BOOLEANS = {
    "--disable-hybrid-kv-cache-manager": ("disable_hybrid_kv_cache_manager", True),
    "--no-disable-hybrid-kv-cache-manager": ("disable_hybrid_kv_cache_manager", False),
}
_EXTENDS_CONTEXT = ("--hf-overrides", "--rope-scaling", "--rope-theta", "--hf-config-path")
"""Flags that change how long a context the model is taken to have."""
