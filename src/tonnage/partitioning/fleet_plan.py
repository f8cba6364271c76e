"""Layouts for a fleet: which instances to make where, so that most of what is asked for is served at least cost.

All demands are looked at together, so a small slice does not stand where a large one that is served too has to go.
Instances in use stay where they are. Of plans that serve as much, the one that destroys and creates the fewest
instances, partitions the fewest cards and puts the cheapest to use (:class:`~tonnage.partitioning.patterns.Prices`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat

from msgspec import Struct

from tonnage.facts import mig
from tonnage.fleet.geometry import Geometry
from tonnage.partitioning.layouts import Layout, Placement, mask_of, resource
from tonnage.partitioning.patterns import Prices, patterns
from tonnage.partitioning.program import Class, GpuGroup, LayoutSolution, solve
from tonnage.partitioning.relayout import Change

WHOLE = 8
"""What a demand for a whole card counts; divisible by the memory slices of every card."""
_EACH = 0.02
"""What each demand counts beside its part: of plans that serve as many slices, the one that serves more demands."""
_LEAST = 1_000.0
"""What the smallest demand is worth, in :class:`Prices`: more than any change of a card costs."""


@dataclass(frozen=True, slots=True)
class PlannedGpu:
    """One GPU. ``busy`` are among ``running``. ``node``: whose it is; ``micro_usd_per_hour``: 0 where not known."""

    name: str
    on: Geometry
    running: Layout = ()
    busy: Layout = ()
    node: str = ""
    micro_usd_per_hour: int = 0


@dataclass(frozen=True, slots=True)
class Demand:
    """``count`` instances of a profile (by name or resource), or of the smallest profile with so much memory and this
    many compute slices. ``gpu``: only on this model. ``weight``: how much one counts beside others of its size."""

    name: str
    count: int
    profile: str = ""
    memory_mib: int = 0
    compute: int = 0
    gpu: str = ""
    weight: float = 1.0


class CardPlan(Struct, frozen=True):
    """What happens to one card. ``serves``: the instances that demands get, by the demand's number."""

    card: PlannedGpu
    change: Change
    serves: tuple[tuple[Placement, int], ...] = ()


class Unserved(Struct, frozen=True):
    """``count`` of the demand with this number have no instance; ``why`` in a sentence."""

    demand: int
    count: int
    why: str


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """``cards`` in the fleet's order. ``served``: by demand. ``cut``: cards that get their first instance. ``used``:
    cards with an instance that is in use or that a demand gets, ``micro_usd_per_hour`` those of them.

    ``gap``: how far the plan can be from the best one, as a share of that one's worth."""

    cards: tuple[CardPlan, ...]
    served: tuple[int, ...]
    unserved: tuple[Unserved, ...]
    destroyed: int
    created: int
    cut: int
    used: int
    micro_usd_per_hour: int
    gap: float


def plan(
    cards: Sequence[PlannedGpu],
    demands: Sequence[Demand],
    prices: Prices | None = None,
    done: Callable[[int], None] = lambda cards: None,
) -> FleetPlan:
    """Layouts for ``cards`` that serve most of ``demands``: as many memory slices as can be, and then as many demands,
    each counted ``weight`` times. ``done`` is told of each card twice: when what it can be is known, and when what it
    will be is.

    Deterministic. Raises InputError for profiles and layouts that a card cannot have."""
    prices = prices or Prices()
    asked = _Asked(cards, demands)
    alike: dict[tuple[str, Layout, Layout, int], list[int]] = {}
    for number, card in enumerate(cards):
        key = card.on.gpu, card.running, tuple(sorted(card.busy)), card.micro_usd_per_hour
        alike.setdefault(key, []).append(number)
    groups = []
    for (gpu, running, busy, price), members in alike.items():
        offered = asked.profiles.get(gpu, ())
        ways = patterns(cards[members[0]].on, running, busy, offered, prices, price) if offered else []
        groups.append(GpuGroup(gpu, offered, len(members), ways))
        done(len(members))
    solution = solve(groups, asked.classes)
    done(len(cards))
    after = [card.running for card in cards]
    for members, group, counts in zip(alike.values(), groups, solution.cards, strict=True):
        chosen = (one.layout for one, count in zip(group.patterns, counts, strict=True) for _ in range(count))
        for number, layout in zip(members, chosen, strict=False):
            after[number] = layout
    return _answer(cards, demands, after, asked, solution)


@dataclass(slots=True)
class _Asked:
    """The demands as classes of the program. ``members``: by class, the demands' numbers. ``profiles``: by model."""

    cards: Sequence[PlannedGpu]
    demands: Sequence[Demand]
    classes: list[Class] = field(default_factory=list)
    members: list[list[int]] = field(default_factory=list)
    takes: list[tuple[tuple[str, str], ...]] = field(default_factory=list)
    profiles: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        models = {card.on.gpu: card.on for card in self.cards}
        parts: dict[tuple[float, tuple[tuple[str, str], ...]], list[int]] = {}
        for number, demand in enumerate(self.demands):
            takes = tuple((gpu, name) for gpu, on in sorted(models.items()) if (name := picks(on, demand)))
            self.takes.append(takes)
            if takes:
                counts = demand.weight * (_EACH + min(part(models[gpu], name) for gpu, name in takes))
                parts.setdefault((counts, takes), []).append(number)
        scale = _LEAST / min((counts for counts, _ in parts), default=1.0)
        for (counts, takes), members in sorted(parts.items()):
            wanted = sum(self.demands[number].count for number in members)
            self.classes.append(Class(wanted, counts * scale, takes))
            self.members.append(members)
        used: dict[str, set[str]] = {}
        for gpu, name in {key for takes in self.takes for key in takes}:
            used.setdefault(gpu, set()).add(name)
        self.profiles = {
            gpu: tuple(slot.name for slot in models[gpu].slots.values() if slot.name in names)
            for gpu, names in used.items()
        }


