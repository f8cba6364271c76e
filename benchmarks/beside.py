"""`python -m benchmarks beside COMMIT NAME… [--repeat N] [--quick] [--cpu] [--patch FILE] [--path DIR] [--data DIR]`

Benchmarks of another commit and of this one in turn, on one machine: each figure that both print, the medians, and how
many times as bad it is now. Exit code 1 where one is worse by more than 10 %, or a benchmark did not run to its end.

``--cpu`` takes the processor time of the process and of its children for the clock: for benchmarks that wait for nobody
(main), on a machine with other work. Both sides run compiled, as what is installed does. ``--patch`` is applied to the
other commit's files first: figures that have other names there are compared once they have the same, and a benchmark
that does not run to its end there prints none. ``--path`` names a folder with packages that the other commit needs and
that are not installed here (``pip install --target DIR PACKAGE``). It is looked at last, so that both sides run on what
is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common import ROOT, Report, data_folder

WORSE = 1.10
"""Times as bad, from which on a figure is worse."""
LESS, MORE = -1, 1
COLUMNS = {"seconds": LESS, "GiB": LESS, "pods/s": MORE}
"""Columns of rows whose numbers are figures, and what is better."""
UNITS = {"s": LESS, "ms": LESS, "µs p50": LESS, "MB per million blocks": LESS, "M blocks/s": MORE}
"""Units at the end of a row's amount, where its figure is in the column ``ours``."""
CLOCK = """\
import resource, time
def spent():
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in both)
time.perf_counter = spent
"""
"""What a sitecustomize module says: the processor's time for the clock's."""

Figures = dict[str, tuple[float, int]]
"""Value by name, with what is better."""


@dataclass(frozen=True)
class Compared:
    """Of one figure the medians before and now, and how many ``times`` as bad that is; the extremes of the rounds."""

    name: str
    before: float
    now: float
    times: float
    least: float
    most: float


def figures(printed: Mapping[str, Any]) -> Figures:
    """What a benchmark's line of JSON says of which one knows whether less or more is better."""
    found: Figures = {}
    for row in printed["rows"]:
        key = ", ".join(str(row[part]) for part in ("what", "who", "amount", "pods") if row.get(part, "") != "")
        units = {**COLUMNS, "ours": UNITS.get(str(row.get("amount", "")).rpartition(", ")[2], 0)}
        for column, better in units.items():
            if better and isinstance(row.get(column), int | float):
                found[f"{key}: {column}"] = (float(row[column]), better)
    for bar in printed["bars"]:
        if better := {"<": LESS, "<=": LESS, ">": MORE, ">=": MORE}.get(bar["op"], 0):
            found[f"bar {bar['id']}"] = (float(bar["value"]), better)
    return found


def compare(rounds: Sequence[tuple[Figures, Figures]]) -> tuple[list[Compared], list[str]]:
    """Of (before, now) of each round: the figures that are in all, in order; and the names of the others."""
    pairs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    better: dict[str, int] = {}
    for before, now in rounds:
        for name, (value, sign) in now.items():
            better[name] = sign
            if name in before:
                pairs[name].append((before[name][0], value))
    found = [_compared(name, both, better[name]) for name, both in pairs.items() if len(both) == len(rounds)]
    named = {one.name for one in found}
    seen = dict.fromkeys(name for both in rounds for one in both for name in one)
    return found, [name for name in seen if name not in named]


def _compared(name: str, pairs: Sequence[tuple[float, float]], better: int) -> Compared:
    times = sorted(_times(before, now, better) for before, now in pairs)
    before, now = median(one for one, _ in pairs), median(one for _, one in pairs)
    return Compared(name, before, now, _times(before, now, better), times[0], times[-1])


