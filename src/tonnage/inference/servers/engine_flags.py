"""The command lines of SGLang's and TensorRT-LLM's servers, as the settings that Tonnage has of an engine.

Flags: data/engine_flags.csv (sgl-project/sglang srt/server_args.py; NVIDIA/TensorRT-LLM commands/serve.py). ``field``
is the setting that a flag is; ``nothing`` for one that changes neither memory nor speed; empty for one that does and
is not read. SGLang has more flags than the table: one that is not there is unknown here, no mistake."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import msgspec
from msgspec import Struct

from tonnage.errors import InputError, Problem
from tonnage.inference import tables
from tonnage.inference.vllm_args import VllmArgs

_NUMBERS = {
    "tensor_parallel_size": int,
    "pipeline_parallel_size": int,
    "data_parallel_size": int,
    "max_num_batched_tokens": int,
    "max_num_seqs": int,
    "max_model_len": int,
    "block_size": int,
    "kv_tokens": int,
    "gpu_memory_utilization": float,
}
_NOTHING = "nothing"
_SAME = {"auto": "auto", "bfloat16": "bfloat16", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "fp8": "fp8"}
"""Values of --kv-cache-dtype in vLLM's words."""


class EngineFlag(Struct, frozen=True):
    """``kind``: ``value`` takes one word, ``list`` one or more, ``switch`` none."""

    flag: str
    kind: str
    field: str


class Line(Struct, frozen=True):
    """``args``: the settings, ``unread``: flags that matter and are not read, ``unknown``: flags that the table does
    not have, each as written and with its word's number. ``no_prefix_cache``, ``mixed_steps`` and ``kv_tokens`` (0: not
    limited) are SGLang's. ``problem``: the first value that cannot be read; then ``args`` is without it."""

    args: VllmArgs
    unread: tuple[tuple[str, int], ...] = ()
    unknown: tuple[tuple[str, int], ...] = ()
    no_prefix_cache: bool = False
    problem: Problem | None = None


@cache
def flags(engine: str) -> dict[str, EngineFlag]:
    """Every flag of an engine by each of its names."""
    found = {}
    for row in tables.rows("engine_flags.csv"):
        if row["engine"] == engine:
            flag = EngineFlag(row["flag"], row["kind"], row["field"])
            for name in (row["flag"], *row["also"].split()):
                found[name] = flag
    return found


def read(engine: str, words: Sequence[str]) -> Line:
    """The settings of a command line, its program left out: ``--flag value``, ``--flag=value``, underscores for
    hyphens; the last of a flag counts. A word without a flag is the model."""
    values: dict[str, object] = {"engine": engine}
    unread: list[tuple[str, int]] = []
    unknown: list[tuple[str, int]] = []
    problem: Problem | None = None
    for name, flag, value, at in _given(engine, words):
        if not name:
            values["model"] = value
        elif flag is None:
            unknown.append((name, at))
        elif not flag.field:
            unread.append((name, at))
        elif flag.field != _NOTHING:
            try:
                values[flag.field] = True if flag.kind == "switch" else _value(flag, value)
            except ValueError as error:
                hint = f"expected {error}"
                problem = problem or InputError.at(f"{flag.flag} has the value {value!r}", hint=hint).problems[0]
    off = bool(values.pop("no_prefix_cache", False))
    return Line(msgspec.convert(values, VllmArgs), tuple(unread), tuple(unknown), off, problem)


def _value(flag: EngineFlag, value: str) -> object:
    if flag.field == "kv_cache_dtype":
        if value not in _SAME:
            raise ValueError(" or ".join(_SAME))
        return _SAME[value]
    kind = _NUMBERS.get(flag.field)
    if kind is None:
        return value
    try:
        number = kind(value)
    except ValueError:
        raise ValueError("a number" if kind is float else "a whole number") from None
    if flag.field == "max_num_batched_tokens" and number == -1:
        return None  # chunks are off: the engine's own limit
    if not number > 0:
        raise ValueError("more than 0")
    return number


def _given(engine: str, words: Sequence[str]) -> Iterator[tuple[str, EngineFlag | None, str, int]]:
    """(flag as written, what is known of it, its value, number of its word)."""
    known, at = flags(engine), 0
    while at < len(words):
        word, here = words[at], at
        at += 1
        if not word.startswith("-"):
            yield "", None, word, here
            continue
        name, equals, value = word.partition("=")
        flag = known.get(name.replace("_", "-"))
        if (
            not equals
            and (flag is None or flag.kind != "switch")
            and at < len(words)
            and not words[at].startswith("--")
        ):
            value = words[at]
            at += 1
            while flag is not None and flag.kind == "list" and at < len(words) and not words[at].startswith("-"):
                at += 1
        yield name, flag, value, here
