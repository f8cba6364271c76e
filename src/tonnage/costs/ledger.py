"""The ledger: what every node costs and who pays for it, to the micro-dollar.

**Billing.** A node that has lived for ns nanoseconds costs floor(price × ns / 3.6e12). The cost at any
instant is that of the whole life so far, so what is added between two instants always sums to the node's
total. A minimum life is charged from the start: EC2 bills Linux instances per second, at least 60 seconds
(Amazon EC2 on-demand pricing).

**Attribution.** An owner has a share of the node: on a node with GPUs the GPUs held over the node's GPUs;
on one without, the larger of its shares of CPU and memory. Splitting by fixed unit prices for CPU, memory
and GPU instead, as OpenCost's defaults do (opencost/opencost configs/default.json), would put only 34 % of
a p5.48xlarge's price on its GPUs, which is what people pay for. The node's cost is split in proportion to
share × time into

- *used*: with an engine step in flight, no more than is held: who has a share of a GPU may find it idle and take more
  of its time. On a node without GPUs nothing is measured, and all that is held
  counts as used;
- *idle in allocation*: held and not used;
- *idle*: held by nobody (owner ``""``), with the unused rest of a minimum life.

The parts of a node add up to its cost exactly (largest remainder; ties by owner, then used before idle). A
part may thus move by one micro-dollar a node between two settlements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

import msgspec

from tonnage.units import NS_PER_HOUR, NS_PER_S

EC2_MINIMUM_NS = 60 * NS_PER_S

NOBODY = ""
"""The owner of what nobody holds."""


class Resources(msgspec.Struct, frozen=True):
    """What a node has, or an owner holds of it.

    ``gpus`` may be a fraction: a MIG slice, a time-sliced replica.
    """

    gpus: int | Fraction = 0
    cpu_milli: int = 0
    memory_bytes: int = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(
            self.gpus + other.gpus, self.cpu_milli + other.cpu_milli, self.memory_bytes + other.memory_bytes
        )

    def __sub__(self, other: Resources) -> Resources:
        return Resources(
            self.gpus - other.gpus, self.cpu_milli - other.cpu_milli, self.memory_bytes - other.memory_bytes
        )

    def covers(self, other: Resources) -> bool:
        """Whether ``other`` is part of this, in each resource."""
        rest = self - other
        return rest.gpus >= 0 and rest.cpu_milli >= 0 and rest.memory_bytes >= 0


class CostLine(msgspec.Struct, frozen=True):
    """Money of one owner (a workload, or "" for nobody), in micro-dollars: used + idle_in_allocation + idle."""

    owner: str
    used_micro_usd: int
    idle_in_allocation_micro_usd: int
    idle_micro_usd: int

    @property
    def total_micro_usd(self) -> int:
        return self.used_micro_usd + self.idle_in_allocation_micro_usd + self.idle_micro_usd


class GpuTime(msgspec.Struct, frozen=True):
    """GPU-nanoseconds: on nodes that were billed, held by owners, and with an engine step in flight; none is more than
    the one before. Whoever has a part of a GPU may take all of it while the others are idle: that counts as far as it
    was held."""

    paid_ns: int = 0
    allocated_ns: int = 0
    busy_ns: int = 0

    def __add__(self, other: GpuTime) -> GpuTime:
        return GpuTime(
            self.paid_ns + other.paid_ns,
            self.allocated_ns + other.allocated_ns,
            self.busy_ns + other.busy_ns,
        )


class NodeBill(msgspec.Struct, frozen=True):
    """One node's cost and its split; the lines are sorted by owner and add up to ``cost_micro_usd``."""

    node: str
    cost_micro_usd: int
    lines: tuple[CostLine, ...]
    gpu_time: GpuTime


class Settlement(msgspec.Struct, frozen=True):
    """The bill at one instant. ``total_micro_usd`` is the sum over the nodes and the sum over the lines."""

    total_micro_usd: int
    nodes: tuple[NodeBill, ...]  # in the order in which they were opened
    lines: tuple[CostLine, ...]  # sorted by owner, nobody first
    gpu_time: GpuTime


