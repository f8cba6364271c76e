"""The slo policy where no node is there at first: replicas are sized for the GPU that a NodePool launches."""

from __future__ import annotations

from pathlib import Path

import pytest
from sim_builders import EXAMPLE

from tonnage.errors import InputError
from tonnage.scaling.target import Target
from tonnage.simulation import run
from tonnage.simulation.planned import planned
from tonnage.simulation.scenario import load

SCENARIO = f"""\
kind: Scenario
name: none
duration: 5m
slo: {{ttft: 2s, tpot: 50ms}}
fleet: {{nodes: NODES}}
traffic:
  - {{service: inference/model-a, profile: {EXAMPLE}/traffic/azure-2023-conv.yaml, balancing: least-requests}}
policies: {{slo: {{manifests: {EXAMPLE}/manifests/corrected, scaling: slo}}}}
"""


def target(folder: Path, nodes: str, *, pools: bool = True) -> Target:
    (folder / "scenario.yaml").write_text(SCENARIO.replace("NODES", nodes))
    made = run.set_up(load(folder), "slo")
    configuration = made.configuration if pools else run.replace(made.configuration, pools=())
    (found,) = planned(made.scenario, configuration, made.cluster, made.sources, "slo")
    return found.target


def test_replicas_are_sized_for_the_gpu_that_is_launched(tmp_path: Path) -> None:
    launched, there = target(tmp_path, "[]"), target(tmp_path, "[{instanceType: g6e.12xlarge}]")
    assert launched.capacity == there.capacity > 0  # the pool launches L40S, as in the fleet
    assert launched.minimum == there.minimum


def test_without_nodes_and_pools_there_is_nothing_to_size_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="starts on none of the GPUs that are there at first or are launched"):
        target(tmp_path, "[]", pools=False)
