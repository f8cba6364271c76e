"""What nobody waits for is written all the same: after bindings, the latest of each object, again when it failed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tonnage.decisions import Applied, Outcome, Refused, Stale
from tonnage.live import aside
from tonnage.live.aside import Aside


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aside]:
    monkeypatch.setattr(aside, "FIRST_PAUSE_S", 0.02)
    found = Aside(2)
    yield found
    found.close()


class Log:
    """Writes that are noted. ``gate``: they wait for it; ``no``: how often each fails first."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()

    def write(self, name: str, *outcomes: Outcome) -> Callable[[], Outcome]:
        answers = iter(outcomes)

        def call() -> Outcome:
            self.begun.set()
            assert self.gate.wait(5)
            self.done.append(name)
            return next(answers, Applied())

        return call


def test_the_latest_write_of_an_object_is_the_one_that_is_made(made: Aside) -> None:
    log = Log()
    with made.bindings_first():
        for text in ("first", "second", "third"):
            assert made.put("pod", log.write(text)) == Applied()
    assert made.flush(5)
    assert log.done == ["third"]


def test_bindings_come_first_but_not_for_ever(made: Aside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "PASSED_OVER_S", 0.2)
    log = Log()
    with made.bindings_first():
        begun = time.monotonic()
        made.put("pod", log.write("told"))
        assert made.flush(5)
        assert time.monotonic() - begun > 0.1
    assert log.done == ["told"]


def test_what_failed_is_made_again_and_said_meanwhile(made: Aside) -> None:
    log, seen = Log(), []

    def failing() -> Outcome:
        seen.append(made.problem)
        return Refused("no right", "Forbidden") if len(seen) < 3 else Applied()

    made.put("pod", failing)
    assert made.flush(5)
    assert len(seen) == 3 and seen[1:] == ["no right", "no right"]
    assert made.problem == ""
    made.put("other", log.write("told", Stale("lost")))
    assert made.flush(5)
    assert log.done == ["told", "told"]


def test_where_everything_fails_little_is_asked(made: Aside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "FIRST_PAUSE_S", 1.0)
    asked: list[int] = []

    def refused(number: int) -> Callable[[], Outcome]:
        return lambda: asked.append(number) or Refused("no right")  # type: ignore[func-returns-value]

    for number in range(500):
        made.put(number, refused(number))
    time.sleep(0.5)
    assert len(asked) <= aside.FAILURES + 1


def test_who_is_about_to_be_bound_waits_for_the_write_under_way_and_for_no_other(made: Aside) -> None:
    log = Log()
    log.gate.clear()
    made.put("pod", log.write("waits"))
    assert log.begun.wait(5)
    made.put("pod", log.write("waits for another reason"))
    threading.Timer(0.1, log.gate.set).start()
    made.settle("pod")
    assert log.done == ["waits"]
    assert made.flush(1)
    assert log.done == ["waits"]


def test_what_is_to_settle_is_not_made_before_its_time_and_can_be_taken_back(made: Aside) -> None:
    log = Log()
    made.put("pod", log.write("not ready"), after_s=0.2)
    made.put("other", log.write("tainted"), after_s=0.2)
    time.sleep(0.05)
    assert log.done == []
    assert made.drop("pod")
    assert made.flush(5)
    assert log.done == ["tainted"]
    assert not made.drop("other")


def test_a_fault_ends_no_thread(made: Aside) -> None:
    log = Log()

    def fault() -> Outcome:
        raise ValueError("boom")

    made.put("broken", fault)
    made.put("pod", log.write("told"))
    deadline = time.monotonic() + 5
    while log.done != ["told"] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert log.done == ["told"]


def test_without_threads_it_is_made_at_once_and_what_became_of_it_is_said() -> None:
    log = Log()
    assert Aside(0).put("pod", log.write("told", Stale("gone"))) == Stale("gone")
    assert log.done == ["told"]
