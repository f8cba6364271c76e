"""Another look at pods that are left over: others are placed elsewhere for them, then other policies are tried."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from builders import GPU, HOSTNAME, affinity_term, apply, away, expression, fleet, near, node, pod
from gang_builders import gang, members
from preemption_builders import cluster
from random_queues import binds, check_no_policy_seats_more, random_queue, seated
from tonnage.decisions import Bind, Wait
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet, FleetNode, FleetPod
from tonnage.scheduling import looks, place
from tonnage.scheduling.queue import Queue
from tonnage.scheduling.turns import Turns

MODEL = "nvidia.com/gpu.product"
PREFERS_H100 = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "preference": {"matchExpressions": [expression(MODEL, "In", "H100")]}}
        ]
    }
}


def decided(made: Fleet, settings: place.Settings = place.DEFAULTS) -> dict[str, str]:
    """Pod → node."""
    return {one.pod.name: one.node.name for one in binds(place.decide(Snapshot(0, made), settings))}


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The policies under which everybody had a turn."""
    policies: list[str] = []
    take = Turns.take
    monkeypatch.setattr(Turns, "take", lambda self: policies.append(self._how.policy) or take(self))  # type: ignore[func-returns-value]
    yield policies


def scarce(*, gpus: int = 1, **fields: Any) -> Fleet:
    """Two nodes of two models. ``any`` came first, may stand on both and would rather stand on an H100; ``tied`` has to
    stand there."""
    made = Fleet()
    made.add_node(node("a", gpus=gpus, labels={MODEL: "H100"}))
    made.add_node(node("b", gpus=gpus, labels={MODEL: "L40S"}))
    affinity = fields.pop("affinity", {}) | PREFERS_H100
    made.add_pod(pod("any", gpus=gpus, created_ns=1, affinity=affinity, **fields))
    made.add_pod(pod("tied", gpus=gpus, created_ns=2, nodeSelector={MODEL: "H100"}))
    return made


@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_a_pod_that_may_go_anywhere_makes_way_for_one_that_may_not(gpus: int, tried: list[str]) -> None:
    made = scarce(gpus=gpus)
    assert len(decided(made, place.Settings(look_again=False))) == 1
    tried.clear()
    assert decided(made) == {"any": "b", "tied": "a"}
    assert tried == ["tonnage"], "one look is enough where an exchange places all"


def test_a_share_makes_way_for_a_whole_gpu() -> None:
    made = fleet(
        node("a", gpus=1, labels={MODEL: "H100"}), node("b", gpus=1, labels={MODEL: "L40S"}),
        pods=[pod("share", annotations={"gpu-fraction": "0.3"}, created_ns=1)],
    )  # fmt: skip
    (where,) = decided(made).values()
    made.add_pod(pod("whole", gpus=1, created_ns=2, nodeSelector={MODEL: {"a": "H100", "b": "L40S"}[where]}))
    assert decided(made) == {"whole": where, "share": {"a": "b", "b": "a"}[where]}


def test_cores_make_way_as_gpus_do() -> None:
    made = fleet(
        node("a", cpu=8, labels={"disk": "ssd"}), node("b", cpu=8, labels={"disk": "hdd"}),
        pods=[pod(f"any-{i}", cpu=2, created_ns=i) for i in range(4)],
    )  # fmt: skip
    taken = decided(made)
    (where,) = set(taken.values())
    disk = {"a": "ssd", "b": "hdd"}[where]
    made.add_pod(pod("tied", cpu=6, created_ns=9, nodeSelector={"disk": disk}))
    assert len(decided(made)) == 5


def test_the_receipts_say_who_went_and_for_whom() -> None:
    told = {one.pod.name: one.reason for one in binds(place.decide(Snapshot(0, scarce())))}
    assert told["any"].verdict == "placed elsewhere, so that another pod fits too"
    assert dict(told["any"].evidence)["for"] == "tied"
    assert dict(told["tied"].evidence)["moved"] == 1


