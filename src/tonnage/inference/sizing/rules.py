"""Published rules of thumb (a decision tree, an instance guide) on a concrete model, beside what the facts say.

The rules and where they go wrong are tables of facts (``decision_tree.csv``, ``instance_guide.csv``,
``model_size_guide.csv``, ``rule_faults.csv``); here they are applied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tonnage.facts import gpus, prices, tables
from tonnage.inference import memory
from tonnage.inference.sizing import cards, fit
from tonnage.units import GIB, usd

if TYPE_CHECKING:
    from tonnage.facts.price_book import PriceBook
    from tonnage.inference.sizing.request import SizingRequest

_GB = 1e9
_ABOUT = 0.1
"""A model is called by about its size: a 7B has 6.7 to 7.6 billion parameters."""


class Advice(msgspec.Struct, frozen=True):
    """What the decision tree says of a model of ``gigabytes`` (10^9 bytes of weights), and what becomes of it:
    ``outcomes`` is one line for each GPU that it names."""

    gigabytes: float
    range: str
    advice: str
    outcomes: tuple[str, ...]
    source: str


class Guide(msgspec.Struct, frozen=True):
    """A row of the instance guide, and what differs from the facts; empty if nothing does."""

    gpu: str
    says: str
    differs: tuple[str, ...]
    source: str


class BySize(msgspec.Struct, frozen=True):
    """A row of a guide by model size: an instance type, and whether the model is of the sizes that it is for (None:
    it names none). ``price``: on demand, in micro-USD an hour, None where it is not known. ``outcome``: the fewest of
    its GPUs that serve the request, or why none do."""

    instance_type: str
    says: str
    meant: bool | None
    price: int | None
    outcome: str
    source: str


class RuleContradiction(msgspec.Struct, frozen=True):
    """A claim of the rules and the fact against it."""

    rule: str
    claim: str
    fact: str
    source: str


def advise(request: SizingRequest) -> Advice:
    """The branch of the decision tree for the model, and whether its GPUs serve ``request``."""
    size = memory.weight_bytes(request.shape, request.stored) / _GB
    row = next(
        row
        for row in tables.rows("decision_tree.csv")
        if size >= float(row["above_gb"]) and (not row["up_to_gb"] or size < float(row["up_to_gb"]))
    )
    outcomes = tuple(_outcome(request, name, int(row["gpus_needed"])) for name in row["gpus"].split())
    span = f"{row['above_gb']} to {row['up_to_gb']} GB" if row["up_to_gb"] else f"above {row['above_gb']} GB"
    return Advice(size, span, row["advice"], outcomes, row["source"])


def guides(book: PriceBook | None = None) -> list[Guide]:
    """The instance guide beside the facts of today, and the prices of ``book`` (the bundled ones)."""
    return [_guide(row, book or prices.load()) for row in tables.rows("instance_guide.csv")]


def by_size(request: SizingRequest, book: PriceBook | None = None) -> list[BySize]:
    """The guides by model size, beside what their instances do with ``request`` and cost by ``book`` (the bundled)."""
    return [_by_size(request, row, book or prices.load()) for row in tables.rows("model_size_guide.csv")]


def faults() -> list[RuleContradiction]:
    """Where the rules are wrong, whatever the model."""
    return [msgspec.convert(row, RuleContradiction) for row in tables.rows("rule_faults.csv")]


def _by_size(request: SizingRequest, row: dict[str, str], book: PriceBook) -> BySize:
    billions = request.shape.params / 1e9
    meant = None
    if row["above_b"]:
        low, high = float(row["above_b"]), float(row["up_to_b"] or "inf")
        meant = low * (1 - _ABOUT) <= billions <= high * (1 + _ABOUT)
    price = book.on_demand(row["instance_type"])
    outcome = _fewest(request, row["gpu"], int(row["gpus"])) if row["gpu"] else "no GPUs: engines for it are not sized"
    return BySize(row["instance_type"], row["says"], meant, price, outcome, row["source"])


def _fewest(request: SizingRequest, name: str, count: int) -> str:
    """The smallest tensor parallel size, of those that divide the heads, with which the GPUs of one node serve."""
    card, plan = cards.get(name), None
    for size in (n for n in (1, 2, 4, 8, 16) if n <= count and request.shape.heads % n == 0):
        plan = fit.plan(request, card, size)
        if plan.fits:
            label = f"{size} x {name}" if size > 1 else name
            enough = f"one of {count} GPUs is enough" if size == 1 else f"{size} of {count} GPUs are enough"
            return f"{enough} ({label}), {plan.sequences} of your requests at once"
    short = plan.short / GIB if plan is not None else 0.0
    return f"does not start on its {count} x {name}, {short:.1f} GiB per GPU short"


def _outcome(request: SizingRequest, name: str, count: int) -> str:
    heads = request.shape.heads
    size = count if heads % count == 0 else next(n for n in range(count, heads + 1) if heads % n == 0)
    plan = fit.plan(request, cards.get(name), size)
    label = f"{size} x {name}" if size > 1 else name
    if not plan.fits:
        short = plan.short / GIB
        return f"{label}: does not start, {short:.1f} GiB per GPU short of one request of {request.context:,} tokens"
    return f"{label}: starts, {plan.kv.tokens:,} tokens of KV cache, {plan.sequences} of your requests at once"


def _guide(row: dict[str, str], book: PriceBook) -> Guide:
    gpu = gpus.get(row["gpu"])
    differs = []
    ours = gpu.bf16_flops / 1e12
    if abs(ours - float(row["fp16_tflops"])) > 0.02 * ours:
        differs.append(f"{ours:.0f} TFLOPS without sparsity, not {row['fp16_tflops']}")
    price = book.on_demand(row["instance_type"])
    said = float(row["usd_per_hour"])
    if price is not None and abs(usd(price) - said) > 0.02 * said:
        differs.append(f"${usd(price):.2f} an hour now, not ${said:.2f}")
    visible = memory.visible_bytes(gpu) / GIB
    if visible < 0.97 * float(row["memory_gb"]):
        differs.append(f"CUDA shows {visible:.1f} GiB, not {row['memory_gb']}")
    says = f"{row['memory_gb']} GB, {row['fp16_tflops']} TFLOPS, {row['instance_type']} ${said:.2f}: {row['best_for']}"
    return Guide(row["gpu"], says, tuple(differs), row["source"])
