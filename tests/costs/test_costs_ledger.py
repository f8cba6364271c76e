"""The ledger: billing, attribution, and that the money adds up after any sequence of events."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_seeds import examples
from tonnage.costs.ledger import CostLine, Ledger, Resources, Settlement, split
from tonnage.units import GIB, NS_PER_HOUR, NS_PER_S

DOLLAR = 1_000_000
MINUTE = 60 * NS_PER_S


def gpus(count: int | Fraction) -> Resources:
    return Resources(gpus=count)


EIGHT_GPUS = gpus(8)


def ledger_with_node(price: int = 8 * DOLLAR, capacity: Resources = EIGHT_GPUS, minimum_ns: int = 0) -> Ledger:
    ledger = Ledger(minimum_ns=minimum_ns)
    ledger.open_node("n", 0, price_micro_usd_per_hour=price, capacity=capacity)
    return ledger


def line(settlement: Settlement, owner: str) -> CostLine:
    return next(line for line in settlement.lines if line.owner == owner)


def test_a_node_is_billed_by_the_nanosecond_and_rounded_down() -> None:
    ledger = ledger_with_node(price=3_600_000)  # 1,000 micro-dollars a second
    assert ledger.total(NS_PER_S) == 1_000
    assert ledger.total(NS_PER_S + 999_999) == 1_000
    assert ledger.total(NS_PER_S + 1_000_000) == 1_001


def test_increments_between_samples_add_up_to_the_nodes_total() -> None:
    ledger = ledger_with_node(price=1_234_567)
    samples = [ledger.total(t) for t in range(0, NS_PER_HOUR + 1, NS_PER_HOUR // 777)] + [ledger.total(NS_PER_HOUR)]
    increments = [later - earlier for earlier, later in zip([0, *samples], samples, strict=False)]
    assert min(increments) >= 0
    assert sum(increments) == 1_234_567


def test_a_node_that_lives_for_seconds_is_billed_for_a_minute() -> None:
    ledger = ledger_with_node(price=60 * DOLLAR, minimum_ns=MINUTE)
    assert ledger.total(0) == DOLLAR  # owed from the launch on
    assert ledger.total(30 * NS_PER_S) == DOLLAR
    ledger.close_node("n", 30 * NS_PER_S)
    assert ledger.total(NS_PER_HOUR) == DOLLAR


def test_the_unused_rest_of_the_minimum_is_idle() -> None:
    ledger = ledger_with_node(price=60 * DOLLAR, capacity=gpus(1), minimum_ns=MINUTE)
    ledger.allocate("n", "team", gpus(1), 0)
    ledger.close_node("n", 15 * NS_PER_S)
    settlement = ledger.settle(15 * NS_PER_S)
    assert line(settlement, "team").idle_in_allocation_micro_usd == DOLLAR // 4
    assert line(settlement, "").idle_micro_usd == 3 * DOLLAR // 4


def test_a_node_costs_nothing_after_it_is_closed() -> None:
    ledger = ledger_with_node()
    ledger.close_node("n", NS_PER_HOUR)
    assert ledger.total(5 * NS_PER_HOUR) == ledger.node_cost("n", 5 * NS_PER_HOUR) == 8 * DOLLAR


def test_a_gpu_nodes_cost_is_split_into_used_idle_in_allocation_and_idle() -> None:
    ledger = ledger_with_node(price=8 * DOLLAR, capacity=gpus(8))
    ledger.allocate("n", "chat", gpus(2), 0)
    ledger.allocate("n", "code", gpus(4), NS_PER_HOUR // 2)
    ledger.add_busy("n", "chat", NS_PER_HOUR)  # half of its 2 GPU-hours
    settlement = ledger.settle(NS_PER_HOUR)
    assert settlement.lines == (
        CostLine("", 0, 0, 4 * DOLLAR),
        CostLine("chat", DOLLAR, DOLLAR, 0),
        CostLine("code", 0, 2 * DOLLAR, 0),
    )
    assert settlement.total_micro_usd == 8 * DOLLAR


def test_cpu_and_memory_held_on_a_gpu_node_cost_nothing() -> None:
    ledger = ledger_with_node(capacity=Resources(8, 192_000, 2048 * GIB))
    ledger.allocate("n", "sidecar", Resources(0, 96_000, 1024 * GIB), 0)
    assert line(ledger.settle(NS_PER_HOUR), "sidecar").total_micro_usd == 0


def test_a_gpu_held_without_an_engine_step_is_idle_in_allocation() -> None:
    ledger = ledger_with_node(price=DOLLAR, capacity=gpus(1))
    ledger.allocate("n", "notebook", gpus(1), 0)
    assert ledger.settle(NS_PER_HOUR).lines[1] == CostLine("notebook", 0, DOLLAR, 0)


@pytest.mark.report(522)
def test_a_mig_slice_costs_its_fraction_of_the_gpu() -> None:
    ledger = ledger_with_node(price=7 * DOLLAR, capacity=gpus(1))
    ledger.allocate("n", "small", gpus(Fraction(1, 7)), 0)
    ledger.allocate("n", "large", gpus(Fraction(4, 7)), 0)
    settlement = ledger.settle(NS_PER_HOUR)
    assert [line.total_micro_usd for line in settlement.lines] == [2 * DOLLAR, 4 * DOLLAR, DOLLAR]


def test_a_cpu_node_is_split_by_the_larger_of_the_cpu_and_memory_shares_and_all_of_it_counts_as_used() -> None:
    ledger = ledger_with_node(price=DOLLAR, capacity=Resources(0, 10_000, 100 * GIB))
    ledger.allocate("n", "cpu-heavy", Resources(0, 4_000, 10 * GIB), 0)
    ledger.allocate("n", "memory-heavy", Resources(0, 1_000, 50 * GIB), 0)
    assert ledger.settle(NS_PER_HOUR).lines == (
        CostLine("", 0, 0, DOLLAR // 10),
        CostLine("cpu-heavy", 4 * DOLLAR // 10, 0, 0),
        CostLine("memory-heavy", 5 * DOLLAR // 10, 0, 0),
    )


def test_the_share_of_an_owner_with_several_pods_is_that_of_their_sum() -> None:
    ledger = ledger_with_node(price=DOLLAR, capacity=Resources(0, 10_000, 100 * GIB))
    ledger.allocate("n", "mixed", Resources(0, 4_000, 10 * GIB), 0)
    ledger.allocate("n", "mixed", Resources(0, 1_000, 50 * GIB), 0)
    assert line(ledger.settle(NS_PER_HOUR), "mixed").used_micro_usd == 6 * DOLLAR // 10


def test_shares_that_add_up_to_more_than_a_cpu_node_are_scaled_down_while_they_do() -> None:
    ledger = ledger_with_node(price=2 * DOLLAR, capacity=Resources(0, 10_000, 100 * GIB))
    ledger.allocate("n", "a", Resources(0, 9_000, 10 * GIB), 0)
    ledger.allocate("n", "b", Resources(0, 1_000, 90 * GIB), 0)  # 0.9 + 0.9 of the node
    ledger.release("n", "b", Resources(0, 1_000, 90 * GIB), NS_PER_HOUR)
    settlement = ledger.settle(2 * NS_PER_HOUR)
    assert [line.total_micro_usd for line in settlement.lines] == [200_000, 2_800_000, 1_000_000]
    assert ledger.check(2 * NS_PER_HOUR) == []


def test_what_is_released_stops_costing_its_owner() -> None:
    ledger = ledger_with_node(price=8 * DOLLAR, capacity=gpus(8))
    ledger.allocate("n", "chat", gpus(8), 0)
    ledger.release("n", "chat", gpus(6), NS_PER_HOUR // 2)
    settlement = ledger.settle(NS_PER_HOUR)
    assert line(settlement, "chat").total_micro_usd == 5 * DOLLAR
    assert line(settlement, "").idle_micro_usd == 3 * DOLLAR


def test_closing_a_node_ends_what_is_held_there() -> None:
    ledger = ledger_with_node(price=8 * DOLLAR, capacity=gpus(8))
    ledger.allocate("n", "chat", gpus(8), 0)
    ledger.close_node("n", NS_PER_HOUR)
    assert line(ledger.settle(9 * NS_PER_HOUR), "chat").total_micro_usd == 8 * DOLLAR
    with pytest.raises(ValueError, match="node n is closed"):
        ledger.release("n", "chat", gpus(8), 9 * NS_PER_HOUR)


def test_gpu_hours_are_paid_allocated_and_busy() -> None:
    ledger = ledger_with_node(capacity=gpus(8))
    ledger.open_node("cpu", 0, price_micro_usd_per_hour=DOLLAR, capacity=Resources(0, 8_000, 32 * GIB))
    ledger.allocate("cpu", "gateway", Resources(0, 8_000, GIB), 0)
    ledger.allocate("n", "chat", gpus(4), NS_PER_HOUR)
    ledger.add_busy("n", "chat", NS_PER_HOUR // 4)
    used = ledger.settle(2 * NS_PER_HOUR).gpu_time
    assert (used.paid_ns, used.allocated_ns, used.busy_ns) == (
        16 * NS_PER_HOUR,
        4 * NS_PER_HOUR,
        NS_PER_HOUR // 4,
    )


def test_each_node_keeps_its_own_price() -> None:
    ledger = ledger_with_node(price=4 * DOLLAR)
    ledger.open_node("spot", 0, price_micro_usd_per_hour=DOLLAR, capacity=gpus(8))
    assert [bill.cost_micro_usd for bill in ledger.settle(NS_PER_HOUR).nodes] == [4 * DOLLAR, DOLLAR]


def test_settling_changes_nothing() -> None:
    once, often = ledger_with_node(price=1_234_567), ledger_with_node(price=1_234_567)
    for ledger in (once, often):
        ledger.allocate("n", "chat", gpus(3), 17)
    for t in range(18, NS_PER_HOUR, NS_PER_HOUR // 50):
        often.settle(t)
    assert often.settle(NS_PER_HOUR) == once.settle(NS_PER_HOUR)


def test_equal_remainders_go_to_the_first_owner_by_name() -> None:
    ledger = ledger_with_node(price=1, capacity=gpus(2))
    ledger.allocate("n", "b", gpus(1), 0)
    ledger.allocate("n", "a", gpus(1), 0)
    settlement = ledger.settle(NS_PER_HOUR)
    assert [(line.owner, line.total_micro_usd) for line in settlement.lines] == [("", 0), ("a", 1), ("b", 0)]


def test_the_check_names_gpus_allocated_twice() -> None:
    ledger = ledger_with_node(capacity=gpus(8))
    ledger.allocate("n", "a", gpus(8), 0)
    assert ledger.check(NS_PER_S) == []
    ledger.allocate("n", "b", gpus(1), NS_PER_S)
    assert ledger.check(2 * NS_PER_S) == ["node n: 9 GPUs allocated of 8"]
    ledger.close_node("n", NS_PER_HOUR)
    assert ledger.check(NS_PER_HOUR) == ["node n: 9 GPUs allocated of 8"]


def test_the_check_names_memory_allocated_twice_on_a_cpu_node() -> None:
    ledger = ledger_with_node(capacity=Resources(0, 1_000, GIB))
    ledger.allocate("n", "a", Resources(0, 500, 2 * GIB), 0)
    assert ledger.check(NS_PER_S) == [
        f"node n: 0 GPUs, 500m CPU, {2 * GIB} bytes allocated of 0 GPUs, 1000m CPU, {GIB} bytes"
    ]


def test_busy_time_beyond_the_allocation_is_a_violation_and_is_not_charged() -> None:
    ledger = ledger_with_node(price=8 * DOLLAR, capacity=gpus(8))
    ledger.allocate("n", "chat", gpus(1), 0)
    ledger.add_busy("n", "chat", 2 * NS_PER_HOUR)
    assert ledger.check(NS_PER_HOUR) == [
        f"node n: chat was busy for {2 * NS_PER_HOUR} GPU-ns of {NS_PER_HOUR} allocated"
    ]
    assert line(ledger.settle(NS_PER_HOUR), "chat").used_micro_usd == DOLLAR


def _reopen(ledger: Ledger) -> None:
    ledger.open_node("n", 5, price_micro_usd_per_hour=1, capacity=gpus(1))


def _negative_price(ledger: Ledger) -> None:
    ledger.open_node("m", 5, price_micro_usd_per_hour=-1, capacity=gpus(1))


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (_reopen, "already in the ledger"),
        (_negative_price, "must not be negative"),
        (lambda ledger: ledger.close_node("m", 5), "not in the ledger"),
        (lambda ledger: ledger.node_cost("m", 5), "not in the ledger"),
        (lambda ledger: ledger.allocate("n", "", gpus(1), 5), "cannot hold"),
        (lambda ledger: ledger.allocate("n", "b", gpus(-1), 5), "cannot hold"),
        (lambda ledger: ledger.release("n", "a", gpus(2), 5), "cannot release 2 GPUs"),
        (lambda ledger: ledger.release("n", "a", gpus(-1), 5), "cannot release -1 GPUs"),
        (lambda ledger: ledger.add_busy("n", "b", 5), "cannot have been busy"),
        (lambda ledger: ledger.add_busy("n", "a", -5), "cannot have been busy"),
        (lambda ledger: ledger.allocate("n", "a", gpus(1), 3), "time goes back from 4 to 3"),
        (lambda ledger: ledger.settle(3), "time goes back from 4 to 3"),
    ],
)
def test_an_impossible_event_is_refused(act, message: str) -> None:  # type: ignore[no-untyped-def]
    ledger = ledger_with_node()
    ledger.allocate("n", "a", gpus(1), 4)
    with pytest.raises(ValueError, match=message):
        act(ledger)


@given(
    amount=st.integers(0, 10**12),
    weights=st.lists(st.fractions(min_value=0, max_value=10**6), min_size=1, max_size=8).filter(any),
)
def test_a_split_adds_up_and_is_within_one_of_the_exact_shares(amount: int, weights: list[Fraction]) -> None:
    parts = split(amount, weights)
    assert sum(parts) == amount
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part - amount * weight / sum(weights)) < 1
        assert part >= 0


@dataclass
class Reference:
    """The same accounts kept the slow way: at every event, time × share is added for every owner of every node."""

    minimum_ns: int
    now: int = 0
    opened: dict[str, int] = field(default_factory=dict)
    closed: dict[str, int] = field(default_factory=dict)
    price: dict[str, int] = field(default_factory=dict)
    capacity: dict[str, Resources] = field(default_factory=dict)
    held: dict[tuple[str, str], Resources] = field(default_factory=dict)
    share_ns: dict[tuple[str, str], Fraction] = field(default_factory=dict)
    busy_ns: dict[tuple[str, str], int] = field(default_factory=dict)

    def pass_time(self, t: int) -> None:
        for node in self.opened:
            if node in self.closed:
                continue
            shares = {key: self.share(key) for key in self.held if key[0] == node}
            scale = max(Fraction(1), sum(shares.values(), Fraction(0)))
            for key, share in shares.items():
                self.share_ns[key] = self.share_ns.get(key, Fraction(0)) + share * (t - self.now) / scale
        self.now = t

    def share(self, key: tuple[str, str]) -> Fraction:
        held, capacity = self.held[key], self.capacity[key[0]]
        if capacity.gpus:
            return Fraction(held.gpus) / capacity.gpus
        return max(Fraction(held.cpu_milli, capacity.cpu_milli), Fraction(held.memory_bytes, capacity.memory_bytes))

    def cost(self, node: str) -> int:
        lived = self.closed.get(node, self.now) - self.opened[node]
        return self.price[node] * max(lived, self.minimum_ns) // NS_PER_HOUR

    def amounts(self, owner: str) -> tuple[Fraction, Fraction]:
        """Exact micro-dollars used and idle in allocation, before any rounding but the nodes' own."""
        used = idle = Fraction(0)
        for (node, name), share_ns in self.share_ns.items():
            if name != owner:
                continue
            lived = self.closed.get(node, self.now) - self.opened[node]
            per_share_ns = Fraction(self.cost(node), max(lived, self.minimum_ns, 1))
            busy = share_ns
            if self.capacity[node].gpus:
                busy = min(share_ns, Fraction(self.busy_ns.get((node, name), 0)) / self.capacity[node].gpus)
            used += busy * per_share_ns
            idle += (share_ns - busy) * per_share_ns
        return used, idle


