"""The planner beside the scheduler of the real Karpenter, on planning cases drawn by seeds: a sample in `make e2e`, all of
them in `make e2e-long`.

Karpenter takes any of several equally good domains. A case whose answers differ is asked again a few times: the planner
has to find one of the plans that Karpenter finds, taking of equally good domains those that Karpenter took.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import sampling
from plan_differences import ask, compare
from planning_cases import draw, known

from docs_outputs import REPOSITORY
from e2e.recipe import RECIPE

pytestmark = pytest.mark.e2e

CASES = range(2400)
SAMPLED = 300
BATCH = 50
AGAIN = 30
"""How often a case is asked again at most whose answer differs."""
LISTED = REPOSITORY / "docs/reference/karpenter-differences.md"


def test_the_planner_plans_as_karpenter_does(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seeds = sampling.some("planning cases", CASES, SAMPLED)
    left: dict[int, list[str]] = {}
    claims = refused = nominated = at_once = 0
    for begin in range(0, len(seeds), BATCH):
        cases = [draw(seed) for seed in seeds[begin : begin + BATCH]]
        for case, answer in zip(cases, ask(program, cases), strict=True):
            claims += len(answer["claims"])
            refused += len(answer["refused"])
            nominated += sum(map(len, answer["nominations"].values()))
            if found := compare(case, answer):
                left[case.seed] = found
    at_once = len(seeds) - len(left)
    for _ in range(AGAIN):
        if not left:
            break
        cases = [draw(seed) for seed in left]
        for case, answer in zip(cases, ask(program, cases), strict=True):
            if not compare(case, answer):
                del left[case.seed]
    (module,) = (one for one in RECIPE if one.name == "karpenter_plan")
    with capsys.disabled():
        print(
            f"\nkarpenter {module.version('sigs.k8s.io/karpenter')}: {len(seeds)} cases of seeds {seeds[0]}-{seeds[-1]}, "
            f"{claims} NodeClaims, {nominated} pods on nodes, {refused} left over; {at_once} alike at once, "
            f"{len(seeds) - at_once - len(left)} when asked again, {len(left)} not"
        )
    assert not left, "\n".join(f"case {seed}: {'; '.join(found)[:1500]}" for seed, found in sorted(left.items())[:5])
    assert min(claims, refused, nominated) > 0


def test_the_listed_differences_are_those_that_there_are(program: Path) -> None:
    cases = known()
    answers = ask(program, cases.values())
    found = {name: compare(case, answer) for (name, case), answer in zip(cases.items(), answers, strict=True)}
    assert {name: bool(differing) for name, differing in found.items()} == dict.fromkeys(cases, True)
