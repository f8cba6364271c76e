"""Transfers of KV blocks between engines: what each side holds, and that it ends whatever happens to the other."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_seeds import examples
from tonnage.inference.disaggregation.actions import (
    Action,
    Cancel,
    Deregister,
    Free,
    Kind,
    Leases,
    Lost,
    Send,
    StartDecode,
    StartTransfer,
)
from tonnage.inference.disaggregation.destination import Destination, DestinationState
from tonnage.inference.disaggregation.source import Source, SourceState

LEASES = Leases(lease_ns=300, patience_ns=200, heartbeat_ns=50)


class World:
    """A prefill and a decode engine, a network that loses, delays and reorders, NICs that take their time, crashes."""

    def __init__(self, push: bool) -> None:
        self.push = push
        self.now = 0
        self.source = Source(LEASES, push=push)
        self.destination = Destination(LEASES, push=push)
        self.network: list[tuple[str, int, Kind]] = []  # (to, transfer, message)
        self.flying: dict[int, bool] = {}  # transfer: whether its pages are still registered
        self.fenced: set[int] = set()
        self.computing: set[int] = set()
        self.pinned: Counter[str] = Counter()  # blocks by side, as the engines count them
        self.ends: dict[int, list[str]] = {}
        self.opened = 0

    def begin(self) -> int:
        self.opened = number = self.opened + 1
        self.ends[number] = []
        self.pinned["decode"] += number
        self.do("decode", self.destination.reserve(number, 1000 + number, number, self.now))
        self.do("prefill", self.source.open(number, 2000 + number))
        self.computing.add(number)
        return number

    def do(self, side: str, actions: list[Action]) -> None:
        other = "prefill" if side == "decode" else "decode"
        for action in actions:
            match action:
                case Send(transfer, kind):
                    self.network.append((other, transfer, kind))
                case StartTransfer(transfer):
                    assert side == ("prefill" if self.push else "decode")
                    self.flying[transfer] = transfer not in self.fenced
                case Deregister(transfer):
                    assert side == ("decode" if self.push else "prefill"), "the pages that the other side accesses"
                    self.fenced.add(transfer)
                    if transfer in self.flying:
                        self.flying[transfer] = False
                case Free(transfer, blocks):
                    assert not self.flying.get(transfer, False), f"{side} freed pages in use by transfer {transfer}"
                    if side == "decode":
                        assert not (self.push and transfer in self.flying and transfer not in self.fenced)
                    self.pinned[side] -= blocks
                    assert self.pinned[side] >= 0, "freed twice"
                case Cancel(transfer):
                    self.computing.remove(transfer)
                case StartDecode(transfer):
                    self.ends[transfer].append("run")
                    self.pinned["decode"] -= transfer  # the running request's from now on
                case Lost(transfer, _):
                    self.ends[transfer].append("lost")

    def compute(self, number: int) -> None:
        self.computing.discard(number)
        self.pinned["prefill"] += number
        self.do("prefill", self.source.computed(number, number, self.now))

    def deliver(self, index: int) -> None:
        to, transfer, kind = self.network.pop(index)
        if to == "prefill":
            self.do("prefill", self.source.receive(transfer, kind, self.now))
        else:
            self.do("decode", self.destination.receive(transfer, kind, self.now))

    def land(self, transfer: int) -> None:
        ok = self.flying.pop(transfer)
        if self.push:
            self.do("prefill", self.source.moved(transfer, ok))
        else:
            self.do("decode", self.destination.moved(transfer, ok))

    def pass_time(self, ns: int) -> None:
        self.now += ns
        self.do("prefill", self.source.expire(self.now))
        self.do("decode", self.destination.expire(self.now))

    def beat(self) -> None:
        self.do("decode", self.destination.heartbeat())

    def crash(self, side: str, noticed: bool) -> None:
        """The engine restarts empty: what was sent to it is lost, its NIC stops, and a read or write of its ends."""
        self.network = [message for message in self.network if message[0] != side]
        mover = "prefill" if self.push else "decode"
        if side == "prefill":
            open_there = list(self.destination.transfers)
            self.source = Source(LEASES, push=self.push)
            self.computing.clear()
        else:
            open_there = list(self.source.transfers)
            for number, state in self.destination.transfers.items():
                if state is not DestinationState.DRAINING:
                    self.ends[number].append("crashed")
            self.destination = Destination(LEASES, push=self.push)
        self.pinned[side] = 0
        if side == mover:
            self.flying.clear()
        else:
            self.flying = dict.fromkeys(self.flying, False)
        if noticed:
            machine = self.destination if side == "prefill" else self.source
            for number in open_there:
                self.do("decode" if side == "prefill" else "prefill", machine.peer_lost(number))

    def settle(self) -> None:
        """The trouble is over: what can still happen happens, for longer than any lease."""
        for _ in range(12):
            for number in sorted(self.computing):
                self.compute(number)
            for number in list(self.flying):
                self.land(number)
            while self.network:
                self.deliver(0)
            self.beat()
            self.pass_time(LEASES.heartbeat_ns)
        while self.network:
            self.deliver(0)


def _disturb(world: World, rng: random.Random) -> None:
    what = rng.randrange(12)
    if what <= 1 and world.opened < 12:
        world.begin()
    elif what == 2 and world.computing:
        world.compute(rng.choice(sorted(world.computing)))
    elif what <= 5 and world.network:
        world.deliver(rng.randrange(len(world.network)))
    elif what == 6 and world.network:
        world.network.pop(rng.randrange(len(world.network)))
    elif what == 7 and world.flying:
        world.land(rng.choice(sorted(world.flying)))
    elif what == 8 and world.opened:
        number = rng.randint(1, world.opened)
        if rng.random() < 0.5:
            world.do("prefill", world.source.abort(2000 + number))
        elif world.destination.transfers.get(number, DestinationState.DRAINING) is not DestinationState.DRAINING:
            world.ends[number].append("aborted")
            world.do("decode", world.destination.abort(1000 + number))
    elif what == 9:
        world.pass_time(rng.choice((1, 20, 120)))
    elif what == 10:
        world.beat()
    elif what == 11 and rng.random() < 0.3:
        world.crash(rng.choice(("prefill", "decode")), noticed=rng.random() < 0.5)


@pytest.mark.parametrize("push", [False, True], ids=["read by decode", "written by prefill"])
@settings(max_examples=examples(400), deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 150))
def test_aborts_crashes_and_lost_messages_at_any_stage_leave_no_block_held(push: bool, seed: int, steps: int) -> None:
    world, rng = World(push), random.Random(seed)
    for _ in range(steps):
        _disturb(world, rng)
    world.settle()
    assert (world.source.held_blocks, world.destination.held_blocks) == (0, 0)
    assert world.source.transfers == world.destination.transfers == {}
    assert not +world.pinned, f"blocks that nobody released: {world.pinned}"
    assert all(len(ends) == 1 for ends in world.ends.values()), f"each request ends once: {world.ends}"


@pytest.mark.parametrize("push", [False, True], ids=["read by decode", "written by prefill"])
def test_a_transfer_that_nothing_disturbs_hands_the_blocks_over_and_frees_the_source(push: bool) -> None:
    world = World(push)
    number = world.begin()
    world.compute(number)
    assert world.source.held_blocks == world.destination.held_blocks == number
    world.settle()
    assert world.ends == {number: ["run"]}
    assert not +world.pinned


def _held(push: bool) -> World:
    """A transfer whose blocks are computed and held; no message has been delivered."""
    world = World(push)
    world.compute(world.begin())
    return world


def _moving(push: bool) -> World:
    """A transfer whose data is on its way."""
    world = _held(push)
    while not world.flying:
        world.deliver(0)
    return world


@pytest.mark.report(30)
@pytest.mark.parametrize("stage", ["computing", "held", "moving"])
@pytest.mark.parametrize("push", [False, True], ids=["read by decode", "written by prefill"])
def test_an_abort_by_either_sides_own_request_id_frees_both_sides(push: bool, stage: str) -> None:
    for side in ("prefill", "decode"):
        world = {"computing": World, "held": _held, "moving": _moving}[stage](push)
        number = world.opened or world.begin()
        if side == "prefill":
            world.do("prefill", world.source.abort(2000 + number))
        else:
            world.do("decode", world.destination.abort(1000 + number))
        world.settle()
        assert world.source.held_blocks == world.destination.held_blocks == 0
        assert not +world.pinned and not world.computing


@pytest.mark.report(30)
def test_blocks_for_a_decode_side_that_died_are_kept_until_the_lease_ends_and_no_longer() -> None:
    world = _held(push=False)
    world.crash("decode", noticed=False)
    assert world.source.next_deadline_ns() == LEASES.lease_ns
    world.pass_time(LEASES.lease_ns - 1)
    assert world.source.held_blocks == 1
    world.pass_time(1)
    assert world.source.held_blocks == 0


@pytest.mark.report(30)
def test_a_queue_at_the_decode_side_loses_no_blocks_as_heartbeats_renew_the_lease() -> None:
    source = Source(LEASES)
    source.open(1, 1)
    source.computed(1, 5, 0)
    for now in range(50, 2000, 50):
        assert source.receive(1, "heartbeat", now) == [Send(1, "ready")], "a notice that was lost is given again"
        assert source.expire(now) == []
    assert source.held_blocks == 5
    assert source.next_deadline_ns() == 1950 + LEASES.extension_ns


def test_a_heartbeat_never_shortens_a_lease() -> None:
    source = Source(LEASES)
    source.open(1, 1)
    source.computed(1, 5, 0)
    source.receive(1, "heartbeat", 10)
    assert source.next_deadline_ns() == LEASES.lease_ns


@pytest.mark.report(31)
@pytest.mark.parametrize("push", [False, True], ids=["read by decode", "written by prefill"])
@pytest.mark.parametrize("stage", ["computing", "held", "moving"])
def test_the_decode_side_hears_of_a_prefill_abort_with_the_next_message(push: bool, stage: str) -> None:
    world = {"computing": World, "held": _held, "moving": _moving}[stage](push)
    number = world.opened or world.begin()
    world.network.clear()
    world.do("prefill", world.source.abort(2000 + number))
    assert world.network[0] == ("decode", number, "abort")
    world.deliver(0)
    assert world.ends[number] == ["lost"], "its client is answered now, not after a timeout"


@pytest.mark.report(31)
@pytest.mark.parametrize("push", [False, True], ids=["read by decode", "written by prefill"])
def test_a_prefill_engine_that_restarted_says_so_at_the_first_heartbeat(push: bool) -> None:
    world = World(push)
    number = world.begin()
    world.crash("prefill", noticed=False)
    world.beat()
    while world.network:
        world.deliver(0)
    assert world.ends[number] == ["lost"]
    assert world.now == 0


@pytest.mark.report(32)
def test_pages_of_an_aborted_request_are_not_freed_while_the_prefill_side_writes() -> None:
    world = _moving(push=True)
    world.do("decode", world.destination.abort(1001))
    assert world.destination.transfers == {1: DestinationState.DRAINING}
    assert world.pinned["decode"] == 1
    while world.network:
        world.deliver(0)
    assert world.pinned["decode"] == 1, "the prefill side knows, but its write has not ended"
    world.land(1)
    while world.network:
        world.deliver(0)
    assert world.pinned["decode"] == 0


@pytest.mark.report(32)
def test_pages_of_an_aborted_request_are_not_freed_while_the_decode_side_reads() -> None:
    world = _moving(push=False)
    world.do("prefill", world.source.abort(2001))
    assert world.source.transfers == {1: SourceState.MOVING}
    while world.network:
        world.deliver(0)
    assert (world.ends[1], world.pinned["decode"], world.pinned["prefill"]) == (["lost"], 1, 1)
    world.land(1)
    while world.network:
        world.deliver(0)
    assert not +world.pinned


@pytest.mark.report(32)
@pytest.mark.parametrize("push", [False, True], ids=["read by decode", "written by prefill"])
def test_when_the_other_side_stays_silent_it_is_fenced_off_before_pages_are_freed(push: bool) -> None:
    world = _moving(push)
    world.network.clear()
    if push:
        world.do("decode", world.destination.abort(1001))
        actions = world.destination.expire(LEASES.patience_ns)
    else:
        actions = world.source.expire(LEASES.lease_ns)
    assert actions[:2] == [Deregister(1), Free(1, 1)]


def test_a_number_in_use_is_refused_on_both_sides() -> None:
    source, destination = Source(), Destination()
    source.open(1, 1)
    destination.reserve(1, 1, 4, 0)
    for again in ((1, 2), (2, 1)):
        with pytest.raises(ValueError, match="already here"):
            source.open(*again)
        with pytest.raises(ValueError, match="already here"):
            destination.reserve(*again, 4, 0)
