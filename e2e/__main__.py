"""``python -m e2e build | test [PYTEST ARGUMENTS] | run [--real N] [--karpenter] [COMMAND…]``.

build   build the cluster's programs, unless the cache has them
test    build, then run tests/e2e in namespaces of their own; where that cannot be done all are skipped with the reason
run     a control plane for a command (default: a shell) with KUBECONFIG and kubectl set
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from e2e import prerequisites
from e2e.build import BuildError, build, built

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SKIP = "TONNAGE_E2E_SKIP"
"""The environment variable that tells tests/e2e why nothing there can run."""


def main(arguments: list[str]) -> int:
    what, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if what == "build" and not rest:
        return _build()
    if what == "test":
        return _test(rest)
    if what == "run":
        return _run(rest)
    print(__doc__, file=sys.stderr)
    return 2


def _build() -> int:
    begun = time.monotonic()
    try:
        made = build()
    except BuildError as error:
        print(f"e2e: {error}", file=sys.stderr)
        return 1
    print(f"built in {time.monotonic() - begun:.1f} s: {next(iter(made.folders.values())).parent}")
    return 0


def _test(arguments: list[str]) -> int:
    pytest = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-m", "e2e", *(arguments or ["tests/e2e"])]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path}
    reason = prerequisites.to_run() or prerequisites.to_build()
    if reason:
        print(f"skipped: {reason}", flush=True)
        done = subprocess.run(pytest, cwd=ROOT, env=environment | {SKIP: reason}, check=False)
        return done.returncode
    if status := _build():
        return status
    return subprocess.run([HERE / "private.sh", *pytest], cwd=ROOT, env=environment, check=False).returncode


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
