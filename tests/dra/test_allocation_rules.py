"""The rules by which claims get devices, one by one. Each of them with a case in which it decides."""

from __future__ import annotations

from typing import Any

import pytest

from device_allocations import (
    DRIVER,
    NODE,
    allocate,
    allocator,
    cel,
    claim,
    device,
    device_class,
    first_of,
    given,
    request,
    resource_slice,
)
from tonnage.dra.allocated import AllocatedState, DeviceID
from tonnage.dra.allocator import Feasibility
from tonnage.dra.features import Features
from tonnage.dra.pools import NodeView
from tonnage.objects.dra import DeviceTaintRule
from tonnage.objects.dra_versions import from_dict

FITS, NOT, ERROR = Feasibility.ALLOCATED, Feasibility.DOES_NOT_FIT, Feasibility.ERROR


def held(*names: str, pool: str = "s") -> AllocatedState:
    return AllocatedState(DeviceID(DRIVER, pool, name) for name in names)


def plain(*names: str, **fields: Any) -> Any:
    return resource_slice("s", *(device(name, **fields) for name in names))


# ---- counts and modes ----


def test_a_claim_gets_as_many_devices_as_it_asks_for_in_the_order_of_the_slice() -> None:
    found = allocate([plain("b", "a", "c")], claim(request(count=2)))
    assert given(found) == [[("r", "b"), ("r", "a")]]


def test_without_enough_devices_it_gets_none_and_is_told_what_hinders() -> None:
    found = allocate([plain("a", "b")], claim(request(count=2)), state=held("a"))
    assert found.feasibility is NOT
    assert (
        str(found.reasons[0])
        == "claim team/claim, request r: needs 2 of 2 devices, 1 can be allocated: 1 are allocated"
    )
    assert found.reasons[0].thrown_out[0].examples == (f"{DRIVER}/s/a",)


def test_all_means_all_that_match_and_none_may_be_taken() -> None:
    slices = [resource_slice("s", *(device(name, attributes={"kind": name[0]}) for name in ("a1", "b1", "a2")))]
    wanted = claim(request("r", "gpu", "kind=a", allocationMode="All"))
    assert given(allocate(slices, wanted)) == [[("r", "a1"), ("r", "a2")]]
    assert allocate(slices, wanted, state=held("b1")).feasibility is FITS
    assert allocate(slices, wanted, state=held("a2")).feasibility is NOT
    assert allocate(slices, claim(request("r", "gpu", "kind=c", allocationMode="All"))).feasibility is NOT


def test_all_devices_are_not_taken_while_a_pool_is_incomplete() -> None:
    slices = [plain("a"), resource_slice("t", device("b"), count=2)]
    assert allocate(slices, claim(request())).feasibility is FITS
    found = allocate(slices, claim(request(allocationMode="All")))
    assert (found.feasibility, "1 of 2 slices of generation 1" in found.error) == (ERROR, True)


def test_a_claim_has_at_most_32_devices() -> None:
    slices = [plain(*(f"d{at:02}" for at in range(40)))]
    assert len(allocate(slices, claim(request(count=32))).results[0].devices.results) == 32
    assert "asks for 33 devices" in allocate(slices, claim(request("a", count=30), request("b", count=3))).error
    either = claim(request("a", count=30), first_of("b", request("many", count=3), request("few", count=2)))
    assert given(allocate(slices, either))[0][-1][0] == "b/few"


def test_the_first_way_that_can_be_served_is_taken_and_named_in_the_result() -> None:
    slices = [resource_slice("s", device("a", attributes={"kind": "a"}), device("b", attributes={"kind": "b"}))]
    wanted = claim(first_of("r", request("big", "gpu", "kind=c"), request("small", "gpu", "kind=b")))
    assert given(allocate(slices, wanted)) == [[("r/small", "b")]]
    assert "gate DRAPrioritizedList" in allocate(slices, wanted, features=Features(prioritized_list=False)).error


def test_an_earlier_request_gives_up_its_device_for_a_later_one() -> None:
    slices = [resource_slice("s", device("a", attributes={"kind": "a"}), device("b", attributes={"kind": "b"}))]
    found = allocate(slices, claim(request("any")), claim(request("only-a", "gpu", "kind=a"), name="second"))
    assert given(found) == [[("any", "b")], [("only-a", "a")]]


