"""Runs the policies of a scenario: one here, several in processes of their own, in the order asked for.

A run depends on its arguments alone, so it does not matter which process makes it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeAlias

from tonnage.cli.progress import INTERVAL_S, Progress, ProgressState, ServiceProgress
from tonnage.errors import TonnageError
from tonnage.machines.cluster import SimulatedCluster
from tonnage.objects.load import Manifest
from tonnage.simulation import run, scenario
from tonnage.simulation.result import Result
from tonnage.units import seconds

Message: TypeAlias = ProgressState | Result | Exception
"""What a worker sends: its state now and again, at the end its result or what went wrong."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One run, in terms that travel to another process. ``manifest``: what its policy's folder has, where that has been
    read."""

    scenario: Path
    policy: str
    seed: int
    trace: Path | None
    prices: Path | None
    check: bool
    manifest: Manifest | None = None

    def run(self, show: Callable[[ProgressState], None], due: Callable[[], bool]) -> Result:
        """Make the run. ``show`` is given its state whenever ``due``."""

        def observe(cluster: SimulatedCluster, until_ns: int) -> None:
            if due():
                show(state(self.policy, cluster, until_ns))

        options = run.RunOptions(
            seed=self.seed,
            trace=self.trace,
            check=self.check,
            price_file=self.prices,
            observer=observe,
            manifest=self.manifest,
        )
        return run.run(scenario.load(self.scenario), self.policy, options)


def run_all(jobs: Sequence[RunRequest], *, quiet: bool) -> list[Result]:
    """The jobs' results, in order, with progress on a terminal. Raises what a run raises."""
    workers = min(cores(), len(jobs))
    with Progress(quiet=quiet) as progress:
        board = _Board(jobs, progress)
        return _in_processes(jobs, workers, board) if workers > 1 else _one_by_one(jobs, board)


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def state(label: str, cluster: SimulatedCluster, until_ns: int) -> ProgressState:
    """What a person sees of a running simulation."""
    live = [node for node in cluster.nodes.values() if node.ended_ns is None]
    services = [
        ServiceProgress(
            workload.service.name,
            ready=sum(pod.ready_ns is not None for pod in workload.active),
            wanted=workload.replicas,
            waiting=sum(r.engine.waiting for r in workload.service.endpoints if r.engine is not None),
        )
        for workload in cluster.workloads.values()
        if workload.service is not None
    ]
    return ProgressState(
        label,
        now_s=seconds(cluster.now_ns),
        duration_s=seconds(until_ns),
        services=tuple(services),
        nodes_ready=sum(node.ready_ns is not None for node in live),
        nodes_starting=len(cluster.cloud.claims),
        spend_micro_usd=cluster.records.ledger.total(cluster.now_ns),
        failing=tuple(failing(cluster)),
    )


def failing(cluster: SimulatedCluster) -> Iterator[str]:
    """Workloads with pods that do not serve for a cause that stays, each with the first of these causes."""
    workloads = [*cluster.workloads.values(), *(training.workload for training in cluster.training.values())]
    for workload in workloads:
        found = [pod.failing for pod in workload.active if pod.failing is not None]
        if found:
            yield f"{workload.key}, {len(found)} pods: {found[0].cause}"


class _Board:
    """What is drawn of several jobs: the latest state of those that run, the names of the others."""

    def __init__(self, jobs: Sequence[RunRequest], progress: Progress) -> None:
        self._progress = progress
        self._running: dict[str, ProgressState] = {}
        self._labels = [job.policy for job in jobs]
        self._done: set[str] = set()

    def due(self) -> bool:
        return self._progress.due()

    def show(self, now: ProgressState) -> None:
        """A job's new state."""
        self._running[now.label] = now
        done = [label for label in self._labels if label in self._done]
        waiting = [label for label in self._labels if label not in self._done and label not in self._running]
        note = "; ".join(f"{word}: {', '.join(names)}" for word, names in (("done", done), ("next", waiting)) if names)
        self._progress.update(*(self._running[label] for label in self._labels if label in self._running), note=note)

    def finished(self, label: str) -> None:
        """A job has its result."""
        self._running.pop(label, None)
        self._done.add(label)


def _one_by_one(jobs: Sequence[RunRequest], board: _Board) -> list[Result]:
    results = []
    for job in jobs:
        results.append(job.run(board.show, board.due))
        board.finished(job.policy)
    return results


def _in_processes(jobs: Sequence[RunRequest], workers: int, board: _Board) -> list[Result]:
    """At most ``workers`` jobs at a time. The first that fails ends all."""
    results: dict[int, Result] = {}
    running: dict[Connection, tuple[int, BaseProcess]] = {}
    waiting = list(enumerate(jobs))
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                index, job = waiting.pop(0)
                connection, process = _start(job)
                running[connection] = index, process
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                index, process = running[ready]
                match _receive(ready, process):
                    case ProgressState() as now:
                        board.show(now)
                    case Result() as result:
                        results[index] = result
                        board.finished(jobs[index].policy)
                        del running[ready]
                        process.join()
                    case Exception() as error:
                        raise error
    finally:
        for _, process in running.values():
            process.terminate()
            process.join()
    return [results[index] for index in range(len(jobs))]


def _start(job: RunRequest) -> tuple[Connection, BaseProcess]:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(job, there), daemon=True)
    with _interrupts_held_back():
        process.start()
    there.close()
    return here, process


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """What starts inside never sees Ctrl-C, which reaches every process of the terminal: its parent will end it.

    The signal is blocked, which children inherit, not ignored: one that comes meanwhile arrives here afterwards.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # when it is started, it takes the block off too early
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _receive(connection: Connection, process: BaseProcess) -> Message:
    try:
        message: Message = connection.recv()
    except EOFError:
        process.join()
        return ChildProcessError(f"a worker exited with code {process.exitcode}")
    return message


class _Every:
    """True once in ``interval_s`` of wall time."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._next = 0.0

    def due(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._interval_s
        return True


def _work(job: RunRequest, connection: Connection) -> None:
    """A worker's whole life. It ends early when nobody listens any more."""
    with suppress(BrokenPipeError):
        try:
            connection.send(job.run(connection.send, _Every(INTERVAL_S).due))
        except TonnageError as error:
            connection.send(error)
        except BrokenPipeError:
            raise
        except Exception as error:
            failure = RuntimeError(f"{type(error).__name__}: {error}")  # any other may not survive the journey
            failure.add_note(traceback.format_exc())
            connection.send(failure)
