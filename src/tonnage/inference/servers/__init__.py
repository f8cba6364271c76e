"""Engine servers in pods: which container is one, what its command line says, how it starts, what it shows."""

from tonnage.inference.servers.vllm import (
    ALLOW_LONG,
    MODEL,
    PARTITION,
    EngineServer,
    Shapes,
    UnknownModel,
    all_in,
    find,
    pipeline_layers,
    shape_of,
    too_few,
)

__all__ = [
    "ALLOW_LONG",
    "MODEL",
    "PARTITION",
    "EngineServer",
    "Shapes",
    "UnknownModel",
    "all_in",
    "find",
    "pipeline_layers",
    "shape_of",
    "too_few",
]
