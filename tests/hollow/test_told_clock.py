"""Time that another process tells."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tonnage.apiserver.background import BackgroundServer
from tonnage.errors import InputError
from tonnage.hollow import prometheus
from tonnage.hollow.running import RunningClock, ToldClock
from tonnage.metrics.store import SeriesStore
from tonnage.units import NS_PER_S

EPOCH_NS = 1_700_000_000 * NS_PER_S


@contextmanager
def served(now: list[int]) -> Iterator[str]:
    """A Prometheus API whose time is the last of ``now``, in ns since its epoch."""
    app = prometheus.app(SeriesStore(), epoch_ns=EPOCH_NS, now_ns=lambda: now[-1], lock=threading.RLock())
    server = BackgroundServer(app, 0).start()
    try:
        yield server.url
    finally:
        server.stop()


def test_it_has_the_time_of_the_machines_and_never_goes_back() -> None:
    now = [0]
    with served(now) as url:
        clock = ToldClock(url, every_s=0)
        assert clock.now_ns() == EPOCH_NS
        now.append(90 * NS_PER_S)
        assert clock.now_ns() == EPOCH_NS + 90 * NS_PER_S
        now.append(30 * NS_PER_S)
        assert clock.now_ns() == EPOCH_NS + 90 * NS_PER_S
    assert clock.now_ns() == EPOCH_NS + 90 * NS_PER_S, "nobody tells it any more"


def test_nobody_who_tells_it_is_said() -> None:
    with pytest.raises(InputError, match="nobody tells the time"):
        ToldClock("http://127.0.0.1:1", every_s=0.01, patience_s=0.05)


@pytest.mark.parametrize(("speed", "expected_s"), [(1.0, 1_700_000_050), (20.0, 1_700_000_000)])
def test_a_servers_own_stamp_counts_at_its_own_speed_only(speed: float, expected_s: int) -> None:
    clock = RunningClock(EPOCH_NS, speed)
    assert clock.of("2023-11-14T22:14:10Z") == expected_s * NS_PER_S
