"""Pods that wait in line: what is decided is what would be decided for all of them, with fewer of them looked at."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from builders import affinity_term, away, fleet, node, pod
from deep_seeds import deep
from random_clusters import Changes, random_node, random_pod
from tonnage.decisions import OBSERVING, Applied, Bind, Decision, Evict, Reason, Ref, Refused, Stale, Wait
from tonnage.fleet.snapshot import PodLife, Snapshot
from tonnage.fleet.state import Fleet
from tonnage.scheduling import place
from tonnage.scheduling.cache import Cache
from tonnage.scheduling.queue import FLUSH_NS, SETTLE_NS, Queue
from tonnage.workloads.naming import COSCHEDULING


class Lines:
    """A fleet, the queue before it, and how many pods each decision has looked at."""

    def __init__(self, made: Fleet, **settings: Any) -> None:
        self.fleet, self.settings = made, place.Settings(**settings)
        self.cache, self.queue = Cache(made), Queue(self.settings)
        self.nominations: dict[str, str] = {}
        self.lives: dict[str, PodLife] = {}
        self.off: dict[str, int] = {}
        self.absent: frozenset[str] = frozenset()
        self.told: dict[Ref, Wait] = {}
        self.now_ns = 0

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot(
            self.now_ns,
            self.fleet,
            nominations=self.nominations,
            lives=self.lives,
            backing_off=self.off,
            absent_groups=self.absent,
        )

    def decide(self) -> list[Decision]:
        """What the queue decides, which is checked against what is decided for all pods."""
        found = self.queue.decide(self.snapshot, self.cache)
        whole = place.decide(self.snapshot, self.settings, self.cache)
        self.queue._cursor = self.fleet.journal.end  # what that has tried is no news
        for kind in (Bind, Evict):
            assert [one for one in found if isinstance(one, kind)] == [one for one in whole if isinstance(one, kind)]
        self.told |= {one.pod: one for one in found if isinstance(one, Wait)}
        for wait in (one for one in whole if isinstance(one, Wait)):
            assert wait.pod in self.told, f"{wait.pod} was never told why it waits"
            assert self.told[wait.pod].nominated == wait.nominated
        return found

    def waits(self) -> int:
        """How many Waits the next decision has."""
        return sum(isinstance(one, Wait) for one in self.decide())


class Equal(Changes):
    """Pods of a few templates, so that many are equal."""

    def _add_pod(self) -> None:
        template = self.rng.randrange(5)
        one = random_pod(Random(template), f"p{self.rng.randrange(40)}")
        if self.rng.random() < 0.3:
            one = replace(one, labels={**one.labels, "job": str(self.rng.randrange(3))})
        self.fleet.add_pod(replace(one, created_ns=self.rng.randrange(9), uid=f"u{self.rng.randrange(10**9)}"))

    def changes(self) -> Any:
        kinds = {"add_node": 1, "add_pod": 12, "bind": 1, "remove_node": 1, "remove_pod": 3, "unbind": 1}
        kinds |= {"set_allocatable": 1, "cordon": 1, "taint": 1}
        return [getattr(type(self), f"_{name}") for name, often in kinds.items() for _ in range(often)]


def churn(seed: int, steps: int, **settings: Any) -> tuple[int, int]:
    """(pods that were looked at, pods that waited) over random changes, checked at each."""
    rng = Random(seed)
    lines = Lines(fleet(*(random_node(rng, f"n{i}") for i in range(4))), **settings)
    changes = Equal(rng, lines.fleet, lambda: None)
    decide, asked, waited = place.decide, 0, 0

    def counting(snapshot: Snapshot, settings: Any, cache: Any = None, rows: Any = None) -> list[Decision]:
        nonlocal asked
        if rows is not None:
            asked += len(rows)
        return decide(snapshot, settings, cache, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, "decide", counting)
        for _ in range(steps):
            for _ in range(rng.randrange(4)):
                changes.step()
            lines.now_ns += rng.choice((1, 10**9))
            waited += len(lines.fleet.pending)
            found = lines.decide()
            _apply(rng, lines, found)
    return asked, waited


def _apply(rng: Random, lines: Lines, found: list[Decision]) -> None:
    """Most bindings work; who is evicted leaves, and is gone a while later."""
    made = lines.fleet
    for key in [key for key, life in lines.lives.items() if life.leaving and rng.random() < 0.5]:
        del lines.lives[key]
        namespace, _, name = key.partition("/")
        if (namespace, name) in made.pod_by_key:
            made.remove_pod(made.pod_by_key[namespace, name])
    lines.off = {uid: until for uid, until in lines.off.items() if until > lines.now_ns}
    lines.nominations = {
        f"{one.pod.namespace}/{one.pod.name}": one.nominated for one in found if isinstance(one, Wait) and one.nominated
    }
    for one in found:
        if isinstance(one, Bind):
            row = made.pod_by_key[one.pod.namespace, one.pod.name]
            if rng.random() < 0.1:
                lines.off[one.pod.uid] = lines.now_ns + 2
            else:
                made.bind(row, made.node_by_name[one.node.name], one.devices)
        elif isinstance(one, Evict):
            lines.lives[f"{one.pod.namespace}/{one.pod.name}"] = PodLife(leaving=True)


@pytest.mark.parametrize("policy", ["tonnage", "binpack"])
@pytest.mark.parametrize("preemption", [True, False])
@pytest.mark.parametrize("seeds", [range(3), *deep([range(3, 9)])], ids=str)
def test_over_any_changes_the_same_is_decided_as_for_all_pods(policy: str, preemption: bool, seeds: range) -> None:
    asked = waited = 0
    for seed in seeds:
        here = churn(seed, 60, policy=policy, preemption=preemption)
        asked, waited = asked + here[0], waited + here[1]
    assert waited > 130 * len(seeds)
    assert asked < 0.7 * waited, "hardly a pod was left in line: nothing was tested"


def full(pods: int, **fields: Any) -> Lines:
    """A node without room, and equal pods that wait."""
    waiting = [replace(pod(f"p{i:03}", gpus=2, **fields), uid=f"u{i}") for i in range(pods)]
    made = fleet(node("n0", gpus=1), pods=waiting)
    return Lines(made)


def test_every_pod_is_told_once_and_then_only_the_first_is_asked() -> None:
    lines = full(100)
    assert lines.waits() == 100
    assert lines.waits() == 1, "that somebody waits is said all the same"


def test_a_node_that_joins_without_room_for_them_tells_nobody_anything_new() -> None:
    lines = full(100)
    lines.decide()
    lines.fleet.add_node(node("n1", gpus=1))
    assert lines.waits() == 1


def test_a_node_with_another_obstacle_is_news_to_all_of_them_once_it_has_stood_for_a_while() -> None:
    lines = full(100)
    lines.decide()
    lines.fleet.add_node(node("n1", gpus=8, taints=["dedicated=gpu:NoSchedule"]))
    assert lines.waits() == 1
    lines.now_ns += SETTLE_NS
    assert lines.waits() == 100
    assert lines.waits() == 1
    assert "dedicated" in next(wait for pod, wait in lines.told.items() if pod.name == "p099").reason.kind


def test_an_obstacle_that_passes_is_told_to_the_first_pod_alone() -> None:
    """And to a pod that comes meanwhile."""
    lines = full(100)
    lines.decide()
    row = lines.fleet.add_node(node("n1", gpus=8, taints=["dedicated=gpu:NoSchedule"]))
    assert lines.waits() == 1
    lines.fleet.add_pod(replace(pod("p999", gpus=2), uid="u999", created_ns=9))
    assert lines.waits() == 2
    lines.fleet.remove_node(row)
    assert lines.waits() == 1
    lines.now_ns += 2 * SETTLE_NS
    assert lines.waits() == 1


def test_a_node_with_room_for_three_is_given_to_the_first_three() -> None:
    lines = full(100)
    lines.decide()
    lines.fleet.add_node(node("n1", gpus=7))
    binds = [one.pod.name for one in lines.decide() if isinstance(one, Bind)]
    assert binds == ["p000", "p001", "p002"]


def test_pods_with_other_labels_stand_in_the_same_line_unless_somebody_keeps_away_from_some_of_them() -> None:
    jobs = [pod(f"p{i}", gpus=2, labels={"job": str(i)}) for i in range(4)]
    lines = Lines(fleet(node("n0", gpus=1), pods=jobs))
    lines.decide()
    assert len(lines.queue._lines) == 1
    lines.fleet.add_pod(pod("hermit", gpus=2, affinity=away(affinity_term("kubernetes.io/hostname", job="0"))))
    lines.decide()
    assert len(lines.queue._lines) == 3, "the hermit, whom it minds, and the others"
    lines.fleet.add_node(node("n1", gpus=4))
    assert [one.pod.name for one in lines.decide() if isinstance(one, Bind)] == ["hermit", "p1"]


def test_who_could_not_be_told_is_told_again_and_who_only_looks_is_not() -> None:
    lines = full(3)
    found = [one for one in lines.decide() if isinstance(one, Wait)]
    lines.queue.learn([(found[1], Stale("no answer")), (found[2], Refused("", OBSERVING)), (found[0], Applied())])
    again = {one.pod.name for one in lines.decide() if isinstance(one, Wait)}
    assert again == {found[0].pod.name, found[1].pod.name}


def test_a_pod_that_could_not_be_bound_is_passed_over_and_its_turn_comes_again() -> None:
    lines = full(2)
    lines.decide()
    lines.fleet.add_node(node("n1", gpus=2))
    lines.off = {"u0": 10}
    assert [one.pod.name for one in lines.decide() if isinstance(one, Bind)] == ["p001"]
    lines.off = {}
    assert [one.pod.name for one in lines.decide() if isinstance(one, Bind)] == ["p000"]


def test_after_five_minutes_everybody_is_asked_again_whatever_has_changed() -> None:
    lines = full(2)
    lines.decide()
    before = lines.queue._epoch
    lines.decide()
    assert lines.queue._epoch == before
    lines.now_ns += FLUSH_NS
    lines.decide()
    assert lines.queue._epoch == before + 1


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("0/41 nodes are available: 41 Insufficient cpu", "0/8 nodes are available: 8 Insufficient cpu", True),
        ("0/1 nodes are available: 1 Insufficient a/mig-1g.10gb", "0/1 nodes are available: 1 Insufficient a/mig-2g.20gb", False),
        ("gang default/train-7 needs 4 pods in one rack; the best, r1, holds 3", "gang default/train-7 needs 4 pods in one rack; the best, r1, holds 2", True),
        ("no nodes available to schedule pods", "0/1 nodes are available: 1 Too many pods", False),
    ],
)  # fmt: skip
def test_reasons_are_of_one_kind_where_only_counts_differ(one: str, other: str, same: bool) -> None:
    assert (Reason(one).kind == Reason(other).kind) is same


def test_a_pod_of_a_group_that_cannot_be_there_is_asked_again_when_there_is_room() -> None:
    """And one that waited for its group is asked once the cluster is seen to have no groups of that project."""
    lines = Lines(fleet(node("a", gpus=1)), strict=True)
    named = {"scheduling.x-k8s.io/pod-group": "g"}
    lines.absent = frozenset({COSCHEDULING})
    lines.fleet.add_pod(pod("large", gpus=2, labels=named))
    assert lines.waits() == 1
    lines.fleet.add_node(node("b", gpus=2))
    assert [one.node.name for one in lines.decide() if isinstance(one, Bind)] == ["b"]
    lines.absent = frozenset()
    assert lines.waits() == 1
    lines.absent = frozenset({COSCHEDULING})
    assert [one.node.name for one in lines.decide() if isinstance(one, Bind)] == ["b"]
