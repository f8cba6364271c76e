"""Sets replicas: the HPA controller and KEDA as the manifests configure them, and the policies by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite
from typing import Any, TypeAlias, TypeVar

from tonnage.control.loops import Loop
from tonnage.control.world import World
from tonnage.decisions import Ref, Scale
from tonnage.errors import InputError, NotAnswered
from tonnage.fleet.snapshot import Snapshot
from tonnage.metrics.promql import Vector, parse
from tonnage.scaling import hpa, keda, policies
from tonnage.scaling.hpa_status import HpaPass
from tonnage.scaling.replicas import MetricReading
from tonnage.scaling.target import Target, TrafficReading
from tonnage.scheduling.seats import SchedulerSeats
from tonnage.units import NS_PER_MS

_Bounded = TypeVar("_Bounded", hpa.HpaSpec, keda.KedaSpec)
MovedBounds: TypeAlias = dict[str, tuple[int, int]]
"""(least, most) replicas by workload, where they are not what objects say any more."""


@dataclass(slots=True)
class Autoscalers:
    """The HPA controller and KEDA: every HPA there is, those that KEDA made among them."""

    plain: Sequence[hpa.HpaSpec]
    scaled: Sequence[keda.KedaSpec]
    ambiguous: Mapping[str, tuple[str, ...]]
    states: dict[str, hpa.HpaState] = field(default_factory=dict)
    keda_states: dict[str, keda.KedaState] = field(default_factory=dict)
    epoch_ns: int = 0
    """Added to the world's times to make them Unix times: cron triggers have local ones."""
    moved: MovedBounds = field(default_factory=dict)
    passed: Callable[[HpaPass], object] | None = None
    """Told of each pass over one HPA."""

    def sync(self, world: World) -> Sequence[Scale]:
        """One pass of the HPA controller."""
        snapshot = world.snapshot()
        decisions: list[Scale] = []
        for spec in map(self._as_moved, self.plain):
            readings = [
                MetricReading(error=f"unable to get {metric}: no metrics API serves it") for metric in spec.metrics
            ]
            decisions += self._recommend(world, snapshot, spec, readings)
        for scaled in map(self._as_moved, self.scaled):
            generated = keda.generated_hpa(scaled)
            workload = snapshot.workloads.get(scaled.target.workload)
            if generated is None or workload is None:
                continue
            name = key_of(scaled.scaled_object)
            served, self.keda_states[name] = keda.serve(
                scaled,
                self.keda_states.get(name, keda.KedaState()),
                self._values(world, scaled, snapshot.now_ns),
                current_replicas=workload.replicas,
                ready_replicas=workload.ready,
            )
            decisions += self._recommend(world, snapshot, generated, served)
        return decisions

    def _as_moved(self, spec: _Bounded) -> _Bounded:
        bounds = self.moved.get(spec.target.workload)
        return spec if bounds is None else replace(spec, min_replicas=bounds[0], max_replicas=bounds[1])

    def _recommend(
        self, world: World, snapshot: Snapshot, spec: hpa.HpaSpec, readings: Sequence[MetricReading]
    ) -> list[Scale]:
        workload = snapshot.workloads.get(spec.target.workload)
        if workload is None:
            return []
        name = key_of(spec.hpa)
        decision, state = hpa.recommend(
            spec,
            self.states.get(name, hpa.HpaState()),
            readings,
            current_replicas=workload.replicas,
            ready_replicas=workload.ready,
            status_replicas=len(workload.pods),
            now_ns=snapshot.now_ns,
            ambiguous_with=self.ambiguous.get(name, ()),
        )
        self.states[name] = state
        if self.passed is not None:
            self.passed(HpaPass(spec, state, workload.replicas, decision))
        inactive = state.condition("ScalingActive")
        if decision is None and inactive is not None and not inactive.status:  # else it is of an earlier pass
            world.note(spec.hpa, inactive.reason, inactive.message)
        return [decision] if decision is not None else []

    def poll(self, spec: keda.KedaSpec, world: World) -> Sequence[Scale]:
        """One turn of KEDA's own loop for one ScaledObject."""
        spec = self._as_moved(spec)
        snapshot = world.snapshot()
        workload = snapshot.workloads.get(spec.target.workload)
        if workload is None:
            return ()
        name = key_of(spec.scaled_object)
        decision, self.keda_states[name] = keda.poll(
            spec,
            self.keda_states.get(name, keda.KedaState()),
            self._values(world, spec, snapshot.now_ns),
            replicas=workload.replicas,
            now_ns=snapshot.now_ns,
            ready_replicas=workload.ready,
            hpa_active=self._is_active(spec),
        )
        return () if decision is None else (decision,)

    def _is_active(self, spec: keda.KedaSpec) -> bool:
        """Whether the HPA that KEDA made could count from its metrics when it last did."""
        generated = keda.generated_hpa(spec)
        state = self.states.get(key_of(generated.hpa)) if generated is not None else None
        found = state.condition("ScalingActive") if state is not None else None
        return found is not None and found.status

    def _values(self, world: World, spec: keda.KedaSpec, now_ns: int) -> list[keda.TriggerValue]:
        return [self._value(world, trigger, now_ns) for trigger in spec.triggers]

    def _value(self, world: World, trigger: keda.Trigger, now_ns: int) -> keda.TriggerValue:
        """What KEDA's scaler of the trigger finds."""
        if trigger.window is not None:
            return keda.TriggerValue(trigger.window.value(self.epoch_ns + now_ns))
        if trigger.query is None:
            return keda.TriggerValue()
        try:
            return keda.trigger_value(trigger, world.measure(trigger.query.text, now_ns))
        except InputError as error:
            return keda.TriggerValue(error=str(error))

    def loops(self) -> list[Loop]:
        """One of the HPA controller, and one for each ScaledObject."""
        loops = [Loop("hpa", self.sync, hpa.SYNC_PERIOD_NS)] if self.plain or self.scaled else []
        for spec in self.scaled:
            loops.append(Loop(f"keda/{spec.scaled_object.name}", partial(self.poll, spec), spec.polling_interval_ns))
        return loops


