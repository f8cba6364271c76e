"""The command line of a vLLM server, as found in a container's command and args."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from tonnage.errors import InputError

AUTO_MODEL_LEN = -1
"""``--max-model-len auto``: the longest context that the KV cache can hold."""


class VllmArgs(msgspec.Struct, frozen=True):
    """What Tonnage reads of a vLLM command line; None where a flag is absent. ``ignored`` is the rest."""

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


def parse_vllm_args(args: Sequence[str]) -> VllmArgs:
    """Read ``--flag value`` and ``--flag=value`` (underscores for hyphens are fine; the last one of a flag
    wins).

    A leading ``vllm serve`` or ``python -m vllm.entrypoints…`` is skipped; a word that belongs to no flag is
    the model. An unknown flag is listed in ``ignored`` together with the word after it, unless it is known to
    take none. Raises InputError for a value that cannot be read.
    """
    words = _without_program(args)
    values: dict[str, str | int | float | bool] = {}
    ignored: list[str] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not word.startswith("-"):
            values["model"] = word
            continue
        flag, equals, value = word.partition("=")
        flag = _ALIASES.get(flag, flag).replace("_", "-")
        if flag in _BOOLEANS and not equals:
            name, meant = _BOOLEANS[flag]
            values[name] = meant
            continue
        bare = flag in _SWITCHES or index == len(words) or words[index].startswith("--")
        if not equals and not bare:
            value = words[index]
            index += 1
        if flag in _FLAGS:
            values[flag[2:].replace("-", "_")] = _convert(flag, value)
        else:
            ignored.append(word if equals or bare else f"{word} {value}")
    return msgspec.convert({**values, "ignored": tuple(ignored)}, VllmArgs)


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
_ALIASES = {"-tp": "--tensor-parallel-size", "-q": "--quantization"}
_SWITCHES = {
    "--trust-remote-code",
    "--enforce-eager",
    "--enable-prefix-caching",
    "--no-enable-prefix-caching",
    "--enable-chunked-prefill",
    "--no-enable-chunked-prefill",
    "--enable-auto-tool-choice",
    "--enable-lora",
    "--enable-expert-parallel",
    "--disable-log-stats",
    "--disable-log-requests",
    "--enable-log-requests",
    "--async-scheduling",
    "--enable-sleep-mode",
}
