"""What a model takes of its GPUs' memory, and how many KV blocks are left. Engine, estimator and sizing ask here."""

from tonnage.inference.memory.formats import Precision, precision, precisions
from tonnage.inference.memory.serving import (
    KvCapacity,
    MemoryPart,
    ServingMemory,
    kv_capacity,
    kv_kinds,
    kv_token_bytes,
    lora_params,
    serving_memory,
    stages,
    visible_bytes,
    weight_bytes,
    weights,
)

__all__ = [
    "KvCapacity",
    "MemoryPart",
    "Precision",
    "ServingMemory",
    "kv_capacity",
    "kv_kinds",
    "kv_token_bytes",
    "lora_params",
    "precision",
    "precisions",
    "serving_memory",
    "stages",
    "visible_bytes",
    "weight_bytes",
    "weights",
]
