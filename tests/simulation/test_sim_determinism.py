"""Equal runs give equal bytes, other seeds other traffic; and in every run the books balance and no invariant breaks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from sim_builders import Golden, variant

from tonnage.simulation import run
from tonnage.simulation.result import CostLine, Result
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


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    return variant(tmp_path_factory.mktemp("short"))


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    return variant(tmp_path_factory.mktemp("faulty"), faults=FAULTS, fleet={"nodes": NODES})


def _total(line: CostLine) -> int:
    return line.used_micro_usd + line.idle_in_allocation_micro_usd + line.idle_micro_usd


def _books_balance(result: Result) -> None:
    total = result.cost.total_micro_usd
    assert total == sum(node.cost_micro_usd for node in result.nodes)
    assert total == sum(_total(line) for line in result.cost.lines)
    assert total == result.series.spend_micro_usd[-1]
    gpus = result.gpu_hours
    assert 0 < gpus.busy <= gpus.allocated <= gpus.paid


# ---- seeds ----


@pytest.mark.parametrize("policy", POLICIES)
def test_two_runs_of_one_seed_give_equal_bytes(faulty: Scenario, policy: str) -> None:
    one, other = (msgspec.json.encode(run.run(faulty, policy, run.Options(seed=3))) for _ in range(2))
    assert one == other


def test_a_check_changes_nothing_but_its_own_report(short: Scenario) -> None:
    plain = run.run(short, "corrected", run.Options(seed=3))
    checked = run.run(short, "corrected", run.Options(seed=3, check=True))
    checked.check = plain.check
    assert msgspec.json.encode(plain) == msgspec.json.encode(checked)


def test_another_seed_gives_other_arrivals(golden: Golden) -> None:
    one, other = golden("corrected", 1), golden("corrected", 2)
    for left, right in zip(one.series.services, other.series.services, strict=True):
        assert left.arrivals_per_s != right.arrivals_per_s
    assert one.services[0].surges != other.services[0].surges


def test_every_policy_meets_the_same_arrivals(golden: Golden) -> None:
    one, other = golden("corrected", 1), golden("slo", 1)
    for left, right in zip(one.series.services, other.series.services, strict=True):
        assert left.arrivals_per_s == right.arrivals_per_s


# ---- invariants and money ----


@pytest.mark.parametrize("policy", POLICIES)
def test_no_invariant_breaks(short: Scenario, policy: str) -> None:
    result = run.run(short, policy, run.Options(seed=1, check=True))
    assert result.check.enabled and result.check.steps > 500
    assert result.check.violations == []
    _books_balance(result)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [1, 2])
def test_no_invariant_breaks_when_machines_do(faulty: Scenario, policy: str, seed: int) -> None:
    result = run.run(faulty, policy, run.Options(seed=seed, check=True))
    assert result.check.violations == []
    _books_balance(result)
    reasons = {node.end_reason for node in result.nodes}
    assert {"node failure", "spot interruption"} <= reasons


@pytest.mark.parametrize("policy", POLICIES)
def test_the_books_of_the_whole_scenario_balance(golden: Golden, policy: str) -> None:
    _books_balance(golden(policy, 1))


@pytest.mark.parametrize("policy", POLICIES)
def test_every_request_is_counted_once(golden: Golden, policy: str) -> None:
    result = golden(policy, 1)
    step_s = result.series.t_s[1]
    for service, series in zip(result.services, result.series.services, strict=True):
        counted = sum(a.requests + a.undecided for a in (service.overall, service.grace))
        assert counted == round(sum(series.arrivals_per_s) * step_s)
        for part in (service.overall, service.grace):
            assert part.met + part.missed_ttft + part.missed_tpot + part.unfinished >= part.requests
            assert part.met + max(part.missed_ttft, part.missed_tpot) + part.unfinished <= part.requests


def test_checks_are_off_unless_asked_for(golden: Golden) -> None:
    check = golden("corrected", 1).check
    assert (check.enabled, check.steps, check.violations) == (False, 0, [])


# ---- the observer ----


class Enough(Exception):
    """The watcher has seen enough."""


def test_an_observer_sees_time_pass_and_may_end_the_run(tmp_path: Path) -> None:
    seen: list[int] = []

    def watch(cluster: object, until_ns: int) -> None:
        seen.append(cluster.now_ns)  # type: ignore[attr-defined]
        if len(seen) == 50:
            raise Enough

    with pytest.raises(Enough):
        run.run(variant(tmp_path), "as-written", run.Options(observer=watch))
    assert seen == sorted(seen)


# ---- processes ----

DIGEST = """
import hashlib, sys
from pathlib import Path
import msgspec
from tonnage.simulation import run, scenario
result = run.run(scenario.load(Path(sys.argv[1])), "slo", run.Options(seed=3))
print(hashlib.sha256(msgspec.json.encode(result)).hexdigest())
"""


def test_another_process_with_other_hashes_gives_equal_bytes(tmp_path: Path) -> None:
    variant(tmp_path, duration="12m", faults=FAULTS, fleet={"nodes": NODES})
    digests = set()
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", DIGEST, str(tmp_path)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        digests.add(done.stdout)
    assert len(digests) == 1