NODES, OWNERS = ("n1", "n2", "n3"), ("a", "b", "c")
CAPACITIES = (gpus(1), gpus(8), Resources(0, 15_890, 61_000_000_007), Resources(8, 96_000, GIB))
AMOUNTS = (
    Resources(1, 4_000, GIB),
    Resources(Fraction(1, 7), 7, 13),
    Resources(Fraction(3, 10), 9_001, 9_999_999_967),
    Resources(4, 1, 45_000_000_000),
)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["open", "close", "allocate", "release", "busy", "settle"]),
        st.integers(0, 2**13).map(lambda value: value**3),  # from 0 ns to 9 minutes
        st.sampled_from(NODES),
        st.sampled_from(OWNERS),
        st.integers(0, 3),
        st.integers(0, 200_000_000),
    ),
    max_size=40,
)


@settings(max_examples=examples(400), deadline=None)
@given(events=EVENTS, minimum_ns=st.sampled_from([0, MINUTE]))
def test_after_any_events_the_ledger_agrees_with_slow_accounts_and_the_money_adds_up(  # type: ignore[no-untyped-def]
    events, minimum_ns: int
) -> None:
    ledger, slow = Ledger(minimum_ns), Reference(minimum_ns)
    apply(ledger, slow, "open", "n1", "", 1, 98_320_000)
    apply(ledger, slow, "open", "n2", "", 2, 1_234_567)
    for kind, pause, node, owner, choice, number in events:
        slow.pass_time(slow.now + pause)
        apply(ledger, slow, kind, node, owner, choice, number)
        agree(ledger, slow)


