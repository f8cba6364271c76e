"""What a node says and does when GPUs of it are unhealthy."""

from __future__ import annotations

import pytest

from tonnage.node.device_health import DeviceHealth, XidSeen
from tonnage.node.health_effects import HealthPolicy, allocated_resources_status, of_node, to_evict

GPUS = [f"GPU-{n}" for n in range(4)]


def _health(*xids: tuple[int, int]) -> DeviceHealth:
    health = DeviceHealth()
    health.observe_all(XidSeen(0, GPUS[gpu], xid) for gpu, xid in xids)
    return health


@pytest.mark.parametrize(
    ("xids", "taint", "status", "reason", "tainted"),
    [
        ([], "any", "True", "GPUsHealthy", False),
        ([(2, 119)], "reboot", "False", "GPUNeedsResetGpu", False),
        ([(2, 119)], "any", "False", "GPUNeedsResetGpu", True),
        ([(2, 119), (0, 79)], "reboot", "False", "GPUNeedsRestartBm", True),
        ([(2, 119)], "all", "False", "GPUNeedsResetGpu", False),
        ([(n, 119) for n in range(4)], "all", "False", "GPUNeedsResetGpu", True),
        ([(2, 79)], "never", "False", "GPUNeedsRestartBm", False),
        ([(1, 54)], "reboot", "False", "GPUNeedsCheckMechanicals", True),
        ([(1, 13)], "any", "True", "GPUsHealthy", False),
    ],
)
def test_the_condition_names_the_most_serious_action_and_the_taint_follows_the_policy(
    xids: list[tuple[int, int]], taint: str, status: str, reason: str, tainted: bool
) -> None:
    verdict = of_node(_health(*xids), GPUS, HealthPolicy(taint=taint))
    assert (verdict.status, verdict.reason, verdict.taint is not None) == (status, reason, tainted)
    for gpu, xid in xids:
        assert verdict.status == "True" or f"GPU {gpu} (GPU-{gpu}): Xid {xid}" in verdict.message


def test_only_the_pods_on_the_bad_card_leave() -> None:
    parents = {"MIG-a": GPUS[0], "MIG-b": GPUS[0], "MIG-c": GPUS[1], f"{GPUS[2]}::3": GPUS[2], GPUS[3]: GPUS[3]}
    holders = {
        "team/both": ["MIG-a", "MIG-c"],
        "team/beside": ["MIG-c"],
        "team/on-it": ["MIG-b"],
        "team/replica": [f"{GPUS[2]}::3"],
        "team/whole": [GPUS[3]],
        "team/other-resource": ["eth0"],
    }
    leaving = to_evict(_health((0, 95)), holders, parents, HealthPolicy())
    assert [(one.pod, one.gpus) for one in leaving] == [("team/both", (GPUS[0],)), ("team/on-it", (GPUS[0],))]
    assert leaving[0].reason.startswith("Xid 95: Uncontained ECC error; ")
    assert to_evict(_health((0, 95)), holders, parents, HealthPolicy(drain=False)) == []
    assert [one.pod for one in to_evict(_health((2, 54)), holders, parents, HealthPolicy())] == ["team/replica"]
    assert to_evict(_health((3, 31)), holders, parents, HealthPolicy()) == [], "the application's fault"


def test_allocated_resources_are_said_by_resource_and_id() -> None:
    said = allocated_resources_status({"nvidia.com/gpu": {"GPU-1": False, "GPU-0": True}, "x.com/nic": {"n": None}})
    assert said == [
        {
            "name": "nvidia.com/gpu",
            "resources": [
                {"resourceID": "GPU-0", "health": "Healthy"},
                {"resourceID": "GPU-1", "health": "Unhealthy"},
            ],
        },
        {"name": "x.com/nic", "resources": [{"resourceID": "n", "health": "Unknown"}]},
    ]
    assert allocated_resources_status({"nvidia.com/gpu": {}}) == []
