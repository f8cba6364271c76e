"""Processes that take turns on one GPU, as under NVIDIA's time-slicing: who gets how much, and how long a step takes.

Each process repeats a step: ``host_s`` without the GPU, then ``gpu_s`` on it. Those that want the GPU get it in turn
for one interval each; who is done earlier gives it up at once, so idle processes cost nothing. The interval is that of
the device's compute policy: `nvidia-smi compute-policy --set-timeslice` 0 to 3 (default, short, medium, long).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from msgspec import Struct

INTERVALS_S = {"default": 0.002, "short": 0.001, "medium": 0.002, "long": 0.004}
"""Turns by the name of the device's compute policy. NVIDIA publishes the names only; 2 ms is the default that step
times of processes side by side agree with (benchmarks/data/gpu_sharing_*.csv), the others are assumed."""

NUMBERS = {str(number): name for number, name in enumerate(INTERVALS_S)}
"""The same by the numbers that nvidia-smi takes. Source: `nvidia-smi compute-policy -h`."""

SWITCH_S = 0.00012
"""What going from one process to another costs: fitted on an H200 (benchmarks/data/gpu_sharing_h200.csv), then used to
predict an H100, where every throughput was within 15 % (gpu_sharing_h100.csv)."""


class Process(Struct, frozen=True):
    """One client of a GPU. A step takes ``host_s`` seconds elsewhere, then ``gpu_s`` of the GPU when alone."""

    gpu_s: float
    host_s: float = 0.0


class Turn(Struct, frozen=True):
    """What a process gets: steps per second, seconds per step, and its part of the GPU's time (0 to 1)."""

    steps_per_s: float
    step_s: float
    share: float


def take_turns(
    processes: Sequence[Process], *, interval_s: float, switch_s: float = 0.0, steps: int = 200
) -> tuple[Turn, ...]:
    """What each process gets while all of them run, over ``steps`` steps of the slowest.

    ``interval_s``: the longest turn. ``switch_s``: lost when the GPU goes from one process straight to another, not
    when it was idle between. Raises ValueError for times that are not positive."""
    if interval_s <= 0 or switch_s < 0 or any(p.gpu_s <= 0 or p.host_s < 0 for p in processes):
        raise ValueError("intervals and GPU times must be positive")
    count = len(processes)
    ready: deque[int] = deque()
    wakes = {i: processes[i].host_s for i in range(count)}
    left = [p.gpu_s for p in processes]
    done, busy, ended = [0] * count, [0.0] * count, [0.0] * count
    now, last = 0.0, -1

    def wake() -> None:
        for i in sorted((i for i, at in wakes.items() if at <= now), key=lambda i: (wakes[i], i)):
            del wakes[i]
            ready.append(i)

    while min(done) < steps:
        wake()
        if not ready:
            now = min(wakes.values())
            last = -1
            continue
        i = ready.popleft()
        if last not in (-1, i):
            now += switch_s
        last = i
        used = min(interval_s, left[i])
        now += used
        busy[i] += used
        left[i] -= used
        if left[i] > 1e-12:
            wake()  # those that came meanwhile are before it
            ready.append(i)
        else:
            done[i] += 1
            ended[i] = now
            left[i] = processes[i].gpu_s
            wakes[i] = now + processes[i].host_s
    return tuple(Turn(done[i] / ended[i], ended[i] / done[i], busy[i] / now) for i in range(count))


class ProcessShare(NamedTuple):
    """What a process has of a GPU: the part of its time, and its speed as a part of that alone (0 to 1)."""

    share: Fraction
    speed: Fraction


def interval_named(text: str) -> str | None:
    """The interval, of :data:`INTERVALS_S`, that somebody means who writes its name, as nvidia-smi, or as NVIDIA's DRA
    driver with a capital, or its number, 0 to 3; None where it is none of them."""
    name = NUMBERS.get(text, text.lower())
    return name if name in INTERVALS_S else None


def switching(interval: str) -> Fraction:
    """By how much steps are longer while processes take turns of the interval with this name, of
    :data:`INTERVALS_S`."""
    return Fraction(SWITCH_S / INTERVALS_S[interval]).limit_denominator(10_000)


def in_turns(cores: Sequence[Fraction], interval: str = "default") -> list[ProcessShare]:
    """What each process has while all of them always want the GPU: :func:`take_turns` in closed form, for turns of the
    ``interval`` with this name. ``cores``: the most of the card that each may have.

    Parts are equal, and what one may not have goes to the others. Each switch between them costs time. The parts never
    add up to more than the card."""
    slower = 1 + switching(interval) if len(cores) > 1 else Fraction(1)
    shares = [Fraction(0)] * len(cores)
    left = Fraction(1)
    for turn, index in enumerate(sorted(range(len(cores)), key=lambda i: cores[i])):
        shares[index] = min(cores[index], left / (len(cores) - turn))
        left -= shares[index]
    return [ProcessShare(share, share / slower) for share in shares]
