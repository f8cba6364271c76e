"""What `tonnage size -o json` prints: everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tonnage.cli.size_report import NEXT_BEST, loading_of, loadings_of
from tonnage.inference import memory
from tonnage.inference.sizing import options, point, rules, warnings

if TYPE_CHECKING:
    from tonnage.facts.price_book import PriceBook
    from tonnage.inference.sizing.fit import ReplicaPlan
    from tonnage.inference.sizing.options import ReplicaOffer, SizingOption, SizingResult
    from tonnage.inference.sizing.request import SizingRequest

SCHEMA = "tonnage.dev/size/v1"


def document(
    request: SizingRequest, answer: SizingResult, given: dict[str, Any], notes: tuple[str, ...], book: PriceBook
) -> dict[str, Any]:
    """Everything, for `-o json`."""
    chosen = options.shown(answer.options, 1 + NEXT_BEST)
    return {
        "schema": SCHEMA,
        "region": book.region,
        "model": request.shape,
        "notes": notes,
        "precision": request.stored,
        "kv_precision": request.kv,
        "weight_bytes": memory.weight_bytes(request.shape, request.stored),
        "kv_bytes_per_token": round(request.shape.kv_bytes_per_token(1) * (request.kv.kv_bytes or 0)),
        "window_kv_bytes_per_token": round(request.shape.window_kv_bytes_per_token(1) * (request.kv.kv_bytes or 0)),
        "state_bytes_per_sequence": request.shape.state_layers * request.shape.state_bytes,
        "context": request.context,
        "lengths": {
            "source": request.lengths.source,
            "input_mean": request.lengths.input_mean,
            "output_mean": request.lengths.output_mean,
            "longest": request.lengths.longest,
        },
        "load": request.load,
        "targets": request.targets,
        "chosen": 0 if chosen else None,
        "next_best": [answer.options.index(option) for option in chosen[1:]],
        "options": [_option(request, option, given) for option in answer.options],
        "left_out": answer.left_out,
        "replicas_needed_at_least": answer.too_few,
        "too_small": [_plan(request, plan) | {"short_bytes": plan.short} for plan in answer.refused],
        "rule_of_thumb": {
            "advice": rules.advise(request),
            "guide": rules.guides(book),
            "faults": rules.faults(),
            "by_size": rules.by_size(request, book),
        },
    }


def _option(request: SizingRequest, option: SizingOption, given: dict[str, Any]) -> dict[str, Any]:
    load = loading_of(request, option, given)
    return {
        **_plan(request, option.plan),
        "replicas": option.replicas,
        "meets_targets": option.meets,
        "replica": option.point,
        "requests_per_s": option.requests_per_s,
        "output_tokens_per_s": option.output_tokens_per_s,
        "total_tokens_per_s": option.total_tokens_per_s,
        "offers": [_offer(offer) for offer in option.offers],
        "owned": None if option.owned is None else _offer(option.owned),
        "loading": loadings_of(request, option),
        "warnings": warnings.warnings(request, option, load, given["startup_probe"]),
    }


def _offer(offer: ReplicaOffer) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(offer)
    return {name: None if value == float("inf") else value for name, value in plain.items()}


def _plan(request: SizingRequest, plan: ReplicaPlan) -> dict[str, Any]:
    found, kv = plan.memory, plan.kv
    return {
        "card": plan.card.name,
        "kind": plan.card.kind,
        "gpu": plan.card.whole,
        "per_gpu": plan.card.per_gpu,
        "tensor_parallel": plan.tensor_parallel,
        "pipeline_parallel": plan.pipeline_parallel,
        "memory": {
            "visible_bytes": found.visible,
            "requested_bytes": found.requested,
            "utilization": found.utilization,
            "parts": found.parts,
            "kv_cache_bytes": found.kv_cache,
            "kv_bytes_of_one_request": plan.needed,
            "kv_bytes_per_token": point.kv_bytes_per_token(request, plan),
        },
        "kv_cache": {
            "blocks": kv.blocks,
            "block_bytes": kv.layout.block_bytes,
            "block_size": kv.layout.block_size,
            "tokens": kv.tokens,
            "max_concurrency_at_context": kv.concurrency(request.context),
            "sequences": plan.sequences,
        },
        "max_num_seqs": plan.max_num_seqs,
        "max_num_batched_tokens": plan.max_num_batched_tokens,
    }
