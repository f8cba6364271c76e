"""What a run has to say about its training work."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from tonnage.machines.training.part import Goodput, PartState
from tonnage.machines.training.workload import Training
from tonnage.simulation.result import TrainingHours, TrainingResult
from tonnage.units import NS_PER_HOUR, NS_PER_S

if TYPE_CHECKING:
    from tonnage.machines.cluster import SimulatedCluster


def training_results(cluster: SimulatedCluster) -> list[TrainingResult]:
    """Every training workload, in the order of the manifests. They must have been settled."""
    return [_result(training) for training in cluster.training.values()]


def _result(training: Training) -> TrainingResult:
    parts = training.parts
    placed = min((p.placed_ns for p in parts if p.placed_ns is not None), default=None)
    started = min((p.started_ns for p in parts if p.started_ns is not None), default=None)
    done = training.ended_ns if training.state is PartState.DONE else None
    todo = sum((part.work for part in parts if part.work is not None), Fraction(0))
    did = sum((min(part.done, part.work) for part in parts if part.work is not None), Fraction(0))
    stretched = [part.factor for part in parts if part.started_ns is not None]
    return TrainingResult(
        name=training.key,
        copy_of=training.origin,
        kind=training.kind,
        pods=len(training.replicas),
        gpus=_rounded(sum((part.gpus for part in parts), Fraction(0))),
        state=training.state.value,
        progress=round(float(did / todo), 4) if todo else None,
        arrival_s=_s(training.arrival_ns),
        queue_wait_s=None if placed is None else _s(placed - training.arrival_ns),
        started_s=None if started is None else _s(started),
        finished_s=None if training.ended_ns is None else _s(training.ended_ns),
        makespan_s=None if done is None else _s(done - training.arrival_ns),
        restarts=training.restarts,
        evictions=training.evictions,
        gpu_hours=_hours(sum((part.spent_so_far for part in parts), Goodput())),
        communication_factor=(round(float(max(stretched)), 4) if training.work.allreduce_bytes and stretched else None),
        phases=[(_s(phase.start_ns), phase.state.value) for phase in training.phases],
    )


def _hours(spent: Goodput) -> TrainingHours:
    return TrainingHours(
        *(
            _rounded(gpu_ns / NS_PER_HOUR)
            for gpu_ns in (
                spent.allocated,
                spent.useful,
                spent.lost,
                spent.checkpoints,
                spent.starting,
                spent.broken,
                spent.half,
            )
        )
    )


def _rounded(value: Fraction) -> float:
    return round(float(value), 4)


def _s(t_ns: int) -> float:
    return round(t_ns / NS_PER_S, 3)
