"""What holds in every run, and scenarios that give it something to go wrong in."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from sim_builders import variant
from training_builders import entry, job
from training_builders import load as load_training

from tonnage.simulation.result import Result
from tonnage.simulation.scenario import Scenario

POLICIES = ("as-written", "corrected", "slo")
FAULTS = [
    {"kind": "out-of-stock", "at": "1m", "instanceType": "g6e.12xlarge", "duration": "15m"},
    {"kind": "node-failure", "at": "8m"},
    {"kind": "spot-interruption", "at": "12m"},
]
NODES = [
    {"instanceType": "g6e.12xlarge", "count": 3, "zone": "us-east-1a"},
    {"instanceType": "g6e.2xlarge", "count": 2, "zone": "us-east-1b", "capacityType": "spot"},
]


def faulty(folder: Path, **changes: Any) -> Scenario:
    """The bundled scenario in 25 minutes, with all faults and nodes that they can hit."""
    return variant(folder, **({"faults": FAULTS, "fleet": {"nodes": NODES}} | changes))


def check_faulty(result: Result) -> None:
    """Of a run of ``faulty`` with invariants checked: they held, the books balance, and the faults did happen."""
    assert result.check.enabled and result.check.violations == []
    check_books(result)
    assert {"node failure", "spot interruption"} <= {node.end_reason for node in result.nodes}


def check_books(result: Result) -> None:
    """Every micro-dollar is paid for a node and charged to somebody."""
    total = result.cost.total_micro_usd
    assert total == sum(node.cost_micro_usd for node in result.nodes)
    assert total == sum(line.total_micro_usd for line in result.cost.lines)
    assert total == result.series.spend_micro_usd[-1]
    gpus = result.gpu_hours
    assert 0 < gpus.busy <= gpus.allocated <= gpus.paid


def busy_fleet(folder: Path, seed: int) -> Scenario:
    """Two nodes of eight GPUs with too much work of all sizes, scattered, and moved to make room."""
    rng = Random(seed)
    objects, entries = [], []
    for i in range(14):
        gpus = rng.choice((1, 1, 2, 2, 4, 8))
        objects.append(job(f"j{i}", gpus=gpus, pod={"restartPolicy": "Never"}, backoffLimit=20))
        hours = {"work": {"duration": f"{rng.randint(30, 150)}m"}, "checkpoint": {"every": "5m"}}
        entries.append(entry(f"job/j{i}", arrival=f"{rng.randint(0, 150)}m", **hours))
    policy = {"manifests": "manifests", "placement": "spread", "defragmentation": True}
    return load_training(folder, objects, entries, policies={"only": policy}, duration="16h")


def check_busy_fleet(result: Result) -> None:
    """All work is done, and no job is moved again and again."""
    assert isinstance(result.training, list)
    assert {one.state for one in result.training} == {"done"}
    assert all(one.evictions <= 4 for one in result.training)
