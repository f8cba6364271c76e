"""Options of `tonnage size` that contradict each other or would be ignored, refused with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tonnage.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHAPE = ("active", "layers", "hidden", "heads", "kv_heads", "head_dim", "vocab")
_TRAINING = ("optimizer", "zero", "micro_batch", "recompute")
_SERVING = (
    *("kv_precision", "lora", "inputs", "outputs", "trace", "concurrency", "rate", "ttft", "tpot"),
    *("pipeline_parallel", "system", "utilization", "max_num_seqs", "max_num_batched_tokens", "enforce_eager"),
    *(
        "prices",
        "region",
        "own",
        "life_years",
        "usd_per_kwh",
        "disk",
        "startup_probe",
        "calibrate",
        "prometheus",
        "explain",
        "rule_of_thumb",
        "plot",
    ),
)


def check(model: str | None, given: dict[str, Any]) -> None:
    """Refuse what would be ignored. Raises InputError with one problem for each such option."""
    if model is not None:
        _refuse(_SHAPE, "describes a model that is not known, but one is named", "leave it out, or MODEL")
    if given["train"] is None:
        _refuse(_TRAINING, "is of training", "add --train full or --train lora")
        if not given["lora"]:
            _refuse(("lora_rank",), "is of adapters, and none are held", "add --lora N or --train lora")
    else:
        _refuse(_SERVING, "is of serving, --train sizes for training", f"leave it out, or --train {given['train']}")
        if given["train"] != "lora":
            _refuse(("lora_rank",), "is of adapters, full training has none", "use --train lora")
    seqs, tokens = given["max_num_seqs"], given["max_num_batched_tokens"]
    if seqs is not None and tokens is not None and tokens < seqs:
        raise InputError.at(
            f"{tokens:,} tokens per step for {seqs:,} sequences: vLLM does not start",
            field="--max-num-batched-tokens",
            hint="use at least --max-num-seqs",
        )
    if given["plot"] is not None and given["plot"].suffix.lower() != ".svg":
        raise InputError.at(
            f"{given['plot']}: the drawing is an SVG", field="--plot", hint="name a file that ends in .svg"
        )


def _refuse(names: Iterable[str], why: str, hint: str) -> None:
    context = click.get_current_context()
    options = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    said = [name for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if said:
        listed = ", ".join(options[name] for name in said)
        raise InputError.at(why, field=listed, hint=hint)
