"""Live progress: silent where nobody looks, seldom drawn where somebody does."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tonnage.cli import runs
from tonnage.cli.progress import Progress, ProgressState, ServiceProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def a_capable_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def state(now_s: float = 2325.0) -> ProgressState:
    services = (ServiceProgress("serving/chat-8b", 14, 16, 412), ServiceProgress("serving/code-14b", 2, 2, 0))
    return ProgressState("keda+karpenter", now_s, 5400.0, services, 5, 1, 17_140_000)


def test_a_terminal_sees_time_replicas_queue_nodes_and_spend() -> None:
    stream = Terminal()
    with Progress(stream=stream, clock=Clock()) as progress:
        progress.update(state())
    for part in (
        "0:38:45 of 1:30:00",
        "14/16 ready",
        "412 waiting",
        "5 nodes ready and 1 starting",
        "$17.14",
    ):
        assert part in stream.getvalue()


def test_several_runs_are_drawn_in_the_order_of_their_jobs_with_what_is_done_and_next() -> None:
    stream, clock = Terminal(), Clock()
    jobs = [runs.RunRequest(Path("scenario.yaml"), name, 0, None, None, False) for name in ("a", "b", "c", "d")]
    with Progress(stream=stream, clock=clock) as progress:
        board = runs._Board(jobs, progress)
        for label in ("c", "b"):
            clock.now += 1
            board.show(replace(state(), label=label))
        clock.now += 1
        board.finished("a")
        board.show(replace(state(), label="c"))
        drawn = stream.getvalue()
    last = drawn[drawn.rindex("14/16 ready", 0, drawn.rindex("14/16 ready")) - 200 :]
    assert last.index("b\x1b") < last.index("c\x1b") < last.index("done: a; next: d")


@pytest.mark.parametrize(("stream", "quiet"), [(io.StringIO(), False), (Terminal(), True)])
def test_it_is_silent_without_a_terminal_and_when_quiet(stream: io.StringIO, quiet: bool) -> None:
    with Progress(stream=stream, quiet=quiet) as progress:
        assert not progress.due()
        progress.update(state())
    assert stream.getvalue() == ""


def test_it_draws_at_most_ten_times_a_second() -> None:
    stream, clock = Terminal(), Clock()
    drawn = 0
    with Progress(stream=stream, clock=clock) as progress:
        for step in range(1000):  # one second in steps of a millisecond
            before = len(stream.getvalue())
            progress.update(state(step))
            drawn += len(stream.getvalue()) > before
            clock.now += 0.001
    assert 9 <= drawn <= 11


def test_it_is_due_again_only_after_the_interval() -> None:
    clock = Clock()
    with Progress(stream=Terminal(), clock=clock) as progress:
        assert progress.due()
        progress.update(state())
        assert not progress.due()
        clock.now += 0.2
        assert progress.due()
    assert not progress.due()


def test_a_run_of_no_length_and_a_long_name_can_be_drawn() -> None:
    stream = Terminal()
    services = (ServiceProgress("a-very-long-namespace-name/a-very-long-service-name", 0, 1, 0),)
    with Progress(stream=stream, clock=Clock()) as progress:
        progress.update(ProgressState("static", 0.0, 0.0, services, 0, 0, 0))
    assert "…" in stream.getvalue()


def test_importing_it_does_not_import_rich() -> None:
    code = "import sys, tonnage.cli.progress; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
