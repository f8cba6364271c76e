"""A controllers' process that dies and is started again, over an API that fails, beside machines that go on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sim_builders import EXAMPLE

import yaml_text
from live.contract.faulty import Crash, Faulty, Rates
from live.contract.history import History
from live.contract.small import QUICK, TYPE
from tonnage.control.loops import Loop
from tonnage.control.world import World
from tonnage.decisions import Decision, Outcome, Reason, Ref, Scale, Stale
from tonnage.fleet.invariants import violations
from tonnage.fleet.snapshot import Snapshot
from tonnage.hollow.lockstep import Lockstep, loops_of
from tonnage.kube.informer import Informers
from tonnage.kube.transport import Transport
from tonnage.metrics.promql import Result
from tonnage.simulation import run, scenario
from tonnage.simulation.driver import LoopDriver
from tonnage.units import NS_PER_S

A, B = "inference/model-a-serving", "inference/model-b-serving"
PLAN: tuple[tuple[int, dict[str, int]], ...] = (
    (30, {A: 3, B: 2}),
    (120, {A: 7, B: 4}),
    (150, {A: 12, B: 4}),
    (600, {A: 4, B: 3}),
    (780, {A: 9, B: 6}),
    (1200, {A: 5, B: 4}),
)
"""From which second on how many replicas are wanted: more than the base has room for, and fewer again."""
END_S = 1800
FAULTS: tuple[dict[str, Any], ...] = (
    {"kind": "node-failure", "at": "14m", "nodePool": "gpu-inference-pool"},
    {"kind": "out-of-stock", "at": "2m", "instanceType": TYPE, "duration": "1m"},
)

STORM = Rates(
    write={
        "conflict": 0.04,
        "invalid": 0.02,
        "error": 0.04,
        "unavailable": 0.03,
        "throttled": 0.03,
        "unreachable": 0.04,
        "lost-undone": 0.04,
        "lost-done": 0.08,
        "crash-before": 0.02,
        "crash-after": 0.03,
    },
    read={"error": 0.03, "unavailable": 0.02, "unreachable": 0.03, "lost-undone": 0.02},
    duplicate=0.1,
    late=0.1,
    dropped=0.02,
    broken=0.02,
    expired=0.01,
    delayed=0.05,
)
"""What the controllers meet."""
DRIZZLE = Rates(
    write={
        "conflict": 0.04,
        "error": 0.04,
        "unavailable": 0.03,
        "unreachable": 0.04,
        "lost-undone": 0.03,
        "lost-done": 0.06,
    },
    read={"error": 0.02, "unreachable": 0.02},
    duplicate=0.1,
    late=0.1,
    dropped=0.02,
    expired=0.01,
)
"""What the machines meet: they never die, and what they write is right."""


@dataclass(frozen=True, slots=True)
class Planner:
    """Sets replicas as a plan says; without memory."""

    plan: tuple[tuple[int, dict[str, int]], ...]

    def decide(self, world: World) -> Sequence[Decision]:
        snapshot = world.snapshot()
        wanted: dict[str, int] = {}
        for second, replicas in self.plan:
            if snapshot.now_ns >= second * NS_PER_S:
                wanted = replicas
        return [self._scale(snapshot, key, n) for key, n in wanted.items() if snapshot.workloads[key].replicas != n]

    def _scale(self, snapshot: Snapshot, key: str, replicas: int) -> Scale:
        view = snapshot.workloads[key]
        namespace, _, name = key.partition("/")
        going = sorted(view.pods, key=lambda pod: pod.name)[: max(0, view.replicas - replicas)]
        specs = [snapshot.fleet.pod(pod.row).spec for pod in going]
        remove = tuple(Ref("Pod", s.name, s.namespace, s.uid) for s in specs)
        return Scale(Ref("Deployment", name, namespace), view.replicas, replicas, Reason("the plan"), remove)

    def loop(self) -> Loop:
        return Loop("plan", self.decide, 15 * NS_PER_S)


def set_up(
    folder: Path, seed: int, *, faults: Sequence[dict[str, Any]] = FAULTS, nodes: Sequence[dict[str, Any]] = ()
) -> run.SetUp:
    """Two nodes and ``nodes``, the example's manifests, hardly any traffic, and replicas by plan."""
    document = yaml_text.load((EXAMPLE / "scenario.yaml").read_text(encoding="utf-8"))
    document |= {
        "duration": "40m",
        "fleet": {"nodes": [{"instanceType": TYPE, "count": 2}, *nodes]},
        "faults": [*faults],
    }
    for traffic in document["traffic"]:
        traffic |= {"profile": str(EXAMPLE / traffic["profile"]), "rate": 0.002, "surges": []}
    for policy in document["policies"].values():
        policy["manifests"] = str(EXAMPLE / policy["manifests"])
    path = folder / "scenario.yaml"
    path.write_text(yaml_text.dump(document), encoding="utf-8")
    options = run.RunOptions(seed=seed, scaler=lambda *_: [Planner(PLAN).loop()])
    return run.set_up(scenario.load(path), "slo", options)


