"""The example dra-scale-out: from more traffic to more pods where pods ask for GPUs by ResourceClaims, step by step."""

from __future__ import annotations

from itertools import pairwise

import pytest

import shared_runs
from tonnage.control.running import IGNORED
from tonnage.fleet.device_claims import CANNOT_ALLOCATE
from tonnage.simulation.result import Result

WORKLOAD = "Deployment inference/chat"


@pytest.fixture(scope="module")
def served() -> Result:
    """With a node group that the Cluster Autoscaler sizes."""
    return shared_runs.result("dra-scale-out", "node-group")


@pytest.fixture(scope="module")
def ignored() -> Result:
    """With Karpenter as it comes."""
    return shared_runs.result("dra-scale-out", "karpenter")


def first(result: Result, reason: str, about: str = "", after_s: float = -1.0) -> float:
    """When the first such event was, in seconds."""
    return min(
        one.t_s
        for one in result.events
        if one.reason == reason and one.object.startswith(about) and one.t_s > after_s - 1e-9
    )


def test_each_step_of_the_chain_follows_the_one_before_and_their_times_add_up(served: Result) -> None:
    raised = first(served, "ScalingReplicaSet", WORKLOAD)
    waits = [one for one in served.events if one.reason == "FailedScheduling"]
    assert all(CANNOT_ALLOCATE in one.message for one in waits)
    pod = waits[0].object
    node = next(one for one in served.nodes if one.launched_s is not None and one.launched_s > 0)
    times = [
        raised,
        waits[0].t_s,
        first(served, "Launched", "NodeClaim"),
        node.launched_s,
        first(served, "ResourceSlicesPublished", f"Node {node.name}"),
        first(served, "Scheduled", pod),
        first(served, "Ready", pod),
    ]
    assert times == sorted(times)
    steps = [after - before for before, after in pairwise(times)]
    assert sum(steps) == pytest.approx(times[-1] - times[0])
    assert 60 < steps[3] < 300, "the machine boots and its driver starts"
    assert 60 < steps[5] < 900, "image, weights and graphs"
    assert steps[4] == 0, "nobody waits for anything else once there are devices"


def test_pods_get_no_more_gpus_than_there_are_and_the_bill_knows_them(served: Result) -> None:
    assert max(served.series.gpus_allocated) == 8
    assert all(held <= paid for held, paid in zip(served.series.gpus_allocated, served.series.gpus_paid, strict=True))
    assert served.gpu_hours.allocated > 0.6 * served.gpu_hours.paid


@pytest.mark.fuzz
def test_where_the_autoscaler_ignores_claims_the_chain_ends_with_pods_that_wait_and_a_finding_says_why(
    ignored: Result,
) -> None:
    assert [one.name for one in ignored.nodes] == ["base-01"]
    assert max(ignored.series.gpus_allocated) == 4
    assert isinstance(ignored.not_running, list)
    (found,) = ignored.not_running
    assert (str(found.object), found.rule) == (WORKLOAD, "pod-pending")
    assert IGNORED in found.cause