# ---- selectors ----


def test_selectors_of_class_and_request_are_counted_by_what_they_threw_out() -> None:
    slices = [
        resource_slice("s", *(device(n, attributes={"kind": n[0], "mem": n[1]}) for n in ("ax", "ay", "bx", "by")))
    ]
    found = allocate(slices, claim(request("r", "of-a", "mem=z")), classes=[device_class("of-a", "kind=a")])
    thrown = [(one.why, one.devices, one.text, one.from_class) for one in found.reasons[0].thrown_out]
    assert thrown == [("selector", 2, "kind=a", True), ("selector", 2, "mem=z", False)]


def test_a_selector_without_a_value_matters_where_kube_scheduler_would_meet_it() -> None:
    first = resource_slice("s", device("a", attributes={"kind": "a"}), device("b"))
    last = resource_slice("s", device("b"), device("c", attributes={"kind": "a"}))
    wanted = claim(request("r", "gpu", "kind=a"))
    assert given(allocate([first], wanted)) == [[("r", "a")]]
    found = allocate([last], wanted)
    assert found.feasibility is ERROR
    assert found.error == f"request r, selector 0, device {DRIVER}/s/b: CEL runtime error: no such key: kind"
    assert allocate([last], wanted, state=held("b")).feasibility is FITS


def test_a_selector_that_does_not_compile_is_an_error_of_the_class() -> None:
    found = allocate([plain("a")], claim(request()), classes=[device_class("gpu", "")])
    assert found.error == f"DeviceClass gpu, selector 0, device {DRIVER}/s/a: CEL compile error: empty"
    assert "there is no DeviceClass other" in allocate([plain("a")], claim(request("r", "other"))).error


# ---- constraints ----


def rooms(**of: str) -> Any:
    return resource_slice(
        "s", *(device(name, attributes={"numa": value} if value else {}) for name, value in of.items())
    )


@pytest.mark.parametrize(
    ("values", "rule", "expected"),
    [
        ({"a": "0", "b": "1", "c": "1"}, "matchAttribute", ["b", "c"]),
        ({"a": "0", "b": "1", "c": ""}, "matchAttribute", None),
        ({"a": "0", "b": "0", "c": "1"}, "distinctAttribute", ["a", "c"]),
        ({"a": "0", "b": "0", "c": ""}, "distinctAttribute", None),
    ],
)
def test_attributes_that_devices_share_or_do_not(values: dict[str, str], rule: str, expected: list[str] | None) -> None:
    wanted = claim(request(count=2), constraints=[{rule: f"{DRIVER}/numa"}])
    found = allocate([rooms(**values)], wanted)
    assert (found.feasibility is FITS) is (expected is not None)
    assert [name for _, name in given(found)[0]] == expected if expected else not found.results


def test_distinct_means_distinct_from_every_other_device() -> None:
    three = claim(request(count=3), constraints=[{"distinctAttribute": f"{DRIVER}/numa"}])
    assert allocate([rooms(a="0", b="1", c="0")], three).feasibility is NOT
    assert allocate([rooms(a="0", b="1", c="2")], three).feasibility is FITS


def test_lists_match_where_they_overlap_if_the_gate_is_on() -> None:
    slices = [
        resource_slice(
            "s", *(device(n, attributes={"root": {"strings": v}}) for n, v in (("a", ["x", "y"]), ("b", ["y"])))
        )
    ]
    wanted = claim(request(count=2), constraints=[{"matchAttribute": f"{DRIVER}/root"}])
    assert allocate(slices, wanted).feasibility is NOT
    assert allocate(slices, wanted, features=Features(list_type_attributes=True)).feasibility is FITS


# ---- admin access, taints ----


def test_admin_access_goes_beside_whoever_has_the_device_and_holds_nothing() -> None:
    admin = claim(request(adminAccess=True))
    found = allocate([plain("a")], admin, state=held("a"))
    assert found.results[0].devices.results[0].admin_access is True
    state = AllocatedState()
    state.take(found.results[0])
    assert not state.devices
    assert "gate DRAAdminAccess" in allocate([plain("a")], admin, features=Features(admin_access=False)).error


