"""Whose room a pod takes that fits nowhere. The rules of kube-scheduler are those of its DefaultPreemption (v1.36)."""

from __future__ import annotations

import pytest

from builders import GPU, HOSTNAME, affinity_term, away, decide, node, pod
from gang_builders import gang
from preemption_builders import Cluster, budget, cluster, nominated, victims, web
from tonnage.decisions import Bind, Evict, Wait
from tonnage.fleet.snapshot import PodLife
from tonnage.fleet.state import FleetPod
from tonnage.objects.policy import PodDisruptionBudget
from tonnage.scheduling.why.receipt import PodReceipt, why


def wanting(gpus: int = 4, priority: int = 100, **fields: object) -> FleetPod:
    """A pod that waits."""
    return pod("wanting", gpus=gpus, priority=priority, **fields)


def full(*pods_by_node: list[FleetPod], waiting: FleetPod | None = None, **fields: object) -> Cluster:
    """Nodes a, b, … of 4 GPUs with these pods, and one pod that waits for 4."""
    names = [chr(ord("a") + i) for i in range(len(pods_by_node))]
    nodes = [node(name, gpus=4) for name in names]
    bound = dict(zip(names, pods_by_node, strict=True))
    return cluster(*nodes, bound=bound, pods=[waiting or wanting()], **fields)  # type: ignore[arg-type]


def started(**seconds: int) -> dict[str, PodLife]:
    return {f"default/{name}": PodLife(started_ns=at * 10**9) for name, at in seconds.items()}


# ---- which node ----


def test_the_node_with_fewest_broken_budgets_comes_first() -> None:
    made = full(
        [web("w1", gpus=2), web("w2", gpus=2)],
        [pod("x", gpus=4, priority=50)],
        budgets=(budget(min_available=1),),
    )
    assert nominated(made.decide(respect_budgets=False)) == {"wanting": "b"}


def test_then_the_node_whose_most_important_victim_has_the_lowest_priority() -> None:
    made = full(
        [pod("a1", gpus=2, priority=5), pod("a2", gpus=2)], [pod(f"b{i}", gpus=1, priority=4) for i in range(4)]
    )
    assert nominated(made.decide()) == {"wanting": "b"}


def test_then_the_node_with_the_smallest_sum_of_priorities() -> None:
    made = full(
        [pod("a1", gpus=2, priority=5), pod("a2", gpus=2, priority=4)],
        [pod("b1", gpus=2, priority=5), pod("b2", gpus=2, priority=3)],
    )
    assert nominated(made.decide()) == {"wanting": "b"}


def test_fewer_victims_of_negative_priority_are_never_dearer() -> None:
    made = full([pod(f"a{i}", gpus=2, priority=-9) for i in range(2)], [pod("b", gpus=4, priority=-9)])
    assert victims(made.decide()) == {"b"}


def test_then_the_node_with_fewest_victims() -> None:
    made = full([pod(f"a{i}", gpus=1) for i in range(4)], [pod(f"b{i}", gpus=2) for i in range(2)])
    assert nominated(made.decide()) == {"wanting": "b"}


def test_then_the_node_whose_victims_started_last() -> None:
    made = full([pod("a", gpus=4)], [pod("b", gpus=4)], [pod("c", gpus=4)], lives=started(a=5, b=9, c=7))
    assert victims(made.decide()) == {"b"}


def test_a_victim_whose_work_is_saved_is_cheaper_than_one_that_started_later() -> None:
    lives = started(a=5, b=9)
    lives["default/a"] = PodLife(started_ns=5 * 10**9, saved_ns=20 * 10**9)
    made = full([pod("a", gpus=4)], [pod("b", gpus=4)], lives=lives)
    assert victims(made.decide()) == {"a"}


def test_last_the_earlier_name() -> None:
    assert victims(full([pod("a", gpus=4)], [pod("b", gpus=4)]).decide()) == {"a"}


# ---- which pods on a node ----


def test_the_less_important_go_and_the_others_stay() -> None:
    made = full(
        [pod("low", gpus=1), pod("mid", gpus=2, priority=5), pod("high", gpus=1, priority=9)], waiting=wanting(2)
    )
    assert victims(made.decide()) == {"mid"}  # low alone is not enough, and is not needed beside mid


def test_one_large_victim_goes_rather_than_several_small_ones_of_its_priority() -> None:
    made = cluster(
        node("a", gpus=8),
        bound={"a": [pod("large", gpus=4), *(pod(f"s{i}", gpus=1) for i in range(4))]},
        pods=[wanting()],
    )
    assert victims(made.decide()) == {"large"}


