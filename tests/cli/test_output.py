"""Terminal tables, JSON and YAML of results."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import msgspec
import pytest
import yaml
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1] / "simulation"))

from result_builder import POLICIES, build, holding

from tonnage.cli import answers, output
from tonnage.decisions import Ref
from tonnage.errors import Where
from tonnage.simulation.result import NotRunning, Result


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [build(policy) for policy in POLICIES]


def console(*, terminal: bool, no_color: bool = False) -> Console:
    return Console(
        file=io.StringIO(),
        width=80,
        force_terminal=terminal,
        no_color=no_color,
        color_system="standard" if terminal else None,
    )


def printed(target: Console) -> str:
    assert isinstance(target.file, io.StringIO)
    return target.file.getvalue()


def row(text: str, label: str) -> list[str]:
    return next(line for line in text.splitlines() if line.strip().startswith(label)).replace(label, "").split("  ")


def visible_width(text: str) -> int:
    return max(len(line) for line in text.splitlines())


def test_the_summary_says_what_people_ask_first(results: list[Result]) -> None:
    target = console(terminal=False)
    output.summary(results[0], target)
    text = printed(target)
    for part in ("traffic-surge, keda+karpenter", "87.5%", "3 min 51 s", "$43.98, $0.33 per million tokens",
                 "16.77 paid, 10.71 allocated", "5 at most, 3 launched, 3 terminated", "3 to 16", "Invariants held"):  # fmt: skip
        assert part in text


@pytest.mark.parametrize(("terminal", "no_color"), [(False, False), (True, True)])
def test_a_pipe_and_no_color_get_plain_text(results: list[Result], terminal: bool, no_color: bool) -> None:
    target = console(terminal=terminal, no_color=no_color)
    output.summary(results[0], target)
    output.comparison(results, target)
    text = printed(target)
    assert "\x1b[" not in text
    assert not set("─━│┃┏┓") & set(text)


def test_a_terminal_gets_colour(results: list[Result]) -> None:
    target = console(terminal=True)
    output.summary(results[0], target)
    assert "\x1b[" in printed(target)


@pytest.mark.parametrize("plain", [True, False])
def test_the_tables_fit_80_columns_without_breaking_a_service_name(results: list[Result], plain: bool) -> None:
    target = Console(file=io.StringIO(), width=80, force_terminal=not plain, color_system=None)
    output.summary(results[0], target)
    output.comparison(results, target)
    text = printed(target)
    assert visible_width(text) <= 80
    assert text.count("serving/code-14b ") >= 2


def test_findings_come_worst_first_with_their_place_and_the_rest_is_counted(results: list[Result]) -> None:
    target = console(terminal=False)
    output.print_findings(list(reversed(results[0].findings)), target, limit=2)
    lines = printed(target).splitlines()
    assert lines[0] == "Findings: 1 error, 1 warning, 1 info"
    assert lines[1].startswith("error   scale-beyond-capacity  ScaledObject serving/chat-8b")
    assert "manifests/autoscaling.yaml:24 spec.maxReplicaCount" in printed(target)
    assert lines[-1].startswith("1 more")


def test_the_comparison_has_a_column_a_policy_and_marks_the_best(results: list[Result]) -> None:
    target = console(terminal=False)
    output.comparison([holding(result) for result in results], target)
    text = printed(target)
    assert text.splitlines()[0].split() == list(POLICIES)
    cost = [cell.strip() for cell in row(text, "Cost ") if cell.strip()]
    assert cost == ["$43.98", "$41.40", "$31.48 *"]
    assert "*" not in "".join(row(text, "Nodes launched"))
    assert "\n* best of the runs that hold the SLO (99% of each Service's requests)" in text


def test_where_no_run_holds_the_slo_the_comparison_says_so_and_marks_nothing(results: list[Result]) -> None:
    target = console(terminal=False)
    output.comparison([holding(result, 0.98, 1.0) for result in results], target)
    assert "*" not in printed(target)
    assert "No run holds the SLO" in printed(target)


def test_what_does_not_run_is_said_before_all_else(results: list[Result]) -> None:
    ref, where = Ref("Deployment", "chat-8b", "serving"), Where("manifests/chat.yaml", 21, "spec.template")
    stopped = NotRunning(
        ref, 2, 3, 61.0, "crashing", "unknown-flag", "vLLM has no --fast", where, "Error: x", 5, "drop it"
    )
    broken = msgspec.structs.replace(results[0], not_running=[stopped])
    for show in (output.summary, lambda one, target: output.comparison([one, results[1]], target)):
        target = console(terminal=False)
        show(broken, target)
        first = " ".join(printed(target).partition("\n\n")[0].split())
        assert first.startswith("Not running: Deployment serving/chat-8b, 2 of 3 pods since 0:01:01, 5 restarts")
        for said in (
            "vLLM has no --fast",
            "kubectl: Error: x",
            "help: drop it",
            "manifests/chat.yaml:21 spec.template",
        ):
            assert said in first


def test_a_finding_of_several_runs_is_printed_once(results: list[Result]) -> None:
    target = console(terminal=False)
    output.comparison(results, target)
    assert printed(target).count("scale-beyond-capacity") == 1


def test_violated_invariants_are_said_aloud(results: list[Result]) -> None:
    broken = msgspec.json.decode(msgspec.json.encode(results[0]), type=Result)
    broken.check.violations = ["GPU 0 of gpu-l40s-1 held twice"]
    target = console(terminal=False)
    output.summary(broken, target)
    assert "Invariants violated: 1\n  GPU 0 of gpu-l40s-1 held twice" in printed(target)


def test_names_with_brackets_are_not_taken_for_markup(results: list[Result]) -> None:
    odd = msgspec.json.decode(msgspec.json.encode(results[0]), type=Result)
    odd.services[0].name = odd.policy = "a[red]b"
    odd.cost.lines[1] = msgspec.structs.replace(odd.cost.lines[1], owner="a[red]b")
    target = console(terminal=False)
    output.summary(odd, target)
    assert printed(target).count("a[red]b") == 3


def test_json_decodes_to_the_result_and_is_stable(results: list[Result]) -> None:
    data = output.json_bytes(results[0])
    assert msgspec.json.decode(data, type=Result) == results[0]
    assert output.json_bytes(build(POLICIES[0])) == data
    assert msgspec.json.decode(output.json_bytes(results), type=list[Result]) == results
    assert data.endswith(b"}\n")


def test_yaml_says_the_same_as_json(capfd: pytest.CaptureFixture[str]) -> None:
    document = output.json_bytes(build(duration_s=300))
    answers.show(document, answers.YAML)
    printed = yaml.safe_load(capfd.readouterr().out)
    assert printed == json.loads(document)
    assert list(printed)[:3] == ["schema", "tonnage_version", "scenario"]
