"""The command line as a process: what it imports, how it ends, and what it never shows."""

from __future__ import annotations

import multiprocessing.process
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from cli_builders import make_scenario, replace, tonnage

from tonnage.cli import COMMANDS, runs, up
from tonnage.errors import InputError


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["simulate", "--help"], ["trace", "fit", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    heavy = {"numpy", "rich", "msgspec", "yaml", "promql_parser", "multiprocessing", "tomllib"}
    ran = python(
        "import sys\nfrom tonnage.cli import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit as done:\n    assert done.code == 0\n"
        f"sys.exit(', '.join(sorted({heavy!r} & set(sys.modules))) or 0)"
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout


def test_help_names_every_command_once(capfd: pytest.CaptureFixture[str]) -> None:
    ran = tonnage(capfd)
    assert ran.code == 0
    starts = [line.split()[0] for line in ran.out[ran.out.index("Commands:") :].splitlines()[1:] if line[2:3].strip()]
    assert starts == list(COMMANDS)
    assert {"demo", "simulate", "route", "kv", "size", "cuda", "controller"} <= set(starts)


def test_a_fault_of_ours_is_one_line_without_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("gpu\nand more")

    monkeypatch.setattr("tonnage.simulation.scenario.load", broken)
    monkeypatch.delenv("TONNAGE_DEBUG", raising=False)
    ran = tonnage(capfd, "simulate", tmp_path)
    assert ran.code == 70
    assert ran.err.count("\n") == 1
    assert ran.err.startswith("internal error: KeyError: ")
    assert "please report, rerun with TONNAGE_DEBUG=1 for the traceback" in ran.err
    monkeypatch.setenv("TONNAGE_DEBUG", "1")
    ran = tonnage(capfd, "simulate", tmp_path)
    assert ran.code == 70
    assert "Traceback" in ran.err and "in broken" in ran.err


def job(folder: Path, policy: str = "fixed") -> runs.RunRequest:
    return runs.RunRequest(make_scenario(folder), policy, 0, None, None, False)


def test_a_mistake_that_a_worker_finds_arrives_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "cores", lambda: 2)
    jobs = [job(tmp_path), job(tmp_path, "keda")]
    line = replace(tmp_path / "scenario.yaml", "g6e.12xlarge", "g6e.13xlarge")
    with pytest.raises(InputError) as caught:
        runs.run_all(jobs, quiet=True)
    (problem,) = caught.value.problems
    assert (problem.where.line, problem.where.field) == (line, "fleet.nodes[0].instanceType")


def test_a_worker_that_dies_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "cores", lambda: 2)
    start = runs._start

    def start_and_kill(one: runs.RunRequest) -> object:
        connection, process = start(one)
        process.kill()
        return connection, process

    monkeypatch.setattr(runs, "_start", start_and_kill)
    with pytest.raises(ChildProcessError, match="exited with code -9"):
        runs.run_all([job(tmp_path), job(tmp_path, "keda")], quiet=True)


def test_one_core_runs_the_policies_one_after_the_other_to_the_same_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [job(tmp_path), job(tmp_path, "keda")]
    monkeypatch.setattr(runs, "cores", lambda: 2)
    together = runs.run_all(jobs, quiet=True)
    monkeypatch.setattr(runs, "cores", lambda: 1)
    monkeypatch.setattr(runs, "_start", None)
    assert runs.run_all(jobs, quiet=True) == together


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Who runs the tests in the background of a shell makes them, and all that they start, deaf to interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_a_run_and_its_workers_without_junk(tmp_path: Path) -> None:
    file = make_scenario(tmp_path)
    replace(file, "duration: 4m", "duration: 400h")
    process = subprocess.Popen(
        [sys.executable, "-m", "tonnage", "compare", file, "--report", tmp_path / "report.html"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    for _ in range(100):
        if len(living(process.pid)) >= 4:  # itself, the keeper of its semaphores, two workers; never on one core
            break
        time.sleep(0.1)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers, too
    try:
        out, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert (process.returncode, out, err.strip()) == (130, "", "interrupted")
    assert not (tmp_path / "report.html").exists()
    for _ in range(50):
        if not (left := living(process.pid)):
            break
        time.sleep(0.1)
    assert left == []


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_a_worker_starts_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "cores", lambda: 2)
    started = []

    def interrupt_then_start(process: multiprocessing.process.BaseProcess) -> None:
        signal.raise_signal(signal.SIGINT)
        start(process)
        started.append(process)

    start = multiprocessing.process.BaseProcess.start
    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", interrupt_then_start)
    try:
        with pytest.raises(KeyboardInterrupt):
            runs.run_all([job(tmp_path), job(tmp_path, "keda")], quiet=True)
        assert len(started) == 1
    finally:
        for process in started:
            process.kill()


def living(session: int) -> list[str]:
    """Processes of a session (Linux) that are not just waiting to be reaped."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, its_session = stat.read_text().rpartition(")")[2].split()[:4]
            if int(its_session) == session and state != "Z":
                found.append(stat.parent.name)
    return found


def test_a_reader_that_goes_away_causes_no_complaint(tmp_path: Path) -> None:
    file = make_scenario(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-m", "tonnage", "simulate", file, "-o", "yaml"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=20) == 141


@pytest.mark.parametrize(
    ("script", "code"), [('test "$KUBECONFIG" = /tmp/of-up.yaml', 0), ("exit 3", 3), ("kill -TERM $$", 143)]
)
def test_up_ends_as_the_command_that_it_runs_does(script: str, code: int) -> None:
    with _interrupts_as_before():
        assert up.play_child(["sh", "-c", script], Path("/tmp/of-up.yaml"), threading.Event(), None) == code


def test_a_command_of_up_ends_when_up_has_to() -> None:
    stop = threading.Event()
    stop.set()
    with _interrupts_as_before():
        assert up.play_child(["sleep", "600"], None, stop, None) == 128 + signal.SIGTERM
        assert up.play_child(["sleep", "600"], None, threading.Event(), 0.05) == 128 + signal.SIGTERM


def test_what_follows_the_dashes_is_not_the_scenario(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ran = tonnage(capfd, "up", make_scenario(tmp_path), "--", "no-such-program", "--speed")
    assert (ran.code, ran.err.splitlines()) == (
        2,
        ["error: --: no such program: no-such-program (name one to run, such as bash)"],
    )


@contextmanager
def _interrupts_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)