@pytest.mark.parametrize("count", [8, 16], ids=["all subsets weighed", "given back one by one"])
def test_nobody_goes_who_need_not(count: int) -> None:
    pods = [pod(f"p{i:02}", gpus=1, priority=i) for i in range(count)]
    made = cluster(node("a", cpu=64, gpus=count), bound={"a": pods}, pods=[wanting(3)])
    assert victims(made.decide()) == {"p00", "p01", "p02"}


def test_victims_must_help_with_what_is_asked_for() -> None:
    made = full([pod("cpu", cpu=6, priority=0), pod("gpu", cpu=1, gpus=4, priority=50)])
    assert victims(made.decide()) == {"gpu"}


@pytest.mark.report(124)
def test_victims_on_nodes_with_other_devices_are_left_alone() -> None:
    mig = "nvidia.com/mig-3g.40gb"
    made = cluster(
        node("a", gpus=4),
        node("b", resources={mig: 2}, device_resource=mig),
        bound={"a": [pod("whole", gpus=4, priority=50)], "b": [pod("sliced", resources={mig: "2"})]},
        pods=[wanting()],
    )
    assert victims(made.decide()) == {"whole"}


def test_a_pod_that_keeps_another_away_goes_whatever_it_holds() -> None:
    made = cluster(
        node("a", gpus=4),
        bound={"a": [pod("x", labels={"app": "x"}), pod("y", labels={"app": "y"})]},
        pods=[wanting(affinity=away(affinity_term(HOSTNAME, app="x")))],
    )
    assert victims(made.decide()) == {"x"}


# ---- who preempts whom ----


def test_equal_priority_is_no_reason_to_evict() -> None:
    decisions = full([pod("a", gpus=4, priority=100)]).decide()
    assert [type(one) for one in decisions] == [Wait] and not nominated(decisions)


def test_a_pod_with_preemption_policy_never_waits() -> None:
    decisions = full([pod("a", gpus=4)], waiting=wanting(preemptionPolicy="Never")).decide()
    assert not victims(decisions) and not nominated(decisions)


def test_nobody_is_evicted_where_it_would_not_help() -> None:
    made = cluster(
        node("small", gpus=2),
        node("tainted", gpus=4, taints=["x:NoSchedule"]),
        bound={"small": [pod("a", gpus=2)], "tainted": [pod("b", gpus=4)]},
        pods=[wanting()],
    )
    assert victims(made.decide()) == set()


def test_pods_marked_do_not_disrupt_and_pods_of_their_node_stay() -> None:
    marked = pod("marked", gpus=4, annotations={"karpenter.sh/do-not-disrupt": "true"})
    assert victims(full([marked]).decide()) == set()
    made = full([pod("agent", gpus=4)])
    agent = made.fleet.pod(made.row("default/agent"))
    object.__setattr__(agent.spec, "daemon", True)
    assert victims(made.decide()) == set()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (2, 1, 0)])
def test_victims_go_in_the_order_of_their_names_whenever_the_world_heard_of_them(order: tuple[int, ...]) -> None:
    alone = [pod(f"a{number}", gpus=1) for number in order]
    assert [one.pod.name for one in full(alone).decide() if isinstance(one, Evict)] == ["a0", "a1", "a2"]
    together = [pod(f"a{number}", gpus=1, gang="default/g") for number in order]
    made = cluster(node("a", gpus=4), bound={"a": together}, pods=[wanting()], gangs=[gang(3)])
    assert [one.pod.name for one in made.decide() if isinstance(one, Evict)] == ["a0", "a1", "a2"]


def test_without_preemption_nobody_is_evicted() -> None:
    assert victims(full([pod("a", gpus=4)]).decide(preemption=False)) == set()


def test_the_eviction_says_for_whom_and_what_it_costs() -> None:
    made = full([pod("a", gpus=4, priority=7)], [pod("b", gpus=4, priority=8)], lives=started(a=400, b=0))
    (evict,) = (one for one in made.decide() if isinstance(one, Evict))
    assert (evict.pod.name, evict.by and evict.by.name) == ("a", "wanting")
    assert evict.reason.text() == (
        "preempted by Pod default/wanting [node=a, priority=100, highest_priority_of_victims=7, victims=1, "
        "work_lost_device_s=2400, budgets_broken=0]"
    )
    assert [other.name for other in evict.reason.alternatives] == []


# ---- budgets ----


