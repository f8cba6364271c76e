"""One LLM engine: a replica that serves one model, with the scheduler of vLLM v1, its KV cache and its step times."""

from tonnage.inference.engine.config import EngineConfig, OffloadTiers
from tonnage.inference.engine.engine import Engine
from tonnage.inference.engine.requests import Finished, Unfinished

__all__ = ["Engine", "EngineConfig", "Finished", "OffloadTiers", "Unfinished"]