@pytest.mark.parametrize(
    ("taint", "tolerations", "fits"),
    [
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, [], False),
        ({"key": "k", "value": "v", "effect": "None"}, [], True),
        ({"key": "k", "value": "v", "effect": "NoExecute"}, [{"key": "k", "value": "v"}], True),
        ({"key": "k", "value": "v", "effect": "NoExecute"}, [{"key": "k", "value": "w"}], False),
        ({"key": "k", "value": "v", "effect": "NoExecute"}, [{"operator": "Exists", "effect": "NoSchedule"}], False),
    ],
)
def test_taints_keep_off_whoever_does_not_tolerate_them(
    taint: dict[str, str], tolerations: list[dict[str, str]], fits: bool
) -> None:
    slices, wanted = [plain("a", taints=[taint])], claim(request(tolerations=tolerations))
    assert (allocate(slices, wanted).feasibility is FITS) is fits
    assert allocate(slices, wanted, features=Features(device_taints=False)).feasibility is FITS


@pytest.mark.parametrize(
    ("selector", "left"),
    [({"device": "a"}, ["b"]), ({"pool": "s"}, []), ({"driver": "other"}, ["a", "b"]), (None, ["a", "b"])],
)
def test_a_rule_taints_the_devices_that_it_selects(selector: dict[str, str] | None, left: list[str]) -> None:
    spec: dict[str, Any] = {"taint": {"key": "xid", "effect": "NoExecute"}}
    if selector is not None:
        spec["deviceSelector"] = selector
    rule = from_dict({"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", "metadata": {}, "spec": spec})
    assert isinstance(rule, DeviceTaintRule)
    found = allocate([plain("a", "b")], claim(request(count=max(1, len(left)))), taint_rules=[rule])
    assert [name for _, name in given(found)[0]] == left if left else found.feasibility is NOT


# ---- where devices can be reached ----


@pytest.mark.parametrize(
    ("spec", "node", "labels", "reached"),
    [
        ({"nodeName": "node-1"}, "node-1", {}, True),
        ({"nodeName": "node-2"}, "node-1", {}, False),
        ({"allNodes": True}, "node-9", {}, True),
        ({"nodeSelector": ("rack", "r1")}, "node-1", {"rack": "r1"}, True),
        ({"nodeSelector": ("rack", "r1")}, "node-1", {"rack": "r2"}, False),
    ],
)
def test_devices_are_reached_from_the_nodes_that_the_slice_names(
    spec: dict[str, Any], node: str, labels: dict[str, str], reached: bool
) -> None:
    if "nodeSelector" in spec:
        key, value = spec["nodeSelector"]
        term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
        spec = {"nodeSelector": {"nodeSelectorTerms": [term]}}
    found = allocate([resource_slice("s", device("a"), **spec)], claim(request()), node=NodeView(node, labels))
    assert (found.feasibility is FITS) is reached
    if reached:
        selector = found.results[0].node_selector
        kinds = {"nodeName": "match_fields", "nodeSelector": "match_expressions"}
        (kind,) = spec
        if selector is None:
            assert kind == "allNodes"
        else:
            assert getattr(selector.node_selector_terms[0], kinds[kind])


def test_each_device_may_say_itself_where_it_is() -> None:
    slices = [
        resource_slice("s", device("a", nodeName="node-2"), device("b", nodeName="node-1"), perDeviceNodeSelection=True)
    ]
    assert given(allocate(slices, claim(request()))) == [[("r", "b")]]
    assert allocate(slices, claim(request()), features=Features(partitionable_devices=False)).feasibility is NOT


def test_of_a_pool_the_newest_generation_counts() -> None:
    old, new = resource_slice("old", device("a"), pool="p"), resource_slice("new", device("b"), pool="p", generation=2)
    assert given(allocate([new, old], claim(request()))) == [[("r", "b")]]
    elsewhere = resource_slice("new", device("b"), pool="p", generation=2, nodeName="node-2")
    assert given(allocate([old, elsewhere], claim(request()))) == [[("r", "a")]], (
        "the node sees one complete generation"
    )
    two = resource_slice("old", device("a"), pool="p", count=2)
    assert allocate([two, elsewhere], claim(request())).feasibility is NOT, "it is being replaced"