@pytest.mark.parametrize(
    ("budgets", "named"),
    [
        ((budget(min_available=2),), "PodDisruptionBudget default/budget"),
        ((budget("a", max_unavailable=1), budget("b", app="other", min_available=1)), "PodDisruptionBudget default/a"),
        ((budget("a", min_available=0), budget("b", min_available=0)), "PodDisruptionBudgets default/a, default/b"),
    ],
    ids=["none may go", "one may go and two have to", "a pod with two budgets"],
)
def test_who_would_preempt_but_for_budgets_is_told_which(budgets: tuple[PodDisruptionBudget, ...], named: str) -> None:
    made = full([web("w1", gpus=2), web("w2", gpus=2)], budgets=budgets)
    (wait,) = [one for one in made.decide() if isinstance(one, Wait)]
    assert wait.reason.verdict == (
        f"0/1 nodes are available: 1 Insufficient nvidia.com/gpu; preemption: blocked by {named}"
    )
    assert dict(wait.reason.evidence)["budgets"] == named.partition(" ")[2]
    told = why(made.snapshot, wait.pod.namespace + "/" + wait.pod.name)
    assert isinstance(told, PodReceipt)
    assert told.verdict == wait.reason.verdict


def test_the_budgets_of_all_nodes_where_room_could_be_made_are_named() -> None:
    apps = [f"app-{i}" for i in range(7)]
    made = cluster(
        *(node(f"n{i}", gpus=4) for i in range(8)),
        bound={f"n{i}": [pod(f"p{i}", gpus=4, labels={"app": app})] for i, app in enumerate(apps)}
        | {"n7": [pod("higher", gpus=4, priority=1000, labels={"app": "higher"})]},
        pods=[wanting()],
        budgets=[budget(app, app=app, min_available=1) for app in (*apps, "higher", "nowhere")],
    )
    (wait,) = [one for one in made.decide() if isinstance(one, Wait)]
    assert dict(wait.reason.evidence)["budgets"] == ", ".join(f"default/{app}" for app in apps)
    assert wait.reason.verdict.endswith(
        "; preemption: blocked by PodDisruptionBudgets default/app-0, default/app-1, default/app-2, default/app-3, default/app-4 "
        "and 2 more"
    )


def test_no_budget_is_named_where_none_is_in_the_way() -> None:
    made = full([web("w1", gpus=2, priority=1000), web("w2", gpus=2)], budgets=(budget(min_available=2),))
    assert all("Budget" not in one.reason.verdict for one in made.decide() if isinstance(one, Wait))


def test_budgets_that_are_broken_are_named_in_the_eviction() -> None:
    made = full([web("w1", gpus=2), web("w2", gpus=2)], budgets=(budget(min_available=1),))
    found = [one for one in made.decide(respect_budgets=False) if isinstance(one, Evict)]
    assert {dict(one.reason.evidence)["budgets"] for one in found} == {"default/budget"}


def test_a_budget_is_never_broken_by_default() -> None:
    made = full([web("w1", gpus=2), web("w2", gpus=2)], budgets=(budget(min_available=1),))
    assert victims(made.decide()) == set()
    assert victims(made.decide(respect_budgets=False)) == {"w1", "w2"}


@pytest.mark.parametrize(
    ("limits", "others", "goes"),
    [
        ({"min_available": 1}, 1, True),
        ({"min_available": 2}, 1, False),
        ({"min_available": "50%"}, 1, True),
        ({"max_unavailable": 0}, 5, False),
        ({"max_unavailable": "34%"}, 2, True),
        ({"max_unavailable": "a lot"}, 2, False),
        ({}, 2, False),
    ],
)
def test_a_budget_counts_as_the_disruption_controller_does(limits: dict[str, object], others: int, goes: bool) -> None:
    made = cluster(
        node("a", gpus=4),
        node("b"),
        bound={"a": [web("w", gpus=4)], "b": [web(f"o{i}") for i in range(others)]},
        pods=[wanting()],
        budgets=(budget(**limits),),
    )
    assert victims(made.decide()) == ({"w"} if goes else set())


def test_a_pod_that_is_not_ready_does_not_count_as_healthy_and_may_go_beyond_a_budget_that_is_met() -> None:
    made = cluster(
        node("a", gpus=4),
        node("b"),
        bound={"a": [web("w", gpus=4)], "b": [web("o")]},
        pods=[wanting()],
        budgets=(budget(min_available=1),),
        lives={"default/w": PodLife(ready=False)},
    )
    assert victims(made.decide()) == {"w"}


