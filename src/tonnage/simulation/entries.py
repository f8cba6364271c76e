"""What a scenario says about traffic, as written: sources, surges, shared prefixes, balancing, routes and pools."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Sequence

from tonnage.documents import Document, Strict, duration_ns
from tonnage.errors import InputError, Problem
from tonnage.inference.disaggregation.conditional import POLICIES, ConditionalRule, Policy
from tonnage.inference.disaggregation.links import kv_link, kv_links
from tonnage.machines.serving.balancing import LOAD_BALANCING, needs_content
from tonnage.machines.serving.lower_tiers import tier_problems
from tonnage.traffic.sessions import Prefixes
from tonnage.traffic.surges import SurgeSpec
from tonnage.units import NS_PER_S

_UNKNOWN = "what prompts have in common, and nothing says that of this traffic"
_TELL = "give the traffic prefixes, or a trace with hash_ids"


class SurgeEntry(Strict, frozen=True, kw_only=True):
    """A surge; ``start`` and ``factor`` may be ranges, within which each seed has a value at random."""

    start: str | tuple[str, str]
    duration: str
    factor: float | tuple[float, float]
    ramp: str = "0s"


class PrefixEntry(Strict, frozen=True, kw_only=True):
    """What prompts have in common: system prompts of ``system_tokens`` tokens each, some more popular than others
    (``skew``, the exponent of a Zipf distribution), and sessions of several ``turns``, each of which begins with all
    that was said before. Turns are at least ``pause`` apart; nothing grows beyond ``longest`` tokens."""

    system_prompts: int = 0
    system_tokens: int = 0
    skew: float = 0.0
    turns: int | tuple[int, int] = 1
    pause: str = "30s"
    longest: int = 8192


class RouteEntry(Strict, frozen=True, kw_only=True):
    """Requests with this ``path`` or for this ``model`` go to ``service``; ``share``: their weight among all."""

    service: str
    share: float = 1.0
    path: str = ""
    model: str = ""


class ConditionalEntry(Strict, frozen=True, kw_only=True):
    """When a request's prefill stays with the engine that decodes it."""

    policy: str = "isl_bounding"
    isl_threshold: int = 2048
    ratio_threshold: float = 0.7
    prefill_busy_threshold: float | None = None
    decode_busy_threshold: float | None = None


class SplitEntry(Strict, frozen=True, kw_only=True):
    """Pods of the Service with the labels ``prefill`` only prefill, those with ``decode`` answer. ``link`` moves the
    KV blocks; with ``layerwise`` each layer is sent as soon as it is computed."""

    prefill: dict[str, str]
    decode: dict[str, str]
    link: str = "tcp-100g"
    lanes: int = 1
    layerwise: bool = False
    lease: str = "30s"
    conditional: ConditionalEntry | None = None


class TrafficSpec(Strict, frozen=True, kw_only=True):
    """Requests for one Service, or for several by ``routes``: a profile or a trace, scaled and sped up.

    ``balancing``: how they are spread. ``client_zones``: where they come from, with weights; ``zone_aware``: pods of
    the client's zone are preferred. ``tiers``: sizes of the KV cache tiers below the GPUs of the engines.
    ``migration``: a gateway sends requests whose pod terminates to another.
    """

    service: str = ""
    profile: str = ""
    trace: str = ""
    rate: float = 1.0
    speed: float = 1.0
    balancing: str = "random"
    surges: tuple[SurgeEntry, ...] = ()
    prefixes: PrefixEntry | None = None
    client_zones: dict[str, float] = {}
    zone_aware: bool = False
    routes: tuple[RouteEntry, ...] = ()
    split: SplitEntry | None = None
    tiers: dict[str, str] = {}
    migration: bool = False

    @property
    def services(self) -> tuple[str, ...]:
        """The Services that the requests go to."""
        return tuple(route.service for route in self.routes) or (self.service,)


def surge_spec(entry: SurgeEntry) -> SurgeSpec:
    """A surge in seconds. Raises ValueError for a duration that cannot be read."""
    start = (
        _seconds(entry.start) if isinstance(entry.start, str) else (_seconds(entry.start[0]), _seconds(entry.start[1]))
    )
    return SurgeSpec(start, _seconds(entry.duration), entry.factor, _seconds(entry.ramp))


def prefixes(entry: PrefixEntry) -> Prefixes:
    """The entry in numbers. Raises ValueError for a duration that cannot be read or a number out of range."""
    turns = (entry.turns, entry.turns) if isinstance(entry.turns, int) else entry.turns
    return Prefixes(
        entry.system_prompts, entry.system_tokens, entry.skew, turns, duration_ns(entry.pause), entry.longest
    )


def conditional_rule(entry: ConditionalEntry | None) -> ConditionalRule | None:
    """The rule of an entry. Raises ValueError for an unknown policy or a threshold out of range."""
    if entry is None:
        return None
    known: dict[str, Policy] = {name: name for name in POLICIES}
    if entry.policy not in known:
        raise ValueError(f'"{entry.policy}", expected one of {", ".join(POLICIES)}')
    return ConditionalRule(
        known[entry.policy],
        True,
        entry.isl_threshold,
        entry.ratio_threshold,
        entry.prefill_busy_threshold,
        entry.decode_busy_threshold,
    )