def apply(ledger: Ledger, slow: Reference, kind: str, node: str, owner: str, choice: int, number: int) -> None:
    """One event on both accounts, unless it is impossible."""
    key, t = (node, owner), slow.now
    if kind == "open" and node not in slow.opened:
        ledger.open_node(node, t, price_micro_usd_per_hour=number, capacity=CAPACITIES[choice])
        slow.opened[node], slow.price[node], slow.capacity[node] = t, number, CAPACITIES[choice]
    elif node not in slow.opened or node in slow.closed:
        return
    elif kind == "close":
        ledger.close_node(node, t)
        slow.closed[node] = t
    elif kind == "allocate":
        ledger.allocate(node, owner, AMOUNTS[choice], t)
        slow.held[key] = slow.held.get(key, Resources()) + AMOUNTS[choice]
    elif kind == "release" and slow.held.get(key, Resources()).covers(AMOUNTS[choice]):
        ledger.release(node, owner, AMOUNTS[choice], t)
        slow.held[key] -= AMOUNTS[choice]
    elif kind == "busy" and key in slow.held:
        ledger.add_busy(node, owner, number)
        slow.busy_ns[key] = slow.busy_ns.get(key, 0) + number


def agree(ledger: Ledger, slow: Reference) -> None:
    settlement = ledger.settle(slow.now)
    assert {bill.node: bill.cost_micro_usd for bill in settlement.nodes} == {
        node: slow.cost(node) for node in slow.opened
    }
    assert settlement.total_micro_usd == ledger.total(slow.now)
    assert settlement.total_micro_usd == sum(line.total_micro_usd for line in settlement.lines)
    for line in settlement.lines:
        parts = (line.used_micro_usd, line.idle_in_allocation_micro_usd, line.idle_micro_usd)
        assert min(parts) >= 0
        if line.owner:
            used, idle = slow.amounts(line.owner)
            # one micro-dollar a node by rounding the parts, and a few more for the whole nanoseconds of a slowed clock
            assert abs(line.used_micro_usd - used) < len(NODES) + 1
            assert abs(line.idle_in_allocation_micro_usd - idle) < len(NODES) + 1
            assert line.idle_micro_usd == 0
    over = [problem for problem in ledger.check(slow.now) if "allocated" not in problem]
    assert over == []


