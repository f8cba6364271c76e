"""Policies that set replicas, driven from outside: observe, then targets.

Another simulator, or a controller of one's own, says what it observes of each pool of replicas; a policy by its name
(:data:`tonnage.scaling.policies.POLICIES`) answers with as many replicas as each is to have. It is the function that
the scenarios' and the controllers' loops call, on a cluster of which nothing but these pools is known: nodes are
somebody else's, and no pool gives up replicas for another.

:class:`ReplayScaling` is this for Dynamo's offline replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tonnage.control.workloads_state import WorkloadsState
from tonnage.errors import InputError
from tonnage.fleet.rows import FleetPod
from tonnage.fleet.snapshot import PodView, WorkloadView
from tonnage.fleet.state import Fleet
from tonnage.objects import core
from tonnage.scaling.policies import POLICIES
from tonnage.scaling.target import Target, TrafficReading
from tonnage.scheduling.seats import SchedulerSeats
from tonnage.units import NS_PER_MS, NS_PER_S


@dataclass(frozen=True, slots=True)
class PoolObservation:
    """One pool now. ``replicas``: those that were asked for; ``ready``: those of them that serve.

    ``received``: requests since the beginning, also those that were served; ``in_flight``: those that wait or are
    served; None is no data. ``cold_starts_ns``: how long recent replicas took from being asked for to serving.
    Raises ValueError for counts of replicas that cannot be.
    """

    replicas: int
    ready: int
    received: float | None
    in_flight: float | None
    cold_starts_ns: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.ready <= self.replicas:
            raise ValueError(f"{self.ready} of {self.replicas} replicas serve: expected 0 <= ready <= replicas")


def replicas_for(
    now_ns: int,
    observed: Mapping[str, PoolObservation],
    targets: Sequence[Target],
    memory: Mapping[str, Any],
    policy: str = "slo",
) -> tuple[dict[str, int], dict[str, Any]]:
    """Replicas that each observed pool is to have from now on, and the memory for the next call, {} at first.

    ``observed``: by ``Target.workload``. A pool without a target, or without data, stays as it is. To be called every
    15 s or so. ``memory[name].reason`` says why. Raises InputError for a policy that is not there.
    """
    decide = POLICIES.get(policy)
    if decide is None:
        raise InputError.at(
            f"no policy named {policy!r} sets replicas", hint=f"use one of: {', '.join(sorted(POLICIES))}"
        )
    fleet = Fleet()
    views = {name: _view(fleet, name, one, now_ns) for name, one in sorted(observed.items())}
    readings = {name: TrafficReading(one.received, one.in_flight, one.cold_starts_ns) for name, one in observed.items()}
    snapshot = WorkloadsState(fleet, lambda: views).snapshot(now_ns)
    decisions, remembered = decide(snapshot, targets, readings, memory, SchedulerSeats())
    wanted = {name: one.replicas for name, one in sorted(observed.items())}
    wanted.update({one.target.name: one.replicas for one in decisions})
    return wanted, remembered


def _view(fleet: Fleet, name: str, one: PoolObservation, now_ns: int) -> WorkloadView:
    """The pool as a workload of pods on no node of ours: the first of them serve."""
    pods = []
    for number in range(one.replicas):
        pod = f"{name}-{number:05d}"
        row = fleet.add_pod(FleetPod("", pod, pod, {}, core.PodSpec(containers=[]), name))
        serves = now_ns if number < one.ready else None
        pods.append(PodView(row, "", pod, "", now_ns, serves, serves))
    return WorkloadView("Deployment", "", name, one.replicas, tuple(pods), one.cold_starts_ns)


@dataclass(slots=True)
class ReplayScaling:
    """A ``scaling_policy`` of Dynamo's offline replay (``run_mocker_trace_replay``, package ``ai-dynamo-runtime``): it
    sets how many workers of one aggregated pool there are, by the policy of this name.

    ``target.workload`` is any name. ``tick_s``: how often it decides, in seconds of simulated time. After the replay,
    ``asked`` has each tick: (time in ns, workers asked for, why).

    Source of the fields read: the snapshots that ai-dynamo-runtime 1.4 hands to ``on_tick``.
    """

    target: Target
    policy: str = "slo"
    tick_s: float = 15.0
    asked: list[tuple[int, int, str]] = field(default_factory=list)
    _memory: dict[str, Any] = field(default_factory=dict)
    _received: int = 0
    _completed: int = 0
    _starting: dict[int, int] = field(default_factory=dict)
    _cold_starts: list[int] = field(default_factory=list)

    def initial_tick_ms(self) -> float:
        """When the replay is to ask first."""
        return self.tick_s * 1000

    def on_tick(self, snapshot: Mapping[str, Any]) -> dict[str, float]:
        """What the replay observes → the workers that it is to have, and when to ask again. Raises InputError for a
        replay with prefill workers: a policy sizes one pool."""
        if snapshot["total_prefill_count"]:
            message = f"{snapshot['total_prefill_count']} prefill workers in the replay, expected none"
            raise InputError.at(message, hint="a policy sizes one pool: replay aggregated workers")
        now_ns = round(snapshot["now_ms"] * NS_PER_MS)
        self._received += snapshot["traffic"]["num_req"]
        self._completed += snapshot["traffic"]["shape_count"]
        self._follow(now_ns, snapshot["starting_decode_ids"], snapshot["active_decode_ids"])
        ready = snapshot["active_decode_count"]
        observed = PoolObservation(
            ready + snapshot["starting_decode_count"],
            ready,
            float(self._received),
            float(self._received - self._completed),
            tuple(self._cold_starts[-8:]),
        )
        name = self.target.workload
        wanted, self._memory = replicas_for(now_ns, {name: observed}, [self.target], self._memory, self.policy)
        reason = getattr(self._memory.get(name), "reason", None)
        self.asked.append((now_ns, wanted[name], reason.verdict if reason else ""))
        return {
            "target_prefill": 0,
            "target_decode": wanted[name],
            "next_tick_ms": snapshot["now_ms"] + self.tick_s * 1000,
        }

    def _follow(self, now_ns: int, starting: Sequence[int], active: Sequence[int]) -> None:
        """Time the starts of workers: they are asked for at the tick before the one that first sees them start."""
        for worker in active:
            if (since := self._starting.pop(worker, None)) is not None:
                self._cold_starts.append(now_ns - since)
        for worker in starting:
            self._starting.setdefault(worker, now_ns - round(self.tick_s * NS_PER_S))
