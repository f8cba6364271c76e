"""Workloads that do not fill a GPU, and the ways to run them, side by side: what each costs, wastes and isolates.

A workload's load is open: its work comes at a rate, whatever it waits for. A job that begins a step only when the last
one is done (training) is slowed down by the response times instead. How each way divides a GPU:
:mod:`~tonnage.partitioning.share_ways`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from msgspec import Struct

from tonnage.errors import InputError, Problem, Where
from tonnage.facts import instances, mig
from tonnage.facts.gpus import Gpu
from tonnage.facts.mig import MigProfile
from tonnage.facts.price_book import PriceBook
from tonnage.partitioning.mps import Isolation
from tonnage.units import usd

APART = Isolation("yes", "yes", "yes")
TOGETHER = Isolation("no", "no", "no")
KEEP = 0.9
"""The part of the throughput on a GPU of its own that a workload must keep."""

MOST_COUNT = 100_000
LONGEST_S = 10.0
"""GPU time of a step: what is longer is a batch job, for which latency is no question."""

BOUNDS = ("", "compute", "memory")
_NEARLY = 1e-9
_FULL = 0.9


@dataclass(frozen=True, slots=True)
class SharingWorkload:
    """``count`` equal processes. ``load``: the part of the time (0 to 1) for which each keeps the whole GPU busy, in
    steps of ``gpu_s`` seconds. ``latency_s``: the longest that a step's GPU work may take from when it comes; None for
    any. ``sms``: the part of the GPU's SMs that its kernels fill. ``bound``: what limits it, "compute" or "memory";
    empty where not known: then a part of a GPU is as slow as the smaller of its shares."""

    name: str
    memory_mib: int
    load: float
    count: int = 1
    gpu_s: float = 0.010
    latency_s: float | None = None
    sms: float = 1.0
    bound: str = ""

    @property
    def bandwidth(self) -> float:
        """The part of the memory bandwidth that it uses while it runs; as much as of the SMs where not known."""
        return 1.0 if self.bound == "memory" else self.sms

    def slowdown(self, compute: float, bandwidth: float) -> float:
        """How much longer its GPU work takes with these multiples of the GPU's arithmetic and memory bandwidth."""
        arithmetic = max(1.0, self.sms / compute) if compute <= 1 else 1 / compute
        return {"compute": arithmetic, "memory": 1 / bandwidth}.get(self.bound, max(arithmetic, 1 / bandwidth))


class Got(Struct, frozen=True):
    """What a process gets: seconds until a step's GPU work is done when all its neighbours are at work too (leases: at
    the worst moment of the plan), and the part of its throughput that it keeps.
    ``piece``: what it holds, as in ``2g.20gb``."""

    response_s: float
    kept: float
    piece: str = ""


class FilledGpus(Struct, frozen=True):
    """``count`` cards of one GPU that hold the same: these workloads, by number, and what each gets."""

    gpu: str
    holds: tuple[int, ...]
    got: tuple[Got, ...]
    count: int


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run the workloads. ``why``: what keeps it from working, then there are no cards. ``hourly``: micro-USD
    an hour of the cards; ``bought``: of the whole instances that they come in; None where no price is known. ``busy``,
    ``memory``: the used parts of the cards' time and memory. ``setting``: how the device plugin is told."""

    name: str
    isolation: Isolation
    why: str = ""
    setting: str = ""
    cards: tuple[FilledGpus, ...] = ()
    hourly: int | None = None
    bought: int | None = None
    busy: float = 0.0
    memory: float = 0.0
    slowest: float = 0.0
    """The longest response, as a multiple of that on a GPU of its own."""
    kept: float = 0.0
    """The least part of its throughput that a workload keeps."""
    gpus: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "gpus", sum(card.count for card in self.cards))


