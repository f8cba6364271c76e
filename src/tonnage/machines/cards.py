"""Cards that several pods are on: how fast each is, and what each takes of the card's time and memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from tonnage.dra import nvidia
from tonnage.dra.sharing import ClientLimits, client_limits, sharing_of
from tonnage.dra.sharing import interval as interval_of
from tonnage.errors import InputError
from tonnage.facts import gpu_use
from tonnage.fleet import claimed_gpus
from tonnage.fleet.asks import FULL
from tonnage.fleet.claimed_gpus import HeldDevice
from tonnage.fleet.devices import How
from tonnage.fleet.state import Fleet, PodRow
from tonnage.machines.serving.replica import ServingReplica
from tonnage.machines.serving.service import SimulatedService
from tonnage.partitioning.leases import FAIR, STRICT, in_leases
from tonnage.partitioning.mps import MpsClient, side_by_side
from tonnage.partitioning.turns import in_turns, interval_named

LEASE_ANNOTATION = "tonnage.dev/gpu-time-slicing"
"""On a pod with a fraction of a GPU: ``strict`` or ``fair``, as NVIDIA Run:ai's node pools have it."""


INTERVAL_LABEL = "tonnage.dev/gpu-timeslice"
"""On a node: the interval of its GPUs' compute policy (nvidia-smi compute-policy --set-timeslice), a name or number."""


class Hold(Struct, frozen=True):
    """What a pod has of one card. ``cores``: the most of the card's compute that it gets; ``memory``: the most of its
    memory, None where nothing stops it from taking more (both as parts of the card, 0 to 1). ``replica``: it asked for
    the card, and shares it all the same. ``instances``: where they are shared, the MIG instances of the device; each is
    a card. ``lease``: ``strict`` or ``fair`` where the pod says how its time is lent; ``share``: the part of the card
    that it asked for, which it is lent where anybody says so. ``interval``: of the turns that processes take on it.
    ``part``: the MIG device of it, by its name as claims have it, a card of this ``size`` (1: the whole GPU)."""

    device: int
    cores: Fraction = Fraction(1)
    memory: Fraction | None = None
    mps: bool = False
    replica: bool = False
    instances: int = 0
    lease: str = ""
    share: Fraction = Fraction(1)
    interval: str = "default"
    part: str = ""
    size: Fraction = Fraction(1)


def holds(fleet: Fleet, row: int) -> list[Hold]:
    """What the pod has of cards that it shares with others, by device; none of MIG instances and whole cards."""
    pod = fleet.pod(row)
    found = []
    for device in sorted({piece.device for piece in pod.pieces}):
        hold = _hold(fleet, pod, device)
        if hold is not None:
            found.append(hold)
    return [*found, *_by_claims(fleet, row)]


def _by_claims(fleet: Fleet, row: int) -> Iterator[Hold]:
    """What the pod has by claims that other pods may use too, or whose configuration limits it."""
    shared = [one for one in claimed_gpus.held(fleet, row) if one.several or _limits(one, "") is not None]
    there = claimed_gpus.devices_at(fleet, row) if shared else {}
    for one in shared:
        device = there.get(one.result.device)
        if device is None:
            continue
        uuid = device.attributes.get("uuid")
        limits, memory = _limits(one, uuid.string_value or "" if uuid is not None else ""), claimed_gpus.mib(device)
        whole = there.get(nvidia.gpu_name(one.minor))
        of = claimed_gpus.mib(whole) if whole is not None else 0
        size = Fraction(memory, of) if one.part and of else Fraction(1)
        if limits is not None:
            cores = Fraction(100 if limits.percent is None else max(1, limits.percent), 100)
            part = Fraction(1) if limits.memory_mib is None or not memory else Fraction(limits.memory_mib, memory)
            yield Hold(one.minor, cores, min(part, Fraction(1)), mps=True, replica=True, part=one.part, size=size)
        else:
            yield Hold(one.minor, replica=True, interval=_turns(fleet, row, one), part=one.part, size=size)


def _limits(one: HeldDevice, uuid: str) -> ClientLimits | None:
    """Those of MPS. A configuration that the driver refuses says nothing."""
    try:
        return client_limits(sharing_of(one.allocation, one.result, whole=not one.part), uuid, one.place)
    except InputError:
        return None


