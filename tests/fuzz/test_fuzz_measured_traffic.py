"""An hour of a public trace through the engines: the profile of what was scraped meets the SLO as the trace does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tonnage.simulation import run, scenario
from tonnage.simulation.result import Result
from tonnage.traffic import measured, profile_file, readings
from tonnage.traffic.profile import ProfileSource
from tonnage.units import NS_PER_S

REPOSITORY = Path(__file__).parents[2]
DATA = Path(os.environ.get("TONNAGE_DATA") or REPOSITORY.parent / "shared" / "data") / "traces"
TRACE = DATA / "azure2023_conv.csv.gz"
MINUTES, SERVICE = 58, "inference/model-a"
SCENARIO = """\
kind: Scenario
name: hour
duration: {minutes}m
slo: {{ttft: 2s, tpot: 50ms}}
fleet: {{nodes: [{{instanceType: g6e.12xlarge, count: 3}}]}}
traffic: [{{service: inference/model-a, {source}, rate: {rate}, balancing: least-requests}}]
policies:
  corrected: {{manifests: {manifests}, placement: binpack}}
"""


def played(folder: Path, source: str, rate: float) -> tuple[Result, run.SetUp]:
    manifests = REPOSITORY / "examples/traffic-surge/manifests/corrected"
    text = SCENARIO.format(minutes=MINUTES, source=source, rate=rate, manifests=manifests)
    (folder / "scenario.yaml").write_text(text)
    made = run.set_up(scenario.load(folder), "corrected", run.RunOptions(seed=3))
    return made.result(run.play(made, engines=True)), made


@pytest.mark.trace
@pytest.mark.skipif(not TRACE.exists(), reason=f"{TRACE} is absent; set TONNAGE_DATA to the folder with traces/")
@pytest.mark.parametrize("rate", [1.0, 4.0])
def test_a_replay_of_what_was_measured_meets_the_slo_as_the_hour_did(rate: float, tmp_path: Path) -> None:
    result, made = played(tmp_path, f"trace: {TRACE}", rate)
    stored, end_ns = readings.StoredReadings(made.cluster.records.store), MINUTES * 60 * NS_PER_S
    served = readings.find_served(stored, SERVICE, 0, end_ns)
    profile = measured.fit_measured(stored, served, ProfileSource("hour"), measured.MeasuredPeriod(0, end_ns))
    assert sum(profile.arrivals) == pytest.approx(made.cluster.services[0].received, rel=0.03)
    (tmp_path / "hour.yaml").write_text(profile_file.to_yaml(profile))
    again, _ = played(tmp_path, "profile: hour.yaml", 1.0)
    shares = [one.services[0].overall.share for one in (result, again)]
    assert shares[0] is not None and shares[0] > 0.9 and shares[1] == pytest.approx(shares[0], abs=0.01)
