"""A sample of what `scripts/digests.py` holds to what is recorded: a run of every kind, in a few seconds."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from deep_seeds import deep
from digests import store
from digests.cases import ROOT, cases
from digests.command import run

SAMPLE = (
    "contract/sold-out",
    "examples/shared-gpus/whole/0",
    *deep(("contract/broken", "examples/kv-routing/tonnage/0", "placement/gangs/tonnage")),
)
"""The others are in `make digests`."""


@pytest.mark.parametrize("name", SAMPLE)
def test_results_are_as_recorded(name: str) -> None:
    ran = run(name)
    assert ran.differs == "", f"{name}: {ran.differs}; if that is meant: scripts/digests.py --write --only {name}"


def test_every_case_is_recorded_and_nothing_else_is() -> None:
    assert store.recorded() == set(cases())


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", ["0", "1"])
def test_results_do_not_depend_on_the_hash_seed(seed: str) -> None:
    names = ("contract/sold-out", "examples/disaggregated/aggregated/0")
    code = "import sys; from digests.command import run; print([run(name).differs for name in sys.argv[1:]])"
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("tests", "tests/simulation"))
    environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": paths}
    words = [sys.executable, "-c", code, *names]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(["", ""])