def _turns(fleet: Fleet, row: int, one: HeldDevice) -> str:
    """The interval of the turns on a device of a claim: as its configuration says, else the node's."""
    try:
        named = interval_of(sharing_of(one.allocation, one.result, whole=not one.part))
    except InputError:
        named = None
    return interval_named(named or fleet.node(fleet.pod(row).node).labels.get(INTERVAL_LABEL, "")) or "default"


def _hold(fleet: Fleet, pod: PodRow, device: int) -> Hold | None:
    interval = interval_named(fleet.node(pod.node).labels.get(INTERVAL_LABEL, "")) or "default"
    cut, memory = fleet.cards.cut_of(pod.node, device), int(fleet.cards.memory[pod.node])
    pieces = [piece for piece in pod.pieces if piece.device == device]
    if cut.how is How.MIG or (cut.instances and cut.isolated):
        return None
    if cut.how is How.REPLICAS and cut.isolated:
        cores, part = Fraction(len(pieces) * (100 // cut.replicas), 100), Fraction(len(pieces), cut.replicas)
        return Hold(device, cores, part, mps=True, replica=True)
    if cut.how is How.REPLICAS:
        return Hold(device, replica=True, instances=len(cut.instances or ()), interval=interval)
    if fleet.classes.shapes[fleet.classes.rows[pod.class_id].shape].ask.separate:
        milli, mib = sum(piece.milli for piece in pieces), sum(piece.mib for piece in pieces)
        limit = Fraction(mib, memory) if memory else None
        asked = Fraction(milli, FULL) or limit or Fraction(1)
        return Hold(device, Fraction(milli or FULL, FULL), limit, share=asked, interval=interval)
    lease = pod.spec.annotations.get(LEASE_ANNOTATION, "")
    share = Fraction(sum(piece.milli for piece in pieces), FULL)
    return Hold(device, lease=lease if lease in (STRICT, FAIR) else "", share=share, interval=interval)


class Pace(NamedTuple):
    """What a sharer has of a card: the part of its time, and its speed as a part of that alone; ``prompts``: the speed
    of an engine's steps with prompt tokens."""

    share: Fraction
    speed: Fraction
    prompts: Fraction


FULL_PACE = Pace(Fraction(1), Fraction(1), Fraction(1))


@lru_cache(maxsize=4096)
def _paces(
    clients: tuple[tuple[bool, Fraction], ...],
    *,
    mps: bool,
    interval: str = "default",
    leases: tuple[tuple[Fraction, str], ...] = (),
) -> tuple[Pace, ...]:
    """What each has while all of them run; each (whether it is an engine, the most of the card that it may have).
    ``leases``: (the part of the card that it asked for, how it is lent) of each, where one of them says how.

    Under MPS a step with prompt tokens fills the SMs, so that the percentage binds it more; its neighbours are taken to
    decode meanwhile."""
    if not mps:
        most = [share for _, share in clients]
        parts = in_leases(*zip(*leases, strict=True)) if leases else in_turns(most, interval)
        return tuple(Pace(*given, prompts=given.speed) for given in parts)
    made = [MpsClient(*(gpu_use.decode() if engine else gpu_use.other()), float(100 * top)) for engine, top in clients]
    paces = [Pace(*given, prompts=given.speed) for given in side_by_side(made)]
    for at, (engine, top) in enumerate(clients):
        if engine:
            prefill = MpsClient(*gpu_use.prefill(), float(100 * top))
            prompts = side_by_side([*made[:at], prefill, *made[at + 1 :]])[at].speed
            paces[at] = paces[at]._replace(prompts=min(prompts, paces[at].speed))
    return tuple(paces)


class Use(NamedTuple):
    """``done``: GPU-ns that a pod could use, ``taken_ns``: ns of each of its ``cards``."""

    done: Fraction
    taken_ns: int
    cards: int


@dataclass(slots=True, eq=False)
class Sharer:
    """A running pod (namespace/name) on one or several shared cards; ``cores`` and ``shares`` by card. An engine is
    active while it has requests, any other pod always is. ``claimed``: the part of each card's memory that it has
    taken; ``wants``: the GPUs that a pod without an engine asked for, the most that it can use.

    ``taken_ns`` is the time of one card that such a pod has had, ``done_ns`` what it could use of it."""

    pod: str
    cores: dict[SharedGpu, Fraction]
    shares: dict[SharedGpu, Fraction]
    limit: Fraction | None
    claimed: Fraction
    lease: str = ""
    replica: ServingReplica | None = None
    service: SimulatedService | None = None
    active: bool = False
    wants: Fraction = Fraction(1)
    pace: Pace = FULL_PACE
    since_ns: int = 0
    taken_ns: Fraction = Fraction(0)
    done_ns: Fraction = Fraction(0)
    given: dict[SharedGpu, Pace] = field(default_factory=dict)

    def noticed(self) -> None:
        """Its engine was given something, or got further."""
        assert self.replica is not None and self.replica.engine is not None
        engine = self.replica.engine
        if engine.has_requests != self.active:
            self.active = engine.has_requests
            for card in self.cores:
                card.divide(engine.now_ns)

    def look(self, at_ns: int) -> None:
        """Bring it to ``at_ns``."""
        if self.replica is not None and self.service is not None:
            self.service.look(self.replica, at_ns)
        elif self.active:
            span, self.since_ns = at_ns - self.since_ns, at_ns
            self.taken_ns += span * self.pace.share
            self.done_ns += span * min(self.wants, self.pace.share * len(self.cores))

    def give(self, card: SharedGpu, pace: Pace) -> None:
        """What it has of one of its cards from now on; the card that gives least sets the pace."""
        self.given[card] = pace
        pace = min(self.given.values(), key=lambda given: given.speed)
        if pace == self.pace:
            return
        self.pace = pace
        if self.replica is not None and self.replica.engine is not None and self.service is not None:
            self.replica.takes(pace.share)
            self.replica.engine.stretch(1 / pace.speed, 1 / pace.prompts)
            self.service.expect(self.replica)

    def use(self, now_ns: int) -> Use:
        """What a pod without an engine has had since this was asked last."""
        self.catch_up(now_ns)
        used = Use(self.done_ns, int(self.taken_ns), len(self.cores))
        self.done_ns, self.taken_ns = Fraction(0), self.taken_ns - used.taken_ns
        return used

    def catch_up(self, now_ns: int) -> None:
        """Let everything happen up to ``now_ns`` on its cards."""
        for card in self.cores:
            card.catch_up(now_ns)

    @property
    def best(self) -> Fraction:
        """The most that a pod without an engine can use while those beside it that are not engines run as well."""
        slowest = min(card.part / sum(s.active and s.service is None for s in card.sharers) for card in self.cores)
        return min(self.wants, slowest * len(self.cores))


@dataclass(slots=True, eq=False)
class SharedGpu:
    """A GPU with several pods on it, or a MIG instance, which is a ``part`` of one."""

    mps: bool
    part: Fraction = Fraction(1)
    interval: str = "default"
    sharers: list[Sharer] = field(default_factory=list)
    _dividing: bool = False
    _again: bool = False

    def divide(self, at_ns: int) -> None:
        """Divide it again among those that are active at ``at_ns``."""
        self._again = True
        if self._dividing:
            return
        self._dividing = True
        while self._again:
            for sharer in self.sharers:
                sharer.look(at_ns)  # who has just ended is not active any more
            self._again = False
            active = [sharer for sharer in self.sharers if sharer.active]
            clients = tuple((sharer.service is not None, sharer.cores[self]) for sharer in active)
            lent = any(sharer.lease for sharer in active)
            leases = tuple((sharer.shares[self], sharer.lease) for sharer in active) if lent else ()
            paces = _paces(clients, mps=self.mps, interval=self.interval, leases=leases) if active else ()
            for sharer, pace in zip(active, paces, strict=True):
                sharer.give(self, pace._replace(share=pace.share * self.part))
        self._dividing = False

    def catch_up(self, now_ns: int) -> None:
        """Let everything happen up to ``now_ns``."""
        for sharer in self.sharers:
            if sharer.service is not None:
                sharer.service.catch_up(now_ns)
        for sharer in self.sharers:
            sharer.look(now_ns)

    def free(self) -> Fraction:
        """The part of its memory that nobody has claimed."""
        return 1 - sum((sharer.claimed for sharer in self.sharers), Fraction(0))


class SharedCards:
    """The shared cards of a cluster, by node and device."""

    def __init__(self) -> None:
        self._cards: dict[tuple[str, int, str], list[SharedGpu]] = {}

    def card(self, node: str, hold: Hold) -> SharedGpu:
        """The card of a device, or of its shared instances the one with the fewest pods."""
        made = self._cards.setdefault((node, hold.device, hold.part), [])
        if not any(card.sharers for card in made):
            made.clear()  # it may be repartitioned since
        while len(made) < max(1, hold.instances):
            made.append(SharedGpu(hold.mps, hold.size / max(1, hold.instances), hold.interval))
        return min(made, key=lambda card: len(card.sharers))
