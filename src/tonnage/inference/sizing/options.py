"""Ways to serve a request: a card, TP, PP, replicas, and the instances that have them, cheapest first."""

from __future__ import annotations

from math import ceil, floor
from typing import TYPE_CHECKING, Literal

import msgspec

from tonnage.errors import InputError, Problem, Where
from tonnage.facts import gpus, instances, ownership
from tonnage.inference.sizing import fit, point
from tonnage.inference.sizing.fit import ReplicaPlan
from tonnage.inference.sizing.point import Point

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tonnage.facts.instances import InstanceType
    from tonnage.facts.ownership import Ownership
    from tonnage.facts.price_book import PriceBook
    from tonnage.inference.sizing.cards import EngineGpu
    from tonnage.inference.sizing.request import SizingRequest

Source = Literal["rent", "own"]
_MICRO = 1_000_000
MOST_REPLICAS = 10_000
_ABOUT_AS_NEAR = 1.5
"""Where no way meets the targets, one that is this many times slower than a single request counts as near as that."""
_SAID = 3
"""Reasons that a refusal names at most."""
_NODE = 8
"""GPUs of a server that one owns."""


class ReplicaOffer(msgspec.Struct, frozen=True):
    """Where the replicas run: ``nodes`` instances of a type, or owned GPUs (``instance_type`` empty, ``nodes`` 0).
    Dollars are for all of it; ``share_usd_per_hour`` is the part of it whose GPUs the replicas use, ``idle_gpus`` are
    the others. ``spot_usd_per_hour`` is None where no spot price is known. ``formula``: how an hour of an owned GPU
    comes about."""

    source: Source
    instance_type: str
    nodes: int
    gpus: int
    idle_gpus: float
    usd_per_hour: float
    share_usd_per_hour: float
    spot_usd_per_hour: float | None
    usd_per_million_output: float
    usd_per_million_tokens: float
    spot_usd_per_million_output: float | None
    formula: str = ""


class SizingOption(msgspec.Struct, frozen=True):
    """``replicas`` of ``plan``, each at ``point``. ``miss`` is 0 if the targets are met there, else how many times too
    slow it is; infinite without an estimate. ``offers`` are cheapest first, with ``owned`` among them if owned GPUs
    take part; ``requests_per_s`` and the like are of all replicas."""

    plan: ReplicaPlan
    replicas: int
    point: Point
    miss: float
    requests_per_s: float
    output_tokens_per_s: float
    total_tokens_per_s: float
    offers: tuple[ReplicaOffer, ...]
    owned: ReplicaOffer | None = None

    @property
    def meets(self) -> bool:
        """Whether the targets are met."""
        return self.miss == 0

    @property
    def best(self) -> ReplicaOffer | None:
        """The cheapest offer; None if no price is known."""
        return self.offers[0] if self.offers else None


class SizingResult(msgspec.Struct, frozen=True):
    """``options`` that fit, those that meet the targets first, cheapest first, then the others, nearest first;
    ``refused`` are the plans of each card that came nearest to fitting, where none of the card fits. ``left_out``: a
    reason for each card that was not tried. ``too_few``: replicas that the load would need at least, where no way that
    fits carries it with the most that are considered."""

    options: tuple[SizingOption, ...]
    refused: tuple[ReplicaPlan, ...]
    left_out: tuple[str, ...] = ()
    too_few: int | None = None


class GpuPrices(msgspec.Struct, frozen=True):
    """Prices: of instances, and in dollars of GPUs that one owns (over the bundled ones). Owned GPUs of the names in
    ``owned`` compete with instances; what others would cost is told beside."""

    book: PriceBook
    owning: Ownership
    owned_usd: Mapping[str, float] = {}
    owned: frozenset[str] = frozenset()


def answer(request: SizingRequest, market: GpuPrices) -> SizingResult:
    """Every way to serve ``request`` on its cards. Raises InputError for a TP that does not divide the heads, and with
    the reason if there is nothing to try on any card."""
    found: list[SizingOption] = []
    refused: list[ReplicaPlan] = []
    left_out: dict[str, list[EngineGpu]] = {}
    for card in request.cards:
        types = types_of(card.whole)
        per_node = max((kind.gpu_count for kind in types), default=_NODE)
        reason = fit.excluded(request, card, per_node)
        if reason is not None:
            left_out.setdefault(reason, []).append(card)
            continue
        plans = [fit.plan(request, card, tp, pp) for tp, pp in fit.sizes(request, card, per_node)]
        fitting = [plan for plan in plans if plan.fits]
        if not fitting and plans:
            refused.append(min(plans, key=lambda plan: (plan.short, plan.gpus)))
        if any(plan.pipeline_parallel == 1 for plan in fitting) and request.pipeline_parallel is None:
            fitting = [plan for plan in fitting if plan.pipeline_parallel == 1]
        found += [_option(request, plan, types, market) for plan in fitting]
    if sum(map(len, left_out.values())) == len(request.cards):
        raise _nothing_to_try(left_out)
    carried = [option for option in found if option.replicas <= MOST_REPLICAS]
    too_few = None if carried or not found else min(option.replicas for option in found)
    nearest = sorted(refused, key=lambda plan: plan.short)
    reasons = tuple(_for_cards(reason, cards) for reason, cards in left_out.items())
    return SizingResult(tuple(sorted(carried, key=_rank)), tuple(nearest), reasons, too_few)


