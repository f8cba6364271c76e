"""What the prints of a result show, and the command that compares them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from digests import command, store
from digests.prints import difference, record, rounded

RESULT: dict[str, Any] = {
    "policy": "slo",
    "cost": {"total_micro_usd": 5_000_000, "by_team": {"a": 1, "b": 2}},
    "decisions": [{"t_s": float(n), "kind": "Bind", "target": f"Pod p{n}"} for n in range(150)],
    "nodes": [{"name": "n0", "hours": 1 / 3}],
}


def changed(*path: Any, to: Any) -> dict[str, Any]:
    value = copy.deepcopy(RESULT)
    at: Any = value
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = to
    return value


def test_an_equal_result_differs_nowhere() -> None:
    assert difference(record(RESULT), copy.deepcopy(RESULT)) is None


def test_the_last_bits_of_a_float_are_not_counted() -> None:
    known = record(rounded(RESULT))
    assert difference(known, rounded(changed("nodes", 0, "hours", to=1 / 3 + 1e-13))) is None
    assert difference(known, rounded(changed("nodes", 0, "hours", to=1 / 3 + 1e-6))) is not None


@pytest.mark.parametrize(
    ("value", "first", "sections"),
    [
        (changed("cost", "total_micro_usd", to=1), "cost.total_micro_usd", ("cost",)),
        (changed("cost", "by_team", "b", to=3), "cost.by_team", ("cost",)),
        (changed("decisions", 100, "kind", to="Wait"), "decisions[99:102]", ("decisions",)),
        (changed("nodes", 0, "name", to="n1"), "nodes[0]", ("nodes",)),
        (changed("nodes", to=[]), "nodes[0]", ("nodes",)),
        (changed("decisions", to=RESULT["decisions"][:120]), "decisions[120:123]", ("decisions",)),
        (changed("more", to=1), "more", ("more",)),
        ({key: one for key, one in RESULT.items() if key != "cost"}, "cost.total_micro_usd", ("cost",)),
        (
            changed("decisions", 0, to="none") | {"nodes": [], "policy": "keda"},
            "policy",
            ("policy", "decisions", "nodes"),
        ),
    ],
)
def test_the_first_place_that_differs_and_every_part_of_the_result_are_named(
    value: dict[str, Any], first: str, sections: tuple[str, ...]
) -> None:
    found = difference(record(RESULT), value)
    assert found is not None
    assert (found.first, found.sections) == (first, sections)
    assert first in str(found)


def test_what_is_there_now_is_shown() -> None:
    found = difference(record(RESULT), changed("decisions", 99, "kind", to="Wait"))
    assert found is not None
    assert '"kind":"Wait"' in found.now


@pytest.fixture
def two_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Two cases that need no simulation, and a folder of their own; what they give may be changed."""
    values: dict[str, Any] = {"examples/small/slo/0": RESULT, "contract/broken": {"micro_usd": 1}}
    monkeypatch.setattr(command, "cases", lambda: {name: lambda name=name: values[name] for name in values})
    monkeypatch.setattr(command, "_run", lambda names, dump: [command.run(name, dump) for name in names])
    monkeypatch.setattr(store, "FOLDER", tmp_path / "recorded")
    (tmp_path / "recorded").mkdir()
    return values


def test_what_is_recorded_passes_until_it_changes(
    two_cases: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--check"]) == 1
    assert command.main(["--write"]) == 0
    assert command.main(["--check"]) == 0
    two_cases["examples/small/slo/0"] = changed("cost", "total_micro_usd", to=1)
    capsys.readouterr()
    assert command.main([]) == 1
    assert "2 cases, 1 not as recorded" in capsys.readouterr().out
    assert command.main(["--only", "contract"]) == 0
    assert command.main(["--write", "--only", "small/slo"]) == 0
    assert command.main([]) == 0


def test_a_case_that_is_gone_fails_until_it_is_recorded_so(two_cases: dict[str, Any]) -> None:
    command.main(["--write"])
    del two_cases["examples/small/slo/0"]
    assert command.main([]) == 1
    assert command.main(["--write"]) == 0
    assert command.main([]) == 0
    assert store.recorded() == {"contract/broken"}


def test_a_case_that_raises_fails_and_is_not_recorded(
    two_cases: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command.main(["--write"])

    def broken() -> Any:
        raise ValueError("no such node")

    monkeypatch.setattr(command, "cases", lambda: {"contract/broken": broken})
    assert command.run("contract/broken").differs.startswith("it raised ValueError: no such node (")
    assert command.main(["--check", "--only", "contract"]) == 1
    assert command.main(["--write", "--only", "contract"]) == 1
    assert store.read("contract/broken") is not None


def test_a_pattern_that_names_nothing_is_said(two_cases: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--only", "none"]) == 2
    assert "--only none: no such case" in capsys.readouterr().err


def test_results_can_be_written_out_for_a_diff(two_cases: dict[str, Any], tmp_path: Path) -> None:
    command.main(["--write", "--dump", str(tmp_path / "out")])
    assert (tmp_path / "out/contract/broken.json").read_text() == '{"micro_usd":1}\n'