def test_a_pool_with_a_name_twice_is_invalid_and_said_to_be() -> None:
    found = allocate([plain("a", "a")], claim(request()))
    assert (found.feasibility, found.pools) == (NOT, (f"pool {DRIVER}/s has the device a twice",))


# ---- partitions and shares ----


def gpu(number: int, *parts: tuple[str, int], room: int = 4) -> list[dict[str, Any]]:
    return [device(f"gpu{number}-{name}", counters={f"gpu{number}": {"slices": size}}) for name, size in parts]


def parted(*gpus: list[dict[str, Any]], room: int = 4) -> list[Any]:
    sets = {f"gpu{number}": {"slices": room} for number in range(len(gpus))}
    parts = [one for each in gpus for one in each]
    return [
        resource_slice("sets", counters=sets, pool="p", count=2),
        resource_slice("parts", *parts, pool="p", count=2),
    ]


def test_partitions_of_a_gpu_share_its_counters() -> None:
    slices = parted(gpu(0, ("half-0", 2), ("half-1", 2), ("whole", 4)))
    assert allocate(slices, claim(request(count=2))).feasibility is FITS
    assert allocate(slices, claim(request(count=3))).feasibility is NOT
    found = allocate(slices, claim(request()), state=held("gpu0-half-0", "gpu0-half-1", pool="p"))
    assert [(one.why, one.devices) for one in found.reasons[0].thrown_out] == [("counters", 1), ("held", 2)]


def test_a_small_partition_goes_where_it_takes_least_from_others() -> None:
    slices = parted(
        gpu(0, ("half-0", 2), ("half-1", 2), ("whole", 4)), gpu(1, ("half-0", 2), ("half-1", 2), ("whole", 4))
    )
    state = held("gpu1-half-0", pool="p")
    assert given(allocate(slices, claim(request()), state=state)) == [[("r", "gpu1-half-1")]], "gpu0 stays whole"
    assert given(allocate(slices, claim(request(count=2)), state=state))[0][0] == ("r", "gpu1-half-1")


def test_a_pool_without_a_counter_that_its_device_takes_is_invalid() -> None:
    slices = [*parted([]), resource_slice("x", *gpu(7, ("a", 1)), pool="p", count=3)]
    slices = [
        resource_slice("sets", counters={"gpu0": {"slices": 1}}, pool="p", count=2),
        resource_slice("x", *gpu(7, ("a", 1)), pool="p", count=2),
    ]
    found = allocate(slices, claim(request()))
    assert "of the counter set gpu7, which it has not" in found.pools[0]


POLICY = {
    "value": "40Gi",
    "requestPolicy": {"default": "4Gi", "validRange": {"min": "2Gi", "step": "2Gi", "max": "32Gi"}},
}


@pytest.mark.parametrize(
    ("asked", "takes"), [(None, "4Gi"), ("1Gi", "2Gi"), ("3Gi", "4Gi"), ("32Gi", "32Gi"), ("33Gi", None)]
)
def test_shares_are_rounded_as_the_policy_says(asked: str | None, takes: str | None) -> None:
    slices = [plain("a", capacity={"memory": POLICY}, allowMultipleAllocations=True)]
    fields: dict[str, Any] = {"capacity": {"requests": {"memory": asked}}} if asked else {}
    found = allocate(slices, claim(request(**fields)))
    assert (found.feasibility is FITS) is (takes is not None)
    if takes:
        (one,) = found.results[0].devices.results
        assert one.consumed_capacity == {"memory": takes}
        assert one.share_id


