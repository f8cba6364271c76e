"""Models and GPUs that the tests of this room share."""

from __future__ import annotations

from typing import Any

import msgspec

from tonnage.facts import gpus, models
from tonnage.facts.gpus import Gpu
from tonnage.facts.models import ModelShape

LLAMA_8B = models.get("meta-llama/Llama-3.1-8B-Instruct")
LLAMA_70B = models.get("meta-llama/Llama-3.1-70B-Instruct")
GPUS = {name: gpus.get(name) for name in ("l40s", "a100-40", "a100-80", "h100", "b200")}


def gpu(name: str, **changes: Any) -> Gpu:
    """A known GPU with some of its properties changed."""
    return msgspec.structs.replace(gpus.get(name), **changes)


def model(**changes: Any) -> ModelShape:
    """The 8B model with some of its properties changed."""
    return msgspec.structs.replace(LLAMA_8B, **changes)