@dataclass(frozen=True, slots=True)
class Question:
    """The workloads, the GPU that they are on now (``profile``: where that is a MIG instance), and what is asked of a
    way: ``keep`` of the throughput, and, if ``isolated``, that nobody can take another's memory or end it.
    ``whole_instances``: nobody else uses the rest of an instance, so what counts is what it costs whole."""

    workloads: tuple[SharingWorkload, ...]
    gpu: Gpu
    profile: MigProfile | None
    prices: PriceBook
    keep: float = KEEP
    isolated: bool = False
    whole_instances: bool = False

    @property
    def load(self) -> float:
        """GPUs that the workloads would keep busy without a moment's pause."""
        return sum(one.load * one.count for one in self.workloads)

    def refused(self, one: SharingWorkload, got: Got) -> str:
        """Why this is not good enough for a workload; empty if it is."""
        if got.kept < self.keep - _NEARLY:
            return f"{one.name} keeps {got.kept:.0%} of its throughput"
        if one.latency_s is not None and got.response_s > one.latency_s + _NEARLY:
            return f"{one.name} takes {1e3 * got.response_s:.3g} ms, and needs {1e3 * one.latency_s:.3g} ms"
        return ""


@dataclass(frozen=True, slots=True)
class InstanceOffer:
    """An instance type with GPUs; micro-USD an hour. ``arch``: of its CPU."""

    instance: str
    gpus: int
    hourly: int
    arch: str


def offers(book: PriceBook) -> Mapping[str, tuple[InstanceOffer, ...]]:
    """By GPU, cheapest for each of its GPUs first; of equals the smaller instance."""
    found: dict[str, list[InstanceOffer]] = {}
    for kind in instances.all():
        hourly = book.on_demand(kind.name) if kind.gpu and kind.gpu_count else None
        if hourly:
            found.setdefault(kind.gpu, []).append(InstanceOffer(kind.name, kind.gpu_count, hourly, kind.arch))
    return {
        gpu: tuple(sorted(of, key=lambda one: (one.hourly / one.gpus, one.gpus, one.instance)))
        for gpu, of in found.items()
    }


