"""Options of `tonnage size` that contradict each other or would be ignored, refused with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tonnage.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tonnage.facts.models import ModelShape

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
_OFF = 10
"""How many times a count of parameters may be away from what the layers of a usual model have."""
_USUAL = 12
"""Parameters of a layer over the square of its hidden size: 4 of attention and 8 of the FFN (Vaswani et al., 2017)."""


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


def plausible(shape: ModelShape) -> None:
    """Refuse a number of parameters that the layers of ``shape`` cannot have. Raises InputError."""
    heads = shape.layers * 2 * shape.hidden * shape.head_dim * (shape.heads + shape.kv_heads)
    if heads > shape.params:
        raise InputError.at(
            f"{shape.params:,} parameters, but attention alone of {shape.layers:,} layers has {heads:,}",
            field="--params",
            hint="check --layers, --hidden and --heads",
        )
    used = shape.active_params - 2 * shape.vocab * shape.hidden
    usual = _USUAL * shape.layers * shape.hidden**2
    if used > _OFF * usual:
        raise InputError.at(
            f"{shape.active_params:,} parameters per token, but {shape.layers:,} layers of hidden size "
            f"{shape.hidden:,} have about {usual:,}",
            field="--params",
            hint="check --layers and --hidden, and give --active of a mixture of experts",
        )


def _refuse(names: Iterable[str], why: str, hint: str) -> None:
    context = click.get_current_context()
    options = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    said = [name for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if said:
        listed = ", ".join(options[name] for name in said)
        raise InputError.at(why, field=listed, hint=hint)
