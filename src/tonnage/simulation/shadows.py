"""A run under one policy, with the autoscalers of the manifests and the policies looking on.

They see the same cluster and metrics as who sets the replicas, at their own times, before it acts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tonnage.control.loops import Loop
from tonnage.control.replicas import Planned, ReplicaPlanner
from tonnage.control.shadow import ScalerStep, ShadowAutoscalers, ShadowPlanner, in_order, unheard
from tonnage.errors import InputError
from tonnage.fleet.snapshot import Snapshot
from tonnage.machines.cluster import SimulatedCluster
from tonnage.scaling.policies import POLICIES
from tonnage.simulation import run
from tonnage.simulation.configure import Configuration
from tonnage.simulation.planned import Sources, planned
from tonnage.simulation.scenario import Scenario


def shadowed(
    scenario: Scenario, policy: str, options: run.RunOptions | None = None
) -> tuple[run.SetUp, tuple[ScalerStep, ...], tuple[str, ...]]:
    """The run, what each autoscaler would have done at each of its looks, by time, and why some look at nothing.

    Raises InputError as :func:`tonnage.simulation.run.set_up` does."""
    options = options or run.RunOptions()
    steps: list[ScalerStep] = []
    left_out: list[str] = []

    def loops(
        scenario: Scenario, configuration: Configuration, cluster: SimulatedCluster, sources: Sources
    ) -> list[Loop]:
        scalers = run.autoscalers(configuration)
        shadows = ShadowAutoscalers(scalers, steps.append).loops()
        for name in POLICIES:
            try:
                found = planned(scenario, configuration, cluster, sources, name)
            except InputError as error:
                left_out.append(f"{name}: {error.problems[0].message}")
                continue
            shadows += ShadowPlanner(ReplicaPlanner(name, partial(_told, found)), steps.append).loops()
        return [*map(unheard, shadows), *own(scenario, configuration, cluster, sources)]

    by = scenario.policy(policy).scaling
    own = options.scaler or run.scaler_of(by)
    made = run.set_up(scenario, policy, replace(options, scaler=loops))
    run.play(made)
    return made, in_order(steps), tuple(left_out)


def _told(found: Sequence[Planned], snapshot: Snapshot) -> Sequence[Planned]:
    return found
