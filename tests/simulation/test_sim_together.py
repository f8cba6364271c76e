"""Services whose engines share GPUs, by hand: whatever kinds they are and whoever dies, all that happens is in order."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import cast

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_seeds import examples
from tonnage.inference.disaggregation.actions import Leases
from tonnage.inference.disaggregation.links import kv_link
from tonnage.inference.engine import Engine, EngineConfig
from tonnage.inference.timing import LinearTiming
from tonnage.machines.cards import SharedGpu, Sharer
from tonnage.machines.serving.pools import DECODE, PREFILL, Split
from tonnage.machines.serving.replica import ServingReplica
from tonnage.machines.serving.service import DONE, FAILED, SimulatedService
from tonnage.machines.serving.split import SplitService
from tonnage.machines.serving.together import Together, unite
from tonnage.traffic.arrivals import Arrivals
from tonnage.units import NS_PER_S

CONFIG = EngineConfig(512, 8, 4096, 400)
TIMING = LinearTiming(base_ps=10**10, token_ps=10**7, cached_ps=10**5)
SPLIT = Split(kv_link("efa-p5"), lanes=1, layers=32, bytes_per_token=131_072, layerwise=False, leases=Leases())


def arrivals(rng: random.Random, count: int) -> Arrivals:
    times = np.array(sorted(rng.randint(0, 5 * NS_PER_S) for _ in range(count)), np.int64)
    lengths = [np.array([rng.randint(1, 1500) for _ in range(count)], np.int32) for _ in range(2)]
    return Arrivals(times, lengths[0], lengths[1] // 10 + 1, ())


def plain(name: str, rng: random.Random, replicas: int) -> SimulatedService:
    made = SimulatedService(name, arrivals(rng, 20), "least-requests", random.Random(1))
    for number in range(replicas):
        made.add(ServingReplica(f"{name}/{number}", Engine(CONFIG, TIMING)))
    return made


def split(name: str, rng: random.Random) -> SplitService:
    made = SplitService(name, arrivals(rng, 20), "least-requests", random.Random(1), random.Random(2), SPLIT)
    for role in (PREFILL, DECODE, DECODE):
        made.add(ServingReplica(f"{name}/{role}", Engine(CONFIG, TIMING), role=role))
    return made


def share(card: SharedGpu, service: SimulatedService, replica: ServingReplica) -> None:
    """Put the replica on the card."""
    replica.sharer = Sharer(
        replica.pod, {card: Fraction(1)}, {card: Fraction(1)}, None, Fraction(0), replica=replica, service=service
    )
    card.sharers.append(replica.sharer)


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_a_service_alone_on_its_gpus_does_the_same_as_without_sharing(seed: int, apart: bool) -> None:
    def made() -> SimulatedService:
        rng = random.Random(seed)
        return split("a/b", rng) if apart else plain("a/b", rng, 2)

    free, alone = made(), made()
    Together([alone])
    for replica in alone.endpoints:
        share(SharedGpu(mps=False), alone, replica)
    for second in (1, 2, 7, 60):
        for service in (free, alone):
            service.advance(second * NS_PER_S)
            service.settle(second * NS_PER_S)
    assert alone.requests.first_ns == free.requests.first_ns
    assert alone.requests.finish_ns == free.requests.finish_ns
    assert alone.requests.status == free.requests.status


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_all_requests_end_and_no_gpu_works_for_longer_than_time_passes_whoever_dies(seed: int, mps: bool) -> None:
    rng = random.Random(seed)
    services: list[SimulatedService] = [plain("a/one", rng, 2), split("a/two", rng), plain("a/three", rng, 1)]
    cards = [SharedGpu(mps=mps) for _ in range(3)]
    for service in services:
        for replica in service.endpoints:
            share(rng.choice(cards), service, replica)
    unite(services, 0)
    now, taken = 0, [0, 0, 0]
    everybody = [(service, replica) for service in services for replica in service.endpoints]
    dies = rng.choice(everybody)
    dead_at = rng.randint(0, 8 * NS_PER_S)
    while now < 90 * NS_PER_S:
        before, now = now, now + rng.randint(1, 2 * NS_PER_S if now < 10 * NS_PER_S else 40 * NS_PER_S)
        for service in services:
            service.advance(now)
        if before < dead_at <= now:
            service, replica = dies
            service.kill(replica, now)
            for card in cast("Sharer", replica.sharer).cores if replica.sharer else ():
                card.sharers.remove(cast(Sharer, replica.sharer))
                card.divide(now)
            replica.sharer = None
        for service in services:
            service.settle(now)
        for number, card in enumerate(cards):
            spent = sum(sharer.replica.taken_ns for sharer in card.sharers if sharer.replica is not None)
            if not before < dead_at <= now:
                assert spent - taken[number] <= now - before + len(card.sharers)
            taken[number] = spent
    for service in services:
        assert set(service.requests.status) <= {DONE, FAILED}
        assert service.in_flight == 0
        for replica in service.endpoints:
            assert replica.engine is not None and replica.engine.blocks_used == 0
    assert not any(sharer.active for card in cards for sharer in card.sharers)


def test_services_that_share_with_the_same_one_all_advance_together() -> None:
    rng = random.Random(0)
    one, two, three = (plain(name, rng, 1) for name in ("a/1", "a/2", "a/3"))
    unite([two, one], 0)
    assert three.together is None
    unite([three, two], 0)
    assert one.together is two.together is three.together
    assert one.together is not None
    assert [service.name for service in one.together.services] == ["a/1", "a/2", "a/3"]
    before = one.together
    unite([one, two], 0)
    assert one.together is before