def test_shares_of_a_device_add_up_to_what_it_has_and_are_given_back() -> None:
    slices = [plain("a", capacity={"memory": "40Gi"}, allowMultipleAllocations=True)]
    made, state, results = allocator(slices), AllocatedState(), []
    for number in range(3):
        one = claim(request(capacity={"requests": {"memory": "16Gi"}}), name=f"c{number}")
        found = made.allocate([one], NODE, state)
        assert (found.feasibility is FITS) is (number < 2)
        for result in found.results:
            state.take(result)
            results.append(result)
    for result in results:
        state.release(result)
    assert (state.consumed, state.shares) == ({}, set())
    whole = allocate(slices, claim(request(), request("s", capacity={"requests": {"memory": "1"}})))
    assert whole.feasibility is NOT, "a request without an amount takes all of it"
    assert (
        "gate DRAConsumableCapacity"
        in allocate(
            slices, claim(request(capacity={"requests": {"memory": "1"}})), features=Features(consumable_capacity=False)
        ).error
    )


def test_one_request_gets_one_share_of_a_device() -> None:
    slices = [plain("a", capacity={"memory": "8"}, allowMultipleAllocations=True)]
    small: dict[str, Any] = {"capacity": {"requests": {"memory": "1"}}}
    assert allocate(slices, claim(request(count=2, **small))).feasibility is NOT
    assert allocate(slices, claim(request("a", **small), request("b", **small))).feasibility is FITS


# ---- what goes into the status ----


def test_the_result_carries_conditions_tolerations_and_configuration() -> None:
    slices = [plain("a", bindingConditions=["Ready"], bindingFailureConditions=["Failed"])]
    of_class = device_class("gpu", config=[{"opaque": {"driver": DRIVER, "parameters": {"x": 1}}}])
    wanted = claim(
        request(tolerations=[{"key": "k", "operator": "Exists"}]),
        request("other", "gpu", adminAccess=True),
        config=[{"requests": ["other"], "opaque": {"driver": DRIVER, "parameters": {"x": 2}}}],
    )
    found = allocate([*slices, resource_slice("t", device("b"))], wanted, classes=[of_class])
    first, second = found.results[0].devices.results
    assert (first.device, second.device) == ("b", "a"), "what waits for conditions comes last"
    assert (second.binding_conditions, second.binding_failure_conditions) == (["Ready"], ["Failed"])
    assert first.tolerations[0].operator == "Exists"
    configs = [
        (one.source, one.requests, one.opaque.parameters["x"]) for one in found.results[0].devices.config if one.opaque
    ]
    assert configs == [("FromClass", ["r", "other"], 1), ("FromClaim", ["other"], 2)]
    off = Features(device_binding_conditions=False)
    assert allocate(slices, claim(request()), features=off).reasons[0].thrown_out[0].why == "gate"


# ---- the search ----


def test_a_claim_of_32_requests_without_solution_is_answered_by_counting() -> None:
    slices = [plain(*(f"d{at:02}" for at in range(31)))]
    found = allocate(slices, claim(*(request(f"r{at}") for at in range(32))))
    assert found.feasibility is NOT
    assert found.steps < 2_000


def test_equal_gpus_are_tried_once() -> None:
    parts = (*((f"q{at}", 1) for at in range(4)), ("half", 2))
    slices = parted(*(gpu(number, *parts) for number in range(8)))
    wanted = claim(*(request(f"r{at}") for at in range(32)), constraints=[{"matchAttribute": "x/y"}])
    assert allocate(slices, wanted).feasibility is NOT
    thirty_two = claim(*(request(f"r{at}") for at in range(32)))
    assert allocate(slices, thirty_two, state=held("gpu3-half", pool="p")).feasibility is NOT, "30 quarters are left"


def test_at_its_limit_the_search_says_that_nothing_is_decided() -> None:
    values = {f"d{at:02}": str(at % 7) for at in range(28)}
    wanted = claim(
        *(request(f"r{at}") for at in range(20)),
        constraints=[
            {"matchAttribute": f"{DRIVER}/numa", "requests": [f"r{at}", f"r{at + 1}"]} for at in range(0, 20, 2)
        ]
        + [{"distinctAttribute": f"{DRIVER}/numa", "requests": [f"r{at}" for at in range(0, 20, 2)]}],
    )
    found = allocate([rooms(**values)], wanted, steps=60)
    assert found.feasibility is Feasibility.NOT_DECIDED
    assert not found.results


def test_selectors_as_they_are_written() -> None:
    assert cel("a") == [{"cel": {"expression": "a"}}]
