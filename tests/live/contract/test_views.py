"""What the world knows of workloads, pods and nodes, event by event."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tonnage.fleet.invariants import violations
from tonnage.kube.clock import WallClock
from tonnage.live.effects import Observing
from tonnage.live.recording import Silent
from tonnage.live.world import ClusterWorld
from tonnage.objects import apps, autoscaling, core, karpenter
from tonnage.units import NS_PER_S

GPU = "nvidia.com/gpu"


@pytest.fixture
def world() -> ClusterWorld:
    return ClusterWorld(Observing(), WallClock(), price=lambda *_: 0, recorder=Silent())


def _at(second: int) -> str:
    return f"2026-03-02T09:{second // 60:02d}:{second % 60:02d}Z"


def pod(
    name: str = "p", *, owner: str = "web", uid: str = "", node: str = "", ready: int | None = None, **more: Any
) -> core.Pod:
    """A pod of a ReplicaSet of ``owner``, created in second 10; ``ready``: the second since which it is Ready."""
    conditions = [] if ready is None else [{"type": "Ready", "status": "True", "lastTransitionTime": _at(ready)}]
    owners = [{"kind": "ReplicaSet", "name": f"{owner}-abc", "controller": True}] if owner else []
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or f"uid-{name}",
            "creationTimestamp": _at(10),
            "ownerReferences": owners,
            "labels": {"pod-template-hash": "abc"} | more.pop("labels", {}),
        },
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {GPU: "1"}}}]},
        "status": {"phase": more.pop("phase", "Running"), "conditions": conditions},
    }
    return msgspec.convert(body, core.Pod)


def node(name: str = "n", uid: str = "uid-n", gpus: int = 4) -> core.Node:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", GPU: str(gpus)}
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": uid},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    return msgspec.convert(body, core.Node)


def deployment(name: str = "web") -> apps.Deployment:
    template = {"spec": {"containers": [{"name": "c"}]}, "metadata": {}}
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"replicas": 1, "selector": {}, "template": template},
    }
    return msgspec.convert(body, apps.Deployment)


def _names(world: ClusterWorld, workload: str) -> list[str]:
    return [view.name for view in world.snapshot().workloads[f"default/{workload}"].pods]


def test_a_pod_that_changes_its_owner_is_the_new_ones_alone(world: ClusterWorld) -> None:
    for name in ("web", "other"):
        world.workloads.deployment(None, deployment(name))
    world.see_pod(None, pod())
    world.see_pod(pod(), pod(owner="other"))
    assert (_names(world, "web"), _names(world, "other")) == ([], ["p"])
    world.see_pod(pod(owner="other"), pod(owner=""))
    assert (_names(world, "web"), _names(world, "other")) == ([], [])


def test_a_probe_that_fails_for_a_while_is_no_cold_start(world: ClusterWorld) -> None:
    world.workloads.deployment(None, deployment())
    steps = [pod(), pod(ready=70), pod(), pod(ready=900)]
    for old, new in zip([None, *steps], steps, strict=False):
        world.see_pod(old, new)
    assert world.snapshot().workloads["default/web"].cold_starts_ns == (60 * NS_PER_S,)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_finished_holds_nothing(world: ClusterWorld, phase: str) -> None:
    world.workloads.deployment(None, deployment())
    world.state.see_node(None, node())
    world.see_pod(None, pod(node="n"))
    world.see_pod(pod(node="n"), pod(node="n", phase=phase))
    assert world.fleet.pod_by_key == {}
    assert world.fleet.workload_pods(world.fleet.node_by_name["n"]) == 0
    assert _names(world, "web") == []
    assert violations(world.fleet) == []


def test_a_node_that_comes_back_under_its_name_has_its_pods_as_they_were(world: ClusterWorld) -> None:
    world.state.see_node(None, node())
    world.see_pod(None, pod(node="n"))
    before = world.fleet.pod(world.fleet.pod_by_key["default", "p"]).spec
    world.state.see_node(node(), node(uid="another"))
    row = world.fleet.node_by_name["n"]
    known = world.fleet.pod(world.fleet.pod_by_key["default", "p"])
    assert world.fleet.node(row).spec.uid == "another"
    assert (known.node, known.devices) == (row, (0,))
    assert known.spec == before, "with its owner and its age"


def test_a_pod_whose_labels_change_keeps_its_node_and_its_devices(world: ClusterWorld) -> None:
    world.state.see_node(None, node())
    for name in ("a", "b"):
        world.see_pod(None, pod(name, node="n"))
    world.see_pod(pod("b", node="n"), pod("b", node="n", labels={"more": "true"}))
    known = world.fleet.pod(world.fleet.pod_by_key["default", "b"])
    assert (known.spec.labels["more"], known.devices) == ("true", (1,))


def test_an_assumed_pod_whose_labels_change_stays_assumed(world: ClusterWorld) -> None:
    """Its binding is on its way, and the watch brings an older change first."""
    world.state.see_node(None, node())
    world.see_pod(None, pod())
    fleet, key = world.fleet, ("default", "p")
    fleet.bind(fleet.pod_by_key[key], fleet.node_by_name["n"], (2,))
    world.feed.assumed.add(key)
    world.see_pod(pod(), pod(labels={"more": "true"}))
    assert fleet.pod(fleet.pod_by_key[key]).devices == (2,)
    assert key in world.feed.assumed
    world.see_pod(pod(labels={"more": "true"}), pod(node="n", labels={"more": "true"}))
    assert not world.feed.assumed


def test_an_assumed_pod_is_pending_when_its_node_goes(world: ClusterWorld) -> None:
    world.state.see_node(None, node())
    world.see_pod(None, pod())
    fleet, key = world.fleet, ("default", "p")
    fleet.bind(fleet.pod_by_key[key], fleet.node_by_name["n"], (2,))
    world.feed.assumed.add(key)
    world.state.see_node(node(), None)
    assert list(fleet.pending) == [fleet.pod_by_key[key]]


def _claim(initialized: bool) -> karpenter.NodeClaim:
    conditions = [{"type": "Initialized", "status": "True" if initialized else "False"}]
    body = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "claim", "uid": "uid-claim"},
        "spec": {"nodeClassRef": {"group": "a", "kind": "b", "name": "c"}, "requirements": []},
        "status": {"nodeName": "n", "conditions": conditions},
    }
    return msgspec.convert(body, karpenter.NodeClaim)


def test_a_node_is_on_its_way_until_it_is_seen_there(world: ClusterWorld) -> None:
    """The NodeClaim's watch is ahead of the node's: in between it is still counted, or it would be launched again."""
    world.see_claim(None, _claim(False))
    world.see_claim(_claim(False), _claim(True))
    assert len(world.snapshot().claims) == 1
    world.state.see_node(None, node())
    assert world.snapshot().claims == ()


def test_a_node_that_was_there_first_is_no_longer_on_its_way_once_its_claim_says_so(world: ClusterWorld) -> None:
    world.see_claim(None, _claim(False))
    world.state.see_node(None, node())
    world.see_claim(_claim(False), _claim(True))
    assert world.snapshot().claims == ()
    world.state.see_node(node(), None)
    assert world.snapshot().claims == ()


def test_nothing_is_remembered_of_what_is_gone(world: ClusterWorld) -> None:
    hpa = msgspec.convert(
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "h", "namespace": "default"},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 3},
        },
        autoscaling.HorizontalPodAutoscaler,
    )
    for number in range(50):
        name = f"p{number}"
        world.workloads.deployment(None, deployment())
        world.workloads.autoscaler(None, hpa)
        world.state.see_node(None, node(uid=name))
        world.see_pod(None, pod(name))
        world.snapshot()
        world.see_pod(pod(name), pod(name, node="n"))
        world.state.see_node(node(uid=name), None)
        world.see_pod(pod(name, node="n"), None)
        world.workloads.deployment(deployment(), None)
        world.workloads.autoscaler(hpa, None)
    left = (
        world.workloads._workloads,
        world.workloads._owners,
        world.feed._homeless,
        world.feed._homes,
        world.feed.assumed,
        world.waits._told,
        world.binder.tries,
    )
    assert [len(one) for one in left] == [0] * len(left)  # type: ignore[arg-type]
    assert (len(world.fleet.pods), len(world.fleet.nodes)) == (1, 1), "rows are used again"


def test_a_pod_that_gets_its_zone_with_its_node_stays_what_it_was(world: ClusterWorld) -> None:
    """Otherwise every bound pod would be a class of its own, and the mix of pods another than where no API labels them."""
    world.state.see_node(None, node())
    world.see_pod(None, pod())
    before = world.fleet.pod(world.fleet.pod_by_key["default", "p"]).class_id
    zoned = pod(node="n", labels={"topology.kubernetes.io/zone": "a", "topology.kubernetes.io/region": "r"})
    world.see_pod(pod(), zoned)
    known = world.fleet.pod(world.fleet.pod_by_key["default", "p"])
    assert (known.class_id, known.spec.labels) == (before, {"pod-template-hash": "abc"})
    assert violations(world.fleet) == []


def test_a_pod_of_a_namesake_of_another_kind_is_not_the_deployments(world: ClusterWorld) -> None:
    world.workloads.deployment(None, deployment())
    owners = [{"kind": "StatefulSet", "name": "web", "controller": True}]
    body = msgspec.to_builtins(pod("web-0"))
    body["metadata"] |= {"ownerReferences": owners, "labels": {}}
    world.see_pod(None, msgspec.convert(body, core.Pod))
    assert _names(world, "web") == []
    assert world.fleet.pod(world.fleet.pod_by_key["default", "web-0"]).spec.owner == "default/statefulset/web"
