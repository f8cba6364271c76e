"""The example `spot-wave`: half the spot nodes of one type and zone go within a minute, and nobody is left unanswered."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from deep_seeds import deep
from docs_outputs import REPOSITORY
from tonnage.facts import prices
from tonnage.inference import capacity
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.serving.service import DONE
from tonnage.simulation import run, scenario
from tonnage.simulation.planned import _engine_of, request_mix
from tonnage.simulation.result import Result
from tonnage.units import NS_PER_S

EXAMPLE = scenario.load(REPOSITORY / "examples" / "spot-wave")
STEPS, STEP_S, WORKERS = 220, 5, 2
NEEDED = 10
"""Nodes that the same work needs on demand: eight replicas and two workers, without anything to spare."""


def played(policy: str, seed: int) -> tuple[SimulatedCluster, Result]:
    made = run.set_up(EXAMPLE, policy, run.RunOptions(seed=seed))
    return made.cluster, made.result(run.play(made))


def at(cluster: SimulatedCluster, reason: str) -> list[float]:
    return [row.t_ns / NS_PER_S for row in cluster.events.rows.values() if row.reason == reason]


def _replaced(result: Result) -> int:
    """Nodes with a recommendation that were given up before their notice, as nothing was left on them."""
    told = {event.object for event in result.events if event.reason == "SpotRebalanceRecommendation"}
    return sum(f"Node {one.name}" in told and one.end_reason != "spot interruption" for one in result.nodes)


@pytest.mark.parametrize("seed", [19, *deep(range(19))])
def test_a_wave_leaves_no_request_unanswered_and_costs_less_than_on_demand(seed: int) -> None:
    cluster, result = played("prepared", seed)
    notices = at(cluster, "SpotInterrupted")
    warnings = at(cluster, "SpotRebalanceRecommendation")
    assert (len(notices), len(warnings)) == (3 - _replaced(result), 1)  # half of six nodes
    assert 12 * 60 <= min(notices) <= max(notices) <= 13 * 60
    moved = [one for one in result.decisions if one.loop == "rebalance"]
    assert all(one.t_s < min(notices) + 60 for one in moved)
    assert _replaced(result) == any(one.kind == "Evict" for one in moved)
    (service,) = cluster.services
    requests = service.requests
    early = requests.arrivals.arrival_ns < EXAMPLE.duration_ns - 180 * NS_PER_S
    status = np.frombuffer(bytes(requests.status), np.uint8)
    assert (status[early] == DONE).all()
    finished = np.array(requests.finish_ns) - requests.arrivals.arrival_ns
    assert finished[early].min() > 0
    assert result.services[0].overall.share is not None
    assert result.services[0].overall.share >= 0.95
    assert finished[early].max() <= 90 * NS_PER_S
    (training,) = result.training if isinstance(result.training, list) else ()
    assert training.gpu_hours.useful == pytest.approx(STEPS * STEP_S * WORKERS / 3600, abs=1e-4)
    (work,) = cluster.training.values()
    assert sum((part.done for part in work.parts), Fraction(0)) == sum(part.work or 0 for part in work.parts)
    on_demand = prices.load().on_demand("g6.2xlarge")
    assert on_demand is not None
    assert result.cost.total_micro_usd <= 0.8 * NEEDED * on_demand * EXAMPLE.duration_ns / 3_600_000_000_000


def test_traffic_is_at_least_seventy_per_cent_of_what_the_replicas_carry() -> None:
    made = run.set_up(EXAMPLE, "prepared", run.RunOptions())
    workload = made.cluster.workloads["inference/chat"]
    engine, mix = _engine_of(made.cluster, workload, made.configuration), request_mix(made.sources["inference/chat"])
    slo = capacity.Slo(EXAMPLE.ttft_ns / 1e9, EXAMPLE.tpot_ns / 1e9)
    carried = capacity.capacity(engine.config, engine.timing, mix, slo, 0.95, replicas=workload.replicas)
    (service,) = made.cluster.services
    offered = len(service.requests.arrivals.arrival_ns) / (EXAMPLE.duration_ns / NS_PER_S)
    assert offered >= 0.7 * carried * workload.replicas


@pytest.mark.fuzz
def test_without_preparation_more_miss_the_slo_and_work_is_lost() -> None:
    before, after = (played(policy, 2)[1] for policy in ("karpenter", "prepared"))
    shares = [one.services[0].overall.share for one in (before, after)]
    assert shares[0] is not None
    assert shares[1] is not None
    assert shares[0] < 0.9 < 0.95 < shares[1]
