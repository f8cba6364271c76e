"""Capacity buffers in the simulated world: room is launched before pods ask for it, and is there again once they have."""

from __future__ import annotations

import msgspec
import pytest
from disruption_stage import ASKED, Stage, pool
from sim_builders import workload

from tonnage.decisions import Ref
from tonnage.machines import pods
from tonnage.objects import core
from tonnage.objects.buffers import CapacityBufferSpec
from tonnage.provisioning.headroom import Buffer
from tonnage.provisioning.pods import PodShape

SPEC = msgspec.convert({"containers": [{"name": "main", "image": "server", "resources": ASKED}]}, core.PodSpec)


def buffer(replicas: int) -> Buffer:
    ref = Ref("CapacityBuffer", "spare", "inference")
    return Buffer(ref, CapacityBufferSpec(replicas=replicas), SPEC, PodShape.of(SPEC))


def there(stage: Stage) -> list[str]:
    return sorted(one.name for one in stage.cluster.nodes.values() if one.ended_ns is None and not one.leaving)


@pytest.mark.parametrize("policy", ["karpenter", "optimal"])
def test_a_node_for_a_buffer_is_launched_without_any_pod_and_does_not_go_for_being_empty(policy: str) -> None:
    stage = Stage(pool(), buffers=(buffer(1),)).begin(policy).until(900)
    assert [what for _, what in stage.done("Launch")] == ["launch m5.large (on-demand) as bought-00001 for 1 pod"]
    assert there(stage) == ["bought-00001"], "consolidateAfter is 0s, and it has been empty for minutes"


def test_pods_take_the_room_at_once_and_more_is_launched_for_the_buffer() -> None:
    stage = Stage(pool(), buffers=(buffer(1),)).begin().until(600)
    made = workload(stage.cluster, "a", 1, gpus=0, container={"resources": ASKED})
    made.server = None
    pods.reconcile(stage.cluster, made)
    stage.until(620)
    assert [one.node for one in made.active] == ["bought-00001"]
    stage.until(1200)
    assert len(stage.done("Launch")) == 2, "the room is kept for the next pod"


def test_without_the_buffer_its_node_goes() -> None:
    stage = Stage(pool(), buffers=(buffer(1),)).begin().until(600)
    stage.buffers = ()
    stage.until(900)
    assert there(stage) == []
