"""Whatever is wrong with the input, the answer is one line that says where, and exit code 2."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli_builders import make_scenario, replace, tonnage, tree

Spoil = Callable[[Path], int]
"""Breaks the scenario in a folder and returns the line at which it did."""


def swap(file: str, old: str, new: str) -> Spoil:
    return lambda folder: replace(folder / file, old, new)


def empty(file: str) -> Spoil:
    def spoil(folder: Path) -> int:
        (folder / file).write_text("")
        return 0

    return spoil


def disorder(folder: Path) -> int:
    return replace(folder / "trace.csv", "18:16:01.2229150", "18:15:02.2229150")


def nothing(_: Path) -> int:
    return 0


@dataclass(frozen=True)
class Case:
    """``expected`` is a regular expression for the whole line after "error: "; LINE is where it was spoilt."""

    spoil: Spoil
    expected: str
    arguments: tuple[str, ...] = ("simulate", ".", "--policy", "keda")


CASES = {
    "a missing scenario": Case(nothing, r"elsewhere\.yaml: no such scenario .*", ("simulate", "elsewhere.yaml")),
    "broken YAML in the scenario": Case(
        swap("scenario.yaml", "slo:\n", "slo: [\n"), r"scenario\.yaml:\d+: not valid YAML: .*"
    ),
    "broken YAML in a manifest": Case(
        swap("keda/chat.yaml", "spec:\n  replicas: 2", "spec: ]\n  replicas: 2"), r"keda/chat\.yaml:LINE:? .*"
    ),
    "a control character in the scenario": Case(
        swap("scenario.yaml", "slo:\n", "slo: \x07\n"), r"scenario\.yaml: not valid YAML: .*"
    ),
    "brackets without end in the scenario": Case(
        swap("scenario.yaml", "slo:\n", "slo: " + "[" * 3000 + "\n"),
        r"scenario\.yaml:LINE: not valid YAML: exceeded maximum nesting depth .*|scenario\.yaml: .* nested too deeply .*",
    ),
    "a duration of centuries": Case(
        swap("scenario.yaml", "duration: 4m", "duration: 99999999999999h"), r"scenario\.yaml:LINE:duration: .*"
    ),
    "an unknown field in the scenario": Case(
        swap("scenario.yaml", "duration: 4m", "duration: 4m\nrounds: 3"),
        r"scenario\.yaml:\d+:rounds: unknown field .*",
    ),
    "a bad duration": Case(
        swap("scenario.yaml", "duration: 4m", "duration: 4 minutes"),
        r'scenario\.yaml:LINE:duration: "4 minutes" is not a duration.*',
    ),
    "a number of the wrong type": Case(
        swap("scenario.yaml", "count: 1", "count: one"), r'scenario\.yaml:LINE:fleet\.nodes\[0\]\.count: "one".*'
    ),
    "an unknown instance type": Case(
        swap("scenario.yaml", "g6e.12xlarge", "g6e.13xlarge"),
        r"scenario\.yaml:LINE:fleet\.nodes\[0\]\.instanceType: .*g6e\.13xlarge.*g6e\.12xlarge.*",
    ),
    "a traffic profile that is not there": Case(
        swap("scenario.yaml", "traffic.yaml", "trafic.yaml"), r"(\./)?(scenario\.yaml:LINE:|trafic\.yaml: ).*"
    ),
    "traffic for a Service that is not there": Case(
        swap("scenario.yaml", "serving/chat", "serving/talk"),
        r'scenario\.yaml:LINE:traffic\[0\]\.service: "serving/talk": no such Service.*serving/chat.*',
    ),
    "a negative number of GPUs": Case(
        swap("keda/chat.yaml", "nvidia.com/gpu: 1", "nvidia.com/gpu: -1"),
        r"keda/chat\.yaml:LINE:spec\.template\.spec\.containers\[0\]\.resources\.limits.*-1.*",
    ),
    "an unknown policy": Case(
        nothing, r"scenario\.yaml:\d+:policies: no policy 'kedda' \(did you mean keda\?\)", ("simulate", ".", "--policy", "kedda")
    ),
    "an unknown policy among several": Case(
        nothing, r"scenario\.yaml:\d+:policies: no policy 'slow'.*", ("compare", ".", "--policy", "fixed", "--policy", "slow")
    ),
    "an empty trace": Case(
        empty("trace.csv"), r"trace\.csv: the trace has no requests .*", ("simulate", ".", "--trace", "trace.csv")
    ),
    "a trace out of order": Case(
        disorder, r"trace\.csv:LINE:TIMESTAMP: arrives .* before .*", ("simulate", ".", "--trace", "trace.csv")
    ),
    "a trace out of order, looked at": Case(
        disorder, r"trace\.csv:LINE:TIMESTAMP: arrives .* before .*", ("trace", "show", "trace.csv")
    ),
    "an empty trace to fit": Case(
        empty("trace.csv"),
        r"trace\.csv: the trace has no requests .*",
        ("trace", "fit", "trace.csv", "-o", "new.yaml", "--name", "new"),
    ),
    "prices that are not there": Case(
        nothing, r"prices\.csv: .*", ("simulate", ".", "--prices", "prices.csv")
    ),
    "a report in a folder that is not there": Case(
        nothing, r"out/report\.html: cannot be written: .*", ("simulate", ".", "--report", "out/report.html")
    ),
    "a report below a file": Case(
        nothing, r"trace\.csv/report\.html: cannot be written: .*", ("compare", ".", "--report", "trace.csv/report.html")
    ),
    "a report that is a folder": Case(nothing, r"fixed: cannot be written: .*", ("simulate", ".", "--report", "fixed")),
    "a demo report in a folder that is not there": Case(
        nothing, r"out/report\.html: cannot be written: .*", ("demo", "--report", "out/report.html")
    ),
    "a seed that is not a number": Case(
        nothing, r"invalid value for '--seed': 'x' is not a valid integer.*", ("simulate", ".", "--seed", "x")
    ),
    "a negative seed": Case(nothing, r"invalid value for '--seed': -1, expected .*", ("simulate", ".", "--seed", "-1")),
    "a form that is none": Case(nothing, r"invalid value for '-o' / '--output': 'xml' .*", ("compare", ".", "-o", "xml")),
    "a bare API server that nobody named": Case(
        nothing, r"invalid value for '?--bare'?: .* the API server of a context.*", ("up", ".", "--bare")
    ),
    "no scenario named": Case(nothing, r"missing argument 'SCENARIO'.*", ("simulate",)),
    "an unknown option": Case(nothing, r"no such option.*--sed.*--seed.*", ("simulate", ".", "--sed", "1")),
    "an unknown command": Case(nothing, r"no command 'simulat' \(did you mean simulate\?\).*", ("simulat",)),
    "manifests that are not there": Case(nothing, r"nowhere: no such file or folder .*", ("check", "nowhere")),
    "broken YAML, checked": Case(
        swap("keda/chat.yaml", "spec:\n  replicas: 2", "spec: ]\n  replicas: 2"),
        r"keda/chat\.yaml:LINE:? .*",
        ("check", "keda"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_one_line_says_what_is_wrong_and_nothing_is_written(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    make_scenario(tmp_path)
    line = case.spoil(tmp_path)
    before = tree(tmp_path)
    monkeypatch.chdir(tmp_path)
    ran = tonnage(capfd, *case.arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert len(ran.errors) == 1, ran.err
    assert re.fullmatch("error: " + case.expected.replace("LINE", str(line)), ran.errors[0]), ran.errors[0]
    assert "Traceback" not in ran.err
    assert tree(tmp_path) == before


def test_several_mistakes_are_all_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = make_scenario(tmp_path)
    replace(file, "ttft: 2s", "ttft: two")
    replace(file, "tpot: 100ms", "tpot: soon")
    ran = tonnage(capfd, "simulate", file)
    assert ran.code == 2
    assert [re.search(r":(slo\.\w+):", line)[1] for line in ran.errors] == ["slo.ttft", "slo.tpot"]  # type: ignore[index]


def test_a_mistake_in_one_policy_stops_the_comparison_before_it_starts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tonnage.cli import runs

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a run was started")

    monkeypatch.setattr(runs, "run_all", never)
    file = make_scenario(tmp_path)
    replace(tmp_path / "keda/scaler.yaml", "maxReplicaCount: 3", "maxReplicaCount: many")
    ran = tonnage(capfd, "compare", file)
    assert ran.code == 2
    assert len(ran.errors) == 1
    assert "spec.maxReplicaCount" in ran.errors[0]


def test_an_unknown_field_of_a_manifest_is_a_warning_with_its_place(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = make_scenario(tmp_path)
    line = replace(tmp_path / "fixed/chat.yaml", "  replicas: 2", "  replica: 2\n  replicas: 2")
    ran = tonnage(capfd, "simulate", file, "-o", "json")
    assert ran.code == 0
    warnings = [text for text in ran.err.splitlines() if text.startswith("warning: ")]
    assert len(warnings) == 1
    assert f"fixed/chat.yaml:{line}:spec.replica: " in warnings[0]
    checked = tonnage(capfd, "check", tmp_path / "fixed")
    assert (checked.code, checked.err) == (0, "")
    assert f"fixed/chat.yaml:{line} spec.replica\n" in checked.out


def test_unknown_fields_of_what_is_refused_are_told_beside_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    claim = "{name: gpu, source: {resourceClaimTemplateName: t}}"
    (tmp_path / "pod.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"
        f"spec:\n  resourceClaims:\n  - {claim}\n  containers: [{{name: main, image: x}}]\n"
    )
    ran = tonnage(capfd, "check", tmp_path)
    assert ran.code == 2
    first, second = ran.err.splitlines()
    assert first.startswith("error: ") and "spec.resourceClaims[0]: " in first
    assert second.startswith("warning: ") and second.endswith(
        "pod.yaml:6:spec.resourceClaims[0].source: unknown field 'source' (it has no effect)"
    )
    ran = tonnage(capfd, "check", tmp_path, "-o", "json")
    found = [(one["rule"], one["severity"]) for one in json.loads(ran.out)["findings"]]
    assert found == [("input-refused", "error"), ("manifest-not-understood", "warning")]
