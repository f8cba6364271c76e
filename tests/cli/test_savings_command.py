"""`tonnage savings`: the table, the JSON, and what is wrong with an input."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from cli_builders import tonnage

USAGE = str(Path(__file__).resolve().parents[2] / "docs/files/usage.csv")


def test_the_table_has_a_row_for_each_strategy_and_what_guides_add_up(capfd: pytest.CaptureFixture[str]) -> None:
    done = tonnage(capfd, "savings", USAGE)
    assert done.code == 0
    rows = [line.split()[0] for line in done.out.splitlines() if "$" in line and ":" not in line]
    assert rows == [
        *("as", "right-sizing", "consolidation", "schedules", "spot", "checkpointing", "commitments", "together")
    ]
    assert "added up they are 120%, one after the other 83.2%" in done.out


def test_the_json_follows_its_schema_and_its_steps_add_up(capfd: pytest.CaptureFixture[str]) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(tonnage(capfd, "schema", "savings").out))
    arguments = ("--strategy", "spot", "--strategy", "commitments", "-o", "json")
    printed = json.loads(tonnage(capfd, "savings", USAGE, *arguments).out)
    validator.validate(printed)
    assert [step["strategy"] for step in printed["steps"]] == ["spot", "commitments"]
    assert sum(step["saved_micro_usd"] for step in printed["steps"]) == printed["saved_micro_usd"]
    assert printed["start_micro_usd"] - printed["end_micro_usd"] == printed["saved_micro_usd"]
    assert printed["commitment"]["other_micro_usd"] > 0


def test_every_mistake_of_a_usage_file_is_named_with_its_place(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.csv"
    rows = [
        "start,hours,instance_type,nodes,gpus_used,gpus_per_pod,off_hours,restart",
        "yesterday,0,g6e.12xlrge,0,,,perhaps,soon",
        "2026-03-02,5,g6e.12xlarge,2,9,8,yes,",
        "2026-03-02,5,g6e.12xlarge,2,9,1,yes,",
    ]
    file.write_text("\n".join(rows) + "\n")
    done = tonnage(capfd, "savings", str(file))
    assert done.code == 2
    places = [line.removeprefix(f"error: {file}:").split(": ")[0] for line in done.err.splitlines()]
    assert places == [
        *("2:start", "2:hours", "2:instance_type", "2:nodes", "2:off_hours", "2:restart"),
        *("3:gpus_per_pod", "4:gpus_used"),
    ]
    assert '"perhaps", expected yes or no' in done.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("start,hours,instance_type,node\n", "1:node: unknown column 'node' (did you mean nodes?"),
        ("start,hours\n", "1:instance_type: column is missing"),
        ("start,hours,instance_type\n", "no usage in it"),
        ("start,hours,instance_type\na,1,g6e.xlarge,4\n", "2: more than 3 cells in the row"),
    ],
)
def test_a_file_that_is_not_usage_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(text)
    done = tonnage(capfd, "savings", str(file))
    assert done.code == 2
    assert said in done.err


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("memory_per_pod", "-4Gi", '2:memory_per_pod: "-4Gi", expected memory like 32Gi'),
        ("cpu_per_pod", "-2", '2:cpu_per_pod: "-2", expected CPUs like 6 or 500m'),
        ("cpu_per_pod", "5", "2:cpu_per_pod: 5, but g6.xlarge has 4 CPUs (a pod is on one node)"),
        ("memory_per_pod", "17Gi", "2:memory_per_pod: 17Gi, but g6.xlarge has 16Gi (a pod is on one node)"),
        ("gpus_used", "1e99999999", '2:gpus_used: "1e99999999", expected a number from 0'),
        ("zone", "eu-west-1a", "2:zone: no on-demand price of g6.xlarge in eu-west-1a is known"),
    ],
)
def test_a_value_that_no_node_can_have_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], column: str, value: str, said: str
) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(f"start,hours,instance_type,{column}\n2026-03-02,5,g6.xlarge,{value}\n")
    done = tonnage(capfd, "savings", str(file))
    assert done.code == 2
    assert said in done.err


@pytest.mark.parametrize("start", ["9999-12-31T23:00", "0001-01-01", "2200-01-01"])
def test_a_start_in_another_age_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str], start: str) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(f"start,hours,instance_type,off_hours\n{start},100000,g6.xlarge,no\n")
    done = tonnage(capfd, "savings", str(file))
    assert done.code == 2
    assert f'2:start: "{start}", expected a time like 2026-03-02T09:00:00Z, from 1971 to 2199' in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--business-hours", "Mon-Fri 18-8"), "they end after they start"),
        (("--business-hours", "weekdays"), "like Mon-Fri 8-18"),
        (("--checkpoint", "often"), "expected a duration above 0"),
        (("--commitment-discount", "1"), "--commitment-discount"),
        (("--policy", "mine"), "--policy is for a scenario"),
        (("--strategy", "commitments", "--strategy", "spot"), "comes last"),
    ],
)
def test_options_that_cannot_be_are_refused(
    capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    done = tonnage(capfd, "savings", USAGE, *arguments)
    assert done.code == 2
    assert said in done.err
