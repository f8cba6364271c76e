"""Benchmarks of two commits: which figures are compared, and when one is worse."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import beside
from benchmarks.beside import LESS, MORE, compare, figures

PRINTED = {
    "rows": [
        {"what": "parse", "amount": "5000 pods", "seconds": 0.2, "GiB": 0.1, "ratio": 0.4, "detail": "10 warnings"},
        {"what": "pending to bound", "who": "tonnage", "pods": 2000, "seconds": 4.0, "pods/s": 500.0},
        {"what": "memory", "amount": "7 blocks, MB per million blocks", "ours": 140.0},
        {"what": "reuse", "amount": "4 workers, %", "ours": 31.0},
    ],
    "bars": [
        {"id": "help-ms", "value": 70, "op": "<=", "limit": 150},
        {"id": "rate", "value": 1.5, "op": ">=", "limit": 1.0},
        {"id": "equal", "value": 1, "op": "==", "limit": 1},
    ],
}


def test_figures_are_numbers_of_which_one_knows_what_is_better() -> None:
    assert figures(PRINTED) == {
        "parse, 5000 pods: seconds": (0.2, LESS),
        "parse, 5000 pods: GiB": (0.1, LESS),
        "pending to bound, tonnage, 2000: seconds": (4.0, LESS),
        "pending to bound, tonnage, 2000: pods/s": (500.0, MORE),
        "memory, 7 blocks, MB per million blocks: ours": (140.0, LESS),
        "bar help-ms": (70.0, LESS),
        "bar rate": (1.5, MORE),
    }


def test_medians_are_compared_and_the_extremes_of_the_rounds_told() -> None:
    befores, nows = (1.0, 1.0, 2.0), (1.1, 3.0, 1.0)
    rounds = [({"s": (a, LESS)}, {"s": (b, LESS)}) for a, b in zip(befores, nows, strict=True)]
    ((one,), single) = compare(rounds)
    assert (one.name, one.before, one.now, single) == ("s", 1.0, 1.1, [])
    assert (one.times, one.least, one.most) == (pytest.approx(1.1), 0.5, 3.0)


@pytest.mark.parametrize(
    ("before", "now", "better", "times"),
    [(2.0, 3.0, LESS, 1.5), (3.0, 2.0, MORE, 1.5), (2.0, 1.0, LESS, 0.5), (0.0, 0.0, LESS, 1.0)],
)
def test_more_seconds_and_fewer_pods_are_worse(before: float, now: float, better: int, times: float) -> None:
    ((one,), _) = compare([({"x": (before, better)}, {"x": (now, better)})])
    assert one.times == times


def test_what_was_nothing_and_is_something_is_worse_by_any_measure() -> None:
    ((one,), _) = compare([({"x": (0.0, LESS)}, {"x": (0.1, LESS)})])
    assert one.times > 1e300


def test_figures_that_one_of_both_prints_are_named_and_not_compared() -> None:
    both = ({"old": (1.0, LESS), "same": (1.0, LESS)}, {"same": (1.0, LESS), "new": (1.0, LESS)})
    found, single = compare([both, both])
    assert ([one.name for one in found], single) == (["same"], ["old", "new"])


# ---- two commits ----

BENCHMARK = """\
import json, time
begun = time.perf_counter()
{work}
rows = [{{"what": "work", "amount": "all", "seconds": {seconds}}}]
print(json.dumps({{"rows": rows, "bars": []}}))
"""


def commit(folder: Path, text: str) -> str:
    """The benchmarks of a repository, committed; the commit."""
    (folder / "benchmarks").mkdir(exist_ok=True)
    (folder / "benchmarks" / "__main__.py").write_text(text)
    who = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.com"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "one"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.setattr(beside, "ROOT", folder)
    return folder


def code(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "beside", *arguments])
    return command.main()


@pytest.mark.parametrize(("seconds", "verdict"), [(1.05, 0), (1.2, 1)])
def test_another_commit_is_run_in_a_worktree_and_one_figure_that_is_worse_fails(
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    seconds: float,
    verdict: int,
) -> None:
    old = commit(repository, BENCHMARK.format(work="", seconds=1.0))
    commit(repository, BENCHMARK.format(work="", seconds=seconds))
    assert code(monkeypatch, old, "main", "--repeat", "2") == verdict
    said = capfd.readouterr().out
    assert f"work, all: seconds  1       {seconds}" in said and ("WORSE" in said) == bool(verdict)
    trees = subprocess.run(["git", "worktree", "list"], cwd=repository, capture_output=True, text=True, check=True)
    assert len(trees.stdout.splitlines()) == 1, "the other worktree is gone"


def test_a_benchmark_that_does_not_run_to_its_end_fails_unless_a_patch_lets_it(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    old = commit(repository, BENCHMARK.format(work="raise AssertionError('not all')", seconds=1.0))
    commit(repository, BENCHMARK.format(work="", seconds=1.0))
    assert code(monkeypatch, old, "main", "--repeat", "1") == 1
    assert "not all" in capfd.readouterr().err
    patch = tmp_path / "mended.patch"
    words = ["git", "diff", old, "HEAD"]
    patch.write_text(subprocess.run(words, cwd=repository, check=True, capture_output=True, text=True).stdout)
    assert code(monkeypatch, old, "main", "--repeat", "1", "--patch", str(patch)) == 0


def test_the_processors_time_stands_for_the_clocks(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asleep = BENCHMARK.format(work="time.sleep(0.5)", seconds="1 + (time.perf_counter() - begun < 0.2)")
    old = commit(repository, asleep)
    assert code(monkeypatch, old, "main", "--repeat", "1", "--cpu") == 0
    assert "seconds  2       2" in capfd.readouterr().out


WHO_IS_THERE = """\
from importlib.util import find_spec
import msgspec
seconds = 1.0 + (find_spec("a_package_of_old") is None) + 2 * ("of the folder" in (msgspec.__doc__ or ""))
"""


def test_packages_of_the_given_folder_are_there_for_the_other_commit_alone_and_hide_nothing_that_is_installed(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "a_package_of_old.py").write_text("")
    (folder / "msgspec.py").write_text('"""of the folder"""')
    old = commit(repository, BENCHMARK.format(work=WHO_IS_THERE, seconds="seconds"))
    assert code(monkeypatch, old, "main", "--repeat", "1", "--path", str(folder)) == 1
    assert "seconds  1       2" in capfd.readouterr().out, "the other commit has the package, this one has not"
    assert code(monkeypatch, old, "main", "--repeat", "1") == 0
    assert "seconds  2       2" in capfd.readouterr().out


def test_a_folder_of_packages_that_is_not_there_is_named(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        code(monkeypatch, "HEAD", "main", "--path", "not/there")
    assert ended.value.code == 2
    assert "--path not/there: no such folder; make one with pip install --target" in capfd.readouterr().err


def test_the_patch_for_the_first_benchmarks_applies_to_them() -> None:
    patch = Path(__file__).parents[1] / "benchmarks" / "data" / "3aedb32.patch"
    root = Path(__file__).parents[1]
    there = subprocess.run(["git", "cat-file", "-e", "3aedb32"], cwd=root, capture_output=True, check=False)
    if there.returncode:
        pytest.skip("the commit is not in this checkout")
    with beside._worktree("3aedb32", patch) as other:
        assert "place-{placed['pods']}-seconds-tonnage" in (other / "benchmarks" / "main.py").read_text()
