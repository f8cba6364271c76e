"""The bundled example of shared GPUs, shortened: what its README says of the policies."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import fmean

import pytest

import yaml_text
from tonnage.simulation import run, scenario
from tonnage.simulation.result import Result, ServiceResult

EXAMPLE = Path(__file__).parents[2] / "examples" / "shared-gpus"
SURGING, BROKEN = "models/autocomplete", "models/summaries"
Runs = Callable[[str], Result]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The result of a policy on half an hour of the example; each run is made once."""
    written = yaml_text.load((EXAMPLE / "scenario.yaml").read_text(encoding="utf-8"))
    written["duration"] = "27m"
    written["faults"][0]["at"] = "22m"
    for traffic in written["traffic"]:
        traffic["profile"] = str(EXAMPLE / traffic["profile"])
        for surge in traffic.get("surges", ()):
            surge |= {"start": "16m", "duration": "4m", "ramp": "30s", "factor": 15}
    for policy in written["policies"].values():
        policy["manifests"] = str(EXAMPLE / policy["manifests"])
    path = tmp_path_factory.mktemp("shared") / "scenario.yaml"
    path.write_text(yaml_text.dump(written, sort_keys=False), encoding="utf-8")
    loaded = scenario.load(path)

    @cache
    def result(policy: str) -> Result:
        return run.run(loaded, policy, run.RunOptions(check=policy == "time-sliced"))

    return result


def _met(result: Result, name: str) -> float:
    return _service(result, name).overall.share or 0.0


def _service(result: Result, name: str) -> ServiceResult:
    return next(one for one in result.services if one.name == name)


def _ended(result: Result) -> set[str]:
    """The Services whose only engine was ready, and then was not."""
    found = set()
    for one in result.series.services:
        first = next(i for i, ready in enumerate(one.replicas_ready) if ready)
        if 0 in one.replicas_ready[first:]:
            found.add(one.name)
    return found


def _others(result: Result, *names: str) -> list[ServiceResult]:
    return [one for one in result.services if one.name not in names]


@pytest.mark.parametrize("policy", ["time-sliced", "mps", "mig"])
def test_one_gpu_for_all_six_costs_a_sixth_of_a_gpu_each(ran: Runs, policy: str) -> None:
    whole, shared = ran("whole"), ran(policy)
    assert len(whole.nodes) == 6 and len(shared.nodes) == 1
    assert shared.cost.total_micro_usd == pytest.approx(whole.cost.total_micro_usd / 6, rel=0.02)


def test_every_invariant_holds_while_six_engines_take_turns(ran: Runs) -> None:
    assert ran("time-sliced").check.violations == []


def test_out_of_memory_ends_one_engine_but_all_six_where_nothing_limits_the_memory_of_each(ran: Runs) -> None:
    for policy in ("whole", "mps", "mig"):
        assert _ended(ran(policy)) == {BROKEN}
    assert _ended(ran("time-sliced")) == {one.name for one in ran("time-sliced").services}
    said = [event for event in ran("time-sliced").events if event.message.endswith(" on the same GPU")]
    assert len({event.object for event in said}) == 5


def test_a_surge_slows_neighbours_in_turns_and_on_mig_it_is_felt_by_nobody_else(ran: Runs) -> None:
    sliced, mig = ran("time-sliced"), ran("mig")
    assert all(_met(mig, one.name) == 1.0 for one in _others(mig, SURGING, BROKEN))
    assert min(_met(mig, SURGING), _met(sliced, SURGING)) > 0.9
    assert _slower_in_surge(sliced) > 1.15 > 1.05 > _slower_in_surge(mig)


def _slower_in_surge(result: Result) -> float:
    """The time per token of those without a surge while it lasts (minutes 17 to 20), as a multiple of that in minutes
    24 to 27: medians of intervals, their mean over each span, the mean over Services."""
    found = []
    for series in result.series.services:
        if series.name in (SURGING, BROKEN):
            continue
        surge, quiet = (
            fmean(
                tpot
                for t, tpot in zip(result.series.t_s, series.tpot_p50_ms, strict=True)
                if tpot is not None and start < t / 60 <= end
            )
            for start, end in ((17, 20), (24, 27))
        )
        found.append(surge / quiet)
    return fmean(found)


def test_answers_of_who_has_no_surge_are_quicker_side_by_side_than_in_turns_and_prompts_are_not(ran: Runs) -> None:
    """Decoding leaves SMs to others; a prompt fills them, and under MPS it has a sixth even where the rest is idle."""
    for one in _others(ran("whole"), SURGING, BROKEN):
        whole, side, turns = (_service(ran(policy), one.name) for policy in ("whole", "mps", "time-sliced"))
        tpot = [found.tpot_ms.p99 or 0.0 for found in (whole, side, turns)]
        ttft = [found.ttft_ms.p50 or 0.0 for found in (whole, turns, side)]
        assert tpot == sorted(tpot) and ttft == sorted(ttft), one.name


def test_what_is_held_of_the_gpu_is_charged_and_the_rest_is_nobodys(ran: Runs) -> None:
    sliced, mig = ran("time-sliced"), ran("mig")
    assert sliced.gpu_hours.allocated > 0.95 * sliced.gpu_hours.paid - 0.1
    held = {line.owner: line.used_micro_usd + line.idle_in_allocation_micro_usd for line in mig.cost.lines}
    assert held["models/chat"] > 1.4 * held["models/intent"]  # a quarter of the memory instead of an eighth
    assert held[""] == 0 and sum(held.values()) < mig.cost.total_micro_usd