@dataclass(frozen=True, slots=True)
class Planned:
    """A workload under the ``policy``, with the queries for all its requests and those in flight.

    ``asked``, ``found``: queries for the prompt tokens that its engines lately looked for in their caches, and those
    that were there; empty: nobody asks.
    """

    policy: str
    target: Target
    received: str
    in_flight: str
    asked: str = ""
    found: str = ""


@dataclass(slots=True)
class ReplicaPlanner:
    """One of the policies (:data:`tonnage.scaling.policies.POLICIES`) over all its workloads; ``planned`` says which
    ask for a policy now, of this one or of others."""

    policy: str
    planned: Callable[[Snapshot], Sequence[Planned]]
    memory: dict[str, Any] = field(default_factory=dict)
    moved: MovedBounds = field(default_factory=dict)
    silent: dict[Ref, str] = field(default_factory=dict)
    """Workloads of which the last tick had no readings, and why."""
    _seats: SchedulerSeats = field(default_factory=SchedulerSeats)
    _ages: dict[str, str] = field(default_factory=dict)

    def decide(self, world: World) -> Sequence[Scale]:
        """A Scale for each workload whose replicas are not what it needs."""
        snapshot = world.snapshot()
        planned = [one for one in self.planned(snapshot) if one.policy == self.policy]
        ask = Asker(world, snapshot.now_ns)
        self.silent = {}
        readings = {
            one.target.workload: TrafficReading(
                ask.number(one.received),
                ask.number(one.in_flight),
                snapshot.workloads[one.target.workload].cold_starts_ns,
                ask.number(one.asked) if one.asked else None,
                ask.number(one.found) if one.found else None,
                self._age_ns(ask, one.received),
            )
            for one in planned
            if one.target.workload in snapshot.workloads
        }
        for one in planned:
            view = snapshot.workloads.get(one.target.workload)
            why = next((ask.why[query] for query in (one.received, one.in_flight) if query in ask.why), "")
            if view is not None and why:
                self.silent[Ref(view.kind, view.name, view.namespace, view.uid)] = why
        targets = [self._as_moved(one.target) for one in planned]
        decide = policies.POLICIES[self.policy]
        decisions, self.memory = decide(snapshot, targets, readings, self.memory, self._seats)
        return decisions

    def _as_moved(self, target: Target) -> Target:
        bounds = self.moved.get(target.workload)
        return target if bounds is None else replace(target, minimum=bounds[0], maximum=bounds[1])

    def _age_ns(self, ask: Asker, query: str) -> int:
        """How long ago the samples of a query were taken, to a millisecond; 0 where that cannot be told."""
        if query not in self._ages:
            try:
                self._ages[query] = parse(query).age()
            except InputError:  # Prometheus may know more of PromQL
                self._ages[query] = ""
        age = ask.number(self._ages[query]) if self._ages[query] else None
        return max(0, round((age or 0.0) * 1000)) * NS_PER_MS

    def loop(self) -> Loop:
        """As often as the HPA controller."""
        return Loop(self.policy, self.decide, hpa.SYNC_PERIOD_NS)


@dataclass(slots=True)
class Asker:
    """Asks for numbers in one tick. Once nobody answers, the rest of the tick does not wait for it again.

    NaN and infinities, as 0/0 gives them, are no data."""

    world: World
    at_ns: int
    silent: str = ""
    why: dict[str, str] = field(default_factory=dict)
    """Why a query gave no number."""

    def number(self, query: str) -> float | None:
        """The one number that a query gives; None for no data, several series, or no answer."""
        if self.silent:
            self.why[query] = self.silent
            return None
        try:
            answer = self.world.measure(query, self.at_ns)
            value = answer.value() if isinstance(answer, Vector) else answer.value
        except InputError as error:
            self.why[query] = str(error)
            if isinstance(error, NotAnswered):
                self.silent = str(error)
            return None
        except ValueError as error:
            self.why[query] = f"{query}: {error}"
            return None
        if value is None or not isfinite(value):
            self.why[query] = f"{query} answers " + ("nothing" if value is None else f"{value}")
            return None
        return value


def key_of(ref: Ref) -> str:
    """By what the states of an HPA or a ScaledObject are kept."""
    return f"{ref.namespace}/{ref.name}"