def _nothing_to_try(left_out: Mapping[str, list[EngineGpu]]) -> InputError:
    """The reasons; of whole GPUs only if there are any."""
    whole = {reason: [card for card in cards if not card.sliced] for reason, cards in left_out.items()}
    reasons = {reason: cards for reason, cards in whole.items() if cards} or left_out
    hint = "use other GPUs (--gpu), another format, or a smaller --tensor-parallel and --pipeline-parallel"
    said = [_for_cards(reason, cards) for reason, cards in reasons.items()]
    return InputError(*(Problem(Where(field="--gpu"), one, hint) for one in said[:_SAID]))


def _for_cards(reason: str, cards: Iterable[EngineGpu]) -> str:
    return f"{', '.join(card.name for card in cards)}: {reason}"


def types_of(gpu: str) -> tuple[InstanceType, ...]:
    """x86-64 instance types with whole GPUs of this name, by name."""
    return tuple(kind for kind in instances.all() if kind.gpu == gpu and kind.gpu_count and kind.arch == "amd64")


def shown(options: Iterable[SizingOption], most: int) -> list[SizingOption]:
    """The first ``most`` that are not beaten on their own GPU: one of the same GPU that costs no more and is no slower
    in both times is enough."""
    kept: list[SizingOption] = []
    for option in options:
        if not any(_beats(other, option) for other in kept):
            kept.append(option)
        if len(kept) == most:
            break
    return kept


def _beats(one: SizingOption, other: SizingOption) -> bool:
    if one.plan.card.whole != other.plan.card.whole or one.meets < other.meets:
        return False
    times = [(a.point.ttft_s or 0.0, a.point.tpot_s or 0.0) for a in (one, other)]
    return all(a <= b for a, b in zip(*times, strict=True)) and _rank(one) <= _rank(other)


def _rank(option: SizingOption) -> tuple[float, float, float, int, str]:
    """Those that meet the targets, cheapest an hour, then cheapest a token, then fewest GPUs; then those that miss
    them by least."""
    best = option.best
    cost, each = (best.usd_per_hour, best.usd_per_million_output) if best else (float("inf"), float("inf"))
    return option.miss, cost, each, option.plan.gpus * option.replicas, option.plan.label


def _option(
    request: SizingRequest, plan: ReplicaPlan, types: Iterable[InstanceType], market: GpuPrices
) -> SizingOption:
    best, miss = point.most_in_flight(request, plan)
    if 0 < miss < float("inf"):
        best = _about_as_near(request, plan, best)
    replicas = replicas_for(request, best)
    at = best
    if request.load.concurrency is not None:
        at = point.point(request, plan, max(1, min(best.concurrency, ceil(request.load.concurrency / replicas))))
    elif request.load.rate is not None and best.requests_per_s:
        at = _at_rate(request, plan, best, request.load.rate / replicas)
    miss = point.excess(request, at) if miss else miss
    served = replicas * at.requests_per_s
    if request.load.rate is not None:
        served = min(served, request.load.rate)
    rates = served * request.lengths.output_mean, served * (request.lengths.input_mean + request.lengths.output_mean)
    owned = _owned(plan, replicas, market, rates)
    offers = list(_rented(plan, replicas, types, market.book, rates))
    if owned is not None and plan.card.whole in market.owned:
        offers.append(owned)
    offers.sort(key=lambda offer: (offer.usd_per_hour, offer.nodes, offer.instance_type))
    return SizingOption(plan, replicas, at, miss, served, *rates, tuple(offers), owned)


def replicas_for(request: SizingRequest, most: Point) -> int:
    """Replicas that carry the load, each with at most what ``most`` has in flight. One without a load."""
    if request.load.concurrency is not None:
        return max(1, ceil(request.load.concurrency / most.concurrency))
    if request.load.rate is not None and most.requests_per_s:
        return max(1, ceil(request.load.rate / most.requests_per_s))
    return 1


