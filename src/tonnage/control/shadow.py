"""Autoscalers that look on: they decide at their times, what they decide and why is written down, and nothing happens.

What is asked is the autoscalers' own loops (:mod:`tonnage.control.replicas`), so a shadow of what sets the replicas
decides as that does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec

from tonnage.control.loops import Loop
from tonnage.control.replicas import Autoscalers, ReplicaPlanner, key_of
from tonnage.control.world import World
from tonnage.decisions import OBSERVING, Decision, Outcome, Reason, Ref, Refused
from tonnage.fleet.snapshot import Snapshot, WorkloadView
from tonnage.metrics.promql import Result
from tonnage.scaling import hpa, keda


class ScalerStep(msgspec.Struct, frozen=True):
    """One look of one autoscaler. ``by``: ``hpa``, ``keda`` (its own loop: activation, and the way back to zero), or a
    policy's name. ``replicas``: what the target asked for, ``ready``: how many of them were Ready, ``wanted``: what the
    autoscaler would have asked for. Times in ns."""

    at_ns: int
    by: str
    object: Ref
    target: Ref
    replicas: int
    ready: int
    wanted: int
    reason: Reason


Write = Callable[[ScalerStep], None]


class Onlooker(msgspec.Struct, frozen=True):
    """A world as those see it who change nothing: it answers, and takes neither decisions nor notes."""

    world: World

    def now(self) -> int:
        return self.world.now()

    def snapshot(self) -> Snapshot:
        return self.world.snapshot()

    def measure(self, query: str, at_ns: int) -> Result:
        return self.world.measure(query, at_ns)

    def apply(self, decision: Decision) -> Outcome:
        return Refused(f"{decision.target}: only looked at", OBSERVING)

    def apply_all(self, decisions: Sequence[Decision]) -> list[Outcome]:
        return [self.apply(decision) for decision in decisions]

    def note(self, about: Ref, reason: str, message: str, *, warning: bool = True) -> None:
        return None

    def woken(self) -> frozenset[str]:
        return frozenset()


@dataclass(slots=True)
class ShadowAutoscalers:
    """The HPA controller and KEDA. ``write`` is given each step.

    Where the replicas are not what was last asked for, the change is taken to have never taken place: then it does not
    count against what the HPA's policies allow in a period, as where the API server refuses it."""

    scalers: Autoscalers
    write: Write
    _before: dict[str, tuple[hpa.HpaState, int]] = field(default_factory=dict)
    """By HPA: the state before its last change, and the replicas that it asked for."""

    def sync(self, world: World) -> Sequence[Decision]:
        """One pass of the HPA controller."""
        world = Onlooker(world)
        snapshot = world.snapshot()
        specs = {key_of(spec.hpa): spec for spec in self._specs()}
        self._forget_what_never_was(specs, snapshot)
        before = dict(self.scalers.states)
        decisions = self.scalers.sync(world)
        for name, spec in specs.items():
            view = snapshot.workloads.get(spec.target.workload)
            state = self.scalers.states.get(name)
            if view is None or state is None:
                continue
            made = next((one for one in decisions if one.reason is state.reason), None)
            wanted = view.replicas if made is None else made.replicas
            if made is not None:
                self._before[name] = before.get(name, hpa.HpaState()), wanted
            self.write(_step(snapshot.now_ns, "hpa", spec.hpa, spec.target, view, wanted, state.reason))
        return decisions

    def poll(self, spec: keda.KedaSpec, world: World) -> Sequence[Decision]:
        """One turn of KEDA's own loop for one ScaledObject."""
        world = Onlooker(world)
        snapshot = world.snapshot()
        decisions = self.scalers.poll(spec, world)
        view = snapshot.workloads.get(spec.target.workload)
        state = self.scalers.keda_states.get(key_of(spec.scaled_object))
        if view is not None and state is not None:
            wanted = decisions[0].replicas if decisions else view.replicas
            self.write(_step(snapshot.now_ns, "keda", spec.scaled_object, spec.target, view, wanted, state.reason))
        return decisions

    def loops(self) -> list[Loop]:
        """Those of the autoscalers, at the same times."""
        polls = {f"keda/{spec.scaled_object.name}": spec for spec in self.scalers.scaled}
        return [
            replace(loop, decide=partial(self.poll, polls[loop.name]) if loop.name in polls else self.sync)
            for loop in self.scalers.loops()
        ]

    def _specs(self) -> list[hpa.HpaSpec]:
        made = [keda.generated_hpa(spec) for spec in self.scalers.scaled]
        return [*self.scalers.plain, *(spec for spec in made if spec is not None)]

    def _forget_what_never_was(self, specs: dict[str, hpa.HpaSpec], snapshot: Snapshot) -> None:
        for name, (before, wanted) in self._before.items():
            view = snapshot.workloads.get(specs[name].target.workload) if name in specs else None
            if view is not None and view.replicas != wanted:
                state = self.scalers.states[name]
                history = replace(state.history, ups=before.history.ups, downs=before.history.downs)
                self.scalers.states[name] = replace(state, history=history, scaled_to_zero=before.scaled_to_zero)
        self._before.clear()


@dataclass(slots=True)
class ShadowPlanner:
    """A policy that sets replicas. ``write`` is given each step."""

    planner: ReplicaPlanner
    write: Write

    def decide(self, world: World) -> Sequence[Decision]:
        """One tick."""
        world = Onlooker(world)
        snapshot = world.snapshot()
        decisions = {one.target.workload: one for one in self.planner.decide(world)}
        for one in self.planner.planned(snapshot):
            view = snapshot.workloads.get(one.target.workload)
            if view is None or one.policy != self.planner.policy:
                continue
            ref = Ref(view.kind, view.name, view.namespace, view.uid)
            made = decisions.get(one.target.workload)
            silent = self.planner.silent.get(ref)
            known = getattr(self.planner.memory.get(one.target.workload), "reason", Reason("holds"))
            reason = made.reason if made is not None else Reason(f"{known.verdict}: {silent}") if silent else known
            wanted = view.replicas if made is None else made.replicas
            self.write(_step(snapshot.now_ns, self.planner.policy, ref, ref, view, wanted, reason))
        return list(decisions.values())

    def loops(self) -> list[Loop]:
        """The policy's own, at the same times."""
        return [replace(self.planner.loop(), decide=self.decide)]


def in_order(steps: Iterable[ScalerStep]) -> tuple[ScalerStep, ...]:
    """By time, then by target, autoscaler and object."""
    return tuple(sorted(steps, key=lambda one: (one.at_ns, str(one.target), one.by, str(one.object))))


def unheard(loop: Loop) -> Loop:
    """The loop with nothing said of what it decides: the world has nothing to refuse."""

    def decide(world: World) -> Sequence[Decision]:
        loop.decide(world)
        return ()

    return replace(loop, decide=decide)


def _step(
    at_ns: int, by: str, object_: Ref, target: Ref, view: WorkloadView, wanted: int, reason: Reason
) -> ScalerStep:
    return ScalerStep(at_ns, by, object_, target, view.replicas, view.ready, wanted, reason)
