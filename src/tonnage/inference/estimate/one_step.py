"""One step, from a shape and a card: :func:`step_seconds`; its experts alone: :func:`mixture_seconds`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from tonnage.errors import InputError
from tonnage.facts import mig
from tonnage.facts.gpus import Gpu
from tonnage.inference.estimate import constants as tables
from tonnage.inference.estimate.case import figures
from tonnage.inference.estimate.replica import Replica
from tonnage.inference.estimate.step import (
    add_prompt,
    decode_work,
    framework_seconds,
    gpu_seconds,
    launch_seconds,
    mixture_parts,
)

if TYPE_CHECKING:
    from tonnage.facts.models import ModelShape
    from tonnage.inference.estimate.constants import Constants


def step_seconds(
    shape: ModelShape,
    card: Gpu | str,
    *,
    batch: int = 0,
    context: float = 0,
    prompt_tokens: float = 0,
    prompts: int = 1,
    prompt_cached: float = 0,
    precision: str = "bf16",
    kv_precision: str = "bf16",
    tensor_parallel: int = 1,
    data_parallel: int = 1,
    sm_share: float = 1.0,
    bandwidth_share: float = 1.0,
    framework: str = "",
    constants: Constants | None = None,
) -> float:
    """Seconds of one step of ``shape`` on ``card``.

    Decode: ``batch`` sequences compute one token each and attend to ``context`` tokens of the KV cache. Prefill:
    ``prompts`` prompts of ``prompt_tokens`` tokens each, behind ``prompt_cached`` tokens that are in the cache. A step
    may do both. With ``data_parallel`` ranks these are the sequences and prompts of one rank, and all do the same.

    ``shape``: of a table, of a config.json or of :func:`plain_shape`; all of its layers count, and its head if it has
    one. ``card``: a GPU, its name, or a MIG instance (``h100:1g.10gb``); ``sm_share`` and ``bandwidth_share`` cut down
    its arithmetic and its memory bandwidth. ``precision`` and ``kv_precision``: names of data/precisions.csv.
    ``framework``: "" for the GPU's own time, as in a CUDA graph of the layers; "vllm", "sglang" or "tensorrt-llm" adds
    what the engine spends between steps. ``constants``: others than those of data/estimator.csv.

    Formula and sources: :mod:`tonnage.inference.estimate.step`. Measured layers of a real H100 are in
    benchmarks/data/gpu_layers_h100.csv.

    Raises InputError: nothing to compute, a number out of range, TP that does not divide the heads, an unknown card,
    framework or precision.
    """
    _check_step(batch, context, prompt_tokens, prompts, prompt_cached, sm_share, bandwidth_share)
    gpu = card if isinstance(card, Gpu) else mig.resolve(card)[0]
    if (sm_share, bandwidth_share) != (1.0, 1.0):
        gpu = shared(gpu, sm_share, bandwidth_share)
    replica = Replica(
        shape=shape,
        gpu=gpu,
        precision=precision,
        kv_precision=kv_precision,
        tensor_parallel=tensor_parallel,
        data_parallel=data_parallel,
        framework=framework,
    )
    known, fitted = figures(replica), constants or tables.constants()
    work = decode_work(known, float(batch), float(context))
    if prompt_tokens:
        one = add_prompt(known, work._replace(tokens=0.0), float(prompt_tokens), float(prompt_cached))
        work = work._replace(
            tokens=batch + prompts * one.tokens,
            pairs=prompts * one.pairs,
            window_pairs=prompts * one.window_pairs,
            prompt_cached=prompts * one.prompt_cached,
        )
    sequences = batch + (prompts if prompt_tokens else 0)
    launch = launch_seconds(fitted, known) if prompt_tokens else 0.0
    return float(gpu_seconds(fitted, known, work) + framework_seconds(fitted, known, sequences) + launch)


def mixture_seconds(
    shape: ModelShape,
    card: Gpu | str,
    tokens: float,
    *,
    precision: str = "bf16",
    tensor_parallel: int = 1,
    data_parallel: int = 1,
    expert_parallel: bool = False,
    constants: Constants | None = None,
) -> float:
    """Seconds of the mixtures of experts alone in a step of ``tokens`` tokens of each data-parallel rank: routing,
    permutation, grouped matrices and combination, of all layers of ``shape`` that have experts; shared experts, which
    are dense, and communication are not in it. Arguments as in :func:`step_seconds`; ``expert_parallel`` as in
    :class:`~tonnage.inference.estimate.replica.Replica`.

    Measured blocks of a real H200 are in benchmarks/data/gpu_mixtures_h200.csv.

    Raises InputError: no experts, ``tokens`` below 1, and as :func:`step_seconds`.
    """
    if not shape.experts:
        raise InputError.at(f"{shape.name} has no experts", field="shape", hint="give a mixture of experts")
    if not 1 <= tokens < float("inf"):
        raise InputError.at(f"tokens is {tokens}", field="tokens", hint="expected a number of at least 1")
    known = figures(
        Replica(
            shape=shape,
            gpu=card if isinstance(card, Gpu) else mig.resolve(card)[0],
            precision=precision,
            tensor_parallel=tensor_parallel,
            data_parallel=data_parallel,
            framework="",
            expert_parallel=expert_parallel,
        )
    )
    return float(sum(mixture_parts(constants or tables.constants(), known, float(tokens))))


def shared(gpu: Gpu, sm_share: float, bandwidth_share: float) -> Gpu:
    """``gpu`` with a share of its arithmetic and of its memory bandwidth, its memory unchanged."""

    def part(rate: float | None) -> float | None:
        return None if rate is None else rate * sm_share

    return replace(
        gpu,
        bandwidth_bytes_per_s=round(gpu.bandwidth_bytes_per_s * bandwidth_share),
        bf16_flops=gpu.bf16_flops * sm_share,
        fp8_flops=part(gpu.fp8_flops),
        fp4_flops=part(gpu.fp4_flops),
    )


def _check_step(
    batch: float, context: float, prompt_tokens: float, prompts: float, cached: float, sms: float, bandwidth: float
) -> None:
    counts = {"batch": batch, "context": context, "prompt_tokens": prompt_tokens, "prompt_cached": cached}
    for field, value in counts.items():
        if not 0 <= value < float("inf"):
            raise InputError.at(f"{field} is {value}", field=field, hint="expected a number of 0 or more")
    if prompts < 1:
        raise InputError.at(f"prompts is {prompts}", field="prompts", hint="expected a whole number above 0")
    if not batch and not prompt_tokens:
        raise InputError.at(
            "the step computes nothing", field="batch", hint="give batch sequences that decode, prompt_tokens, or both"
        )
    for field, value in {"sm_share": sms, "bandwidth_share": bandwidth}.items():
        if not 0 < value <= 1:
            raise InputError.at(f"{field} is {value}", field=field, hint="expected a share above 0 and up to 1")