def test_a_pod_under_two_budgets_cannot_be_evicted_through_the_api() -> None:
    made = full([web("w", gpus=4)], budgets=(budget("one", min_available=0), budget("two", min_available=0)))
    assert victims(made.decide()) == set()


def test_two_that_preempt_at_once_share_one_budget() -> None:
    made = full([web("a1", gpus=4)], [web("b1", gpus=4)], budgets=(budget(max_unavailable=1),))
    made.fleet.add_pod(pod("second", gpus=4, priority=100))
    assert len(victims(made.decide())) == 1


def test_what_a_budget_allows_is_used_on_the_victim_that_helps() -> None:
    made = cluster(
        node("a", gpus=5), bound={"a": [web("small", gpus=1), web("large", gpus=4)]}, pods=[wanting()],
        budgets=(budget(max_unavailable=1),),
    )  # fmt: skip
    assert victims(made.decide()) == {"large"}


# ---- from the eviction to the binding ----


@pytest.mark.report(123)
def test_room_that_is_being_released_is_not_made_twice() -> None:
    made = full([pod("a", gpus=4)], [pod("b", gpus=4)])
    assert victims(made.step()) == {"a"}
    for _ in range(3):
        decisions = made.step()
        assert (victims(decisions), nominated(decisions)) == (set(), {"wanting": "a"})
    made.let_go()
    (bind,) = (one for one in made.step() if isinstance(one, Bind))
    assert (bind.pod.name, bind.node.name) == ("wanting", "a")
    assert made.gone == ["a"]


def test_room_that_others_release_is_waited_for_rather_than_made() -> None:
    made = full([pod("a", gpus=4)], [pod("b", gpus=4)], lives={"default/b": PodLife(leaving=True)})
    decisions = made.decide()
    assert (victims(decisions), nominated(decisions)) == (set(), {"wanting": "b"})


def test_two_that_wait_do_not_count_on_the_same_room() -> None:
    made = full([pod("a", gpus=4)], [pod("b", gpus=4)], lives={"default/b": PodLife(leaving=True)})
    made.fleet.add_pod(pod("second", gpus=4, priority=99))
    decisions = made.decide()
    assert (victims(decisions), nominated(decisions)) == ({"a"}, {"wanting": "b", "second": "a"})


def test_lower_and_equal_priority_do_not_take_room_made_for_another_and_higher_may() -> None:
    for priority, taken in ((0, False), (100, False), (101, True)):
        made = full([pod("a1", gpus=2), pod("a2", gpus=2)])
        made.step()
        made.let_go(again=False, only=["default/a1"])
        made.fleet.add_pod(pod("other", gpus=2, priority=priority, created_ns=-1))
        bound = {one.pod.name for one in made.step() if isinstance(one, Bind)}
        assert bound == ({"other"} if taken else set()), priority


def test_who_lost_a_nomination_to_a_more_important_pod_looks_for_another_node() -> None:
    made = full([pod("a", gpus=4)], [pod("b", gpus=4, priority=1)])
    made.step()
    made.fleet.add_pod(pod("more", gpus=4, priority=200))
    decisions = made.step()
    assert nominated(decisions) == {"more": "a", "wanting": "b"}
    assert made.gone == ["a", "b"]


def test_claims_that_a_more_important_pod_has_overridden_do_not_stand_in_its_way() -> None:
    made = cluster(
        node("a", gpus=4),
        bound={"a": [pod("x", gpus=4)]},
        pods=[pod("more", gpus=4, priority=200), pod("one", gpus=3, priority=100), pod("two", gpus=1, priority=100)],
        nominations={"default/one": "a", "default/two": "a"},
    )
    assert nominated(made.decide()) == {"more": "a"}


def test_a_nomination_is_given_up_when_its_node_is_gone() -> None:
    made = full([pod("a", gpus=4)], [pod("b", gpus=4)], nominations={"default/wanting": "vanished"})
    assert nominated(made.decide()) == {"wanting": "a"}


def test_the_nominated_node_is_taken_first_when_several_are_free() -> None:
    made = full([], [], nominations={"default/wanting": "b"})
    (bind,) = (one for one in made.decide() if isinstance(one, Bind))
    assert bind.node.name == "b"


def test_the_scheduler_says_nothing_new_where_all_have_one_priority() -> None:
    made = full([pod("a", gpus=4)], [pod("b", gpus=3)], waiting=wanting(priority=0))
    assert made.decide() == decide(made.fleet, preemption=False)
    assert GPU in made.fleet.resources
