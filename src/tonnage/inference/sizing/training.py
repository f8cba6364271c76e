"""Memory of training a model: weights, gradients, optimizer states, activations, under ZeRO and TP.

With mixed-precision Adam a trained parameter takes 2 B (weight), 2 B (gradient) and 12 B (a 32-bit copy and two
moments). ZeRO divides over the data-parallel ranks: stage 1 the optimizer states, stage 2 also gradients, stage 3 also
weights (Rajbhandari et al., ZeRO, 2020). Activations of a layer with flash attention are 34 B for each token and hidden
value, of which TP divides 24; with everything recomputed 2 B, and one layer in full (Korthikanti et al., Reducing
Activation Recomputation, 2022). The logits are kept in 32 bits, with their gradient.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Literal

import msgspec

from tonnage.errors import InputError
from tonnage.inference import memory, tables
from tonnage.inference.memory import MemoryPart, Precision
from tonnage.inference.timing import check_tensor_parallel

if TYPE_CHECKING:
    from tonnage.facts.gpus import Gpu
    from tonnage.facts.models import ModelShape

Method = Literal["full", "lora"]
Optimizer = Literal["adamw", "adamw-8bit", "sgd"]
Recompute = Literal["full", "none"]

_OPTIMIZER_BYTES = {"adamw": 12.0, "adamw-8bit": 4 + 2 * (1 + 4 / 256), "sgd": 4.0}
"""Bytes a trained parameter: a 32-bit copy, and Adam's two moments in 32 bits, or in 8 bits with a 32-bit scale for
each 256 (bitsandbytes; Dettmers et al., 8-bit Optimizers via Block-wise Quantization, 2022)."""
_SIXTEEN = 2
_ACTIVATION, _RECOMPUTED, _SPLIT = 34, 2, 24


class TrainingRecipe(msgspec.Struct, frozen=True):
    """How to train. ``micro_batch`` sequences of ``sequence`` tokens go through at once on each data-parallel rank."""

    method: Method
    stored: Precision
    sequence: int
    micro_batch: int = 1
    optimizer: Optimizer = "adamw"
    zero: int = 0
    data_parallel: int = 1
    tensor_parallel: int = 1
    recompute: Recompute = "full"
    lora_rank: int = 16


class TrainingMemory(msgspec.Struct, frozen=True):
    """One GPU: what the driver shows, and the parts."""

    visible: int
    parts: tuple[MemoryPart, ...]

    @property
    def used(self) -> int:
        """Bytes of all parts."""
        return sum(part.bytes for part in self.parts)

    @property
    def fits(self) -> bool:
        """Whether the parts fit in what the driver shows."""
        return self.used <= self.visible


def optimizer_bytes(optimizer: Optimizer) -> float:
    """Bytes of optimizer state for each trained parameter, the 32-bit copy of a 16-bit weight included."""
    return _OPTIMIZER_BYTES[optimizer]


def training_memory(shape: ModelShape, gpu: Gpu, training: TrainingRecipe) -> TrainingMemory:
    """Memory of each GPU. Raises InputError for a ZeRO stage that does not exist or sizes below 1, and if TP does not
    divide the heads; full training needs weights in 16 or 32 bits."""
    _check(shape, training)
    tp, dp = training.tensor_parallel, training.data_parallel
    lora = training.method == "lora"
    trained = memory.lora_params(shape, training.lora_rank) if lora else shape.params
    frozen = sum(part.bytes for part in memory.weights(shape, training.stored, tp)) if lora else 0
    parts = []
    if lora:
        share = dp if training.zero >= 3 else 1
        text = f"frozen, {training.stored.name}, / TP {tp}" + (f" / DP {dp}" if share > 1 else "")
        parts.append(MemoryPart("weights: base model", ceil(frozen / share), text))
    whole = training.stored.name == "fp32" and not lora
    each = 4 if whole else _SIXTEEN
    states = optimizer_bytes(training.optimizer) - (4 if whole else 0)
    for name, size, stage in (
        ("weights: adapters" if lora else "weights", each, 3),
        ("gradients", each, 2),
        ("optimizer states", states, 1),
    ):
        share = dp if training.zero >= stage else 1
        text = f"{trained:,} parameters x {size:g} B / TP {tp}" + (f" / DP {dp}" if share > 1 else "")
        parts.append(MemoryPart(name, ceil(trained * size / tp / share), text))
    parts += _activations(shape, training)
    known = tables.vllm_memory()
    parts.append(MemoryPart("CUDA context and libraries", int(known["non_torch_bytes"]), "estimate from start-up logs"))
    if tp * dp > 1:
        parts.append(MemoryPart("NCCL buffers", int(known["nccl_bytes"]), "estimate, per GPU with TP or DP"))
    return TrainingMemory(memory.visible_bytes(gpu), tuple(parts))


def _activations(shape: ModelShape, training: TrainingRecipe) -> list[MemoryPart]:
    tokens, tp = training.sequence * training.micro_batch, training.tensor_parallel
    layer = _ACTIVATION - _SPLIT + _SPLIT / tp
    base = f"{training.micro_batch} x {training.sequence:,} tokens x {shape.hidden:,} hidden"
    if training.recompute == "none":
        size = ceil(tokens * shape.hidden * layer * shape.layers)
        text = f"{base} x {layer:g} B x {shape.layers} layers"
    else:
        size = ceil(tokens * shape.hidden * (_RECOMPUTED * shape.layers + layer))
        text = f"{base} x ({_RECOMPUTED} B x {shape.layers} layers + {layer:g} B), recomputed"
    logits = ceil(tokens * shape.vocab * 8 / tp)
    return [
        MemoryPart("activations", size, text),
        MemoryPart(
            "logits and their gradient", logits, f"{tokens:,} tokens x {shape.vocab:,} vocabulary x 8 B / TP {tp}"
        ),
    ]


def _check(shape: ModelShape, training: TrainingRecipe) -> None:
    check_tensor_parallel(shape, training.tensor_parallel)
    if training.zero not in (0, 1, 2, 3):
        raise InputError.at(f"there is no ZeRO stage {training.zero}", field="--zero", hint="use 0, 1, 2 or 3")
    if min(training.sequence, training.micro_batch, training.data_parallel, training.lora_rank) < 1:
        raise InputError.at(
            "sequence, micro batch, data parallel size and LoRA rank are at least 1",
            field="--train",
            hint="use 1 or more",
        )
    if training.method == "full" and training.stored.scope != "all":
        raise InputError.at(
            f"full training of weights in {training.stored.name}",
            field="--precision",
            hint="use bf16 or fp32, or --train lora over a quantized base",
        )


def smallest(shape: ModelShape, gpu: Gpu, training: TrainingRecipe, most: int = 1024) -> tuple[TrainingMemory, int]:
    """(memory, GPUs) of the fewest GPUs that hold it: data-parallel ranks are doubled from one GPU up while ZeRO has
    something to divide. The memory of the last try where even ``most`` GPUs do not."""
    ranks = 1
    while True:
        tried = training_memory(shape, gpu, msgspec.structs.replace(training, data_parallel=ranks))
        count = ranks * training.tensor_parallel
        if tried.fits or count * 2 > most or training.zero == 0:
            return tried, count
        ranks *= 2
