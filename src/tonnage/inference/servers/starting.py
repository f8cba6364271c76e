"""How long a vLLM server takes from the start of its container until it answers."""

from __future__ import annotations

from tonnage.facts.durations import Durations
from tonnage.inference.servers.vllm import EngineServer
from tonnage.objects import core

COMPILE_CACHE = "VLLM_CACHE_ROOT"
"""Names a folder that outlives the container, in which vLLM keeps what it has compiled."""


def engine_s(durations: Durations, *, kept: bool = False, eager: bool = False) -> float:
    """Seconds from loaded weights to serving. ``kept``: compiled graphs of an earlier start are there; ``eager``: there
    are none."""
    if eager:
        return min(durations.engine_start_eager_s, durations.engine_start_cached_s if kept else float("inf"))
    return durations.engine_start_cached_s if kept else durations.engine_start_s


def keeps_graphs(container: core.Container) -> bool:
    """Whether the container keeps what it compiles."""
    return any(variable.name == COMPILE_CACHE for variable in container.env)


def is_eager(server: EngineServer) -> bool:
    """Whether nothing is compiled."""
    return any(word.text.replace("_", "-") == "--enforce-eager" for word in server.words)


def start_s(weight_bytes: float, bytes_per_s: float, engine: float) -> float:
    """Seconds until it answers, with weights that are read at ``bytes_per_s``, ``engine`` of them for the engine."""
    return weight_bytes / bytes_per_s + engine
