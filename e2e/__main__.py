"""``python -m e2e build | test [PYTEST ARGUMENTS] | long [PYTEST ARGUMENTS] | run [--real N] [--karpenter] [COMMAND…]``

build   build the cluster's programs, unless the cache has them
test    build, then run the end-to-end tests in namespaces of their own; where that cannot be done all are skipped with
        the reason.
        Every kind of case, with numbers drawn by TONNAGE_E2E_SEED (another one every day unless set).
        Without arguments two files run side by side, each in namespaces of its own: much of such a test is waiting
        (TONNAGE_E2E_IN_TURN=1: one after another). A few that fail beside others run once more, alone: what then
        passes is named as such, and what fails again has failed
long    the same with all numbers; without arguments its result goes to e2e/last-long.json
run     a control plane for a command (default: a shell) with KUBECONFIG and kubectl set
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

from e2e import prerequisites
from e2e.build import BuildError, build, built, download
from e2e.record import FILE, join

PATHS = (
    "tests/e2e",
    "tests/hollow",
    "tests/kube",
    "tests/live/prometheus",
    "tests/metrics",
    "tests/apiserver/controllers",
    "tests/apiserver/differential",
    "tests/provisioning",
)
"""Where end-to-end tests are: those that need real programs, and those that take real time."""
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
LANE, LANES = "TONNAGE_E2E_LANE", ("timed", "others")
"""Which tests a process of two runs; tests/e2e/side_by_side.py says which are whose."""
SKIP = "TONNAGE_E2E_SKIP"
"""The environment variable that tells tests/e2e why nothing there can run."""
SEED, LONG, RECORD = "TONNAGE_E2E_SEED", "TONNAGE_E2E_LONG", "TONNAGE_E2E_RECORD"
"""By what the numbers of tests/e2e are drawn; set to 1, whether all of them are to run; and the file for the result."""
IN_TURN = "TONNAGE_E2E_IN_TURN"
"""Set to 1: one file after another, as with arguments."""
FEW = 3
"""So many tests of a lane may have failed for want of processors; more are a fault."""


def main(arguments: list[str]) -> int:
    what, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if what == "build" and not rest:
        return _build()
    if what in ("test", "long"):
        return _test(rest, what == "long")
    if what == "run":
        return _run(rest)
    print(__doc__, file=sys.stderr)
    return 2


def _build() -> int:
    begun = time.monotonic()
    try:
        made = build()
        download()
    except BuildError as error:
        print(f"e2e: {error}", file=sys.stderr)
        return 1
    print(f"built in {time.monotonic() - begun:.1f} s: {next(iter(made.folders.values())).parent}")
    return 0


def _test(arguments: list[str], long: bool) -> int:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    seed = os.environ.get(SEED) or str(int(time.time()) // 86_400)
    environment = os.environ | {"PYTHONPATH": path, SEED: seed, LONG: "1" if long else ""}
    reason = prerequisites.to_run() or prerequisites.to_build()
    if reason:
        print(f"skipped: {reason}", flush=True)
        return subprocess.run(pytest(arguments), cwd=ROOT, env=environment | {SKIP: reason}, check=False).returncode
    if status := _build():
        return status
    record = FILE if long and not arguments else None
    print("all numbers" if long else f"numbers drawn by {SEED}={seed}; `make e2e-long` runs all", flush=True)
    words = [str(HERE / "private.sh"), *pytest(arguments)]
    if arguments or os.environ.get(IN_TURN):
        recorded = {RECORD: str(record)} if record else {}
        status = subprocess.run(words, cwd=ROOT, env=environment | recorded, check=False).returncode
    else:
        status = _side_by_side(words, environment, record)
    if status:
        print(f"to see the same again: {SEED}={seed} make {'e2e-long' if long else 'e2e'}", flush=True)
    return status


def _side_by_side(words: list[str], environment: dict[str, str], record: Path | None) -> int:
    """Run both lanes at once; what the second prints comes after the first. Both go into one ``record``. An exit code
    that is not 0, or 0."""
    begun = time.monotonic()
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryDirectory() as kept:
        folder = Path(kept)
        records = [folder / f"{lane}.json" for lane in LANES]
        lanes = [([*words, "-o", f"cache_dir={folder / lane}"], environment | {LANE: lane}) for lane in LANES]
        (first, its), (second, others) = (
            (command, own | ({RECORD: str(file)} if record else {}))
            for (command, own), file in zip(lanes, records, strict=True)
        )
        beside = subprocess.Popen(second, cwd=ROOT, env=others, stdout=printed, stderr=subprocess.STDOUT)
        try:
            statuses = [subprocess.run(first, cwd=ROOT, env=its, check=False).returncode, beside.wait()]
        finally:
            beside.kill()
        printed.seek(0)
        sys.stdout.write(printed.read().decode(errors="replace"))
        sys.stdout.flush()
        alone: list[str] = []
        for at, (lane, (command, own)) in enumerate(zip(LANES, lanes, strict=True)):
            if statuses[at] == 1 and (passed := _alone(command, own, folder / lane)):
                statuses[at] = 0
                alone += passed
        if record and not join(records, record, time.monotonic() - begun, alone):
            print(f"no record: one of the two ended before it wrote its own; {record} is as it was", file=sys.stderr)
    return next((status for status in statuses if status), 0)


def _alone(command: list[str], environment: dict[str, str], cache: Path) -> list[str]:
    """Run what has failed in a lane once more, with nothing beside it; the names of these tests if all pass now. One
    that is skipped now has not passed, and a lane that ended before its tests has none that could be run again."""
    failed = cache / "v/cache/lastfailed"
    names = sorted(json.loads(failed.read_text(encoding="utf-8"))) if failed.exists() else []
    if not 0 < len(names) <= FEW:
        return []
    print("failed beside others; once more, alone:", *names, sep="\n  ", flush=True)
    report = cache / "alone.xml"
    again = [*command, "--last-failed", "--last-failed-no-failures=none", f"--junit-xml={report}"]
    if subprocess.run(again, cwd=ROOT, env=environment, check=False).returncode:
        return []
    if skipped := sum(int(suite.get("skipped", 0)) for suite in ElementTree.parse(report).iter("testsuite")):
        print(f"skipped, not passed: {skipped}", flush=True)
        return []
    print("passed alone, after they had failed beside others:", *names, sep="\n  ", flush=True)
    return names


def pytest(arguments: list[str]) -> list[str]:
    """The command that runs the tests."""
    return [sys.executable, "-m", "pytest", "-p", "no:xdist", "-m", "e2e", "--durations=25", *(arguments or PATHS)]


def _run(arguments: list[str]) -> int:
    if why := prerequisites.to_run():
        print(f"e2e: {why}", file=sys.stderr)
        return 1
    if not os.environ.get("TONNAGE_E2E_PRIVATE"):
        if status := _build():
            return status
        words: list[str | Path] = [HERE / "private.sh", sys.executable, "-m", "e2e", "run", *arguments]
        return subprocess.run(words, check=False).returncode
    from e2e import session

    there = built()
    assert there is not None
    return session.run(there, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
