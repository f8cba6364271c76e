"""What an estimate is of: one engine on its GPUs."""

from __future__ import annotations

import msgspec

from tonnage.facts.gpus import Gpu
from tonnage.facts.models import ModelShape


class Replica(msgspec.Struct, frozen=True):
    """One engine: ``shape`` on ``gpu``, the weights in ``precision``, the KV cache in ``kv_precision`` (both by the
    names of data/precisions.csv).

    ``tensor_parallel`` · ``data_parallel`` · ``pipeline_parallel`` GPUs: with data parallelism attention is replicated
    and its requests dealt out, the experts lie on all ranks of a stage. ``framework`` is one of
    :data:`~tonnage.inference.estimate.constants.FRAMEWORKS`, or empty for an engine that costs nothing itself.
    ``separate_prefill``: prompts are computed on other GPUs. ``kv_tokens``: tokens that the KV cache holds on one
    data-parallel rank, all stages together; None takes what a plain memory rule leaves. ``max_num_batched_tokens``:
    what a step computes at most. ``expert_parallel``: tensor-parallel ranks hold whole experts too, not a part of the
    width of each. ``wait_steps``: steps that a request waits, on average, until the engine takes it up because of its
    options: half of SGLang's ``--scheduler-recv-interval``, or what TensorRT-LLM waits for a fuller batch
    (``batch_wait_timeout_iters``, ``timeout_iters`` of ``attention_dp_config``).
    """

    shape: ModelShape
    gpu: Gpu
    precision: str = "bf16"
    kv_precision: str = "bf16"
    tensor_parallel: int = 1
    data_parallel: int = 1
    pipeline_parallel: int = 1
    framework: str = "vllm"
    separate_prefill: bool = False
    kv_tokens: int | None = None
    max_num_batched_tokens: int = 8192
    expert_parallel: bool = False
    wait_steps: float = 0.0

    @property
    def gpus(self) -> int:
        """GPUs of the replica."""
        return self.tensor_parallel * self.data_parallel * self.pipeline_parallel
