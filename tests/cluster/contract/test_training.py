"""The decisions of scenarios with training work are the same in every world."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.contract import training
from cluster.contract.same import check_same
from cluster.contract.worlds import APIS, opened


@pytest.mark.parametrize("kind", APIS)
def test_jobs_of_single_pods_that_fail_and_start_again(kind: str, tmp_path: Path) -> None:
    simulated = training.jobs(tmp_path, None)
    assert sum(one.restarts for one in simulated.cluster.training.values()) > 3
    with opened(kind) as transport:
        check_same(simulated, training.jobs(tmp_path, transport))
