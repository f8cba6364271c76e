"""The columns of bound pods are at any time what the fleet says."""

from __future__ import annotations

from random import Random

import pytest

from builders import fleet, node, pod
from deep_seeds import part
from gang_builders import member
from preemption_builders import budget, cluster, web
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet
from tonnage.scheduling.bound import BoundPods
from tonnage.scheduling.victims import Candidates

MARKED = {"karpenter.sh/do-not-disrupt": "true"}


def said(pods: BoundPods) -> dict[int, tuple[int, int, int, bool, bool]]:
    columns = (pods.node, pods.class_id, pods.priority, pods.daemon, pods.special)
    rows = [row for row in range(len(pods.node)) if pods.node[row] >= 0]
    return {row: tuple(column[row].item() for column in columns) for row in rows}  # type: ignore[misc]


@pytest.mark.parametrize("seed", part(range(10)))
def test_columns_that_follow_equal_columns_made_anew(seed: int) -> None:
    rng, made = Random(seed), Fleet()
    nodes = [made.add_node(node(f"n{i}", cpu=64)) for i in range(12)]
    pods = BoundPods(made)
    rows: list[int] = []

    def change(step: int) -> None:
        what = rng.random()
        if what < 0.5 or not rows:
            annotations = MARKED if rng.random() < 0.3 else {}
            name, priority = f"p{step}", rng.randint(-2, 2)
            one = pod(name, 0.1, priority=priority, annotations=annotations) if what < 0.4 else member(name)
            rows.append(made.add_pod(one))
            made.bind(rows[-1], rng.choice(nodes), observed=True)
        elif what < 0.75:
            row = rng.choice(rows)
            made.unbind(row)
            made.bind(row, rng.choice(nodes), observed=True)
        else:
            made.remove_pod(rows.pop(rng.randrange(len(rows))))

    for step in range(120):
        change(step)
        if rng.random() < 0.2:
            with made.what_if():
                made.unbind(rows[0]) if rows else None
                pods.refresh()
        if rng.random() < 0.5:
            assert said(pods.refresh()) == said(BoundPods(made).refresh())


@pytest.mark.parametrize("respect", [True, False])
def test_those_counted_as_candidates_are_those_who_may_be_evicted(respect: bool) -> None:
    made = cluster(
        node("a", cpu=64),
        bound={"a": [pod("x"), pod("y", annotations=MARKED), web("w0", gpus=0), web("w1", gpus=0), member("m0", gpus=0), member("m1", gpus=0)]},
        budgets=(budget(max_unavailable=0),),
    )  # fmt: skip
    candidates = Candidates(made.snapshot, BoundPods(made.fleet), respect_budgets=respect)
    candidates.budgets.count()
    assert candidates.count == sum(candidates.evictable(row) for row in range(6)) == (3 if respect else 5)
    candidates.take([made.row("default/x")])
    assert not candidates.evictable(made.row("default/x"))


def test_a_fleet_without_pods_has_no_columns() -> None:
    assert said(BoundPods(fleet(node("a"))).refresh()) == {}
    assert Candidates(Snapshot(0, made := fleet()), BoundPods(made), respect_budgets=True).count == 0
