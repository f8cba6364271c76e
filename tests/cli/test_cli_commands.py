"""What the commands print, write and return."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml
from cli_builders import make_scenario, replace, tonnage, tree

from health.broken_sets import BrokenSet
from tonnage.cli import files
from tonnage.simulation.result import Result


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    return make_scenario(folder)


def fresh(*arguments: object, hash_seed: int) -> str:
    """Standard output of a new process."""
    return subprocess.run(
        [sys.executable, "-m", "tonnage", *map(str, arguments)],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        check=True,
        timeout=120,
        text=True,
    ).stdout


def arrivals(result: Result) -> list[float]:
    return result.series.services[0].arrivals_per_s


def test_a_fresh_process_prints_the_same_to_the_byte_and_another_seed_has_other_arrivals(
    scenario: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The new process has other hashes, and a process of its own for each policy where there are two cores."""
    first = fresh("compare", scenario, "-o", "json", "--seed", 7, hash_seed=1)
    assert tonnage(capfd, "compare", scenario, "-o", "json", "--seed", 7).out == first
    seventh = msgspec.json.decode(first, type=list[Result])
    other = tonnage(capfd, "compare", scenario, "-o", "json", "--seed", 8).out
    eighth = msgspec.json.decode(other, type=list[Result])
    assert arrivals(seventh[0]) == arrivals(seventh[1])
    assert arrivals(seventh[0]) != arrivals(eighth[0])