def _times(before: float, now: float, better: int) -> float:
    """How many times as bad it is now; 1 where both are nothing."""
    good, bad = (before, now) if better == LESS else (now, before)
    if good == bad:
        return 1.0
    return bad / good if good > 0 else float("inf")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks beside", description=__doc__.partition("\n\n")[2])
    parser.add_argument("commit", help="the commit to compare with")
    parser.add_argument("names", nargs="+", metavar="NAME", help="the benchmarks")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each (default: 5)")
    parser.add_argument("--quick", action="store_true", help="on less input")
    parser.add_argument("--cpu", action="store_true", help="processor time for the clock's")
    parser.add_argument("--patch", type=Path, help="what to change in the other commit's files first")
    parser.add_argument("--path", type=Path, help="folder with packages for the other commit alone, looked at last")
    parser.add_argument("--data", help="folder with traces/ (default: TONNAGE_DATA, then ../shared/data)")
    given = parser.parse_args(arguments)
    if given.path and not given.path.is_dir():
        parser.error(f"--path {given.path}: no such folder; make one with pip install --target {given.path} PACKAGE")
    options = ["--json", *(["--quick"] if given.quick else [])]
    if data := data_folder(given.data):
        options += ["--data", str(data.resolve())]
    held = True
    with _worktree(given.commit, given.patch) as other, tempfile.TemporaryDirectory() as folder:
        before = _environment(other, Path(folder) / "before", given.cpu, given.path)
        found = {other: before, ROOT: _environment(ROOT, Path(folder) / "now", given.cpu)}
        for side, environment in found.items():
            command = [sys.executable, "-m", "compileall", "-qq", "src", "benchmarks"]
            subprocess.run(command, cwd=side, env=environment, check=False)
        for name in given.names:
            rounds = []
            for number in range(given.repeat):
                sides = (other, ROOT) if number % 2 == 0 else (ROOT, other)
                run = {side: _run(side, found[side], name, options) for side in sides}
                rounds.append((run[other], run[ROOT]))
                print(f"{name}: round {number + 1} of {given.repeat}", file=sys.stderr, flush=True)
            report = _report(f"{name}, {given.commit} and now", rounds)
            report.print(as_json=False, quick=False)
            held = held and not report.missed(quick=False) and all(one for both in rounds for one in both)
    return 0 if held else 1


def _report(name: str, rounds: Sequence[tuple[Figures, Figures]]) -> Report:
    found, single = compare(rounds)
    report = Report(name, ("figure", "before", "now", "times as bad", "in rounds", ""))
    for one in found:
        spread = f"{one.least:.3f} to {one.most:.3f}"
        shown = {"figure": one.name, "before": one.before, "now": one.now, "times as bad": f"{one.times:.3f}"}
        report.row(**shown, **{"in rounds": spread, "": "WORSE" if one.times > WORSE else ""})
    report.notes.extend(f"in one of them alone: {one}" for one in single)
    worst = max((one.times for one in found), default=float("inf"))
    report.bar("the worst figure, times as bad as before", worst, "<=", WORSE, "times", "cost")
    return report


def _environment(side: Path, first: Path, cpu: bool, last: Path | None = None) -> dict[str, str]:
    """Where a side's benchmarks run: on its own modules, whose bytecode is kept as that of installed ones is.

    ``first`` is made for its sitecustomize module; packages of ``last`` are found only where none is installed."""
    first.mkdir()
    behind = f"import sys\nsys.path.append({str(last.resolve())!r})\n" if last else ""
    (first / "sitecustomize.py").write_text(behind + (CLOCK if cpu else ""))
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    path = os.pathsep.join([str(first), str(side / "src"), str(side)])
    return kept | {"PYTHONPATH": path}


def _run(side: Path, environment: Mapping[str, str], name: str, options: Sequence[str]) -> Figures:
    """A benchmark's figures; none, with the reason on stderr, where it printed no JSON."""
    command = [sys.executable, "-m", "benchmarks", name, *options]
    done = subprocess.run(command, cwd=side, env=environment, capture_output=True, text=True, check=False)
    last = done.stdout.rstrip().rpartition("\n")[2]
    if not last.startswith("{"):
        print(f"{name} in {side} did not run to its end:\n{done.stdout[-500:]}{done.stderr[-1500:]}", file=sys.stderr)
        return {}
    return figures(json.loads(last))


@contextlib.contextmanager
def _worktree(commit: str, patch: Path | None) -> Iterator[Path]:
    """The files of a commit, in a folder of their own."""

    def git(*words: str | Path) -> None:
        subprocess.run(["git", *map(str, words)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)

    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "other"
        git("worktree", "add", "--detach", other, commit)
        try:
            if patch:
                git("-C", other, "apply", patch.resolve())
            yield other
        finally:
            git("worktree", "remove", "--force", other)
