"""What commands say beside a Prometheus that has scraped a simulated run, of whichever release it is."""

from __future__ import annotations

import json
from pathlib import Path

import measured_runs
import numpy as np
import pytest
from measured_runs import SERVICE

from tonnage.cli import main
from tonnage.live.prometheus import Prometheus
from tonnage.metrics.functions import Dialect
from tonnage.simulation import scenario
from tonnage.simulation.backtest import MeasuredSide, backtest
from tonnage.simulation.run import SetUp
from tonnage.traffic import readings
from tonnage.traffic.profile import OUTPUT_LEVELS, PROMPT_LEVELS
from tonnage.traffic.profile_file import read_profile
from tonnage.units import NS_PER_S

START_S, MINUTES = 1_700_000_000, 10
END_NS = MINUTES * 60 * NS_PER_S


def edges_about(value: float) -> tuple[float, float]:
    """The bucket of vLLM's 1, 2, 5 edges that holds a value."""
    edges = [digit * 10**power for power in range(6) for digit in (1, 2, 5)]
    above = next(edge for edge in edges if edge >= value)
    return max((edge for edge in edges if edge < value), default=0), above


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert isinstance(caught.value.code, int)
    return caught.value.code


class BesideMeasurements:
    """What a Prometheus gives back that has scraped ``made``; ``server`` is its address."""

    def dialect(self) -> Dialect:
        raise NotImplementedError

    def times(self, url: str) -> list[str]:
        return ["--prometheus", url, "--start", str(START_S), "--end", str(START_S + 60 * MINUTES)]

    def test_a_profile_gives_back_arrivals_and_lengths(
        self, server: str, made: SetUp, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = tmp_path / "chat.yaml"
        more = ["--service", SERVICE, "--ttft", "1s", "--tpot", "50ms", "-o", str(out)]
        assert command("trace", "fit", *self.times(server), *more) == 0
        profile, arrivals = read_profile(out), made.cluster.services[0].requests.arrivals
        assert sum(profile.arrivals) == pytest.approx(len(arrivals), rel=0.03)
        minutes = np.bincount(arrivals.arrival_ns // (60 * NS_PER_S), minlength=MINUTES)
        assert profile.arrivals == pytest.approx(minutes.tolist(), rel=0.15, abs=8)  # scrapes are 15 s apart
        lengths = profile.lengths
        for levels, tokens, came in (
            (PROMPT_LEVELS, lengths.prompt_tokens, arrivals.prompt),
            (OUTPUT_LEVELS, lengths.output_tokens[0], arrivals.output),
        ):
            for level, found in zip(levels, tokens, strict=True):
                low, high = edges_about(float(np.quantile(came, level, method="inverted_cdf")))
                assert low <= found <= high, (level, found)
        said = capsys.readouterr().out
        assert "TTFT within 1000 ms: 100.0% of the requests" in said and "assumed:\n  arrivals are what" in said

    def test_a_run_compared_with_itself_shows_no_difference(
        self, server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder, plot = measured_runs.write(tmp_path / "again"), tmp_path / "plot.svg"
        more = ["--traffic", "scenario", "-o", "json", "--plot", str(plot)]
        assert command("backtest", str(folder), *self.times(server), *more) == 0
        (service,) = json.loads(capsys.readouterr().out)["services"]
        assert service["name"] == SERVICE and len(service["curves"]) == 6
        for curve in service["curves"]:
            assert curve["simulated"] == pytest.approx(curve["measured"], rel=1e-9), curve["name"]
            assert sum(one is not None for one in curve["measured"]) >= MINUTES - 1
        assert plot.read_text().count("<polyline") == 10  # replicas, two quantiles of TTFT and TPOT; both worlds

    def test_another_run_differs(self, server: str, tmp_path: Path) -> None:
        folder = measured_runs.write(tmp_path / "other", rate=0.5)
        with Prometheus(server) as asked:
            start_ns = START_S * NS_PER_S
            served = readings.find_served(asked, SERVICE, start_ns, start_ns + END_NS)
            held = MeasuredSide(asked, [served], start_ns, start_ns + END_NS, dialect=self.dialect())
            found = backtest(scenario.load(folder), "fixed", held)
        finished = next(one for one in found.services[0].curves if one.name == "requests finished")
        assert finished.difference == pytest.approx(0.5, abs=0.15)

    def test_a_service_that_is_not_there_is_said_with_those_that_are(
        self, server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = str(tmp_path / "x.yaml")
        assert command("trace", "fit", *self.times(server), "--service", "serving/talk", "-o", out) == 2
        said = capsys.readouterr().err
        assert said.startswith("error: --service: no vLLM") and "there are serving/chat" in said
        assert not Path(out).exists()
