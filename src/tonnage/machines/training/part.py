"""A part of a training workload: pods that compute together, a gang or one pod alone, and how far they are.

Time is cut into spans in which nothing changes; :meth:`WorkloadPart.settle` books what each bound pod held in the
span that has ended. Work is counted in GPU-nanoseconds (in pod-nanoseconds where no pod has a GPU), so fewer GPUs than
all take proportionally longer, and pods of a gang beyond its minimum make it faster. A pod on a GPU that it shares gets
on as it has that GPU, never faster than with what it asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from tonnage.fleet.gangs import Gang
from tonnage.machines.cards import Use
from tonnage.machines.objects import SimulatedPod
from tonnage.machines.training.entries import Checkpoint
from tonnage.workloads.replicas import WorkloadPod


class PartState(StrEnum):
    """What a part is doing."""

    ABSENT = "absent"  # its pods have not been made yet
    WAITING = "waiting"  # fewer pods are bound than it takes
    STARTING = "starting"  # enough are bound, and not all of them run yet
    LOADING = "loading"  # it reads its last checkpoint
    RUNNING = "running"
    WRITING = "writing"  # it saves a checkpoint
    DONE = "done"
    FAILED = "failed"


AT_WORK = frozenset({PartState.LOADING, PartState.RUNNING, PartState.WRITING})
OVER = frozenset({PartState.DONE, PartState.FAILED})


@dataclass(slots=True)
class Goodput:
    """Where the time that GPUs were held went, in GPU-ns. ``lost``: to be repeated after a failure, or never.

    ``starting``: by pods that start or stop while enough are bound. ``half``: held while fewer pods than the minimum
    were bound; ``broken``: the same, after it had been whole, while pods that failed are replaced."""

    useful: Fraction = Fraction(0)
    lost: Fraction = Fraction(0)
    checkpoints: Fraction = Fraction(0)
    starting: Fraction = Fraction(0)
    broken: Fraction = Fraction(0)
    half: Fraction = Fraction(0)

    @property
    def allocated(self) -> Fraction:
        return self.useful + self.lost + self.checkpoints + self.starting + self.broken + self.half

    def __add__(self, other: Goodput) -> Goodput:
        return Goodput(
            self.useful + other.useful,
            self.lost + other.lost,
            self.checkpoints + other.checkpoints,
            self.starting + other.starting,
            self.broken + other.broken,
            self.half + other.half,
        )


def _gpus(pods: Iterable[SimulatedPod]) -> int | Fraction:
    """GPUs that the pods hold; whole ones are added as integers, which is quick."""
    return sum(pod.held.gpus for pod in pods)


@dataclass(slots=True, eq=False)
class WorkloadPart:
    """``replicas``, ``subgroups``: what it is made of, by pod. ``gang``: what it takes to run, None for a pod alone.

    ``work``: GPU-ns to do, None: it never ends. ``gpus``: what all of its pods ask for; without any, pods are counted.
    Times in ns; ``epoch`` tells what it planned from what it has planned since.
    """

    name: str
    replicas: dict[str, WorkloadPod]
    subgroups: dict[str, str]
    gang: Gang | None
    work: Fraction | None
    checkpoint: Checkpoint | None
    gpus: Fraction
    state: PartState = PartState.ABSENT
    since_ns: int = 0
    epoch: int = 0
    due_ns: int | None = None  # when what it is doing ends by itself
    factor: Fraction = Fraction(1)  # by how much communication makes each step longer
    done: Fraction = Fraction(0)
    saved: Fraction = Fraction(0)
    saved_at_ns: int = 0
    ran_ns: int = 0  # since the last checkpoint
    was_whole: bool = False  # since its pods were made: what is missing now is being replaced
    placed_ns: int | None = None
    started_ns: int | None = None
    ended_ns: int | None = None
    spent: Goodput = field(default_factory=Goodput)
    unsaved: Fraction = Fraction(0)
    tail: Fraction = Fraction(0)  # what was not saved when it was done
    pods: dict[str, SimulatedPod] = field(default_factory=dict)
    busy: Callable[[SimulatedPod, int], None] = lambda pod, gpu_ns: None

    # ---- who is there ----

    @property
    def bound(self) -> list[SimulatedPod]:
        return [pod for pod in self.pods.values() if pod.bound_ns is not None]

    @property
    def staying(self) -> list[SimulatedPod]:
        return [pod for pod in self.bound if not pod.terminating]

    @property
    def ready(self) -> list[SimulatedPod]:
        return [pod for pod in self.pods.values() if pod.ready_ns is not None and not pod.terminating]

    @property
    def runs(self) -> bool:
        """Whether enough of its pods are Ready."""
        return self.enough(pod.name for pod in self.ready)

    def enough(self, names: Iterable[str]) -> bool:
        """Whether these pods are what it takes to run."""
        if self.gang is None:
            return set(self.replicas) <= set(names)
        return self.gang.is_whole(self.subgroups[name] for name in names)

    @property
    def rate(self) -> Fraction:
        """GPU-ns of work done in a nanosecond, at most: less while engines on the same GPUs are active."""
        ready = self.ready
        if not self.gpus:
            return len(ready) / self.factor
        return sum(pod.held.gpus if pod.sharer is None else pod.sharer.best for pod in ready) / self.factor

    def _done(self, span: int, shared: Mapping[SimulatedPod, Use]) -> Fraction:
        """GPU-ns of work done in a span."""
        ready = self.ready
        if not self.gpus:
            return len(ready) * span / self.factor
        whole = _gpus(pod for pod in ready if pod not in shared) * span
        return (whole + sum(shared[pod].done for pod in ready if pod in shared)) / self.factor

    @property
    def spent_so_far(self) -> Goodput:
        """What was held until now; work that is not saved yet counts as useful."""
        return self.spent + Goodput(useful=self.unsaved)

    # ---- time ----

    def settle(self, now_ns: int) -> None:
        """Book the span that ends now."""
        span, self.since_ns = now_ns - self.since_ns, now_ns
        if not span or self.state in OVER or self.state is PartState.ABSENT:
            return
        shared = {pod: pod.sharer.use(now_ns) for pod in self.bound if pod.sharer is not None}
        if self.state is PartState.RUNNING:
            self.done += self._done(span, shared)
            self.ran_ns += span
        working: list[SimulatedPod] = []
        others: list[SimulatedPod] = []
        for pod in self.bound:
            stands_by = pod.ready_ns is None or pod.terminating or self.state is PartState.STARTING
            (others if stands_by and self.state is not PartState.WAITING else working).append(pod)
        self.spent.starting += span * _gpus(others)
        gpu_ns = span * _gpus(working)
        if self.state is PartState.WAITING and self.was_whole:
            self.spent.broken += gpu_ns
        elif self.state is PartState.WAITING:
            self.spent.half += gpu_ns
        elif self.state is PartState.RUNNING:
            self.unsaved += gpu_ns
            self._busy(working, span, shared)
        else:
            self.spent.checkpoints += gpu_ns

    def _busy(self, working: Iterable[SimulatedPod], span: int, shared: Mapping[SimulatedPod, Use]) -> None:
        for pod in working:
            if pod in shared:
                pod.busy_ns += shared[pod].taken_ns
                self.busy(pod, shared[pod].taken_ns * shared[pod].cards)
            elif pod.held.gpus:
                pod.busy_ns += int(span * min(1, pod.held.gpus))
                self.busy(pod, int(pod.held.gpus * span))

    def roll_back(self) -> Fraction:
        """What was done since the last checkpoint is lost. Returns the GPU-ns of it; settle first."""
        lost, self.unsaved = self.unsaved, Fraction(0)
        self.spent.lost += lost
        self.done, self.ran_ns = self.saved, 0
        if self.state in AT_WORK:
            self.state, self.due_ns = PartState.STARTING, None
        self.epoch += 1
        return lost

    def reopen(self) -> None:
        """Its pods are recreated although it was done: it goes on from its last checkpoint."""
        self.spent.useful -= self.tail
        self.spent.lost += self.tail
        self.tail, self.state, self.ended_ns = Fraction(0), PartState.WAITING, None
        self.done, self.ran_ns = self.saved, 0

    def save(self, now_ns: int) -> None:
        """The checkpoint is written: what was done before it is safe. Settle first."""
        self.saved, self.saved_at_ns = self.done, now_ns
        self.spent.useful += self.unsaved
        self.unsaved, self.ran_ns = Fraction(0), 0

    def finish(self, now_ns: int, state: PartState) -> None:
        """It is over. Settle first."""
        if state is PartState.DONE:
            self.spent.useful += self.unsaved
            self.tail = self.unsaved
        else:
            self.spent.lost += self.unsaved + self.spent.useful
            self.spent.useful = Fraction(0)
        self.unsaved, self.due_ns = Fraction(0), None
        self.state, self.ended_ns = state, now_ns
        self.epoch += 1

    def review(self, now_ns: int) -> None:
        """What its pods let it do from now on. Settle first."""
        if self.state in OVER:
            return
        self.epoch += 1
        staying = self.staying
        if not self.enough(pod.name for pod in staying):
            self.state, self.due_ns = PartState.WAITING, None
            self.was_whole = self.was_whole and bool(staying)
            return
        self.was_whole = True
        if self.placed_ns is None:
            self.placed_ns = now_ns
        if not self.runs:
            self.state, self.due_ns = PartState.STARTING, None
            return
        load = self.checkpoint.load_ns if self.checkpoint is not None and self.saved else 0
        if self.state not in AT_WORK and load:
            self.state, self.due_ns = PartState.LOADING, now_ns + load
        elif self.state not in (PartState.LOADING, PartState.WRITING):
            self.run(now_ns)

    def run(self, now_ns: int) -> None:
        """It computes from now on."""
        self.state = PartState.RUNNING
        if self.started_ns is None:
            self.started_ns = now_ns
        self.due_ns = self._runs_until(now_ns)

    def end_span(self, now_ns: int) -> None:
        """What it was doing has ended by itself: it goes on to the next. Settle first."""
        self.epoch += 1
        if self.state is not PartState.RUNNING:
            if self.state is PartState.WRITING:
                self.save(now_ns)
            self.run(now_ns)
        elif self.work is not None and self.done >= self.work:
            self.finish(now_ns, PartState.DONE)
        elif self.checkpoint is None or self.ran_ns < self.checkpoint.every_ns:
            self.run(now_ns)  # others on its GPUs were active: it got less far
        elif self.checkpoint.write_ns:
            self.state, self.due_ns = PartState.WRITING, now_ns + self.checkpoint.write_ns
        else:
            self.save(now_ns)
            self.run(now_ns)

    def _runs_until(self, now_ns: int) -> int | None:
        rate, ends = self.rate, []
        if self.work is not None and rate:
            left = (self.work - self.done) / rate
            ends.append(-(-left.numerator // left.denominator))
        if self.checkpoint is not None:
            ends.append(self.checkpoint.every_ns - self.ran_ns)
        return now_ns + max(0, min(ends)) if ends else None
