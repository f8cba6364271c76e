"""Who sets replicas behind an API: the scenario's policy, and the autoscalers that somebody creates there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tonnage.control.loops import Loop
from tonnage.control.replicas import Autoscalers, key_of
from tonnage.control.world import World
from tonnage.decisions import Ref, Scale
from tonnage.hollow.autoscaler_objects import AutoscalerObjects
from tonnage.scaling import hpa
from tonnage.scaling.hpa_status import HpaPass
from tonnage.scaling.policies import BY_MANIFESTS
from tonnage.simulation.configure import Configuration
from tonnage.simulation.run import SetUp, autoscalers
from tonnage.units import NS_PER_S

LOOK_NS = 10 * NS_PER_S
"""How often is looked whether a ScaledObject that came later is to be polled."""
AT_REST = "ReplicasByPolicy"
"""The reason of events of an autoscaler that is not followed."""


class ReplicaLoops:
    """The loops that set replicas, in a world whose time is Unix time.

    Where the scenario leaves replicas to the manifests' autoscalers, those that are there now set them. Where a policy
    plans them, it alone sets those of workloads for which the manifests have an autoscaler; others' autoscalers act.

    ``objects`` writes what becomes of autoscalers; None where others do."""

    def __init__(self, made: SetUp, objects: AutoscalerObjects | None = None) -> None:
        self._objects = objects
        self._passes: list[HpaPass] = []
        self._policy = made.scenario.policy(made.policy).scaling
        planned = self._policy != BY_MANIFESTS or made.options.scaler is not None
        self._own = made.replica_loops() if planned else made.reallocation_loops()
        given = autoscalers(made.configuration, epoch_ns=0)
        self._given = frozenset((*(one.hpa for one in given.plain), *(one.scaled_object for one in given.scaled)))
        targets = [one.target.workload for one in given.plain] + [one.target.workload for one in given.scaled]
        self._planned = frozenset(targets if planned else ())
        self._at_rest: list[tuple[Ref, Ref]] = []
        self._polled_ns: dict[str, int] = {}
        self._followed = Autoscalers([], [], {}, moved=made.cluster.declared.moved_bounds, passed=self._passes.append)
        self.follow(made.configuration)
        self._first = {key_of(one.scaled_object): one.polling_interval_ns for one in self._followed.scaled}

    def follow(self, configuration: Configuration) -> None:
        """Go by these autoscalers from now on."""
        found = autoscalers(configuration, epoch_ns=0)
        self._followed.plain = [one for one in found.plain if one.target.workload not in self._planned]
        self._followed.scaled = [one for one in found.scaled if one.target.workload not in self._planned]
        self._followed.ambiguous = found.ambiguous
        every = [(one.hpa, one.target) for one in found.plain]
        every += [(one.scaled_object, one.target) for one in found.scaled]
        self._at_rest = [
            (one, target) for one, target in every if target.workload in self._planned and not self._is_given(one)
        ]

    def _is_given(self, one: Ref) -> bool:
        """Whether the manifests have it: of those in the API the uids are known too."""
        return any((of.kind, of.namespace, of.name) == (one.kind, one.namespace, one.name) for of in self._given)

    def loops(self) -> list[Loop]:
        """Of the policy that plans or what moves GPUs, of the HPA controller, and of KEDA."""
        first = [
            Loop(f"keda/{key.partition('/')[2]}", partial(self._poll, key), period_ns)
            for key, period_ns in self._first.items()
        ]
        later = Loop("keda", self._poll_later_ones, LOOK_NS)
        return [*self._own, Loop("hpa", self._sync, hpa.SYNC_PERIOD_NS), *first, later]

    def _sync(self, world: World) -> Sequence[Scale]:
        for one, target in self._at_rest:
            world.note(one, AT_REST, f"the policy {self._policy} sets the replicas of {target.kind} {target.name}")
        if self._objects is not None:
            self._objects.make(self._followed.scaled)
        found = self._followed.sync(world) if self._followed.plain or self._followed.scaled else ()
        if self._objects is not None:
            for passed in self._passes:
                self._objects.write(passed, world.now())
        self._passes.clear()
        return found

    def _poll(self, key: str, world: World) -> Sequence[Scale]:
        return [
            decision
            for one in self._followed.scaled
            if key_of(one.scaled_object) == key
            for decision in self._followed.poll(one, world)
        ]

    def _poll_later_ones(self, world: World) -> Sequence[Scale]:
        """Of those that were not there from the start, the ones that were not polled for as long as they say."""
        found: list[Scale] = []
        for one in self._followed.scaled:
            key, now_ns = key_of(one.scaled_object), world.now()
            if key not in self._first and now_ns - self._polled_ns.get(key, 0) >= one.polling_interval_ns:
                self._polled_ns[key] = now_ns
                found += self._followed.poll(one, world)
        return found
