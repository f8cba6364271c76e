"""What holds and what is released when something goes wrong with claims: nodes, drivers, devices, templates."""

from __future__ import annotations

from pathlib import Path

import msgspec

from builders import decide, placed, verdict
from claim_builders import (
    NAMESPACE,
    add,
    bind_all,
    commit,
    devices,
    fleet_of,
    gpus,
    own,
    see_claim,
    sharing,
)
from tonnage.dra.allocated import DeviceID
from tonnage.fleet.device_claims import CANNOT_ALLOCATE
from tonnage.fleet.invariants import violations
from tonnage.fleet.state import Fleet
from tonnage.objects import dra
from tonnage.objects.base import ObjectMeta
from tonnage.simulation import run, scenario


def bound(name: str = "first", on: str = "n", count: int = 2) -> Fleet:
    """A node with devices, of which a pod holds one."""
    made = fleet_of(on, slices=[gpus(on, count)])
    add(made, own(made, name))
    bind_all(made, decide(made))
    commit(made, name)
    return made


def published(made: Fleet, on: str, *names: str, generation: int, **taints: list[dict[str, str]]) -> None:
    """The node's driver publishes these devices."""
    one = msgspec.to_builtins(gpus(on, 1))
    one["spec"]["pool"]["generation"] = generation
    one["spec"]["devices"] = [{"name": name, "taints": taints.get(name.replace("-", "_"), [])} for name in names]
    made.device_claims.see(msgspec.convert(one, dra.ResourceSlice))


# ---- the driver starts again ----


def test_a_driver_that_starts_again_gives_no_device_twice() -> None:
    made = bound()
    published(made, "n", "gpu-0", "gpu-1", generation=2)
    add(made, own(made, "second"), own(made, "third"))
    bind_all(made, decide(made))
    assert devices(made) == {"first-claim": ["gpu-0"], "second-claim": ["gpu-1"]}
    assert CANNOT_ALLOCATE in verdict(made, "third")


def test_while_a_driver_has_published_nothing_its_claims_keep_their_devices() -> None:
    made = bound()
    made.device_claims.forget_node("n")
    add(made, own(made, "second"))
    assert CANNOT_ALLOCATE in verdict(made, "second")
    assert devices(made) == {"first-claim": ["gpu-0"]} and violations(made) == []
    published(made, "n", "gpu-0", "gpu-1", generation=1)
    assert placed(made) == {"second": "n"}


# ---- a device dies ----


def test_a_claim_on_a_device_that_is_published_no_more_keeps_it_until_its_pod_is_gone() -> None:
    made = bound()
    published(made, "n", "gpu-1", generation=2)
    add(made, own(made, "second"), own(made, "third"))
    bind_all(made, decide(made))
    assert devices(made) == {"first-claim": ["gpu-0"], "second-claim": ["gpu-1"]}
    made.remove_pod(made.pod_by_key[NAMESPACE, "first"])
    made.device_claims.forget(made.device_claims.claims[NAMESPACE, "first-claim"])
    assert CANNOT_ALLOCATE in verdict(made, "third"), "the dead device is given to nobody"
    assert violations(made) == []


def test_nobody_new_gets_a_device_with_a_taint_and_who_has_it_keeps_it() -> None:
    made = bound()
    bad = [{"key": "gpu.nvidia.com/xid", "effect": "NoSchedule"}]
    published(made, "n", "gpu-0", "gpu-1", generation=2, gpu_0=bad, gpu_1=bad)
    add(made, own(made, "second"))
    assert CANNOT_ALLOCATE in verdict(made, "second")
    assert devices(made) == {"first-claim": ["gpu-0"]}
    published(made, "n", "gpu-0", "gpu-1", generation=3, gpu_0=bad)
    assert placed(made) == {"second": "n"}, "the cause is gone, and so is the taint"


# ---- a claim is being deleted ----


def test_a_claim_that_is_stuck_in_deletion_holds_its_device_and_takes_no_new_pods() -> None:
    made = fleet_of("n", slices=[gpus("n", 1)])
    claim = see_claim(made, "shared")
    add(made, sharing(made, "first", "shared"))
    bind_all(made, decide(made))
    commit(made, "first")
    known = made.device_claims.claims[NAMESPACE, "shared"]
    leaving = msgspec.structs.replace(
        known,
        metadata=ObjectMeta(
            name=claim.name,
            namespace=NAMESPACE,
            uid=claim.metadata.uid,
            deletion_timestamp="2026-11-01T00:00:00Z",
            finalizers=[dra.DELETE_PROTECTION],
        ),
    )
    made.device_claims.see(leaving)
    add(made, sharing(made, "second", "shared"), own(made, "third"))
    assert 'resourceclaim "shared" is being deleted' in verdict(made, "second")
    assert CANNOT_ALLOCATE in verdict(made, "third")
    made.remove_pod(made.pod_by_key[NAMESPACE, "first"])
    made.device_claims.forget(leaving)
    assert placed(made) == {"third": "n"}, "its finalizer is gone, and the device free"
    assert violations(made) == []


# ---- a template is deleted ----


def test_pods_keep_the_claims_that_were_made_of_a_template_which_is_gone() -> None:
    template = dra.ResourceClaimTemplate(
        api_version=dra.V1, kind="ResourceClaimTemplate", metadata=ObjectMeta(name="one-gpu", namespace=NAMESPACE)
    )
    made = bound()
    made.device_claims.see(template)
    add(made, own(made, "second"))
    made.device_claims.forget(template)
    assert placed(made) == {"second": "n"}, "its claim had been made"
    assert devices(made)["first-claim"] == ["gpu-0"]
    need = made.device_claims.need(NAMESPACE, "third", "uid-third", made.pod(0).spec.spec)
    assert need.waits == f'pod "{NAMESPACE}/third": ResourceClaim not created yet'


# ---- a node is lost ----

SCENARIO = """\
kind: Scenario
name: lost
duration: 20m
fleet:
  nodes: [{instanceType: g6e.12xlarge, count: 2, zone: us-east-1a, labels: {nvidia.com/dra-kubelet-plugin: "true"}}]
faults: [{kind: node-failure, at: 5m, count: 1}]
policies: {one: {manifests: manifests}}
"""
MANIFESTS = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.nvidia.com}
spec: {selectors: [{cel: {expression: "device.driver == 'gpu.nvidia.com'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpus, namespace: team}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.nvidia.com, count: 4}}]}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: app, namespace: team}
spec:
  replicas: 1
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec:
      containers: [{name: main, image: app, resources: {claims: [{name: gpus}]}}]
      resourceClaims: [{name: gpus, resourceClaimTemplateName: gpus}]
"""


def test_the_claims_of_a_lost_node_are_released_and_made_again_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "m.yaml").write_text(MANIFESTS)
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    result = run.run(scenario.load(tmp_path / "scenario.yaml"), "one")
    nodes = [one.message.removeprefix("assigned to ") for one in result.events if one.reason == "Scheduled"]
    assert nodes == ["base-01", "base-02"], "all four GPUs of the other node, for the pod in its place"
    assert result.series.gpus_allocated[-1] == 4


def test_devices_of_a_node_that_is_gone_are_no_ones() -> None:
    made = bound()
    made.remove_pod(made.pod_by_key[NAMESPACE, "first"])
    made.device_claims.forget(made.device_claims.claims[NAMESPACE, "first-claim"])
    made.device_claims.forget_node("n")
    made.remove_node(made.node_by_name["n"])
    assert not made.device_claims.state.is_held(DeviceID("gpu.example.com", "n", "gpu-0"))
    assert violations(made) == []
