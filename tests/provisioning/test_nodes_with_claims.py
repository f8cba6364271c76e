"""Nodes whose pods have devices by ResourceClaims: who takes them back, and where their pods go."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from provisioning_builders import node_pool
from test_consolidation import AT_ONCE, NOW

from builders import node, pod
from claim_builders import NAMESPACE, add, slices_of
from device_allocations import claim
from tonnage.control.nodes import existing_nodes
from tonnage.control.running import IGNORED, MADE_ONCE, movable_pods, running_nodes
from tonnage.dra import nvidia
from tonnage.facts import instances, prices
from tonnage.facts.labels import DRA_PLUGIN, GPU, INSTANCE_TYPE
from tonnage.fleet import claimed_gpus
from tonnage.fleet.rows import FleetPod
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet
from tonnage.objects.dra import POD_CLAIM_NAME, DeviceTaint
from tonnage.provisioning.candidates import RunningNode
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.cluster_autoscaler.scale_down import unneeded
from tonnage.provisioning.consolidation import Round
from tonnage.provisioning.group_pools import NODE_GROUP
from tonnage.provisioning.plans import PlanSettings
from tonnage.provisioning.staying import unconsolidatable

TYPE, GPUS = "g6e.12xlarge", 4
MARKET = Catalogue([instances.get(TYPE)], prices.load())
LABELS = {
    DRA_PLUGIN: "true",
    INSTANCE_TYPE: TYPE,
    "topology.kubernetes.io/zone": "us-east-1a",
    "karpenter.sh/capacity-type": "on-demand",
}
POOL = node_pool("gpu", ("karpenter.sh/capacity-type", "In", ["on-demand"]), disruption=AT_ONCE)

_OF_GROUP = msgspec.structs.replace(
    POOL.spec.template.spec,
    node_class_ref=msgspec.structs.replace(POOL.spec.template.spec.node_class_ref, kind=NODE_GROUP),
)
GROUP = msgspec.structs.replace(
    POOL,
    spec=msgspec.structs.replace(POOL.spec, template=msgspec.structs.replace(POOL.spec.template, spec=_OF_GROUP)),
)


def fleet(*nodes: str) -> Fleet:
    """Nodes of four L40S, as NVIDIA's driver publishes them and no device plugin offers them."""
    made = Fleet()
    for one in nvidia.device_classes():
        made.device_claims.see(one)
    for name in nodes:
        spec = node(name, cpu=48, labels=LABELS, node_pool="gpu", instance_type=TYPE)
        made.note(made.add_node(spec), initialized=True)
        for one in slices_of(instances.get(TYPE), name):
            made.device_claims.see(one)
    return made


def place(made: Fleet, name: str, on: str, count: int, *, template: bool = True) -> None:
    """A pod on the node with so many GPUs by a claim, made of a template or its own."""
    one = claim({"name": "r", "exactly": {"deviceClassName": nvidia.GPU_CLASS, "count": count}}, name=f"{name}-claim")
    if template:
        meta = msgspec.structs.replace(one.metadata, annotations={POD_CLAIM_NAME: "gpu"})
        one = msgspec.structs.replace(one, metadata=meta)
    made.device_claims.see(one)
    written = {"name": "gpu", "resourceClaimName": one.name}
    bare = pod(name, namespace=NAMESPACE, resourceClaims=[written])
    asked: FleetPod = replace(bare, claims=made.device_claims.need(NAMESPACE, name, bare.uid, bare.spec))
    add(made, replace(asked, owner=f"{NAMESPACE}/replicaset/chat"))
    made.bind(made.pod_by_key[NAMESPACE, name], made.node_by_name[on])


def running(made: Fleet, *, claims: bool) -> list[RunningNode]:
    snapshot = Snapshot(0, made)
    there = {one.ref: one for one in existing_nodes(made, MARKET)}
    on = movable_pods(snapshot, claims=claims)
    found = running_nodes(snapshot, on, there, epoch_ns=NOW, sized=True)
    quiet = NOW - 3_600 * 10**9
    return [
        msgspec.structs.replace(
            one, state=msgspec.structs.replace(one.state, initialized_ns=quiet, last_pod_event_ns=quiet)
        )
        for one, _ in found
    ]


