"""The pools of a Service that is split: how its prompts travel, and which pods a request has."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from tonnage.inference.disaggregation.actions import Leases
from tonnage.inference.disaggregation.conditional import ConditionalRule
from tonnage.inference.disaggregation.links import KvLink
from tonnage.inference.engine import EngineConfig
from tonnage.inference.routing.types import RouteRequest
from tonnage.machines.serving.replica import ServingReplica

PREFILL, DECODE = "prefill", "decode"
_LEASES = Leases()


class Split(Struct, frozen=True):
    """How a Service is split. ``lanes``: links side by side; ``layers``, ``bytes_per_token``: of the model's KV cache.

    ``rule``: when a prefill stays with its decode pod; None: never.
    """

    link: KvLink
    lanes: int
    layers: int
    bytes_per_token: int
    layerwise: bool = False
    leases: Leases = _LEASES
    rule: ConditionalRule | None = None


@dataclass(slots=True)
class Pair:
    """Who computes a request's prompt and who answers it; ``prefill_ns``: how long the prompt took."""

    prefill: ServingReplica
    decode: ServingReplica
    request: RouteRequest
    ended_ns: int = 0
    prefill_ns: int = 0
    have: int = 0  # leading blocks of the prompt that the decode pod held when the others were sent
    reused: int = 0  # prompt tokens that the prefill pod found in its cache
    again: bool = False  # the decode pod computes the prompt itself after all
    gone: bool = False  # the client is: nothing of this is wanted any more


def fits(prefill: ServingReplica, decode: ServingReplica, prompt: int, output: int) -> bool:
    """Whether both engines could ever hold a request of this many tokens."""
    assert prefill.engine is not None and decode.engine is not None
    needs = ((prefill.engine.config, prompt), (decode.engine.config, prompt + output - 1))
    return all(one.max_model_len > tokens and one.kv_blocks >= _blocks(one, tokens) for one, tokens in needs)


def _blocks(config: EngineConfig, tokens: int) -> int:
    """The most KV blocks that a request of this many tokens ever holds."""
    if config.layout is None:
        return -(-tokens // config.block_size)
    return config.layout.most_blocks(tokens, config.max_num_batched_tokens)


def pages(number: int) -> int:
    """The id under which a request's pages are reserved while they are filled."""
    return -1 - number
