"""Requests on their way through a Service: who gets them, and that each ends exactly once."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_builders import SETUP, arrivals

from deep_seeds import examples
from tonnage.inference.engine import Engine
from tonnage.machines.serving.replica import ServingReplica
from tonnage.machines.serving.service import DONE, FAILED, LOAD_BALANCING, PENDING, SimulatedService
from tonnage.traffic.arrivals import Arrivals
from tonnage.units import NS_PER_S, ns

STEP_S = 0.01


def _replica(name: str, now_ns: int = 0) -> ServingReplica:
    return ServingReplica(name, Engine(SETUP.config, SETUP.timing, now_ns))


def _service(requests: Arrivals, balancing: str, *replicas: ServingReplica, seed: int = 0) -> SimulatedService:
    made = SimulatedService("inference/model-a", requests, balancing, random.Random(seed))
    for replica in replicas:
        made.add(replica)
    return made


def _play(service: SimulatedService, second: float) -> list[int]:
    service.advance(ns(second))
    service.settle(ns(second))
    return list(service.requests.status)


class Witness(Engine):
    """An engine that says whose turn it was."""

    def __init__(self, name: str, got: list[str]) -> None:
        super().__init__(SETUP.config, SETUP.timing)
        self._name, self._got = name, got

    def submit(self, *request: int) -> None:
        self._got.append(self._name)
        super().submit(*request)


def _received(balancing: str, requests: Arrivals, count: int = 3, seed: int = 0) -> list[str]:
    """Which replica got each request."""
    got: list[str] = []
    replicas = [ServingReplica(name, Witness(name, got)) for name in (f"pod-{i}" for i in range(count))]
    _service(requests, balancing, *replicas, seed=seed).advance(1000 * NS_PER_S)
    return got


# ---- balancing ----


def test_round_robin_takes_the_replicas_in_turn() -> None:
    got = _received("round-robin", arrivals(*range(9)))
    assert Counter(got) == {"pod-0": 3, "pod-1": 3, "pod-2": 3}
    assert all(a != b for a, b in pairwise(got))


def test_least_requests_takes_the_replica_with_the_fewest_in_flight() -> None:
    long = arrivals(1, 1.1, 1.2, 1.3, output=100)
    assert _received("least-requests", long, count=2) == ["pod-0", "pod-1", "pod-0", "pod-1"]
    one_by_one = arrivals(1, 2, 3, 4, output=10)
    assert _received("least-requests", one_by_one, count=2) == ["pod-0"] * 4


def test_least_requests_knows_of_a_request_that_has_just_ended() -> None:
    first = Arrivals(
        np.array([ns(1), ns(1.001), ns(1.2)], np.int64),
        np.array([10, 10, 10], np.int32),
        np.array([500, 10, 10], np.int32),
        (),
    )
    assert _received("least-requests", first, count=2) == ["pod-0", "pod-1", "pod-1"]


def test_random_follows_its_stream() -> None:
    requests = arrivals(*range(50))
    expected = random.Random(7)
    assert _received("random", requests, seed=7) == [f"pod-{expected.randrange(3)}" for _ in range(50)]
    assert _received("random", requests, seed=8) != _received("random", requests, seed=7)


# ---- what becomes of requests ----


def test_a_request_takes_the_steps_of_its_tokens() -> None:
    service = _service(arrivals(1, output=10), "round-robin", _replica("pod"))
    assert _play(service, 1.05) == [PENDING]
    assert service.requests.first_ns[0] == ns(1 + STEP_S), "the first token is known before the last"
    assert _play(service, 2) == [DONE]
    assert service.requests.finish_ns[0] == ns(1 + 10 * STEP_S)
    assert service.in_flight == 0


def test_without_an_endpoint_requests_fail() -> None:
    service = _service(arrivals(1, 2), "least-requests")
    assert _play(service, 3) == [FAILED, FAILED]
    assert (service.received, service.failed) == (2, 2)


def test_a_replica_that_does_not_listen_yet_refuses_requests() -> None:
    service = _service(arrivals(1), "round-robin", ServingReplica("pod"))
    assert _play(service, 2) == [FAILED]


def test_a_request_that_can_never_fit_fails_at_once_and_burdens_nobody() -> None:
    service = _service(arrivals(1, prompt=4096, output=100), "least-requests", _replica("pod"))
    service.advance(ns(1.001))
    assert list(service.requests.status) == [FAILED]
    assert service.in_flight == 0


def test_a_draining_replica_finishes_what_it_has_and_gets_nothing_new() -> None:
    stays, leaves = _replica("stays"), _replica("leaves")
    service = _service(arrivals(1, 1.001, 2, 2.001, output=150), "round-robin", stays, leaves)
    service.advance(ns(1.5))
    service.drain(leaves)
    service.advance(ns(2.01))
    assert (stays.in_flight, leaves.in_flight) == (3, 1)
    assert _play(service, 10) == [DONE] * 4


def test_the_requests_of_a_killed_replica_fail_and_the_finished_ones_stay_done() -> None:
    replica = _replica("pod")
    service = _service(arrivals(1, 2, 2.001, output=50), "round-robin", replica)
    service.advance(ns(2.2))
    assert service.kill(replica, ns(2.2)) == 2
    assert list(service.requests.status) == [DONE, FAILED, FAILED]
    assert (service.failed, service.in_flight, service.endpoints) == (2, 0, [])
    assert _play(service, 10) == [DONE, FAILED, FAILED], "nothing of a dead replica comes back"


def test_requests_that_have_not_ended_at_the_end_are_pending() -> None:
    service = _service(arrivals(1, 2, output=100), "round-robin", _replica("pod"))
    assert _play(service, 2.5) == [DONE, PENDING]


MOMENTS = st.floats(0, 20, allow_nan=False)


@settings(max_examples=examples(60), deadline=None)
@given(
    times=st.lists(MOMENTS, min_size=1, max_size=60),
    outputs=st.lists(st.integers(1, 400), min_size=60, max_size=60),
    balancing=st.sampled_from(LOAD_BALANCING),
    changes=st.lists(st.tuples(MOMENTS, st.sampled_from(["add", "drain", "kill", "settle"])), max_size=20),
)
def test_every_request_ends_exactly_once(
    times: list[float], outputs: list[int], balancing: str, changes: list[tuple[float, str]]
) -> None:
    moments = np.array(sorted(ns(t) for t in times), np.int64)
    lengths = np.array(outputs[: len(times)], np.int32)
    service = _service(Arrivals(moments, np.full(len(times), 100, np.int32), lengths, ()), balancing, _replica("pod-0"))
    told = 0
    for number, (second, change) in enumerate(sorted(changes), 1):
        now = ns(second)
        service.advance(now)
        if change == "add":
            service.add(_replica(f"pod-{number}", now))
        elif change == "settle":
            service.settle(now)
        elif change == "drain" and service.endpoints:
            service.drain(service.endpoints[0])
        elif change == "kill" and (service.draining or service.endpoints):
            told += service.kill((service.draining or service.endpoints)[0], now)
    service.advance(ns(25))
    service.settle(ns(25))
    ends = Counter(service.requests.status)
    held = sum(r.engine.running + r.engine.waiting for r in (*service.endpoints, *service.draining) if r.engine)
    assert service.received == len(times)
    assert ends[PENDING] == held == service.in_flight
    assert ends[FAILED] == service.failed >= told
    finished = [f for f, s in zip(service.requests.finish_ns, service.requests.status, strict=True) if s == DONE]
    assert all(finished) and len(finished) + service.failed + held == len(times)
    for first, last, arrival, status in zip(
        service.requests.first_ns, service.requests.finish_ns, moments, service.requests.status, strict=True
    ):
        if status == DONE:
            assert arrival < first <= last


@pytest.mark.parametrize("balancing", LOAD_BALANCING)
def test_when_an_engine_is_looked_at_does_not_change_what_it_does(balancing: str) -> None:
    times = np.sort(np.random.default_rng(1).uniform(0, 20, 200))
    lengths = np.random.default_rng(2).integers(1, 300, 200).astype(np.int32)
    requests = Arrivals((times * NS_PER_S).astype(np.int64), np.full(200, 100, np.int32), lengths, ())
    outcomes = []
    for looks in ([], [s / 3 for s in range(1, 60)]):
        service = _service(requests, balancing, *(_replica(f"pod-{i}") for i in range(3)))
        for second in looks:
            _play(service, second)
        _play(service, 60)
        outcomes.append((service.requests.first_ns, service.requests.finish_ns, bytes(service.requests.status)))
    assert outcomes[0] == outcomes[1]
