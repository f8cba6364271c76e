"""From what became of each request to the shares of a result."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tonnage.machines.serving.service import DONE, FAILED, PENDING, SimulatedService
from tonnage.simulation.assemble import RequestArrays
from tonnage.traffic.arrivals import Arrivals
from tonnage.units import NS_PER_MS, NS_PER_S, ns

TTFT_NS, TPOT_NS = 2 * NS_PER_S, 50 * NS_PER_MS
END_S = 100.0


def _table(arrival_s: float, output: int, first_s: float, finish_s: float, status: int) -> RequestArrays:
    """One request of ``output`` tokens; 0 for a time that has not come."""
    one = np.array([output], np.int32)
    service = SimulatedService("a/b", Arrivals(np.array([ns(arrival_s)]), one, one, ()), "random", random.Random(0))
    service.requests.first_ns, service.requests.finish_ns = [ns(first_s)], [ns(finish_s)]
    service.requests.status[0] = status
    return RequestArrays(service, TTFT_NS, TPOT_NS, ns(END_S))


@pytest.mark.parametrize(
    ("request_", "counted"),
    [
        pytest.param((10, 11, 11, 11.4, DONE), "met", id="both within"),
        pytest.param((10, 11, 12, 12.5, DONE), "met", id="both at the limit"),
        pytest.param((10, 11, 12.001, 12.5, DONE), "missed_ttft", id="the first token is late"),
        pytest.param((10, 11, 11, 11.501, DONE), "missed_tpot", id="the others are slow"),
        pytest.param((10, 1, 11, 11, DONE), "met", id="a single token has no time per token"),
        pytest.param((10, 11, 0, 0, FAILED), "unfinished", id="failed"),
        pytest.param((10, 11, 11, 0, FAILED), "unfinished", id="failed while it answered"),
        pytest.param((99, 11, 0, 0, PENDING), "undecided", id="the first token may still be in time"),
        pytest.param((97, 1000, 0, 0, PENDING), "unfinished", id="the first token is late already"),
        pytest.param((90, 201, 91, 0, PENDING), "undecided", id="the last token may still be in time"),
        pytest.param((80, 101, 81, 0, PENDING), "unfinished", id="the last token is late already"),
        pytest.param((80, 1000, 83, 0, PENDING), "unfinished", id="the first token was late"),
    ],
)
def test_a_request_is_counted_by_what_it_met(request_: tuple[float, int, float, float, int], counted: str) -> None:
    table = _table(*request_)
    found = table.attainment(np.ones(1, np.bool_))
    names = ("met", "missed_ttft", "missed_tpot", "unfinished", "undecided")
    assert [name for name in names if getattr(found, name)] == [counted]
    assert found.requests == (counted != "undecided")
    assert found.share == (None if counted == "undecided" else float(counted == "met"))


@pytest.mark.parametrize(
    ("arrival_s", "inside"), [(9.9, False), (10, True), (19.9, True), (20, False), (50, True), (60, False)]
)
def test_the_grace_begins_with_each_surge(arrival_s: float, inside: bool) -> None:
    table = _table(arrival_s, 1, 0, 0, PENDING)
    surges = [(ns(10), ns(40), 5.0), (ns(50), ns(90), 2.0)]
    assert table.in_grace(10 * NS_PER_S, surges).tolist() == [inside]


def test_a_request_that_failed_while_it_answered_has_a_time_to_first_token() -> None:
    table = _table(10, 11, 10.5, 0, FAILED)
    assert table.began.tolist() == [True] and table.done.tolist() == [False]
    assert table.ttft_ns.tolist() == [NS_PER_S // 2]
