"""Requests to size, in one place."""

from __future__ import annotations

from typing import Any

from tonnage.facts import models, ownership, prices
from tonnage.inference import memory
from tonnage.inference.sizing import cards, options, request
from tonnage.inference.sizing.request import Lengths, OfferedLoad, SizingRequest, Targets


def asked(
    model: str,
    *gpus: str,
    stored: str = "bf16",
    kv: str = "bf16",
    lengths: Lengths | None = None,
    concurrency: int | None = 16,
    rate: float | None = None,
    ttft_s: float | None = None,
    tpot_s: float | None = None,
    context: int | None = None,
    **more: Any,
) -> SizingRequest:
    """A request of 1,024 tokens in and 256 out, 16 in flight, on ``gpus`` or all that can be rented."""
    shape = models.get(model)
    lengths = lengths or request.fixed(1024, 256)
    return SizingRequest(
        shape=shape,
        stored=memory.precision(stored),
        kv=memory.precision(kv, kv=True),
        context=request.context_of(shape, context, lengths),
        lengths=lengths,
        load=OfferedLoad(None if rate else concurrency, rate),
        targets=Targets(ttft_s, tpot_s),
        cards=tuple(cards.get(gpu) for gpu in gpus) or cards.rentable(),
        utilization=more.pop("utilization", 0.92),
        **more,
    )


def market(**owned_usd: float) -> options.GpuPrices:
    """The bundled prices; GPUs named here are owned and compete."""
    return options.GpuPrices(prices.load(), ownership.get(), owned_usd, frozenset(owned_usd))


def answer(model: str, *gpus: str, **more: Any) -> options.SizingResult:
    """The answer to such a request at the bundled prices."""
    return options.answer(asked(model, *gpus, **more), market())