def test_the_receipts_name_the_policy_that_seated_most() -> None:
    named = set()
    for seed in range(12):
        made = random_queue(seed)
        for one in binds(place.decide(Snapshot(0, made))):
            named.add(dict(one.reason.evidence).get("policy"))
    assert None in named and named <= {None, *looks.OTHERS} and len(named) > 1


@pytest.mark.parametrize(
    "company",
    [
        {"labels": {"app": "x"}, "affinity": away(affinity_term(HOSTNAME, app="x"))},
        {"labels": {"app": "lead"}},
    ],
    ids=["rules of its own", "others want to stand near it"],
)
def test_who_stands_where_others_mind_stays(company: dict[str, object]) -> None:
    made = scarce(**company)
    made.add_pod(
        pod("follower", cpu=0.1, created_ns=3, affinity=near(affinity_term(HOSTNAME, app="lead")), labels={"app": "f"})
    )
    found = binds(place.decide(Snapshot(0, made)))
    assert all("elsewhere" not in one.reason.verdict for one in found)


def test_pods_of_earlier_decisions_stay() -> None:
    made = scarce()
    first = next(one for one in binds(place.decide(Snapshot(0, made), place.Settings(look_again=False))))
    made.bind(made.pod_by_key["default", "any"], made.node_by_name[first.node.name])
    assert decided(made) == {}


def test_a_policy_that_is_named_is_that_policy_alone(tried: list[str]) -> None:
    made = random_queue(3)
    for policy in ("spread", "fgd", "binpack", "bestfit"):
        decided(made, place.Settings(policy))
    assert tried == ["spread", "fgd", "binpack", "bestfit"]


# ---- when it is of use ----


def crowd(nodes: int = 1, waiting: int = 300) -> Fleet:
    """Full nodes, one small node that is free, and many pods that fit nowhere."""
    made = Fleet()
    for i in range(nodes):
        made.bind(made.add_pod(pod(f"there-{i}", gpus=8)), made.add_node(node(f"full-{i}", gpus=8)))
    made.add_node(node("small", cpu=1))
    for i in range(waiting):
        made.add_pod(pod(f"w{i:04d}", gpus=1 + i % 8, created_ns=i))
    return made


def test_pods_that_fit_nowhere_are_not_tried_again(tried: list[str]) -> None:
    made = crowd()
    assert decided(made) == {}
    made.add_pod(pod("fits", cpu=1))
    assert decided(made) == {"fits": "small"}
    assert tried == ["tonnage", "tonnage"]


def test_pods_that_wait_for_company_that_is_not_there_are_not_tried_again(tried: list[str]) -> None:
    made = fleet(node("a", gpus=1), pods=[pod("fits", gpus=1)])
    for i in range(20):
        made.add_pod(pod(f"alone-{i}", affinity=near(affinity_term(HOSTNAME, app="nobody")), created_ns=i))
    assert decided(made) == {"fits": "a"}
    assert tried == ["tonnage"]


def test_a_gang_that_has_no_room_to_begin_with_is_not_tried_again(tried: list[str]) -> None:
    made = cluster(node("a", gpus=4), pods=[pod("fits", gpus=1), *members(8)], gangs=[gang(8)])
    assert [one.pod.name for one in binds(place.decide(made.snapshot))] == ["fits"]
    assert tried == ["tonnage"]


@pytest.mark.parametrize(
    ("nodes", "fields", "others"),
    [
        (1, {"gpus": 1}, 0),
        (1, {"cpu": 5, "gpus": 1}, 0),
        (2, {"gpus": 1}, 3),
        (1, {"annotations": {"gpu-fraction": "0.6"}}, 3),  # which device is shared is a choice
    ],
)
def test_where_each_pod_fitted_on_one_node_only_no_other_policy_is_tried(
    nodes: int, fields: dict[str, Any], others: int, tried: list[str]
) -> None:
    made = fleet(*(node(f"n{i}", gpus=1) for i in range(nodes)), node("full", gpus=0, cpu=0))
    for i in range(nodes + 1):
        made.add_pod(pod(f"p{i}", created_ns=i, **fields))
    assert len(decided(made)) == nodes
    assert len(tried) == 1 + others