def cost(of: Sequence[InstanceOffer], gpus: int) -> tuple[int, int] | None:
    """Micro-USD an hour of this many GPUs: their part of the cheapest instance, and the cheapest that can be bought."""
    if not of:
        return None
    return round(gpus * of[0].hourly / of[0].gpus), min(-(-gpus // one.gpus) * one.hourly for one in of)


def question(
    workloads: Sequence[SharingWorkload],
    gpu: str,
    prices: PriceBook,
    *,
    keep: float = KEEP,
    isolated: bool = False,
    whole_instances: bool = False,
    places: Sequence[Where] = (),
) -> Question:
    """The question, checked. ``places``: where each workload is written.

    Raises InputError for an unknown GPU or profile, fractions outside (0, 1], more memory than the card has, counts
    below 1 and times that are not positive."""
    card, profile = mig.resolve(gpu)
    problems = []
    for number, one in enumerate(workloads):
        at = places[number] if places else Where(field=one.name)
        problems += [Problem(_inside(at, name), *what) for name, *what in _wrong(one, card)]
    if not workloads:
        problems.append(Problem(Where(), "no workload", "give --workload chat:memory=10GiB,util=25%,count=8, or files"))
    if not 0 < keep <= 1:
        problems.append(Problem(Where(field="--keep"), f"{keep:g} is not in (0, 1]", "expected a part like 90%"))
    if problems:
        raise InputError(*problems)
    return Question(tuple(workloads), card, profile, prices, keep, isolated, whole_instances)


def _inside(at: Where, name: str) -> Where:
    return Where(at.file, at.line, f"{at.field}:{name}" if at.field else name)


def _wrong(one: SharingWorkload, card: Gpu) -> list[tuple[str, str, str]]:
    """(key, what is wrong, what was expected) of a workload."""
    found = []
    for name, value in (("util", one.load), ("sms", one.sms)):
        if not 0 < value <= 1:
            found.append((name, f"{value:g} is not in (0, 1]", "expected a part of the GPU, like 25% or 0.25"))
    if one.memory_mib <= 0:
        found.append(("memory", f"{one.memory_mib} MiB", "expected an amount above 0, like 10GiB"))
    elif one.memory_mib > card.memory_mib:
        message = f"{one.memory_mib} MiB is more than {card.name} has"
        found.append(("memory", message, f"it has {card.memory_mib} MiB"))
    if not 0 < one.count <= MOST_COUNT:
        found.append(("count", f"{one.count} processes", f"expected 1 to {MOST_COUNT}"))
    if not 0 < one.gpu_s <= LONGEST_S:
        found.append(("step", f"{one.gpu_s:g} s", f"expected a time of up to {LONGEST_S:g} s, like 20ms"))
    if one.latency_s is not None and not 0 < one.latency_s < math.inf:
        found.append(("latency", f"{one.latency_s:g} s", "expected a time above 0, like 200ms"))
    if one.bound not in BOUNDS:
        found.append(("bound", repr(one.bound), "expected compute or memory"))
    return found


def recommended(asked: Question, ways: Sequence[Way]) -> Way | None:
    """Of the ways that do what is asked the cheapest an hour; of equals the one that needs the fewest GPUs, isolates
    most, keeps the most throughput, and is named first. None where no way does."""
    return min((way for way in ways if able_to(asked, way)), key=partial(_order, asked), default=None)


def dollars(asked: Question, way: Way) -> int | None:
    """Micro-USD an hour that count: of the GPUs, or of whole instances."""
    return way.bought if asked.whole_instances else way.hourly


def able_to(asked: Question, way: Way) -> bool:
    """Whether a way works, and isolates as asked."""
    return not way.why and (not asked.isolated or (way.isolation.memory, way.isolation.fault) == ("yes", "yes"))


def _order(asked: Question, way: Way) -> tuple[float, int, int, float]:
    rank = ("no", "part", "yes").index
    apart = sum(map(rank, (way.isolation.memory, way.isolation.fault, way.isolation.speed)))
    costs = dollars(asked, way)
    return math.inf if costs is None else costs, way.gpus, -apart, -way.kept


def reasons(asked: Question, ways: Sequence[Way], best: Way) -> list[str]:
    """Why this way: what it costs beside the next one, what more isolation would cost, and what is saved, really."""
    said = [_against(asked, ways, best)]
    apart = [way for way in ways if able_to(replace(asked, isolated=True), way) and way is not best]
    if (best.isolation.memory, best.isolation.fault) != ("yes", "yes") and apart:
        safe = min(apart, key=partial(_order, asked))
        said.append(f"A process can harm its neighbours here; {safe.name} prevents that for {_price(asked, safe)}.")
    now = next((way for way in ways if way.name == "whole"), None)
    if now is not None and not now.why and best is not now:
        said.append(_saved(asked, now, best))
    if best.busy > _FULL and best.name not in ("whole", "smaller"):
        said.append(f"Its cards are {best.busy:.0%} busy: a burst of any workload is felt by all.")
    return said


def _against(asked: Question, ways: Sequence[Way], best: Way) -> str:
    others = [way for way in ways if able_to(asked, way) and way is not best]
    if not others:
        return f"{best.name} is the only option that meets the requirements: {_price(asked, best)}."
    following = min(others, key=partial(_order, asked))
    same = dollars(asked, following) == dollars(asked, best) and following.gpus == best.gpus
    because = "costs the same and isolates less" if same else "is next"
    if same and following.isolation == best.isolation:
        because = "costs and isolates the same"
    return f"{best.name} needs {_price(asked, best)}; {following.name}, with {_price(asked, following)}, {because}."


def _price(asked: Question, way: Way) -> str:
    costs = dollars(asked, way)
    gpus = f"{way.gpus} GPU{'s' if way.gpus != 1 else ''}"
    return gpus if costs is None else f"{gpus} at ${usd(costs):,.2f} an hour"


def _saved(asked: Question, now: Way, best: Way) -> str:
    """The claim by load alone, and what comes of it."""
    claim = 1 - asked.load / now.gpus
    said = f"By load alone {asked.load:,.1f} of {now.gpus} GPUs would do, {claim:.0%} less."
    if now.hourly is None or now.bought is None or best.hourly is None or best.bought is None:
        return f"{said} In fact it takes {best.gpus} GPUs."
    less, off = 1 - best.hourly / now.hourly, now.bought - best.bought
    bill = f"the bill for whole instances falls by ${usd(off):,.2f} an hour" if off > 0 else _unchanged(best)
    return f"{said} In fact the GPUs used cost {less:.0%} less, and {bill}."


def _unchanged(best: Way) -> str:
    return f"the bill for whole instances does not fall: the GPUs beside these {best.gpus} need other work"


Workload = SharingWorkload
"""Its former name, for callers from outside."""