def test_a_policy_gives_the_same_result_alone_and_beside_others(
    scenario: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    both = msgspec.json.decode(tonnage(capfd, "compare", scenario, "-o", "json").out, type=list[Result])
    assert [result.policy for result in both] == ["fixed", "keda"]
    for result in both:
        alone = tonnage(capfd, "simulate", scenario, "--policy", result.policy, "-o", "json")
        assert msgspec.json.decode(alone.out, type=Result) == result


def test_policies_come_in_the_order_asked_for_and_once(scenario: Path, capfd: pytest.CaptureFixture[str]) -> None:
    order = ("--policy", "keda", "--policy", "fixed", "--policy", "keda")
    ran = tonnage(capfd, "compare", scenario, *order, "-o", "json")
    assert [result["policy"] for result in json.loads(ran.out)] == ["keda", "fixed"]


def test_yaml_says_what_json_says(scenario: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = tonnage(capfd, "simulate", scenario, "-o", "yaml").out
    assert yaml.safe_load(text) == json.loads(tonnage(capfd, "simulate", scenario, "-o", "json").out)


def test_the_json_is_valid_by_the_published_schema(scenario: Path, capfd: pytest.CaptureFixture[str]) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    schema = json.loads(tonnage(capfd, "schema", "result").out)
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    result = json.loads(tonnage(capfd, "simulate", scenario, "--policy", "keda", "-o", "json").out)
    assert result["findings"]
    validator.validate(result)
    checked = jsonschema.Draft202012Validator(json.loads(tonnage(capfd, "schema", "check").out))
    checked.validate(json.loads(tonnage(capfd, "check", scenario.parent / "keda", "-o", "json").out))
    del result["seed"]
    assert [error.validator for error in validator.iter_errors(result)] == ["required"]


def test_the_schema_has_every_field_of_a_result(capfd: pytest.CaptureFixture[str]) -> None:
    schema = json.loads(tonnage(capfd, "schema", "result").out)
    result = schema["$defs"]["Result"]
    fields = [field.encode_name for field in msgspec.structs.fields(Result)]
    assert list(result["properties"]) == fields == [*result["required"], "training", "not_running", "workloads"]


def test_a_table_and_a_report_are_made_without_a_word_on_standard_error_when_quiet(
    scenario: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    report = scenario.parent / "report.html"
    ran = tonnage(capfd, "compare", scenario, "--report", report, "--quiet")
    assert (ran.code, ran.err) == (0, "")
    assert "fixed" in ran.out.splitlines()[0]
    assert "\x1b" not in ran.out
    page = report.read_text()
    assert page.startswith("<!doctype html>") and "small: fixed, keda" in page
    assert not [path for path in report.parent.iterdir() if path.name.endswith(".tmp")]


def test_the_note_on_the_report_keeps_out_of_the_json(scenario: Path, capfd: pytest.CaptureFixture[str]) -> None:
    report = scenario.parent / "report.html"
    ran = tonnage(capfd, "simulate", scenario, "--report", report, "-o", "json")
    assert json.loads(ran.out)["policy"] == "fixed"
    assert ran.err == f"report: {report}\n"


def test_check_verifies_invariants_and_says_so(scenario: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ran = tonnage(capfd, "simulate", scenario, "--check")
    assert ran.code == 0
    assert "Invariants held in" in ran.out


def test_violated_invariants_are_an_error(
    scenario: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tonnage.simulation.driver.violations", lambda fleet: ["GPU 0 held twice"])
    ran = tonnage(capfd, "simulate", scenario, "--check", "-o", "json")
    assert ran.code == 1
    assert json.loads(ran.out)["check"]["violations"]
    assert "fixed: " in ran.errors[0] and "GPU 0 held twice" in ran.errors[0]


def test_a_trace_replaces_the_traffic_and_prices_the_price(scenario: Path, capfd: pytest.CaptureFixture[str]) -> None:
    prices = scenario.parent / "prices.csv"
    prices.write_text("instance_type,usd_per_hour\ng6e.12xlarge,15\n")
    options = ("--trace", scenario.parent / "trace.csv", "--prices", prices, "-o", "json")
    result = json.loads(tonnage(capfd, "simulate", scenario, *options).out)
    assert result["traffic_source"] == "trace.csv"
    assert result["cost"]["total_micro_usd"] == 1_000_000  # 4 minutes at 15 dollars an hour


def test_manifests_without_an_error_pass_the_check_and_an_error_fails_it(
    scenario: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = scenario.parent / "keda"
    passed = tonnage(capfd, "check", folder)
    assert passed.code == 0
    assert "trigger-no-data-is-zero" in passed.out
    replace(folder / "chat.yaml", "          resources:\n            limits:\n              nvidia.com/gpu: 1\n", "")
    failed = tonnage(capfd, "check", folder, "-o", "json")
    assert failed.code == 1
    document = json.loads(failed.out)
    assert list(document) == ["schema", "findings"]
    worst = document["findings"][0]
    assert (worst["rule"], worst["severity"]) == ("engine-without-gpu", "error")
    assert worst["where"]["file"] == str(folder / "chat.yaml")


def test_manifests_without_findings_are_said_to_have_none(scenario: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ran = tonnage(capfd, "check", BrokenSet("", {"name": "good", "base": "serving"}).write(scenario.parent / "set"))
    assert (ran.code, ran.out) == (0, "No findings in 2 objects\n")
    assumed = tonnage(capfd, "check", scenario.parent / "fixed")
    assert assumed.code == 0
    assert assumed.out.startswith("Findings: 1 info\ninfo    nodes-assumed")


def test_a_profile_is_fitted_and_can_be_simulated(scenario: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = scenario.parent
    source = ("--name", "Mine", "--licence", "CC0", "--fitted", "2026-01-31", "--interval", 5)
    ran = tonnage(capfd, "trace", "fit", folder / "trace.csv", "-o", folder / "traffic.yaml", *source)
    assert ran.code == 0 and "4 requests" in ran.out
    profile = yaml.safe_load((folder / "traffic.yaml").read_text())
    assert profile["source"]["name"] == "Mine" and str(profile["source"]["fitted"]) == "2026-01-31"
    assert profile["interval_s"] == 5 and len(profile["arrivals"]) == 8
    assert json.loads(tonnage(capfd, "simulate", scenario, "-o", "json").out)["traffic_source"] == "Mine"


def test_a_trace_is_described(scenario: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ran = tonnage(capfd, "trace", "show", scenario.parent / "trace.csv")
    assert ran.code == 0
    assert "requests       4\n" in ran.out


def test_the_demo_compares_all_policies_names_places_and_writes_a_report(
    scenario: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tonnage.cli.simulate.DEMO", scenario)
    monkeypatch.chdir(scenario.parent)
    before = set(tree(scenario.parent))
    ran = tonnage(capfd, "demo")
    assert ran.code == 0
    assert "fixed" in ran.out and "keda" in ran.out
    assert "keda/scaler.yaml:12" in ran.out
    assert "Open tonnage-demo.html" in ran.out
    assert set(tree(scenario.parent)) - before == {"tonnage-demo.html"}


@pytest.mark.parametrize("name", ["examples/traffic-surge", "traffic-surge", "traffic-surge/scenario.yaml"])
def test_bundled_examples_are_found_from_anywhere(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = files.existing(Path(name))
    assert found.exists() and "traffic-surge" in found.parts


def test_a_folder_of_ones_own_comes_before_a_bundled_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "traffic-surge").mkdir()
    assert files.existing(Path("traffic-surge")).absolute() == tmp_path / "traffic-surge"


@pytest.mark.parametrize("name", ["../traffic-surge", "/nowhere/traffic-surge", "examples", "traffic", "."])
def test_other_paths_stay_as_they_are(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert files.existing(Path(name)) == Path(name)


def test_a_file_is_replaced_whole_and_keeps_no_trace_of_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "report.html"
    files.write(target, "old")
    files.write(target, "new")
    assert target.read_text() == "new"
    with pytest.raises(UnicodeEncodeError):
        files.write(target, "\ud800")
    assert tree(tmp_path) == {"report.html": b"new"}


def test_devices_are_written_to_and_not_replaced() -> None:
    files.check_writable(Path("/dev/null"))
    files.write(Path("/dev/null"), "text")
    assert Path("/dev/null").is_char_device()


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    link = tmp_path / "latest.html"
    link.symlink_to("report.html")
    files.check_writable(link)
    files.write(link, "text")
    assert link.is_symlink() and (tmp_path / "report.html").read_text() == "text"