class Watched(Lockstep):
    """A lockstep that a history watches, and in which the controllers may see late what was done."""

    history: History | None = None
    late: random.Random | None = None
    _now = True

    def settle(self, limit_s: float = 30.0) -> None:
        self._now = self.late is None or self.late.random() < 0.5
        super().settle(limit_s)

    def _watchers(self) -> list[Informers]:
        watchers = super()._watchers() if self._now else super()._watchers()[:1]
        return watchers if self.history is None else [*watchers, self.history.informers]

    def close(self) -> None:
        super().close()
        if self.history is not None:
            self.history.informers.stop()


class Process:
    """Implements World: the one that the present process has made for itself. Its loops die with it."""

    def __init__(self, made: run.SetUp, steps: Watched, faulty: Faulty) -> None:
        self.made, self.steps, self.faulty = made, steps, faulty
        self.started = 0
        self._begin()

    def _begin(self) -> None:
        self.started += 1
        self._loops = {loop.name: loop for loop in loops_of(self.made, self.steps.world)}

    def loops(self) -> list[Loop]:
        """As the machine runs them, whichever process is there."""
        return [
            Loop(one.name, partial(self._decide, one.name), one.period_ns, one.wakes_on, one.settle_ns)
            for one in self._loops.values()
        ]

    def _decide(self, name: str, world: World) -> Sequence[Decision]:
        return self._loops[name].decide(world)

    def restart(self) -> None:
        """It dies, and another begins."""
        self.steps.restart()
        self._begin()

    # ---- World ----

    def now(self) -> int:
        return self.steps.world.now()

    def snapshot(self) -> Snapshot:
        return self.steps.world.snapshot()

    def apply(self, decision: Decision) -> Outcome:
        return self.apply_all([decision])[0]

    def apply_all(self, decisions: Sequence[Decision]) -> list[Outcome]:
        try:
            outcomes = self.steps.world.apply_all(decisions)
            assert violations(self.steps.world.fleet) == []
            return outcomes
        except Crash as crash:
            self.restart()
            return [Stale(f"the process died {crash}")] * len(decisions)

    def measure(self, query: str, at_ns: int) -> Result:
        return self.steps.world.measure(query, at_ns)

    def note(self, about: Ref, reason: str, message: str, *, warning: bool = True) -> None:
        self.steps.world.note(about, reason, message, warning=warning)

    def woken(self) -> frozenset[str]:
        try:
            return self.steps.world.woken()
        except Crash:  # what was left to be done later is done here
            self.restart()
            return self.steps.world.woken()


@dataclass(slots=True)
class Run:
    """A run over an API that fails, after its end."""

    made: run.SetUp
    machine: LoopDriver
    steps: Watched
    process: Process
    faulty: Faulty
    history: History


def simulate(made: run.SetUp) -> LoopDriver:
    """The same in the simulated world."""
    machine = LoopDriver(made.cluster, made.recorder(), False)
    machine.start(made.loops(), made.scraper())
    made.break_things()
    machine.play(END_S * NS_PER_S, None)
    return machine


def play(
    made: run.SetUp,
    transport: Transport,
    seed: int,
    *,
    storm: Rates = STORM,
    machines: Rates | None = None,
    late: bool = False,
    calm_s: int = END_S - 360,
) -> Run:
    """Play it with faults until ``calm_s``, then without to the end. Close ``steps`` afterwards."""
    injected: list[Faulty] = []
    planned: list[Rates] = []

    def between(rates: Rates | None, salt: int) -> Any:
        def wrap(tracked: Transport) -> Transport:
            injected.append(Faulty(tracked, seed * 7 + salt))
            planned.append(rates or Rates())
            return injected[-1]

        return wrap

    steps = Watched(made, transport, controllers=between(storm, 0), machines=between(machines, 1), delays=QUICK)
    history = steps.history = History(transport)
    process = Process(made, steps, injected[0])
    for one, rates in zip(injected, planned, strict=True):
        one.rates = rates
    machine = LoopDriver(made.cluster, made.recorder(), False, world=process, settle=steps.settle)
    if late:
        steps.late = random.Random(seed)
    machine.start(process.loops(), made.scraper())
    made.break_things()
    machine.play(calm_s * NS_PER_S, None)
    for one in injected:
        one.calm()
    steps.late = None
    machine.play(END_S * NS_PER_S, None)
    return Run(made, machine, steps, process, injected[0], history)
