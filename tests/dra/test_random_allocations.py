"""Random small clusters: the allocator finds devices where there are any, and what it finds breaks no rule."""

from __future__ import annotations

import msgspec
import pytest

from deep_seeds import deep
from device_allocations import Case, Taken, allowed, feasible
from tonnage.dra.allocator import Allocation, Feasibility

MANY = 100_000


def judged(seed: int) -> Feasibility:
    case = Case(seed)
    found = case.run()
    expected = feasible(case)
    assert (found.feasibility is Feasibility.ALLOCATED) is expected, (seed, str(found))
    assert found.feasibility is not Feasibility.NOT_DECIDED, seed
    if expected:
        assert allowed(case, as_taken(case, found)), seed
    return found.feasibility


def as_taken(case: Case, found: Allocation) -> list[Taken]:
    taken: list[Taken] = []
    for at, (claim, result) in enumerate(zip(case.claims, found.results, strict=True)):
        requests = {one["name"]: one for one in msgspec.to_builtins(claim)["spec"]["devices"]["requests"]}
        for one in result.devices.results:
            name, _, subrequest = one.request.partition("/")
            ways = requests[name].get("firstAvailable") or [{"name": "", **requests[name]["exactly"]}]
            way = next(each for each in ways if each["name"] == subrequest)
            taken.append((at, name, subrequest, way, one.device))
    return taken


def test_what_brute_force_finds_the_allocator_finds() -> None:
    verdicts = [judged(seed) for seed in range(200)]
    assert 30 < verdicts.count(Feasibility.ALLOCATED) < 120, "both verdicts are met often"


@pytest.mark.parametrize("start", deep(range(0, MANY, 5_000)))
def test_a_hundred_thousand_random_clusters(start: int) -> None:
    for seed in range(start, start + 5_000):
        judged(1_000_000 + seed)
