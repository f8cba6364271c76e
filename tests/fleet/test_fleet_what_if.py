"""A what-if leaves no trace, and every invariant holds after every change."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import fleet, node, pod, taint
from deep_seeds import examples
from random_clusters import Changes, columns
from tonnage.fleet.invariants import violations
from tonnage.fleet.state import Fleet


def test_changes_of_a_what_if_are_seen_inside_and_gone_after() -> None:
    made = fleet(node("a", gpus=2), pods=[pod("p", gpus=1)])
    before = columns(made)
    with made.what_if():
        row = made.add_node(node("b", zone="z"))
        made.bind(0, row - 1)
        assert made.pod(0).devices == (0,)
        assert violations(made) == []
    assert columns(made) == before


def test_a_what_if_inside_another_undoes_its_own_changes_only() -> None:
    made = fleet(node("a"), pods=[pod("p"), pod("q")])
    before = columns(made)
    with made.what_if():
        made.bind(0, 0)
        halfway = columns(made)
        with made.what_if():
            made.bind(1, 0)
            made.unbind(0)
        assert columns(made) == halfway
    assert columns(made) == before


def test_an_exception_inside_a_what_if_undoes_it_and_goes_on() -> None:
    made = fleet(node("a"), pods=[pod("p")])
    before = columns(made)
    with pytest.raises(RuntimeError), made.what_if():
        made.bind(0, 0)
        raise RuntimeError
    assert columns(made) == before
    made.bind(0, 0)
    assert violations(made) == []


def test_a_node_comes_back_as_it_was_though_its_row_was_used_meanwhile() -> None:
    made = fleet(node("a", zone="z", gpus=2, taints=["x=y:NoSchedule"]), node("b"))
    made.set_schedulable(0, False)
    before = columns(made)
    with made.what_if():
        made.remove_node(0)
        assert made.add_node(node("c", zone="other")) == 0
        made.set_taints(0, (taint("k=v:NoExecute"),))
    assert columns(made) == before
    assert violations(made) == []


def test_a_removed_pod_comes_back_on_its_node_with_its_devices() -> None:
    made = fleet(node("a", gpus=4), bound={"a": [pod("p", gpus=2)]})
    before = columns(made)
    with made.what_if():
        made.remove_pod(0)
        made.bind(made.add_pod(pod("q", gpus=4)), 0)
    assert columns(made) == before


@settings(max_examples=examples(30), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(5, 60))
def test_random_changes_keep_every_invariant_and_what_ifs_leave_no_trace(rng: Random, steps: int) -> None:
    made = Fleet()

    def check() -> None:
        assert violations(made) == []

    changes = Changes(rng, made, check)
    for _ in range(steps):
        changes.step()