@dataclass(slots=True)
class _Holding:
    """What one owner holds on one node, and the sums over time of its share and of its busy GPUs."""

    held: Resources = field(default_factory=Resources)
    share: Fraction = Fraction(0)
    share_ns: Fraction = Fraction(0)
    since: int = 0
    busy_ns: int = 0
    parts: bool = False  # whether it ever held a part of a GPU

    def share_ns_at(self, clock: int) -> Fraction:
        return self.share_ns + self.share * (clock - self.since)


@dataclass(slots=True)
class _Node:
    """An open node. ``clock`` is the time attributed so far and runs with the world's time.

    Where shares add up to more than the node (the larger of CPU and memory can) it runs slower by that sum,
    so that the owners together never hold more than the node, and an event touches nobody's holding but its
    own.
    """

    name: str
    price: int
    opened: int
    capacity: Resources
    minimum_ns: int
    clock: int = 0
    changed: int = 0
    shares: Fraction = Fraction(0)
    holdings: dict[str, _Holding] = field(default_factory=dict)

    def clock_at(self, t: int) -> int:
        elapsed = t - self.changed
        if self.shares > 1:
            return self.clock + elapsed * self.shares.denominator // self.shares.numerator
        return self.clock + elapsed

    def hold(self, owner: str, held: Resources, t: int) -> None:
        """From ``t`` on, ``owner`` holds ``held``."""
        self.clock, self.changed = self.clock_at(t), t
        holding = self.holdings.setdefault(owner, _Holding())
        holding.share_ns, holding.since = holding.share_ns_at(self.clock), self.clock
        self.shares -= holding.share
        holding.held, holding.share = held, self.share_of(held)
        holding.parts = holding.parts or held.gpus != int(held.gpus)
        self.shares += holding.share

    def share_of(self, held: Resources) -> Fraction:
        if self.capacity.gpus:
            return Fraction(held.gpus) / self.capacity.gpus
        return max(
            _ratio(held.cpu_milli, self.capacity.cpu_milli),
            _ratio(held.memory_bytes, self.capacity.memory_bytes),
        )

    def billed_ns(self, t: int) -> int:
        return max(t - self.opened, self.minimum_ns)

    def cost(self, t: int) -> int:
        return billed(self.price, self.billed_ns(t))

    def parts(self, t: int) -> Iterator[tuple[str, Fraction, Fraction]]:
        """(owner, share·ns held, share·ns used), by owner."""
        clock = self.clock_at(t)
        for owner in sorted(self.holdings):
            holding = self.holdings[owner]
            held = holding.share_ns_at(clock)
            used = min(held, Fraction(holding.busy_ns) / self.capacity.gpus) if self.capacity.gpus else held
            yield owner, held, used

    def taken_ns(self, owner: str) -> int:
        """GPU-ns for which an owner of parts of GPUs had them; 0 for one of whole GPUs."""
        holding = self.holdings[owner]
        return holding.busy_ns if holding.parts and self.capacity.gpus else 0

    def bill(self, t: int) -> NodeBill:
        parts = list(self.parts(t))
        held_by_all = sum((held for _, held, _ in parts), Fraction(0))
        weights = [self.billed_ns(t) - held_by_all]
        for _, held, used in parts:
            weights += (used, held - used)
        cost = self.cost(t)
        idle, *amounts = split(cost, weights)
        lines = [CostLine(NOBODY, 0, 0, idle)]
        for index, (owner, _, _) in enumerate(parts):
            lines.append(CostLine(owner, amounts[2 * index], amounts[2 * index + 1], 0))
        gpus = self.capacity.gpus
        paid, held = Fraction(gpus) * self.billed_ns(t), gpus * held_by_all
        busy = sum((max(gpus * used, Fraction(self.taken_ns(owner))) for owner, _, used in parts), Fraction(0))
        gpu_time = GpuTime(int(paid), int(held), int(min(held, busy)))
        return NodeBill(self.name, cost, tuple(lines), gpu_time)

    def violations(self, t: int) -> Iterator[str]:
        """More held than there is, of what shares are made of, and owners busier than their allocation."""
        total = sum((holding.held for holding in self.holdings.values()), Resources())
        if not self.capacity.gpus:
            if not self.capacity.covers(total):
                yield f"node {self.name}: {_text(total)} allocated of {_text(self.capacity)}"
            return
        if total.gpus > self.capacity.gpus:
            yield f"node {self.name}: {total.gpus} GPUs allocated of {self.capacity.gpus}"
        clock, there = self.clock_at(t), self.capacity.gpus * (t - self.opened)
        busy_ns = sum(holding.busy_ns for holding in self.holdings.values())
        if busy_ns > there:
            yield f"node {self.name}: its GPUs were busy for {busy_ns} GPU-ns of {there}"
        for owner in sorted(self.holdings):
            holding = self.holdings[owner]
            allocated = holding.share_ns_at(clock) * self.capacity.gpus
            if holding.busy_ns > allocated and not holding.parts:
                busy = f"{holding.busy_ns} GPU-ns of {int(allocated)} allocated"
                yield f"node {self.name}: {owner} was busy for {busy}"


