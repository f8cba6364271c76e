"""Pods that request extended resources on nodes where claims serve them."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

import gang_builders
from builders import GPU, decide, node, placed, pod, verdict
from claim_builders import NAMESPACE, add, bind_all, fleet_of, gpus, own, see_claim
from deep_seeds import part
from device_allocations import DRIVER, device_class, request
from preemption_builders import Cluster, victims
from tonnage import gate
from tonnage.decisions import Bind, Stale, Wait
from tonnage.dra.extended import IMPLICIT
from tonnage.fleet.cluster_state import State
from tonnage.fleet.device_claims import CANNOT_ALLOCATE
from tonnage.fleet.invariants import violations
from tonnage.fleet.rows import FleetPod
from tonnage.fleet.state import Fleet
from tonnage.objects import dra
from tonnage.objects.base import ObjectMeta
from tonnage.scheduling import place

OURS = device_class("gpu", f"device.driver == '{DRIVER}'", extendedResourceName=GPU)


def asking(made: Fleet, name: str, count: int = 1, resource: str = GPU, **fields: Any) -> FleetPod:
    """A pod that requests so much of an extended resource."""
    one = pod(name, namespace=NAMESPACE, resources={resource: str(count)}, **fields)
    return replace(one, claims=made.device_claims.need(NAMESPACE, name, one.uid, one.spec))


def with_class(*nodes: str, classes: tuple[dra.DeviceClass, ...] = (OURS,), **slices: int) -> Fleet:
    """Nodes with 16 CPUs, of which some publish so many devices."""
    return fleet_of(*nodes, slices=[gpus(of, count) for of, count in slices.items()], classes=classes)


def given(bind: Bind) -> list[str]:
    return [one.device for each in bind.claims for one in each.allocation.devices.results]


def test_a_pod_goes_where_devices_serve_what_it_requests_and_gets_a_claim_for_them() -> None:
    made = with_class("plain", "n", n=2)
    add(made, asking(made, "a", 2))
    (bind,) = decide(made)
    assert isinstance(bind, Bind) and bind.node.name == "n" and given(bind) == ["gpu-0", "gpu-1"]
    (claim,) = bind.claims
    assert claim.claim.name.startswith("a-extended-resources-") and claim.claim.namespace == NAMESPACE
    assert claim.extended is not None
    (asked,) = claim.extended.requests
    assert asked.exactly is not None
    assert (asked.name, asked.exactly.device_class_name, asked.exactly.count) == ("container-0-request-2", "gpu", 2)
    assert [(one.container_name, one.resource_name) for one in claim.extended.mappings] == [("main", GPU)]


def test_the_name_of_its_class_is_a_resource_too() -> None:
    made = with_class("n", n=1, classes=(device_class("gpu", f"device.driver == '{DRIVER}'"),))
    add(made, asking(made, "a", resource=f"{IMPLICIT}gpu"), asking(made, "b"))
    assert placed(made) == {"a": "n"}
    assert verdict(made, "b") == f"0/1 nodes are available: 1 Insufficient {GPU}"


def test_without_a_class_the_resource_is_one_that_no_node_has() -> None:
    made = with_class("n", classes=(device_class("gpu", "false"),), n=1)
    add(made, asking(made, "a"))
    assert verdict(made, "a") == f"0/1 nodes are available: 1 Insufficient {GPU}"


def test_devices_that_are_held_count_and_the_pod_that_finds_none_is_told_as_kube_scheduler_tells_it() -> None:
    made = with_class("n", n=2)
    add(made, *(asking(made, name) for name in "abc"))
    decisions = decide(made)
    bind_all(made, decisions)
    (wait,) = (one for one in decisions if isinstance(one, Wait))
    assert wait.reason.verdict == f"0/1 nodes are available: 1 {CANNOT_ALLOCATE}"


def test_a_resource_that_nobody_requested_before_is_served_as_any_other() -> None:
    made = with_class("n", n=2)
    add(made, asking(made, "a", cpu=0.1))
    bind_all(made, decide(made))
    add(made, asking(made, "b", 2, resource=f"{IMPLICIT}gpu"))
    assert verdict(made, "b") == f"0/1 nodes are available: 1 {CANNOT_ALLOCATE}"


def test_devices_are_asked_for_before_what_a_kubelet_declares() -> None:
    made = with_class("n")
    made.set_features(0, ())
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    one = asking(made, "a")
    container = msgspec.to_builtins(one.spec.containers[0]) | {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    spec = msgspec.convert({"containers": [container]}, type(one.spec))
    add(made, replace(one, spec=spec))
    assert verdict(made, "a") == f"0/1 nodes are available: 1 {CANNOT_ALLOCATE}"


def test_a_node_whose_plugin_offers_the_resource_serves_it_by_its_plugin_alone() -> None:
    made = fleet_of("claims", slices=[gpus("claims", 1), gpus("plugin", 4)], classes=[OURS])
    made.add_node(node("plugin", gpus=1))
    add(made, *(asking(made, name) for name in "abc"))
    decisions = decide(made)
    found = {one.node.name: one for one in decisions if isinstance(one, Bind)}
    assert not found["plugin"].claims and len(found["claims"].claims) == 1
    bind_all(made, decisions)
    assert len(made.pending) == 1, "the plugin's node publishes four devices, of which nobody gets one"
    assert made.pod(made.pod_by_key[NAMESPACE, found["plugin"].pod.name]).devices == (0,)


def test_of_two_resources_each_comes_from_where_the_node_has_it() -> None:
    nic = device_class("nic", "false", extendedResourceName="example.com/nic")
    made = fleet_of(slices=[gpus("n", 1)], classes=[OURS, nic])
    made.add_node(node("n", resources={"example.com/nic": 1}))
    one = pod("a", namespace=NAMESPACE, resources={GPU: "1", "example.com/nic": "1"})
    add(made, replace(one, claims=made.device_claims.need(NAMESPACE, "a", one.uid, one.spec)))
    (bind,) = decide(made)
    assert isinstance(bind, Bind) and given(bind) == ["gpu-0"]
    assert bind.claims[0].extended is not None and len(bind.claims[0].extended.requests) == 1
    bind_all(made, [bind])
    assert int(made.free[0, made.resource("example.com/nic")]) == 0


def test_claims_of_its_own_and_extended_resources_are_allocated_together() -> None:
    made = with_class("m", "n", m=2, n=3)
    one = replace(own(made, "a", request(count=2)), spec=asking(made, "a").spec)
    spec = msgspec.structs.replace(one.spec, resource_claims=own(made, "a", request(count=2)).spec.resource_claims)
    add(made, replace(one, spec=spec, claims=made.device_claims.need(NAMESPACE, "a", one.uid, spec)))
    (bind,) = decide(made)
    assert isinstance(bind, Bind) and bind.node.name == "n" and len(given(bind)) == 3


def test_classes_that_come_and_go_change_what_nodes_serve() -> None:
    made = with_class("n", n=1, classes=())
    add(made, asking(made, "a"))
    assert "Insufficient" in verdict(made, "a")
    made.device_claims.see(OURS)
    made.set_claims(0, asking(made, "a").claims)
    assert placed(made) == {"a": "n"} and violations(made) == []
    made.device_claims.forget(OURS)
    made.set_claims(0, asking(made, "a").claims)
    assert "Insufficient" in verdict(made, "a") and violations(made) == []


def test_a_plugin_that_registers_takes_over_and_pods_keep_what_they_have() -> None:
    made = with_class("n", n=2)
    add(made, asking(made, "a"))
    bind_all(made, decide(made))
    made.set_allocatable(0, {**made.allocatable_of(0), GPU: 2}, observed=True)
    assert violations(made) == []
    add(made, asking(made, "b"), asking(made, "c"))
    assert len(placed(made)) == 1, "what the pod requests is counted, as kube-scheduler counts it"
    bind_all(made, decide(made))


def test_what_ifs_leave_no_claim_behind() -> None:
    made = with_class("n", n=2)
    add(made, asking(made, "a"), asking(made, "b"))
    first = decide(made)
    assert decide(made) == first and not made.device_claims.claims
    bind_all(made, first)
    row = made.pod_by_key[NAMESPACE, "a"]
    with made.what_if():
        made.unbind(row)
        made.bind(row, 0)
    assert violations(made) == [] and len(made.device_claims.claims) == 2
    made.unbind(row)
    assert len(made.device_claims.claims) == 1 and violations(made) == []


def test_a_gang_gets_all_of_its_devices_or_none() -> None:
    made = with_class("m", "n", m=1, n=1)
    for name in "abc":
        made.add_pod(replace(asking(made, name), gang="team/g"))
    known = gang_builders.gang(3, key="team/g")
    assert gang_builders.placed(made, known) == {}
    made.device_claims.see(gpus("n", 2))
    assert len(gang_builders.placed(made, known)) == 3


def test_preemption_frees_devices_that_claims_serve() -> None:
    made = with_class("n", n=1)
    add(made, asking(made, "low"))
    bind_all(made, decide(made))
    add(made, asking(made, "high", priority=10))
    assert victims(Cluster(made).decide()) == {"low"}


def gated(made: Fleet, bind: Bind) -> object:
    state = cast(State, SimpleNamespace(fleet=made, life=lambda _: SimpleNamespace(leaving=False)))
    return gate.check(state, bind)


def test_a_decision_holds_only_while_the_node_serves_the_same() -> None:
    made = with_class("n", n=2)
    add(made, asking(made, "a"))
    (bind,) = decide(made)
    assert isinstance(bind, Bind) and gated(made, bind) is None
    made.set_allocatable(0, {**made.allocatable_of(0), GPU: 2}, observed=True)
    assert isinstance(gated(made, bind), Stale), "its plugin offers the resource now"
    made.set_allocatable(0, {**made.allocatable_of(0), GPU: 0}, observed=True)
    assert gated(made, bind) is None
    add(made, asking(made, "b"))
    see_claim(made, "taken", status=dra.ResourceClaimStatus(allocation=bind.claims[0].allocation))
    assert isinstance(gated(made, bind), Stale), "somebody has the device"


def left_over(bind: Bind, uid: str) -> dra.ResourceClaim:
    """The claim of a binding that was begun, as an API has it."""
    (one,) = bind.claims
    assert one.extended is not None
    owner = {"apiVersion": "v1", "kind": "Pod", "name": bind.pod.name, "uid": uid, "controller": True}
    meta = {
        "name": one.claim.name,
        "namespace": NAMESPACE,
        "uid": "claim-uid",
        "annotations": {dra.EXTENDED_CLAIM: "true"},
        "ownerReferences": [owner],
    }
    return dra.ResourceClaim(
        api_version=dra.V1,
        kind="ResourceClaim",
        metadata=msgspec.convert(meta, ObjectMeta),
        spec=dra.ResourceClaimSpec(devices=dra.DeviceClaim(requests=list(one.extended.requests))),
        status=dra.ResourceClaimStatus(allocation=one.allocation),
    )


def test_a_claim_that_an_earlier_attempt_has_left_is_given_up_before_the_next() -> None:
    made = with_class("n", n=1)
    spec = asking(made, "a")
    add(made, spec)
    (bind,) = decide(made)
    assert isinstance(bind, Bind)
    claim = left_over(bind, spec.uid)
    made.device_claims.see(claim)
    made.set_claims(0, made.device_claims.need(NAMESPACE, "a", spec.uid, spec.spec))
    (wait,) = place.decide(gang_builders.snapshot(made))
    assert isinstance(wait, Wait) and claim.name in wait.reason.verdict
    (release,) = wait.releases
    assert release.claim.name == claim.name and release.extended is not None
    made.device_claims.forget(claim)
    made.set_claims(0, made.device_claims.need(NAMESPACE, "a", spec.uid, spec.spec))
    assert decide(made) == [bind]


def test_a_claim_that_is_seen_while_its_pod_is_being_bound_stays_the_pods() -> None:
    made = with_class("n", n=1)
    spec = asking(made, "a")
    add(made, spec)
    (bind,) = decide(made)
    assert isinstance(bind, Bind)
    bind_all(made, [bind])
    made.device_claims.see(left_over(bind, spec.uid))
    made.set_claims(0, made.device_claims.need(NAMESPACE, "a", spec.uid, spec.spec))
    assert violations(made) == [] and made.device_claims.used_by(0) == made.pod(0).spec.claims.used
    made.device_claims.note_pod(NAMESPACE, "a", [], bind.claims[0].claim.name)
    made.set_claims(0, made.device_claims.need(NAMESPACE, "a", spec.uid, spec.spec))
    assert violations(made) == []


@pytest.mark.parametrize("seed", part(range(20)))
def test_at_random_pods_are_placed_exactly_where_devices_or_plugins_are_left(seed: int) -> None:
    random = Random(seed)
    made = fleet_of(classes=[OURS])
    left: dict[str, int] = {}
    for number in range(random.randint(1, 4)):
        name, plugin, devices = f"n{number}", random.choice((0, 0, 1, 2)), random.randint(0, 3)
        made.add_node(node(name, gpus=plugin, cpu=64))
        if devices:
            made.device_claims.see(gpus(name, devices))
        left[name] = plugin or devices
    for number in range(12):
        count = random.randint(1, 3)
        add(made, asking(made, f"p{number}", count, cpu=0.1))
        fits = {name for name, free in left.items() if free >= count}
        row = made.pod_by_key[NAMESPACE, f"p{number}"]
        feasible = {made.node(at).spec.name for at in place.feasible(made, row)}
        assert feasible == fits
        for one in decide(made):
            if isinstance(one, Bind):
                bind_all(made, [one])
                left[one.node.name] -= count
        bound = [at for at, one in enumerate(made.pods) if one is not None and one.node >= 0]
        if bound and random.random() < 0.3:
            gone = random.choice(bound)
            spec, on = made.pod(gone).spec, made.node(made.pod(gone).node).spec.name
            left[on] += int(spec.spec.containers[0].resources.requests[GPU])
            made.remove_pod(gone)
        for at in list(made.pending):
            made.remove_pod(at)
        assert violations(made) == []