def stays(made: Fleet, *, claims: bool) -> dict[str, str]:
    """Why single nodes stay, by name."""
    round_ = Round(running(made, claims=claims), (), [POOL], MARKET, NOW, PlanSettings())
    return {ref.name: why for ref, why in unconsolidatable(round_).items()}


def test_karpenter_lets_a_node_be_whose_pods_have_claims() -> None:
    made = fleet("a", "b")
    place(made, "one", "a", 1)
    place(made, "two", "b", 1)
    said = f"not all pods would schedule, {NAMESPACE}/"
    assert stays(made, claims=False) == {"a": f"{said}one: {IGNORED}", "b": f"{said}two: {IGNORED}"}


def test_where_claims_are_planned_for_a_node_goes_whose_pods_find_devices_elsewhere() -> None:
    made = fleet("a", "b")
    place(made, "one", "a", 1)
    place(made, "two", "b", 3)
    assert stays(made, claims=True) == {}, "one GPU is free on b, three on a"
    place(made, "three", "a", 1)
    assert set(stays(made, claims=True)) == {"a", "b"}, "two pods and one GPU; three GPUs and two are free"


def test_a_claim_of_its_own_that_no_template_makes_keeps_its_node() -> None:
    made = fleet("a", "b")
    place(made, "one", "a", 1, template=False)
    assert stays(made, claims=True) == {"a": f"not all pods would schedule, {NAMESPACE}/one: {MADE_ONCE}"}


def test_the_cluster_autoscaler_moves_pods_with_claims_to_free_devices() -> None:
    made = fleet("a", "b")
    place(made, "one", "a", 1)
    place(made, "two", "b", 2)
    found, _ = unneeded(running(made, claims=True), [GROUP], MARKET, NOW)
    assert [(one.node.name, [(ref.name, to.name) for ref, to in one.moves]) for one in found] == [("a", [("one", "b")])]
    place(made, "three", "b", 2)
    found, kept = unneeded(running(made, claims=True), [GROUP], MARKET, NOW)
    assert found == []
    assert {one.node.name: one.why for one in kept}["a"] == "its pods do not fit on other nodes"


@pytest.mark.parametrize("held", [0, 1, 4])
def test_gpus_that_claims_could_have_are_free_where_a_class_serves_them(held: int) -> None:
    made = fleet("a")
    if held:
        place(made, "one", "a", held)
    assert claimed_gpus.free(made, 0) == GPUS - held
    (there,) = existing_nodes(made, MARKET)
    assert there.free[GPU] == GPUS - held
    for one in nvidia.device_classes():
        made.device_claims.see(
            msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, extended_resource_name=""))
        )
    (there,) = existing_nodes(made, MARKET)
    assert there.free.get(GPU, 0) == 0, "a pod that requests the resource would get none"


def test_a_gpu_with_a_taint_is_not_free() -> None:
    made = fleet("a")
    (first, *_) = [one for one in made.device_claims.slices.values() if one.spec.devices]
    sick = [msgspec.structs.replace(first.spec.devices[0], taints=[DeviceTaint(key="xid", effect="NoSchedule")])]
    spec = msgspec.structs.replace(first.spec, devices=[*sick, *first.spec.devices[1:]])
    made.device_claims.see(msgspec.structs.replace(first, spec=spec))
    assert claimed_gpus.free(made, 0) == GPUS - 1
    assert claimed_gpus.free(fleet("b"), 0) == GPUS


def test_a_node_without_devices_for_claims_has_none_free_and_none_taken() -> None:
    made = Fleet()
    made.add_node(node("n", gpus=2))
    assert claimed_gpus.free(made, 0) is None