class Ledger:
    """Keeps the accounts of one run. Times are ns and must not go back; every event is O(1).

    A ``ValueError`` says that the caller's story is impossible (an unknown node, a release of what is not
    held, time going back). Quantities that cannot be (more allocated than there is, busier than allocated)
    are found by :meth:`check`; the money adds up all the same.
    """

    def __init__(self, minimum_ns: int = EC2_MINIMUM_NS) -> None:
        self._minimum_ns = minimum_ns
        self._now = 0
        self._open: dict[str, _Node] = {}
        self._bills: dict[str, NodeBill | None] = {}  # every node, in order of opening; None while it is open
        self._closed_total = 0
        self._closed_violations: list[str] = []
        self.changes = 0
        """How often anything was entered. Until the next entry prices, shares and busy times stay as they are, and time
        alone makes nothing wrong: :meth:`check` has nothing new to find."""

    def open_node(self, node: str, t: int, *, price_micro_usd_per_hour: int, capacity: Resources) -> None:
        """``node`` is billed from ``t`` on, at this price for all its life."""
        self._advance(t)
        if node in self._bills:
            raise ValueError(f"node {node} is already in the ledger")
        if price_micro_usd_per_hour < 0 or not capacity.covers(Resources()):
            raise ValueError(f"node {node}: price and capacity must not be negative")
        self._open[node] = _Node(node, price_micro_usd_per_hour, t, capacity, self._minimum_ns, changed=t)
        self._bills[node] = None

    def close_node(self, node: str, t: int) -> None:
        """The bill of ``node`` ends at ``t``, and so does all that is held there."""
        self._advance(t)
        account = self._account(node)
        bill = self._bills[node] = account.bill(t)
        self._closed_total += bill.cost_micro_usd
        self._closed_violations += account.violations(t)
        del self._open[node]

    def allocate(self, node: str, owner: str, held: Resources, t: int) -> None:
        """From ``t`` on, ``owner`` holds ``held`` on ``node``, on top of what it already holds there."""
        self._advance(t)
        if owner == NOBODY or not held.covers(Resources()):
            raise ValueError(f"node {node}: {owner!r} cannot hold {_text(held)}")
        account = self._account(node)
        account.hold(owner, _held(account, owner) + held, t)

    def release(self, node: str, owner: str, held: Resources, t: int) -> None:
        """From ``t`` on, ``owner`` no longer holds ``held`` on ``node``."""
        self._advance(t)
        account = self._account(node)
        before = _held(account, owner)
        if not before.covers(held) or not held.covers(Resources()):
            raise ValueError(f"node {node}: {owner!r} cannot release {_text(held)} of {_text(before)}")
        account.hold(owner, before - held, t)

    def add_busy(self, node: str, owner: str, gpu_ns: int) -> None:
        """The GPUs that ``owner`` holds on ``node`` were busy for another ``gpu_ns`` (time × GPUs)."""
        holding = self._account(node).holdings.get(owner)
        if holding is None or gpu_ns < 0:
            raise ValueError(f"node {node}: {owner!r} cannot have been busy for {gpu_ns} GPU-ns")
        holding.busy_ns += gpu_ns
        self.changes += 1

    def node_cost(self, node: str, until: int) -> int:
        """Micro-dollars that ``node`` has cost up to ``until``."""
        self._check_until(until)
        bill = self._bills.get(node)
        return bill.cost_micro_usd if bill else self._account(node).cost(until)

    def total(self, until: int) -> int:
        """Micro-dollars that all nodes have cost up to ``until``."""
        self._check_until(until)
        return self._closed_total + sum(account.cost(until) for account in self._open.values())

    def settle(self, until: int) -> Settlement:
        """The whole bill up to ``until``. Changes nothing, so it can be asked at any time."""
        self._check_until(until)
        bills = tuple(bill or self._open[node].bill(until) for node, bill in self._bills.items())
        owners: dict[str, list[int]] = {}
        gpu_time = GpuTime()
        for bill in bills:
            gpu_time += bill.gpu_time
            for line in bill.lines:
                sums = owners.setdefault(line.owner, [0, 0, 0])
                sums[0] += line.used_micro_usd
                sums[1] += line.idle_in_allocation_micro_usd
                sums[2] += line.idle_micro_usd
        return Settlement(
            total_micro_usd=sum(bill.cost_micro_usd for bill in bills),
            nodes=bills,
            lines=tuple(CostLine(owner, *owners[owner]) for owner in sorted(owners)),
            gpu_time=gpu_time,
        )

    def check(self, until: int) -> list[str]:
        """What is wrong with the accounts up to ``until``; empty when money, shares and times add up."""
        settlement = self.settle(until)
        found = list(self._closed_violations)
        for account in self._open.values():
            found += account.violations(until)
        for bill in settlement.nodes:
            if sum(line.total_micro_usd for line in bill.lines) != bill.cost_micro_usd:
                found.append(f"node {bill.node}: the lines do not add up to {bill.cost_micro_usd} micro-dollars")
            time = bill.gpu_time
            if not time.busy_ns <= time.allocated_ns <= time.paid_ns:
                times = f"{time.busy_ns} busy, {time.allocated_ns} allocated, {time.paid_ns} paid"
                found.append(f"node {bill.node}: GPU-ns do not add up: {times}")
            for line in bill.lines:
                if min(line.used_micro_usd, line.idle_in_allocation_micro_usd, line.idle_micro_usd) < 0:
                    found.append(f"node {bill.node}: the line of {line.owner!r} is negative")
        if settlement.total_micro_usd != self.total(until):
            found.append("the settlement's total is not the sum of the nodes' costs")
        if sum(line.total_micro_usd for line in settlement.lines) != settlement.total_micro_usd:
            found.append("the owners' lines do not add up to the total")
        return found

    def _advance(self, t: int) -> None:
        self._check_until(t)
        self._now = t
        self.changes += 1

    def _check_until(self, t: int) -> None:
        if t < self._now:
            raise ValueError(f"time goes back from {self._now} to {t} ns")

    def _account(self, node: str) -> _Node:
        account = self._open.get(node)
        if account is None:
            raise ValueError(f"node {node} is {'closed' if node in self._bills else 'not in the ledger'}")
        return account


