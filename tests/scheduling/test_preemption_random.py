"""Preemption against brute force on tiny clusters, and over long random histories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, combinations
from random import Random

import pytest

from builders import node, pod
from deep_seeds import deep, part
from gang_builders import RACK, gang, member
from preemption_builders import Cluster, budget, cluster, nominated, victims
from tonnage.decisions import Bind, Evict
from tonnage.fleet.gangs import Gang
from tonnage.fleet.invariants import violations
from tonnage.fleet.snapshot import PodLife
from tonnage.fleet.state import FleetPod
from tonnage.scheduling.victims import PRIORITY_OFFSET

GPUS = 4


def need(spec: FleetPod) -> int:
    return int(spec.spec.containers[0].resources.requests.get("nvidia.com/gpu", 0))


# ---- one pod, brute force ----


def best_by_brute_force(made: Cluster, waiting: FleetPod, allowed: int) -> tuple[int, ...] | None:
    """The least cost over all nodes and all sets of their pods."""
    costs = []
    for row in made.fleet.node_rows():
        pods = [made.fleet.pod(p).spec for p in made.fleet.node(row).pods]
        free = GPUS - sum(map(need, pods))
        lower = [one for one in pods if one.priority < waiting.priority]
        for some in chain.from_iterable(combinations(lower, n) for n in range(1, len(lower) + 1)):
            if (
                free + sum(map(need, some)) >= need(waiting)
                and sum(one.labels == {"app": "web"} for one in some) <= allowed
            ):
                costs.append(cost_of(some, made.now_ns))
    return min(costs, default=None)


def cost_of(some: Sequence[FleetPod], now_ns: int) -> tuple[int, ...]:
    """(highest priority, sum of priorities, pods, work lost, -start of the first of highest priority)."""
    highest = max(one.priority for one in some)
    return (
        highest,
        sum(one.priority + PRIORITY_OFFSET for one in some),
        len(some),
        sum((now_ns - one.created_ns) * max(1, need(one)) for one in some),
        -min(one.created_ns for one in some if one.priority == highest),
    )


@pytest.mark.parametrize("seed", part(range(150)))
def test_the_victims_for_a_pod_cost_as_little_as_brute_force_finds(seed: int) -> None:
    rng = Random(seed)
    bound: dict[str, list[FleetPod]] = {}
    for name in "abcde"[: rng.randint(1, 5)]:
        free, there = GPUS, []
        while free and len(there) < 5 and rng.random() < 0.95:
            gpus = rng.choice([g for g in (0, 1, 1, 2, 4) if g <= free])
            labels = {"app": "web"} if rng.random() < 0.3 else {"app": "other"}
            there.append(
                pod(f"{name}{len(there)}", 0.1, 0.1, gpus, labels=labels, priority=rng.choice((-5, 0, 0, 3, 7)),
                    created_ns=rng.randrange(4) * 10**9)
            )  # fmt: skip
            free -= gpus
        bound[name] = there
    waiting = pod("wanting", 0.1, 0.1, rng.choice((1, 2, 3, 4)), priority=5)
    web = sum(one.labels == {"app": "web"} for there in bound.values() for one in there)
    allowed = rng.randint(0, web) if web else 0
    made = cluster(
        *(node(name, gpus=GPUS) for name in bound), bound=bound, pods=[waiting],
        budgets=(budget(min_available=web - allowed),),
    )  # fmt: skip
    decisions = made.decide()
    if any(isinstance(one, Bind) for one in decisions):
        return
    evicted = [made.fleet.pod(made.row(f"default/{name}")).spec for name in victims(decisions)]
    best = best_by_brute_force(made, waiting, allowed)
    if best is None:
        assert not evicted and not nominated(decisions)
        return
    assert cost_of(evicted, made.now_ns) == best


# ---- gangs, brute force ----


def gang_fits(free: list[int], size: int, gpus: int) -> bool:
    return sum(one // gpus for one in free) >= size


@pytest.mark.parametrize("seed", part(range(100)))
def test_a_gang_evicts_where_any_eviction_would_do_and_nobody_of_its_victims_is_needless(seed: int) -> None:
    rng = Random(seed)
    bound = {
        name: [pod(f"{name}{i}", 0.1, 0.1, 1, priority=rng.choice((0, 1, 9))) for i in range(rng.randint(0, GPUS))]
        for name in "abcd"[: rng.randint(1, 4)]
    }
    size, gpus = rng.randint(1, 4), rng.choice((1, 2, 4))
    made = cluster(
        *(node(name, gpus=GPUS) for name in bound), bound=bound, gangs=[gang(size, priority=5)],
        pods=[member(f"m{i}", gpus=gpus, cpu=0.1, memory_gib=0.1, priority=5) for i in range(size)],
    )  # fmt: skip

    def free(without: set[str], below: int = -99) -> list[int]:
        return [
            GPUS - sum(one.name not in without and one.priority >= below for one in there) for there in bound.values()
        ]

    decisions = made.decide()
    gone = victims(decisions)
    if gang_fits(free(set()), size, gpus):
        assert not gone and sum(isinstance(one, Bind) for one in decisions) == size
        return
    assert bool(gone) == gang_fits(free(set(), below=5), size, gpus)
    if gone:
        assert gang_fits(free(gone), size, gpus)
        assert not any(gang_fits(free(gone - {name}), size, gpus) for name in gone)
        assert len(nominated(decisions)) == size


# ---- long histories ----


class History:
    """Random events on a small cluster with gangs and a budget, checked after every step."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.number = 0
        nodes = [node(f"n{i}", gpus=GPUS, cpu=64, labels={RACK: f"r{i % 2}"}) for i in range(rng.randint(2, 5))]
        self.made = cluster(*nodes, budgets=(budget(min_available=rng.choice((0, 1, 2))),))

    def arrive(self) -> None:
        self.number += 1
        priority = self.rng.choice((-1, 0, 0, 1, 2, 5))
        labels = {"app": "web"} if self.rng.random() < 0.3 else {}
        gpus = self.rng.choice((1, 1, 2, 4))
        fields = {"gpus": gpus, "priority": priority, "labels": labels, "created_ns": self.number}
        if self.rng.random() < 0.05:
            fields["preemptionPolicy"] = "Never"
        if self.rng.random() < 0.6:
            self.made.fleet.add_pod(pod(f"p{self.number}", 0.1, 0.1, **fields))
            return
        key, size = f"default/g{self.number}", self.rng.randint(1, 4)
        rule = {"required": RACK} if self.rng.random() < 0.3 else {}
        self.made.gangs[key] = gang(size, key=key, priority=priority, created_ns=self.number, **rule)
        for i in range(size + self.rng.choice((0, 0, 1, 2))):
            self.made.fleet.add_pod(member(f"g{self.number}-{i}", key, cpu=0.1, memory_gib=0.1, **fields))

    def finish(self) -> None:
        """A pod, or a whole gang, is done."""
        standing = [one for one in self.made.fleet.pods if one is not None and one.node >= 0]
        if not standing:
            return
        one = self.rng.choice(standing).spec
        rows = list(self.made.fleet.gang_pods[one.gang]) if one.gang else [self.made.row(f"default/{one.name}")]
        for row in rows:
            self.forget(row)

    def forget(self, row: int) -> None:
        key = self.made.fleet.pod(row).key
        self.made.lives.pop(key, None)
        self.made.nominations.pop(key, None)
        self.made.fleet.remove_pod(row)

    def standing(self, gang: Gang) -> int:
        return len([row for row in self.made.fleet.gang_pods.get(gang.key, ()) if self.stands(row)])

    def stands(self, row: int) -> bool:
        one = self.made.fleet.pod(row)
        return one.node >= 0 and not self.made.lives.get(one.key, PodLife()).leaving

    def potential(self) -> list[tuple[int, int]]:
        """From the highest priority down: (priority, pods that stand or whose room is being made)."""
        count: Counter[int] = Counter(dict.fromkeys((-1, 0, 1, 2, 5), 0))
        for row, one in enumerate(self.made.fleet.pods):
            if one is not None and (self.stands(row) or one.key in self.made.nominations):
                count[one.spec.priority] += 1
        return sorted(count.items(), reverse=True)

    def step(self) -> bool:
        """Decide and apply; whether anything happened."""
        made = self.made
        healthy = sum(self.stands(row) for row, one in enumerate(made.fleet.pods) if one and one.spec.labels)
        allowed = max(0, healthy - int(made.budgets[0].spec.min_available or 0))
        priority = {one.spec.name: one.spec.priority for one in made.fleet.pods if one is not None}
        before = self.potential()
        decisions = made.step()
        evictions = [one for one in decisions if isinstance(one, Evict)]
        web = [one for one in evictions if made.fleet.pod(made.row(f"default/{one.pod.name}")).spec.labels]
        assert len(web) <= allowed
        for one in evictions:
            assert one.by is not None
            by = priority[one.by.name] if one.by.kind == "Pod" else made.gangs[f"default/{one.by.name}"].priority
            assert priority[one.pod.name] < by
        for known in made.gangs.values():
            assert self.standing(known) == 0 or self.standing(known) >= known.min_member, known
        assert violations(made.fleet) == []
        after = self.potential()
        assert after > before if evictions else after >= before
        return bool(evictions) or any(isinstance(one, Bind) for one in decisions)


