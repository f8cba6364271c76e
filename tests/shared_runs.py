"""Results of bundled scenarios at which several tests look: each run is made once, for all tests, workers and sessions.

What is kept is found again only while everything on which a run depends is the same: every file of Tonnage and of the
examples, the packages, the interpreter. What was kept for anything else is removed. ``make clean`` removes all.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import pickle
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tonnage.cli import runs
from tonnage.simulation import run, scenario
from tonnage.simulation.result import Result

REPOSITORY = Path(__file__).resolve().parents[1]
EXAMPLES = REPOSITORY / "examples"
SHORT = REPOSITORY / "tests" / "simulation" / "sim_builders.py"
"""What the short surge is."""
DEPENDED_ON = (REPOSITORY / "src" / "tonnage", EXAMPLES, SHORT)
KEPT = REPOSITORY / ".pytest_cache" / "runs"


@dataclass(frozen=True)
class Asked:
    """One run of a bundled scenario. ``example`` is its folder's name; ``short``: the surge in 25 minutes
    (:func:`sim_builders.variant`)."""

    example: str
    policy: str
    seed: int = 0
    check: bool = False
    short: bool = False

    def make(self) -> Result:
        """Run it, as from the root of the repository: places in its findings are relative to there."""
        options = run.RunOptions(seed=self.seed, check=self.check)
        if self.short:
            from sim_builders import variant  # as tests find it; the pages' output is written without

            with tempfile.TemporaryDirectory() as folder:
                return run.run(variant(Path(folder)), self.policy, options)
        with contextlib.chdir(REPOSITORY):
            return run.run(scenario.load(EXAMPLES.relative_to(REPOSITORY) / self.example), self.policy, options)


@cache
def result(example: str, policy: str, *, seed: int = 0, check: bool = False) -> Result:
    """The result of a policy on a bundled scenario. Nobody changes it."""
    return kept(Asked(example, policy, seed, check), KEPT, fingerprint(DEPENDED_ON))


@cache
def short_surge(policy: str) -> Result:
    """The result of a policy on the bundled surge in 25 minutes, with invariants checked. Nobody changes it."""
    asked = Asked("traffic-surge", policy, seed=1, check=True, short=True)
    return kept(asked, KEPT, fingerprint(DEPENDED_ON))


def kept(asked: Asked, folder: Path, source: str) -> Result:
    """The result from the folder, where one was made of the same source; or else made now, and kept there."""
    home = _home(folder, source)
    name = hashlib.sha256(repr(asked).encode()).hexdigest()[:16]
    with _alone(home / f"{name}.lock"):  # another worker may be making it
        file = home / f"{name}.pickle"
        if not file.exists():
            partial = file.with_suffix(".partial")
            partial.write_bytes(pickle.dumps(asked.make()))
            partial.rename(file)
        found = pickle.loads(file.read_bytes())
    assert isinstance(found, Result)
    return found


def _home(folder: Path, source: str) -> Path:
    """Where results of a source are. The first that comes with another source removes what was there."""
    folder.mkdir(parents=True, exist_ok=True)
    home = folder / source
    with _alone(folder / "lock"):
        if not home.exists():
            for other in folder.iterdir():
                if other.is_dir():
                    shutil.rmtree(other)
            home.mkdir()
    return home


@contextlib.contextmanager
def _alone(file: Path) -> Iterator[None]:
    """One process at a time. The lock goes with the process, however that ends."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fingerprint(sources: Sequence[Path]) -> str:
    """A hash of the interpreter, of all packages with their versions, of every file, and of every file in the folders."""
    digest = hashlib.sha256(sys.version.encode())
    packages = {f"{one.name}=={one.version}\n" for one in importlib.metadata.distributions()}
    digest.update("".join(sorted(packages)).encode())
    for source in sources:
        for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
            if path.is_file() and "__pycache__" not in path.parts:
                data = path.read_bytes()
                digest.update(f"{path.relative_to(source)} {len(data)}\n".encode())
                digest.update(data)
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def on_the_command_line() -> Iterator[None]:
    """Inside, `tonnage simulate` and `compare` take the results of bundled scenarios from here."""
    made = runs.run_all

    def run_all(jobs: Sequence[runs.RunRequest], *, quiet: bool) -> list[Result]:
        asked = [_asked(job) for job in jobs]
        if None in asked:
            return made(jobs, quiet=quiet)
        return [result(one.example, one.policy, seed=one.seed, check=one.check) for one in asked if one]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "run_all", run_all)
        yield


def _asked(job: runs.RunRequest) -> Asked | None:
    """What a job asks for, where it is a run of a bundled scenario as it stands, named as from the repository."""
    folder, _, file = str(job.scenario).removeprefix("examples/").partition("/")
    bundled = str(job.scenario).startswith("examples/") and file == "scenario.yaml"
    if not bundled or job.trace or job.prices or Path("examples").resolve() != EXAMPLES:
        return None
    return Asked(folder, job.policy, job.seed, job.check)
