"""The record of the last long run: what ran how often, of which versions, and how it ended. It is committed."""

from __future__ import annotations

import json
import platform
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from e2e.recipe import PROMETHEUS, RECIPE
from tonnage import __version__

FILE = Path(__file__).resolve().parent / "last-long.json"
MODULES = {
    "kube": "k8s.io/kubernetes",
    "containerd": "github.com/containerd/containerd/v2",
    "kwok": "sigs.k8s.io/kwok",
    "karpenter": "sigs.k8s.io/karpenter",
    "prometheus": PROMETHEUS,
}
"""The Go module that gives each part its version."""


def versions() -> dict[str, str]:
    """Of what was tested, and of what it was tested on."""
    found = {"tonnage": __version__, "commit": _commit(), "python": platform.python_version()}
    built = {module.name: module for module in RECIPE}
    return found | {path: built[name].version(path) for name, path in MODULES.items()}


def write(
    file: Path,
    seed: int,
    counts: Mapping[str, int],
    outcomes: Mapping[str, int],
    tested: Mapping[str, str],
    took_s: float,
    alone: Sequence[str] = (),
) -> None:
    """Write the record. ``outcomes``: tests by how they ended; ``tested``: versions at the start; ``alone``: those that
    failed beside others and passed when nothing ran beside them."""
    passed = not outcomes.get("failed", 0) and not outcomes.get("error", 0) and outcomes.get("passed", 0) > 0
    record: dict[str, object] = {
        "result": "passed" if passed else "failed",
        "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "minutes": round(took_s / 60, 1),
        "seed": seed,
        "tests": dict(sorted(outcomes.items())),
        "counts": dict(sorted(counts.items())),
        "versions": dict(tested),
    }
    if alone:
        record["passed alone, after they had failed beside others"] = list(alone)
    file.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def join(parts: Sequence[Path], file: Path, took_s: float, alone: Sequence[str] = ()) -> bool:
    """Write to ``file`` the record of a run whose ``parts`` were recorded one by one, as the processes that ran beside
    one another did: tests and counts are added up, and what passed ``alone`` later has passed. False, and nothing is
    written, where a part is missing."""
    if not all(part.exists() for part in parts):
        return False
    read = [json.loads(part.read_text(encoding="utf-8")) for part in parts]
    outcomes, counts = (sum((Counter(one[of]) for one in read), Counter()) for of in ("tests", "counts"))
    if any(one["result"] != "passed" for one in read) and not outcomes["failed"] + outcomes["error"]:
        outcomes["error"] = 1
    for _ in alone:
        outcomes["failed" if outcomes["failed"] else "error"] -= 1
        outcomes["passed"] += 1
    write(file, read[0]["seed"], counts, +outcomes, read[0]["versions"], took_s, alone)
    return True


def _commit() -> str:
    """The commit, with a plus where files differ from it; empty outside a git checkout."""
    said = [
        subprocess.run(["git", *words], cwd=FILE.parent, capture_output=True, text=True, check=False).stdout.strip()
        for words in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
    ]
    return said[0] + ("+" if said[1] else "")
