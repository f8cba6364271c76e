"""Equal runs give equal bytes, other seeds other traffic; and in every run the books balance and no invariant breaks."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from run_checks import POLICIES, check_books, check_faulty, faulty
from sim_builders import SHORT_RUN, Golden, variant

import shared_runs
from deep_seeds import deep
from tonnage.simulation import run
from tonnage.simulation.scenario import Scenario


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    return variant(tmp_path_factory.mktemp("short"))


WHICH = (SHORT_RUN, *deep((0,)))


# ---- seeds ----


def test_a_check_changes_nothing_but_its_own_report_and_is_made_when_asked_for(short: Scenario) -> None:
    plain = run.run(short, "corrected", run.RunOptions(seed=1))
    without = copy.copy(shared_runs.short_surge("corrected"))
    assert (plain.check.enabled, plain.check.steps, plain.check.violations) == (False, 0, [])
    assert without.check.enabled
    without.check = plain.check
    assert msgspec.json.encode(plain) == msgspec.json.encode(without)


def test_another_seed_gives_other_arrivals(tmp_path: Path) -> None:
    drawn = {"start": ["1m", "3m"], "duration": "2m", "ramp": "1m", "factor": [2, 3]}
    made = variant(tmp_path, surge=drawn, duration="8m", slo={"ttft": "2s", "tpot": "50ms"})
    one, other = (run.run(made, "corrected", run.RunOptions(seed=seed)) for seed in (0, 1))
    for left, right in zip(one.series.services, other.series.services, strict=True):
        assert left.arrivals_per_s != right.arrivals_per_s
    assert one.services[0].surges != other.services[0].surges


@pytest.mark.parametrize("which", WHICH)
def test_every_policy_meets_the_same_arrivals(golden: Golden, which: int | str) -> None:
    one, other = golden("corrected", which), golden("slo", which)
    for left, right in zip(one.series.services, other.series.services, strict=True):
        assert left.arrivals_per_s == right.arrivals_per_s


# ---- invariants and money ----


@pytest.mark.parametrize("policy", POLICIES)
def test_no_invariant_breaks(policy: str) -> None:
    result = shared_runs.short_surge(policy)
    assert result.check.enabled and result.check.steps > 500
    assert result.check.violations == []
    check_books(result)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["as-written", *deep(["corrected", "slo"])])
def test_no_invariant_breaks_when_machines_do(tmp_path: Path, policy: str) -> None:
    check_faulty(run.run(faulty(tmp_path), policy, run.RunOptions(seed=1, check=True)))


@pytest.mark.fuzz
@pytest.mark.parametrize("policy", POLICIES)
def test_the_books_of_the_whole_scenario_balance(golden: Golden, policy: str) -> None:
    check_books(golden(policy, 0))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("which", WHICH)
def test_every_request_is_counted_once(golden: Golden, policy: str, which: int | str) -> None:
    result = golden(policy, which)
    step_s = result.series.t_s[1]
    for service, series in zip(result.services, result.series.services, strict=True):
        counted = sum(a.requests + a.undecided for a in (service.overall, service.grace))
        assert counted == round(sum(series.arrivals_per_s) * step_s)
        for part in (service.overall, service.grace):
            assert part.met + part.missed_ttft + part.missed_tpot + part.unfinished >= part.requests
            assert part.met + max(part.missed_ttft, part.missed_tpot) + part.unfinished <= part.requests


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
        run.run(variant(tmp_path), "as-written", run.RunOptions(observer=watch))
    assert seen == sorted(seen)


# ---- processes ----

ENCODED = """
import sys
from pathlib import Path
import msgspec
from tonnage.simulation import run, scenario
sys.stdout.buffer.write(msgspec.json.encode(run.run(scenario.load(Path(sys.argv[1])), sys.argv[2], run.RunOptions(seed=3))))
"""


@pytest.mark.parametrize("policy", ["as-written", *deep(["corrected", "slo"])])
def test_a_process_with_other_hashes_gives_equal_bytes_and_so_does_a_second_run(tmp_path: Path, policy: str) -> None:
    """Among much else that this process has run before, and in one that has run nothing."""
    made = faulty(tmp_path, duration="16m")
    environment = os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", ENCODED, str(tmp_path), policy]
    theirs = subprocess.run(command, env=environment, capture_output=True, check=True).stdout

    assert msgspec.json.encode(run.run(made, policy, run.RunOptions(seed=3))) == theirs