def test_what_is_decided_where_one_pod_went_is_what_all_policies_tried_would_decide(
    monkeypatch: pytest.MonkeyPatch, tried: list[str]
) -> None:
    short, whole = 0, 0
    for seed in range(40, 52):
        made = random_queue(seed, rules=seed % 3 == 1, priorities=seed % 3 == 2)
        apply(made, place.decide(Snapshot(0, made), place.Settings("binpack")))
        bound = sorted(row for row, one in enumerate(made.pods) if one is not None and one.node >= 0)
        made.remove_pod(bound[seed % len(bound)])
        before = len(tried)
        first = place.decide(Snapshot(0, made), cache=place.Cache(made))
        short += len(tried) - before
        with monkeypatch.context() as old:
            old.setattr(Turns, "chose", property(lambda self: bool(self._own)))
            before = len(tried)
            assert place.decide(Snapshot(0, made), cache=place.Cache(made)) == first
            whole += len(tried) - before
    assert short < whole


def test_a_queue_that_asks_the_first_of_equal_pods_decides_the_same() -> None:
    for seed in range(8):
        made = random_queue(seed, rules=seed % 2 == 1)
        snapshot = Snapshot(0, made)
        told = Queue().decide(snapshot, place.Cache(made))
        whole = place.decide(snapshot, cache=place.Cache(made))
        assert {(one.pod.name, one.node.name, one.devices) for one in binds(told)} == {
            (one.pod.name, one.node.name, one.devices) for one in binds(whole)
        }


def test_decisions_are_the_same_each_time_and_change_nothing() -> None:
    for seed in range(4):
        made = random_queue(seed, rules=True, priorities=True)
        before, cache = made.free.tolist(), place.Cache(made)
        first = place.decide(Snapshot(0, made), cache=cache)
        assert place.decide(Snapshot(0, made), cache=cache) == first
        assert made.free.tolist() == before and len(made.pending) == len(first) - sum(
            not isinstance(one, Bind | Wait) for one in first
        )


# ---- never fewer ----


def test_no_other_policy_seats_more_gpus_or_then_more_pods() -> None:
    assert sum(check_no_policy_seats_more(random_queue(seed)) for seed in range(12)) >= 2


def test_nor_with_rules_about_others_or_from_the_highest_priority_down() -> None:
    for seed in range(100, 104):
        check_no_policy_seats_more(random_queue(seed, rules=True))
        check_no_policy_seats_more(random_queue(seed, priorities=True))


def test_nor_where_memory_is_asked_for_of_gpus_of_two_sizes() -> None:
    check_no_policy_seats_more(random_queue(16, memory=True))


def mixed(name: str, **kinds: int) -> list[FleetPod]:
    """Pods of this many GPUs each (``g4=2``: two of four GPUs), in this order."""
    sizes = [int(kind[1:]) for kind, count in kinds.items() for _ in range(count)]
    return [pod(f"{name}{i}", gpus=size, created_ns=i) for i, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("nodes", "pods"),
    [
        ([node("a", gpus=8, cpu=64), node("b", gpus=4, cpu=64)], mixed("p", g4=1, g8=1)),
        ([node(name, gpus=4, cpu=64) for name in "abc"], mixed("p", g1=4, g4=2)),
        ([node("a", gpus=8, cpu=9), node("b", gpus=8, cpu=64)], mixed("p", g1=8, g8=1)),
    ],
    ids=["a smaller node for the smaller pod", "singles on one node", "the node with fewer cores"],
)
def test_what_fits_is_seated(nodes: list[FleetNode], pods: list[FleetPod]) -> None:
    made = fleet(*nodes, pods=pods)
    ((_, milli, count),) = seated(made, place.DEFAULTS)
    asked = sum(int(one.spec.containers[0].resources.requests[GPU]) for one in pods)
    assert (milli, count) == (1000 * asked, len(pods))