def billed(price_micro_usd_per_hour: int, ns: int) -> int:
    """Micro-dollars of ``ns`` nanoseconds at this price: floor(price × ns / 3.6e12)."""
    return price_micro_usd_per_hour * ns // NS_PER_HOUR


def split(amount: int, weights: list[Fraction]) -> list[int]:
    """Split ``amount`` in proportion to ``weights`` into whole numbers that add up to it (largest remainder).

    Of equal remainders the first in the list gets the unit. Weights are not negative, and not all 0 unless
    ``amount`` is.
    """
    if amount == 0:
        return [0] * len(weights)
    whole = sum(weights, Fraction(0))
    exact = [amount * weight / whole for weight in weights]
    parts = [value.numerator // value.denominator for value in exact]
    by_remainder = sorted(range(len(weights)), key=lambda index: (parts[index] - exact[index], index))
    for index in by_remainder[: amount - sum(parts)]:
        parts[index] += 1
    return parts


def _held(account: _Node, owner: str) -> Resources:
    holding = account.holdings.get(owner)
    return holding.held if holding else Resources()


def _ratio(part: int, whole: int) -> Fraction:
    return Fraction(part, whole) if whole else Fraction(0)


def _text(resources: Resources) -> str:
    return f"{resources.gpus} GPUs, {resources.cpu_milli}m CPU, {resources.memory_bytes} bytes"