@settings(max_examples=examples(60))
@given(
    held=st.integers(1, 12),
    busy_ns=st.integers(0, 20 * NS_PER_S),
    waits=st.lists(st.integers(1, NS_PER_HOUR), max_size=5),
)
def test_time_alone_makes_nothing_wrong(held: int, busy_ns: int, waits: list[int]) -> None:
    ledger = ledger_with_node()
    ledger.allocate("n", "a", gpus(held), 0)
    ledger.add_busy("n", "a", busy_ns)
    now, entered = NS_PER_S, ledger.changes
    found = {text.partition(" of ")[0] for text in ledger.check(now)}
    for wait in waits:
        now += wait
        assert {text.partition(" of ")[0] for text in ledger.check(now)} <= found
        assert ledger.settle(now).total_micro_usd == ledger.total(now)
    assert ledger.changes == entered == 3


def test_every_entry_is_counted() -> None:
    ledger = ledger_with_node()
    counts = [ledger.changes]
    for enter in (
        lambda: ledger.allocate("n", "a", gpus(2), 1),
        lambda: ledger.add_busy("n", "a", 1),
        lambda: ledger.release("n", "a", gpus(1), 2),
        lambda: ledger.close_node("n", 3),
    ):
        enter()
        counts.append(ledger.changes)
    assert counts == sorted(set(counts))
