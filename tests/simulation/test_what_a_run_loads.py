"""A run loads the modules that its scenario needs, and leaves the others out: they would cost every run time and memory."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.common import ROOT

ELSEWHERE = {
    "nodes are launched": (
        "tonnage.control.disruption",
        "tonnage.control.rebalance",
        "tonnage.provisioning.consolidation",
        "tonnage.provisioning.karpenter",
        "tonnage.provisioning.optimal",
        "tonnage.provisioning.cluster_autoscaler.scale_down",
        "tonnage.provisioning.cluster_autoscaler.scale_up",
    ),
    "MIG layouts change": (
        "tonnage.control.partitioner",
        "tonnage.machines.relayouts",
        "tonnage.partitioning.adapt",
        "tonnage.partitioning.trial",
    ),
    "pods find no place": (
        "tonnage.scheduling.why.bounds",
        "tonnage.scheduling.why.gang",
        "tonnage.scheduling.why.search",
    ),
    "a policy plans replicas": ("tonnage.scaling.slo",),
    "pods have claims": ("tonnage.cel.device", "tonnage.dra.compiled"),
    "queries name fields of dcgm-exporter": ("tonnage.node.exporter", "tonnage.node.simulated_readings"),
}
"""Modules by where they are needed."""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Modules and attributes of the catalogue after requests were served by ten replicas on nodes that were there."""
    trace: Path = tmp_path_factory.mktemp("trace") / "requests.csv"
    rows = [f"2023-11-16 18:15:{second:02d}.0000000,{100 * second},{10 * second}\n" for second in range(1, 40)]
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(rows))
    code = (
        "import sys\nfrom benchmarks.main import azure_hour\n"
        "ran = azure_hour(sys.argv[1], '')\nassert ran['requests'] == 39, ran\n"
        "from tonnage.provisioning.catalogue import Catalogue\n"
        "print(*sys.modules, *(f'catalogue.{one}' for one in vars(Catalogue.load())))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(trace)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return set(ran.stdout.split())


@pytest.mark.parametrize("where", ELSEWHERE)
def test_plain_serving_leaves_out_what_is_needed_elsewhere(where: str, loaded: set[str]) -> None:
    assert "tonnage.inference.engine.engine" in loaded
    assert [name for name in ELSEWHERE[where] if find_spec(name) is None] == [], "no such modules"
    assert [name for name in ELSEWHERE[where] if name in loaded] == []


def test_a_run_that_launches_no_nodes_makes_no_tables_of_offerings(loaded: set[str]) -> None:
    assert "catalogue.names" in loaded
    assert not {"catalogue.pairs", "catalogue.prices", "catalogue.exotic"} & loaded