def picks(on: Geometry, demand: Demand) -> str:
    """The profile of this card that the demand takes; empty: none does."""
    if demand.gpu and demand.gpu != on.gpu:
        return ""
    if demand.profile:
        named = (slot.name for slot in on.slots.values() if demand.profile in (slot.name, slot.resource))
        return next(named, "")
    for one in mig.profiles(on.gpu):
        enough = on.slots[one.resource].mib >= demand.memory_mib and one.compute_slices >= demand.compute
        if enough:
            return one.name
    return ""


def part(on: Geometry, profile: str) -> int:
    """An instance's part of a card in :data:`WHOLE` parts: its memory slices, so that no layout counts more than an
    instance that takes the whole card."""
    one = mig.get(on.gpu, profile)
    return WHOLE * one.memory_slices // one.of_memory_slices


def _answer(
    cards: Sequence[PlannedGpu],
    demands: Sequence[Demand],
    layouts: Sequence[Layout],
    asked: _Asked,
    solution: LayoutSolution,
) -> FleetPlan:
    takers = _takers(demands, asked, solution)
    made = []
    served: Counter[int] = Counter()
    for card, after in zip(cards, layouts, strict=True):
        kept = tuple(one for one in card.running if one in after)
        serves = []
        for one in sorted(after, key=lambda one: (one not in kept, one)):
            number = None if one in card.busy else next(takers.get((card.on.gpu, one.profile), iter(())), None)
            if number is not None:
                serves.append((one, number))
                served[number] += 1
        made.append(CardPlan(card, Change(card.running, after, kept), tuple(sorted(serves))))
    room = {takes: _room(cards, takes) for takes in dict.fromkeys(asked.takes)}
    missing = [(number, demand.count - served[number]) for number, demand in enumerate(demands)]
    used = [one for one in made if one.card.busy or one.serves]
    return FleetPlan(
        tuple(made),
        tuple(served[number] for number in range(len(demands))),
        tuple(
            Unserved(number, count, _why(demands[number], room[asked.takes[number]]))
            for number, count in missing
            if count
        ),
        destroyed=sum(len(one.change.destroyed) for one in made),
        created=sum(len(one.change.created) for one in made),
        cut=sum(bool(one.change.after) and not one.change.before for one in made),
        used=len(used),
        micro_usd_per_hour=sum(one.card.micro_usd_per_hour for one in used),
        gap=max(0.0, (solution.bound - solution.worth) / solution.bound) if solution.bound > 0 else 0.0,
    )


def _takers(demands: Sequence[Demand], asked: _Asked, solution: LayoutSolution) -> dict[tuple[str, str], Iterator[int]]:
    """By (model, profile), the numbers of the demands that get its instances, each as often as it gets one."""
    found: dict[tuple[str, str], list[int]] = {}
    for members, one, counts in zip(asked.members, asked.classes, solution.served, strict=True):
        waiting = chain.from_iterable(repeat(number, demands[number].count) for number in members)
        for key, count in zip(one.takes, counts, strict=True):
            found.setdefault(key, []).extend(islice(waiting, count))
    return {key: iter(numbers) for key, numbers in found.items()}


def _room(cards: Sequence[PlannedGpu], takes: tuple[tuple[str, str], ...]) -> tuple[int, int] | None:
    """How many instances that a demand can take the fleet holds when nothing else is on it: with nothing in use, and
    beside what is in use. None: no card has one."""
    wanted = dict(takes)
    masks = Counter((card.on.gpu, mask_of(card.on, card.busy)) for card in cards if card.on.gpu in wanted)
    models = {card.on.gpu: card.on for card in cards}
    empty = beside = 0
    for (gpu, mask), count in masks.items():
        on, name = models[gpu], resource(models[gpu], wanted[gpu])
        empty += count * on.capacity(0)[name]
        beside += count * on.capacity(mask)[name]
    return (empty, beside) if takes else None


def _why(demand: Demand, room: tuple[int, int] | None) -> str:
    """Why a demand is not served in full: no such profile, too few cards, what is in use, or other demands."""
    if room is None:
        wanted = demand.profile or f"{demand.memory_mib} MiB and {demand.compute} compute slices"
        of = f" of model {demand.gpu}" if demand.gpu else ""
        return f"no GPU{of} in the fleet has a profile for {wanted}"
    empty, beside = room
    if empty < demand.count:
        return f"the whole fleet, with nothing else on it, holds {empty}"
    if beside < demand.count:
        return f"beside what is in use there is room for {beside}; without it for {empty}"
    return f"there is room for {beside} beside what is in use, and other demands take it"