def _about_as_near(request: SizingRequest, plan: ReplicaPlan, least: Point) -> Point:
    """The most in flight that is not much slower than the single request of ``least``."""
    low, high, best = 1, plan.sequences + 1, least
    while high - low > 1:
        middle = (low + high) // 2
        tried = point.point(request, plan, middle)
        if _slower(tried, least) <= _ABOUT_AS_NEAR:
            low, best = middle, tried
        else:
            high = middle
    return best


def _slower(one: Point, other: Point) -> float:
    """How many times slower the first is, in the worse of both times; infinite without an estimate."""
    pairs = ((one.ttft_s, other.ttft_s), (one.tpot_s, other.tpot_s))
    return max(a / b if a is not None and b else float("inf") for a, b in pairs)


def _at_rate(request: SizingRequest, plan: ReplicaPlan, most: Point, rate: float) -> Point:
    """The point with the fewest requests in flight that completes ``rate`` a second."""
    low, high, found = 0, most.concurrency, most
    while high - low > 1:
        middle = (low + high) // 2
        tried = point.point(request, plan, middle)
        if tried.requests_per_s >= rate:
            high, found = middle, tried
        else:
            low = middle
    return found


def _rented(
    plan: ReplicaPlan, replicas: int, types: Iterable[InstanceType], book: PriceBook, rates: tuple[float, float]
) -> Iterable[ReplicaOffer]:
    for kind in types:
        price = book.on_demand(kind.name)
        if price is None or plan.tensor_parallel > kind.gpu_count:
            continue  # TP stays within a node; PP may cross nodes
        nodes, used = _nodes(plan, replicas, kind.gpu_count)
        spot = book.spot(kind.name)
        total = nodes * kind.gpu_count
        dollars = nodes * price / _MICRO
        spot_dollars = None if spot is None else nodes * spot / _MICRO
        yield ReplicaOffer(
            source="rent",
            instance_type=kind.name,
            nodes=nodes,
            gpus=total,
            idle_gpus=total - used,
            usd_per_hour=dollars,
            share_usd_per_hour=dollars * used / total,
            spot_usd_per_hour=spot_dollars,
            usd_per_million_output=_per_million(dollars, rates[0]),
            usd_per_million_tokens=_per_million(dollars, rates[1]),
            spot_usd_per_million_output=None if spot_dollars is None else _per_million(spot_dollars, rates[0]),
        )


def _owned(plan: ReplicaPlan, replicas: int, market: GpuPrices, rates: tuple[float, float]) -> ReplicaOffer | None:
    """One's own GPUs are counted one by one: what else runs in the server is paid by that."""
    price = market.owned_usd.get(plan.card.whole, ownership.price_usd(plan.card.whole))
    if price is None:
        return None
    used = replicas * plan.gpus / plan.card.per_gpu
    count = ceil(used)
    each = market.owning.usd_per_hour(gpus.get(plan.card.whole), price)
    return ReplicaOffer(
        source="own",
        instance_type="",
        nodes=0,
        gpus=count,
        idle_gpus=count - used,
        usd_per_hour=each * count,
        share_usd_per_hour=each * used,
        spot_usd_per_hour=None,
        usd_per_million_output=_per_million(each * count, rates[0]),
        usd_per_million_tokens=_per_million(each * count, rates[1]),
        spot_usd_per_million_output=None,
        formula=_formula(market.owning, price, gpus.get(plan.card.whole).power_w),
    )


def _formula(owning: Ownership, price: float, watts: float) -> str:
    return (
        f"${price:,.0f} x (1 + {owning.host_share:g} host) / ({owning.life_years:g} years x 8,766 h x {owning.used:g} "
        f"used) + {watts:g} W x {owning.load:g} load x (1 + {owning.host_power:g} host) x PUE {owning.pue:g} x "
        f"${owning.usd_per_kwh:g}/kWh"
    )


def _nodes(plan: ReplicaPlan, replicas: int, gpu_count: int) -> tuple[int, float]:
    """(nodes, GPUs of them that are used)."""
    card: EngineGpu = plan.card
    if card.sliced:
        return ceil(replicas / (gpu_count * card.per_gpu)), replicas / card.per_gpu
    if plan.gpus <= gpu_count:
        return ceil(replicas / floor(gpu_count / plan.gpus)), replicas * plan.gpus
    stages = floor(gpu_count / plan.tensor_parallel)
    return replicas * ceil(plan.pipeline_parallel / stages), replicas * plan.gpus


def _per_million(dollars_per_hour: float, tokens_per_s: float) -> float:
    return dollars_per_hour / (tokens_per_s * 3600) * _MICRO if tokens_per_s else float("inf")
