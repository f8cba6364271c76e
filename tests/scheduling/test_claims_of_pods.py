"""Pods with ResourceClaims: placed where all of their claims can be had, with the devices that they get."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

import gang_builders
from builders import decide, placed, verdict
from claim_builders import (
    NAMESPACE,
    add,
    bind_all,
    commit,
    devices,
    fleet_of,
    gpus,
    of_kind,
    own,
    partitioned,
    see_claim,
    sharing,
)
from deep_seeds import part
from device_allocations import request
from preemption_builders import Cluster, nominated, victims
from tonnage import gate
from tonnage.decisions import Bind, Evict, Refused, Stale, Wait
from tonnage.fleet.cluster_state import State
from tonnage.fleet.device_claims import CANNOT_ALLOCATE, IN_USE, NOT_AVAILABLE
from tonnage.fleet.invariants import violations
from tonnage.fleet.snapshot import PodLife
from tonnage.fleet.state import Fleet
from tonnage.objects.base import ObjectMeta
from tonnage.objects.dra import MOST_CONSUMERS


def test_a_pod_goes_to_the_node_whose_devices_its_claim_selects() -> None:
    made = fleet_of("plain", "with-gpus", slices=[gpus("with-gpus")])
    add(made, own(made, "a"))
    (bind,) = decide(made)
    assert isinstance(bind, Bind) and bind.node.name == "with-gpus"
    (given,) = bind.claims
    assert (given.claim.name, given.claim.uid) == ("a-claim", "uid-a-claim")
    assert [(one.pool, one.device) for one in given.allocation.devices.results] == [("with-gpus", "gpu-0")]


def test_two_pods_do_not_get_one_device_and_the_third_waits() -> None:
    made = fleet_of("n", slices=[gpus("n", 2)])
    add(made, *(own(made, name) for name in "abc"))
    decisions = decide(made)
    bind_all(made, decisions)
    assert devices(made) == {"a-claim": ["gpu-0"], "b-claim": ["gpu-1"]}
    (wait,) = (one for one in decisions if isinstance(one, Wait))
    assert (wait.pod.name, wait.reason.verdict) == ("c", f"0/1 nodes are available: 1 {CANNOT_ALLOCATE}")


def test_all_claims_of_a_pod_are_allocated_or_none() -> None:
    made = fleet_of("n", slices=[gpus("n", 2)])
    see_claim(made, "one")
    see_claim(made, "two", request(count=2))
    add(made, sharing(made, "a", "one", "two"))
    assert CANNOT_ALLOCATE in verdict(made, "a")
    assert devices(made) == {}


def test_claims_of_one_name_in_two_namespaces_are_two() -> None:
    made = fleet_of("n", slices=[gpus("n", 2)])
    see_claim(made, "mine")
    known = made.device_claims
    other = msgspec.structs.replace(known.claims[NAMESPACE, "mine"], metadata=ObjectMeta(name="mine", namespace="else"))
    known.see(other)
    here = sharing(made, "a", "mine")
    need = known.need("else", "a", "uid", here.spec)
    add(made, here, replace(here, namespace="else", uid="uid-else", claims=need))
    bind_all(made, decide(made))
    given = [known.allocation_of((space, "mine")) for space in (NAMESPACE, "else")]
    found = {one.device for each in given if each is not None for one in each.devices.results}
    assert found == {"gpu-0", "gpu-1"}


def test_what_a_decision_allocates_is_gone_with_it() -> None:
    made = fleet_of("n", slices=[gpus("n")])
    add(made, own(made, "a"), own(made, "b"))
    first = decide(made)
    assert devices(made) == {}
    assert decide(made) == first


def test_a_claim_that_pods_share_is_allocated_once_and_they_stand_together() -> None:
    made = fleet_of("m", "n", slices=[gpus("m", 1), gpus("n", 1)])
    see_claim(made, "both")
    add(made, sharing(made, "a", "both"), sharing(made, "b", "both"), own(made, "c"))
    decisions = decide(made)
    where = {one.pod.name: one.node.name for one in decisions if isinstance(one, Bind)}
    assert where["a"] == where["b"] != where["c"]
    bind_all(made, decisions)
    assert len(devices(made)["both"]) == 1


def test_an_allocated_claim_pins_its_pods_to_where_it_is() -> None:
    made = fleet_of("m", "n", slices=[gpus("m"), gpus("n")])
    see_claim(made, "there")
    add(made, sharing(made, "a", "there", nodeSelector={"kubernetes.io/hostname": "n"}))
    bind_all(made, decide(made))
    commit(made, "a")
    add(made, sharing(made, "b", "there"), sharing(made, "c", "there", nodeSelector={"kubernetes.io/hostname": "m"}))
    assert placed(made) == {"b": "n"}
    assert NOT_AVAILABLE in verdict(made, "c")


def test_no_more_pods_than_kubernetes_allows_use_one_claim() -> None:
    made = fleet_of("n", slices=[gpus("n")])
    see_claim(made, "all")
    for number in range(MOST_CONSUMERS + 1):
        add(made, sharing(made, f"p{number:03}", "all", cpu=0.001, memory_gib=0.001))
    bind_all(made, decide(made))
    assert verdict(made, f"p{MOST_CONSUMERS}") == f"0/1 nodes are available: 1 {IN_USE}"


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        ({}, 'pod "team/a": ResourceClaim not created yet'),
        ({"gpu": "nowhere"}, 'resourceclaim.resource.k8s.io "nowhere" not found'),
    ],
)
def test_a_claim_that_is_not_there_is_waited_for(claims: dict[str, str], says: str) -> None:
    made = fleet_of("n", slices=[gpus("n")])
    one = own(made, "a")
    made.device_claims.note_pod(NAMESPACE, "a", [{"name": n, "resourceClaimName": c} for n, c in claims.items()])
    need = made.device_claims.need(NAMESPACE, "a", one.uid, one.spec)
    add(made, replace(one, claims=need))
    assert verdict(made, "a") == f"0/1 nodes are available: {says}"


def test_a_template_that_asks_for_nothing_holds_nobody_back() -> None:
    made = fleet_of("n")
    one = own(made, "a")
    made.device_claims.note_pod(NAMESPACE, "a", [{"name": "gpu", "resourceClaimName": None}])
    add(made, replace(one, claims=made.device_claims.need(NAMESPACE, "a", one.uid, one.spec)))
    assert placed(made) == {"a": "n"}


def test_a_gang_gets_all_of_its_devices_or_none_of_its_pods_is_bound() -> None:
    made = fleet_of("m", "n", slices=[gpus("m", 2), gpus("n", 1)])
    for count, expected in ((4, 0), (3, 3)):
        members = [own(made, f"g{count}-{n}") for n in range(count)]
        add(made, *(replace(one, gang=f"team/g{count}") for one in members))
        known = gang_builders.gang(count, key=f"team/g{count}")
        decisions = gang_builders.decide(made, known)
        assert sum(isinstance(one, Bind) for one in decisions) == expected
        assert devices(made) == {}
        for one in members:
            made.remove_pod(made.pod_by_key[NAMESPACE, one.name])


def test_a_pod_of_higher_priority_takes_the_devices_of_others() -> None:
    made = fleet_of("n", slices=partitioned("n"))
    for name in ("a", "b"):
        add(made, own(made, name, of_kind("part")))
    bind_all(made, decide(made))
    for name in ("a", "b"):
        commit(made, name)
    add(made, own(made, "high", of_kind("whole"), priority=100))
    cluster = Cluster(made)
    decisions = cluster.decide()
    assert victims(decisions) == {"a", "b"}
    assert nominated(decisions) == {"high": "n"}
    assert violations(made) == []


def test_the_gate_refuses_a_bind_whose_devices_somebody_has_meanwhile() -> None:
    made = fleet_of("n", slices=[gpus("n", 1)])
    add(made, own(made, "a"))
    (bind,) = decide(made)
    assert isinstance(bind, Bind)
    add(made, own(made, "b"))
    row = made.pod_by_key[NAMESPACE, "b"]
    made.bind(row, 0)
    found = _check(made, bind)
    assert isinstance(found, Stale)
    assert "gpu-0 of claim team/a-claim is allocated" in found.changed


def test_a_bind_without_the_allocation_that_it_needs_does_not_hold() -> None:
    made = fleet_of("n", slices=[gpus("n", 1)])
    add(made, own(made, "a"))
    (bind,) = decide(made)
    assert isinstance(bind, Bind)
    found = _check(made, Bind(bind.pod, bind.node, bind.reason))
    assert found == Stale("resourceclaim team/a-claim has no devices any more")


def test_a_claim_made_anew_is_not_the_one_that_was_decided_about() -> None:
    made = fleet_of("n", slices=[gpus("n", 1)])
    add(made, own(made, "a"))
    (bind,) = decide(made)
    one = made.device_claims.claims[NAMESPACE, "a-claim"]
    made.device_claims.forget(one)
    assert _check(made, bind) == Stale("ResourceClaim team/a-claim is gone")


def test_pods_of_a_template_are_one_class_and_those_with_a_claim_of_their_name_are_not() -> None:
    made = fleet_of("n", slices=[gpus("n")])
    add(made, own(made, "a"), own(made, "b"))
    see_claim(made, "x")
    see_claim(made, "y")
    add(made, sharing(made, "c", "x"), sharing(made, "d", "y"))
    a, b, c, d = (made.pod(made.pod_by_key[NAMESPACE, name]).class_id for name in "abcd")
    assert a == b
    assert len({a, c, d}) == 3


@pytest.mark.parametrize("seed", part(range(12)))
def test_random_steps_undo_exactly_and_hold_what_a_rebuild_holds(seed: int) -> None:
    random = Random(seed)
    made = fleet_of("m", "n", slices=[*partitioned("m", 2), gpus("n", 3, attributes={"kind": "whole"})])
    for number in range(4):
        see_claim(made, f"shared-{number}", of_kind(random.choice(("part", "whole"))))
    for number in range(12):
        one = (
            own(made, f"p{number}", of_kind(random.choice(("part", "whole"))))
            if random.random() < 0.6
            else sharing(made, f"p{number}", *random.sample([f"shared-{n}" for n in range(4)], random.choice((1, 2))))
        )
        add(made, replace(one, priority=random.choice((0, 0, 10))))
    for _ in range(25):
        before = _held(made)
        with made.what_if():
            for _ in range(random.randint(1, 6)):
                _step(made, random)
                assert violations(made) == []
        assert _held(made) == before
        _step(made, random)
        assert violations(made) == []


def _check(made: Fleet, bind: Bind) -> Stale | Refused | None:
    """What the gate says in a world that knows of this fleet alone."""
    return gate.check(cast(State, SimpleNamespace(fleet=made, life=lambda key: PodLife())), bind)


def _held(made: Fleet) -> object:
    known = made.device_claims
    users = {key: known.users(key) for key in known.claims}
    return devices(made), users, set(known.state.devices), set(known.state.shares), sorted(made.pending)


def _step(made: Fleet, random: Random) -> None:
    bound = [row for row, one in enumerate(made.pods) if one is not None and one.node >= 0]
    if bound and random.random() < 0.4:
        made.unbind(random.choice(bound))
        return
    decisions = [one for one in decide(made, preemption=False) if isinstance(one, Bind)]
    if decisions:
        bind_all(made, [random.choice(decisions)] if not decisions[0].claims else decisions[:1])


def test_nobody_is_evicted_for_devices_that_would_not_do_anyway() -> None:
    made = fleet_of("n", slices=[gpus("n", 1)])
    add(made, own(made, "a"))
    bind_all(made, decide(made))
    commit(made, "a")
    add(made, own(made, "high", request(count=2), priority=100))
    assert not any(isinstance(one, Evict) for one in Cluster(made).decide())