def traffic_problems(field: str, traffic: TrafficSpec, document: Document) -> list[Problem]:
    """What is wrong with one entry of the scenario's traffic; ``field`` is its place."""
    found = []
    if traffic.routes:
        found += [document.problem(f"{field}.{name}", message) for name, message in _route_problems(traffic)]
    elif traffic.service.count("/") != 1:
        found.append(document.problem(f"{field}.service", f'"{traffic.service}", expected namespace/name of a Service'))
    if bool(traffic.profile) == bool(traffic.trace):
        found.append(document.problem(field, "expected either a profile or a trace"))
    for name, value in (("rate", traffic.rate), ("speed", traffic.speed)):
        if not 0 < value < math.inf:
            found.append(document.problem(f"{field}.{name}", f"{value}, expected a finite number above 0"))
    if traffic.balancing not in LOAD_BALANCING:
        names = ", ".join(LOAD_BALANCING)
        found.append(document.problem(f"{field}.balancing", f'"{traffic.balancing}", expected one of {names}'))
    else:
        found += blind_problems(f"{field}.balancing", traffic, traffic.balancing, document)
    found += [document.problem(f"{field}.{name}", message) for name, message in _other_problems(traffic)]
    found += [document.problem(f"{field}.tiers.{name}", message) for name, message in tier_problems(traffic.tiers)]
    if traffic.tiers and not tells_content(traffic):
        found.append(document.problem(f"{field}.tiers", f"tiers hold {_UNKNOWN}", _TELL))
    for i, surge in enumerate(traffic.surges):
        found += _surge_problems(f"{field}.surges[{i}]", surge, document)
    return found


def blind_problems(field: str, traffic: TrafficSpec, balancing: str, document: Document) -> Iterator[Problem]:
    """A router that looks at what caches hold needs to know what prompts have in common."""
    if needs_content(balancing) and not tells_content(traffic):
        yield document.problem(field, f'"{balancing}" looks at {_UNKNOWN}', _TELL)


def tells_content(traffic: TrafficSpec) -> bool:
    """Whether the traffic may say what its prompts have in common; of a trace it turns out when that is read."""
    return traffic.prefixes is not None or bool(traffic.trace)


def link_problem(name: str) -> str:
    """What is wrong with the name of a link; empty if nothing is."""
    try:
        kv_link(name)
    except InputError:
        near = difflib.get_close_matches(name, kv_links(), 1)
        return f'"{name}", expected one of {", ".join(kv_links())}' + (f"; did you mean {near[0]}?" if near else "")
    return ""


def _seconds(text: str) -> float:
    return duration_ns(text) / NS_PER_S


def _route_problems(traffic: TrafficSpec) -> Iterator[tuple[str, str]]:
    if traffic.service:
        yield "service", "routes say which Services the requests go to, expected either routes or a service"
    if traffic.split is not None:
        yield "split", "a split is of one Service, expected a service instead of routes"
    seen: set[tuple[str, str]] = set()
    for i, route in enumerate(traffic.routes):
        place = f"routes[{i}]"
        if route.service.count("/") != 1:
            yield f"{place}.service", f'"{route.service}", expected namespace/name of a Service'
        if not 0 < route.share < math.inf:
            yield f"{place}.share", f"{route.share}, expected a finite number above 0"
        if bool(route.path) == bool(route.model):
            yield place, "expected either a path or a model"
        elif route.path and not route.path.startswith("/"):
            yield f"{place}.path", f'"{route.path}", expected a path that begins with /'
        if (route.path, route.model) in seen:
            yield place, f'"{route.path or route.model}" appears twice'
        seen.add((route.path, route.model))


def _other_problems(traffic: TrafficSpec) -> Iterator[tuple[str, str]]:
    if traffic.migration and traffic.split is not None:
        yield "migration", "requests of a split Service do not migrate, expected no split"
    if traffic.migration and traffic.balancing == LOAD_BALANCING[0]:
        yield "migration", "kube-proxy knows no requests, expected the balancing of a gateway, such as least-requests"
    if traffic.prefixes is not None:
        if traffic.trace:
            yield "prefixes", "a trace says itself what its prompts have in common, expected a profile"
        try:
            prefixes(traffic.prefixes)
        except ValueError as error:
            yield "prefixes", str(error)
    for zone, weight in traffic.client_zones.items():
        if not 0 < weight < math.inf:
            yield f"clientZones.{zone}", f"{weight}, expected a finite number above 0"
    if traffic.zone_aware and not traffic.client_zones:
        yield "zoneAware", "nothing says where requests come from, expected clientZones"
    split = traffic.split
    if split is None:
        return
    if traffic.zone_aware:
        yield "split", "zones are not looked at between pools, expected no zoneAware"
    for name, selector in (("prefill", split.prefill), ("decode", split.decode)):
        if not selector:
            yield f"split.{name}", "no labels, expected those of the pool's pods"
    if problem := link_problem(split.link):
        yield "split.link", problem
    if split.lanes < 1:
        yield "split.lanes", f"{split.lanes}, expected at least 1"
    try:
        if duration_ns(split.lease) <= 0:
            yield "split.lease", f'"{split.lease}" is not above 0'
    except ValueError:
        yield "split.lease", f'"{split.lease}" is not a duration, expected e.g. 30s'
    try:
        conditional_rule(split.conditional)
    except ValueError as error:
        yield "split.conditional", str(error)


def _surge_problems(place: str, surge: SurgeEntry, document: Document) -> list[Problem]:
    found = []
    starts: Sequence[str] = (surge.start,) if isinstance(surge.start, str) else surge.start
    for name, text in (*(("start", s) for s in starts), ("duration", surge.duration), ("ramp", surge.ramp)):
        try:
            duration_ns(text)
        except ValueError:
            found.append(document.problem(f"{place}.{name}", f'"{text}" is not a duration, expected e.g. 20m'))
    if found:
        return found
    return [
        document.problem(p.where.field.removesuffix("_s"), p.message)
        for p in surge_spec(surge).problems(document.where(place))
    ]
