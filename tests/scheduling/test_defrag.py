"""Moves that make room: the fewest, possible one after the other, and nobody loses his place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from builders import node, pod
from deep_seeds import part
from gang_builders import RACK, gang, member, members
from preemption_builders import Cluster, budget, cluster, nominated, victims, web
from tonnage.decisions import Bind, Decision, Evict
from tonnage.fleet.invariants import violations
from tonnage.fleet.snapshot import PodLife
from tonnage.fleet.state import FleetPod
from tonnage.scheduling.defrag import DefragLimits, DefragPlan, NoDefrag
from tonnage.scheduling.place import defragment

NO_COOLDOWN = DefragLimits(cooldown_ns=0, steps=200)


def owned(name: str, gpus: int = 1, **fields: object) -> FleetPod:
    """A pod that its controller makes again."""
    return replace(pod(name, 0.1, 0.1, gpus, **fields), owner="default/some")  # type: ignore[arg-type]


def scattered(*pods_by_node: list[FleetPod], gpus: int = 4, waiting: int = 4, **fields: object) -> Cluster:
    """Nodes a, b, … with these pods, and one pod that waits for ``waiting`` GPUs."""
    names = [chr(ord("a") + i) for i in range(len(pods_by_node))]
    bound = dict(zip(names, pods_by_node, strict=True))
    wanting = pod("wanting", 0.1, 0.1, waiting)
    return cluster(*(node(name, gpus=gpus) for name in names), bound=bound, pods=[wanting], **fields)  # type: ignore[arg-type]


def moves(made: Cluster, key: str = "default/wanting", limits: DefragLimits = NO_COOLDOWN) -> list[str] | None:
    """The moves in order as ``pod: from > to``; None without a plan."""
    found = defragment(made.snapshot, key, limits)
    if isinstance(found, NoDefrag):
        return None
    fleet = made.fleet
    return [
        f"{fleet.pod(m.pod).spec.name}: {fleet.node(m.origin).spec.name} > {fleet.node(m.target).spec.name}"
        for m in found.moves
    ]


@pytest.mark.report(125)
def test_a_pod_moves_to_make_a_whole_node_free() -> None:
    assert moves(scattered([owned("x")], [owned("y"), owned("z", 2)])) == ["x: a > b"]


def test_of_equal_numbers_of_moves_the_least_work_is_lost() -> None:
    lives = {f"default/{name}": PodLife(started_ns=at * 10**9) for name, at in (("x", 1), ("y", 900))}
    assert moves(scattered([owned("x", 2)], [owned("y", 2)], lives=lives)) == ["y: b > a"]


def test_a_target_is_free_before_it_is_filled() -> None:
    made = scattered([owned("x", 3)], [owned("y", 2)], [owned("z", 3)], waiting=4)
    made.fleet.add_node(node("d", gpus=2))
    assert moves(made) == ["y: b > d"]
    made = cluster(
        node("a", gpus=4), node("b", gpus=3), node("c", gpus=1),
        bound={"a": [owned("x", 3)], "b": [owned("y", 1)]}, pods=[pod("wanting", gpus=4)],
    )  # fmt: skip
    assert moves(made) == ["y: b > c", "x: a > b"]


def test_pods_that_could_only_swap_are_not_moved() -> None:
    made = cluster(
        node("a", gpus=2, labels={"kind": "x"}), node("b", gpus=1),
        bound={"a": [owned("x")], "b": [owned("y")]}, pods=[pod("wanting", gpus=2)],
    )  # fmt: skip
    assert moves(made) is None


def test_a_pod_that_fits_needs_no_moves() -> None:
    found = defragment(scattered([owned("x")], []).snapshot, "default/wanting")
    assert isinstance(found, NoDefrag) and found.why == "Pod default/wanting fits without moves"


def test_nobody_moves_where_it_would_not_help_or_would_be_too_much() -> None:
    assert moves(scattered([owned("x", 2)], [owned("y", 3)])) is None
    made = scattered([owned(f"x{i}") for i in range(3)], [owned("y")], gpus=4)
    assert moves(made) == ["y: b > a"]
    assert moves(scattered([owned("x")], [owned("y")]), limits=DefragLimits(moves=0, cooldown_ns=0)) is None


@pytest.mark.report(125)
@pytest.mark.parametrize(
    "held", ["marked", "young", "bare", "bare gang", "daemon", "under a budget", "on a marked node", "of others"]
)
def test_who_may_not_be_moved_stays(held: str) -> None:
    one = owned("x")
    budgets = ()
    if held == "marked":
        one = owned("x", annotations={"karpenter.sh/do-not-disrupt": "true"})
    elif held == "bare":
        one = pod("x", gpus=1)
    elif held == "bare gang":
        one = replace(pod("x", gpus=1), gang="default/g")
    elif held == "of others":
        one = owned("x", schedulerName="another")
    elif held == "daemon":
        one = replace(one, daemon=True)
    elif held == "under a budget":
        one, budgets = web("x", gpus=1), (budget(max_unavailable=0),)
    made = scattered([one], [owned("y", 3, annotations={"karpenter.sh/do-not-disrupt": "true"})], budgets=budgets)
    if held == "on a marked node":
        made.fleet.node(made.fleet.node_by_name["a"]).do_not_disrupt = True
    if held == "young":
        made.lives["default/x"] = PodLife(started_ns=made.now_ns - 10**9)
    assert moves(made, limits=DefragLimits(schedulers=("", "tonnage"))) is None


def test_who_may_stand_on_one_node_alone_gets_room_there_by_moves_to_others() -> None:
    wanting = pod("wanting", gpus=4, nodeName="a")
    made = cluster(node("a", gpus=4), node("b", gpus=4), bound={"a": [owned("x")]}, pods=[wanting])
    assert moves(made) == ["x: a > b"]


def test_priorities_do_not_count_as_nobody_loses_his_place() -> None:
    assert moves(scattered([owned("x", priority=1000)], [owned("y", 3)])) == ["x: a > b"]


def test_what_a_move_costs_is_said() -> None:
    made = cluster(
        node("a", gpus=4, price_micro_usd_per_hour=8_000_000), node("b", gpus=2),
        bound={"a": [owned("x", 2)]}, pods=[pod("wanting", gpus=4)],
        lives={"default/x": PodLife(started_ns=0, saved_ns=100 * 10**9)},
    )  # fmt: skip
    found = defragment(made.snapshot, "default/wanting")
    assert isinstance(found, DefragPlan)
    assert (found.lost_s, found.micro_usd) == (1800.0, 1_000_000)  # 900 s of two GPUs, half the node for a quarter hour


def test_a_gang_gets_room_in_its_rack_and_all_who_leave_it_have_a_place() -> None:
    nodes = [
        node(name, gpus=4, labels={RACK: rack}) for name, rack in (("a", "r1"), ("b", "r1"), ("c", "r2"), ("d", "r2"))
    ]
    made = cluster(
        *nodes,
        bound={"a": [owned("a0", 2)], "b": [owned("b0", 1)], "c": [owned("c0", 3)], "d": [owned("d0", 1)]},
        pods=members(2, gpus=4), gangs=[gang(2, required=RACK)],
    )  # fmt: skip
    assert moves(made, "default/g") == ["a0: a > d", "b0: b > c"]


def test_a_gang_moves_whole_or_not_at_all() -> None:
    made = cluster(
        node("a", gpus=2), node("b", gpus=2), node("c", gpus=2), node("d", gpus=1),
        bound={"a": [member("m0")], "b": [member("m1")], "c": [owned("x")]},
        pods=[pod("wanting", gpus=2)], gangs=[gang(2)],
    )  # fmt: skip
    assert moves(made) == ["x: c > d"] or moves(made) == ["x: c > a"]
    marked = member("m1", annotations={"karpenter.sh/do-not-disrupt": "true"})
    made = cluster(
        node("a", gpus=2), node("b", gpus=2), bound={"a": [member("m0")], "b": [marked]},
        pods=[pod("wanting", gpus=2)], gangs=[gang(2)],
    )  # fmt: skip
    assert moves(made) is None


# ---- fewest moves: brute force ----


Standing = tuple[tuple[int, int, bool], ...]  # (GPUs, node, has moved) of each pod


def nexts(state: Standing, nodes: int) -> Iterator[Standing]:
    free = [4 - sum(gpus for gpus, at, _ in state if at == n) for n in range(nodes)]
    for i, (gpus, at, moved) in enumerate(state):
        for n in range(nodes):
            if not moved and n != at and free[n] >= gpus:
                yield (*state[:i], (gpus, n, True), *state[i + 1 :])


def fewest_moves(state: Standing, nodes: int, wanted: int) -> int | None:
    """Breadth first over single moves, each pod at most once."""
    seen, level, count = {state}, [state], 0
    while level:
        for one in level:
            if any(4 - sum(gpus for gpus, at, _ in one if at == n) >= wanted for n in range(nodes)):
                return count
        level = [new for one in level for new in nexts(one, nodes) if new not in seen and not seen.add(new)]  # type: ignore[func-returns-value]
        count += 1
    return None


@pytest.mark.parametrize("seed", part(range(40)))
def test_no_plan_has_fewer_moves_than_brute_force_finds(seed: int) -> None:
    rng = Random(seed)
    nodes = rng.randint(2, 4)
    there: list[list[FleetPod]] = []
    state = []
    for n in range(nodes):
        used, here = rng.choice((1, 2, 3, 3, 4)), []
        while used:
            gpus = rng.choice([g for g in (1, 1, 2, 3) if g <= used])
            here.append(owned(f"p{n}{len(here)}", gpus))
            state.append((gpus, n, False))
            used -= gpus
        there.append(here)
    wanted = rng.choice((2, 3, 4, 4, 4))
    made = scattered(*there, waiting=wanted)
    found = defragment(made.snapshot, "default/wanting", DefragLimits(cooldown_ns=0, steps=1_500))
    best = fewest_moves(tuple(state), nodes, wanted)
    if best in (None, 0):
        assert isinstance(found, NoDefrag)
        return
    assert isinstance(found, DefragPlan) and len(found.moves) == best
    fleet = made.fleet
    for move in found.moves:  # one after the other
        fleet.unbind(move.pod)
        fleet.bind(move.pod, move.target)
    for row, at in found.places:
        fleet.bind(row, at)


# ---- as decisions ----


def test_the_scheduler_moves_before_it_evicts_for_good() -> None:
    made = scattered([owned("x")], [owned("y", 3)], waiting=4)
    made.fleet.add_pod(pod("other", gpus=1, priority=-1))
    decisions = made.decide(defrag=NO_COOLDOWN)
    assert (victims(decisions), nominated(decisions)) == (set(), {}) or victims(decisions) == {"x"}
    assert victims(made.decide()) == set()  # off unless asked for


def test_moves_that_depend_on_others_are_made_one_after_the_other() -> None:
    made = cluster(
        node("a", gpus=4), node("b", gpus=3), node("c", gpus=1),
        bound={"a": [owned("x", 3)], "b": [owned("y", 1)]}, pods=[pod("wanting", 0.1, 0.1, 4)],
    )  # fmt: skip
    (evict,) = (one for one in made.step(defrag=NO_COOLDOWN) if isinstance(one, Evict))
    assert (evict.pod.name, evict.reason.verdict) == ("y", "moved to make room for Pod default/wanting")
    for _ in range(4):
        made.let_go()
        made.step(defrag=NO_COOLDOWN)
    assert {name.partition("~")[0]: at for name, at in made.where().items()} == {"wanting": "a", "x": "b", "y": "c"}
    assert made.gone == ["y", "x"]


@pytest.mark.report(118)
@pytest.mark.parametrize("seed", part(range(12)))
def test_moves_end_and_what_stands_only_grows(seed: int) -> None:
    rng = Random(seed)
    there: list[list[FleetPod]] = []
    for n in range(rng.randint(3, 6)):
        free, here = 4, []
        while free and rng.random() < 0.7:
            gpus = rng.choice([g for g in (1, 1, 2) if g <= free])
            here.append(owned(f"p{n}{len(here)}", gpus))
            free -= gpus
        there.append(here)
    made = scattered(*there, waiting=4)
    for i in range(rng.randint(0, 3)):
        made.fleet.add_pod(owned(f"w{i}", rng.choice((2, 3, 4))))
    placed = len(made.where())
    for _ in range(40):
        decisions = made.step(defrag=NO_COOLDOWN)
        leaving = [key for key, life in made.lives.items() if life.leaving]
        made.let_go()
        if not leaving and not any(isinstance(one, Bind) for one in decisions):
            break
        if not leaving:
            assert len(made.where()) >= placed
            placed = len(made.where())
    else:
        raise AssertionError("pods are moved for ever")
    assert not made.nominations


# ---- nobody loses his place ----


@pytest.mark.parametrize("when", ["in the same decision", "before it is gone"])
@pytest.mark.parametrize("important", [0, 10], ids=["moved for an equal", "moved for a more important pod"])
def test_where_a_moved_pod_is_to_stand_is_held_for_it_as_long_as_it_leaves(when: str, important: int) -> None:
    made = cluster(
        node("a", gpus=4), node("b", gpus=4), bound={"a": [owned("x")], "b": [owned("y", 3)]},
        pods=[pod("wanting", 0.1, 0.1, 4, priority=important)],
    )  # fmt: skip
    if when == "in the same decision":
        made.fleet.add_pod(pod("later", 0.1, 0.1, 1, priority=-1))
    (evict,) = made.step(defrag=NO_COOLDOWN)[-1:]
    assert isinstance(evict, Evict) and (evict.pod.name, evict.to) == ("x", "b")
    assert made.nominations == {"default/x": "b", "default/wanting": "a"}
    if when == "before it is gone":
        made.fleet.add_pod(pod("later", 0.1, 0.1, 1, created_ns=-1))
    for _ in range(3):
        assert not any(isinstance(one, (Bind, Evict)) for one in made.step(defrag=NO_COOLDOWN))
    assert made.where() == {"y": "b"}


def test_the_pod_made_in_the_stead_of_a_moved_one_takes_its_nomination_over() -> None:
    made = cluster(
        node("a", gpus=4), node("b", gpus=3), node("c", gpus=1),
        bound={"a": [owned("x", 3)], "b": [owned("y", 1)], "c": [pod("z", gpus=1)]}, pods=[pod("wanting", gpus=4)],
        lives={"default/x": PodLife(leaving=True), "default/y": PodLife(leaving=True)},
        nominations={"default/x": "b", "default/wanting": "a"},
    )  # fmt: skip
    made.fleet.add_pod(pod("later", gpus=2, created_ns=-1))
    made.fleet.add_pod(owned("x~1", 3))
    made.step(defrag=NO_COOLDOWN)
    assert made.nominations["default/x~1"] == "b"
    for gone in ("default/y", "default/x"):
        made.let_go(again=False, only=[gone])
        made.step(defrag=NO_COOLDOWN)
    assert made.where() == {"wanting": "a", "x~1": "b", "z": "c"} and not made.nominations


def kept(rng: Random, name: str) -> FleetPod:
    """A pod that its controller makes again; some of a workload with a budget, some that are not to be disrupted."""
    gpus, kind = rng.choice((1, 1, 2)), rng.choice(("free", "free", "web", "marked"))
    if kind == "web":
        return replace(web(name, gpus=gpus), owner="default/web")
    return owned(name, gpus, annotations={"karpenter.sh/do-not-disrupt": "true"} if kind == "marked" else {})


def moves_in_a_world(rng: Random) -> int:
    """How many pods are moved in a random world, where others come and pods take their time to leave; all who stood
    before stand in the end, and need evict nobody for it; moves end, and none is against a budget or a mark."""
    there = [[kept(rng, f"p{n}{i}") for i in range(rng.choice((1, 1, 2)))] for n in range(4)]
    made = scattered(*there, prompt=True, budgets=(budget(max_unavailable=1),))
    stood, moved = set(made.where()), 0
    webs = sum(one.labels == {"app": "web"} for pods in there for one in pods)
    for step in range(20):
        for i in range(rng.choice((0, 1, 2)) if step < 6 else 0):
            gpus, priority = rng.choice((1, 2, 2, 3, 4)), rng.choice((-5, -1, -1, 0))
            made.fleet.add_pod(owned(f"w{step}-{i}", gpus, priority=priority, created_ns=step))
        decisions = made.step(defrag=NO_COOLDOWN)
        moves = [made.fleet.pod(made.row(f"default/{one.pod.name}")).spec for one in decisions if is_move(one)]
        assert not any(one.annotations for one in moves)
        moved += len(moves)
        there_still = [made.fleet.pod(made.row(f"default/{name}")).spec for name in made.where()]
        assert sum(one.labels == {"app": "web"} for one in there_still) >= webs - 1
        assert step < 14 or not moves, "by then all who come have come"
        evicted = [one for one in decisions if isinstance(one, Evict) and not one.to]
        assert not [one for one in evicted if one.pod.name[0] == "p" or (one.by and one.by.name[0] == "p")]
        assert violations(made.fleet) == []
        leaving = [key for key, life in made.lives.items() if life.leaving]
        made.let_go(only=[key for key in leaving if step > 12 or rng.random() < 0.5])
    assert {one.partition("~")[0] for one in made.where()} >= stood
    return moved


def is_move(decision: Decision) -> bool:
    return isinstance(decision, Evict) and bool(decision.to)


def test_in_a_world_with_moves_all_who_are_moved_stand_again_whoever_comes_later() -> None:
    assert sum(moves_in_a_world(Random(seed)) for seed in range(30)) >= 10


# ---- what is asked for that is not there ----


@pytest.mark.parametrize("key", ["default/nobody", "default/x", "default/g"])
def test_what_does_not_wait_cannot_be_given_room(key: str) -> None:
    made = cluster(
        node("a", gpus=4), bound={"a": [owned("x"), member("m0"), member("m1")]}, pods=[pod("wanting", gpus=4)],
        gangs=[gang(2)],
    )  # fmt: skip
    with pytest.raises(KeyError, match=key):
        defragment(made.snapshot, key)


def test_a_pod_of_a_gang_stands_for_all_of_it() -> None:
    made = cluster(
        node("a", gpus=4), node("b", gpus=4), bound={"a": [owned("x", 2)], "b": [owned("y", 2)]},
        pods=members(2, gpus=2, priority=0), gangs=[gang(2, required="kubernetes.io/hostname")],
    )  # fmt: skip
    first = made.fleet.pod(next(iter(made.fleet.pending))).key
    assert moves(made, first) == moves(made, "default/g") and moves(made, first)
