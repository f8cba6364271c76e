"""Results that tests share: made once, and never found again after a change of what they depend on."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import sim_builders
from result_builder import build
from training_builders import entry, job, load

import shared_runs
from shared_runs import Asked, fingerprint, kept
from tonnage.cli import runs
from tonnage.simulation.result import Result

ASKED = Asked("traffic-surge", "slo")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """What has been run; a run takes a moment."""
    found: list[Asked] = []

    def make(asked: Asked) -> Result:
        time.sleep(0.05)
        found.append(asked)
        return build("static", seed=asked.seed)

    monkeypatch.setattr(Asked, "make", make)
    return found


def test_a_run_is_made_once_and_comes_back_as_it_was(tmp_path: Path, made: list[Asked]) -> None:
    first, again = kept(ASKED, tmp_path / "runs", "source"), kept(ASKED, tmp_path / "runs", "source")
    assert made == [ASKED]
    assert first == again == build("static", seed=0)


def test_another_question_is_another_run(tmp_path: Path, made: list[Asked]) -> None:
    others = [Asked("mixed", "slo"), Asked("traffic-surge", "slo", seed=1), Asked("traffic-surge", "slo", check=True)]
    for asked in (ASKED, *others):
        kept(asked, tmp_path / "runs", "source")
    assert made == [ASKED, *others]


def test_nothing_made_of_another_source_is_found_or_left(tmp_path: Path, made: list[Asked]) -> None:
    for source in ("old", "new", "old"):
        kept(ASKED, tmp_path / "runs", source)
    assert made == [ASKED] * 3
    assert [path.name for path in (tmp_path / "runs").iterdir() if path.is_dir()] == ["old"]


def test_who_comes_while_a_run_is_made_waits_for_it(tmp_path: Path, made: list[Asked]) -> None:
    def ask() -> None:
        kept(ASKED, tmp_path / "runs", "source")

    both = [threading.Thread(target=ask) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert made == [ASKED]


@pytest.mark.parametrize("change", ["edited", "added", "removed", "renamed"])
def test_any_change_of_any_file_is_another_source(tmp_path: Path, change: str) -> None:
    (tmp_path / "data").mkdir()
    code, facts = tmp_path / "code.py", tmp_path / "data" / "facts.csv"
    code.write_text("a = 1\n")
    facts.write_text("1\n")
    before = fingerprint([tmp_path])
    assert fingerprint([tmp_path]) == before
    match change:
        case "edited":
            facts.write_text("2\n")
        case "added":
            (tmp_path / "data" / "more.yaml").touch()
        case "removed":
            code.unlink()
        case "renamed":
            code.rename(tmp_path / "other.py")
    assert fingerprint([tmp_path]) != before


def test_source_data_and_examples_are_what_runs_depend_on() -> None:
    covered = [path for one in shared_runs.DEPENDED_ON for path in (one, *one.rglob("*"))]
    assert Path(runs.__file__) in covered
    assert {".py", ".csv", ".yaml"} <= {path.suffix for path in covered}
    assert shared_runs.EXAMPLES / "traffic-surge" / "scenario.yaml" in covered
    assert Path(sim_builders.__file__) == shared_runs.SHORT in covered


def test_on_the_command_line_a_scenario_of_ones_own_is_run(tmp_path: Path, made: list[Asked]) -> None:
    own = load(tmp_path, [job("one")], [entry("job/one")]).document.path
    with shared_runs.on_the_command_line():
        (found,) = runs.run_all([runs.RunRequest(own, "only", 0, None, None, False)], quiet=True)
    assert (found.policy, made) == ("only", [])
