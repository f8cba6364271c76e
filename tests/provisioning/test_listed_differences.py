"""The page of differences from Karpenter names those that are compared, and no others."""

from __future__ import annotations

import re

from plan_differences import mine
from planning_cases import known, ours

from docs_outputs import REPOSITORY
from objects.karpenter_objects import DIFFERENCES
from tonnage.provisioning.karpenter import pack

PAGE = (REPOSITORY / "docs/reference/karpenter-differences.md").read_text(encoding="utf-8")


def test_every_difference_that_is_compared_is_listed_and_the_other_way_round() -> None:
    compared = re.findall(r"^\| `([a-z-]+)` \|", PAGE, flags=re.MULTILINE)
    assert sorted(compared) == sorted([*known(), *DIFFERENCES])


def test_a_limit_of_nodes_is_kept_within_one_plan() -> None:
    given = ours(known()["nodes-limit"])
    outcome = mine(pack(given.pods, given.nodes, given.pools, given.catalogue, given.settings))
    assert len(outcome.claims) == 2
    assert len(outcome.refused) == 2


def test_a_sidecars_host_port_is_taken() -> None:
    given = ours(known()["sidecar-ports"])
    outcome = mine(pack(given.pods, given.nodes, given.pools, given.catalogue, given.settings))
    assert len(outcome.claims) == 2