@pytest.mark.report(118)
@pytest.mark.parametrize("seed", [*range(3), 2046, 2170, 3182, *deep(range(3, 25))])
def test_over_a_long_history_nothing_breaks_and_evictions_end(seed: int) -> None:
    history = History(Random(seed))
    rng = history.rng
    for _ in range(40):
        for _ in range(rng.randint(0, 3)):
            rng.choice((history.arrive, history.arrive, history.finish))()
        history.step()
        leaving = [key for key, life in history.made.lives.items() if life.leaving]
        history.made.let_go(only=[key for key in leaving if rng.random() < 0.5])
    for _ in range(60):
        moved = history.step()
        leaving = [key for key, life in history.made.lives.items() if life.leaving]
        history.made.let_go()
        if not moved and not leaving:
            break
    else:
        raise AssertionError("pods are evicted for ever")
    assert not history.made.nominations


def test_a_victim_that_comes_again_does_not_take_its_room_back() -> None:
    made = cluster(node("a", gpus=4), bound={"a": [pod("a", gpus=4)]}, pods=[pod("first", gpus=4, priority=1)])
    made.fleet.add_pod(pod("second", gpus=4, priority=2))
    for _ in range(6):
        made.step()
        made.let_go()
    assert made.where() == {"second": "a"} and made.gone == ["a"]
    assert replace(made.snapshot).nominations == {}
