"""Tables that follow the fleet change by change are equal to those built from scratch."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import affinity_term, away, fleet, node, pod
from deep_seeds import examples
from placement_checks import check_table_equals_rebuild
from random_clusters import Changes
from tonnage.fleet.columns import BindingJournal
from tonnage.fleet.state import Fleet
from tonnage.scheduling.place import Cache
from tonnage.scheduling.terms import Tallies


@settings(max_examples=examples(20), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(5, 30))
def test_views_and_tallies_equal_a_rebuild_after_every_change(rng: Random, steps: int) -> None:
    made = Fleet()
    cache = Cache(made)

    def check() -> None:
        check_table_equals_rebuild(cache)

    changes = Changes(rng, made, check)
    for _ in range(steps):
        changes.step()


def test_tables_that_fell_behind_the_journal_start_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BindingJournal, "KEPT", 4)
    made = fleet(
        node("a", zone="z"), node("b", zone="z"),
        pods=[pod("p", labels={"app": "x"}, affinity=away(affinity_term(app="x")))],
    )  # fmt: skip
    cache = Cache(made)
    check_table_equals_rebuild(cache)
    for i in range(12):
        made.bind(0, i % 2)
        made.unbind(0)
    made.bind(0, 0)
    assert made.journal.since(0) is None
    check_table_equals_rebuild(cache)


def test_a_tally_counts_the_bound_pods_of_its_classes_on_each_node() -> None:
    made = fleet(node("a"), node("b"), bound={"a": [pod("p", labels={"app": "x"}), pod("q")]})
    tallies = Tallies(made)
    counts = tallies.get("x", lambda c: c.labels == {"app": "x"})
    assert counts[:2].tolist() == [1, 0]
    made.bind(made.add_pod(pod("r", labels={"app": "x"}, cpu=2)), 1)
    made.unbind(0)
    tallies.refresh()
    assert counts[:2].tolist() == [0, 1]
    assert np.array_equal(counts, tallies.get("x", lambda c: False))


def test_a_tally_that_is_told_which_labels_all_have_counts_the_same_pods() -> None:
    labels = ({"app": "x", "tier": "a"}, {"app": "x"}, {"app": "y", "tier": "a"}, {})
    made = fleet(node("a"), node("b"), bound={"a": [pod(f"p{i}", labels=one) for i, one in enumerate(labels)]})
    selected = {"app": "x"}
    plain, told = Tallies(made), Tallies(made)

    def counts(of: Tallies, hint: dict[str, str]) -> list[int]:
        of.refresh()
        return of.get("x", lambda c: selected.items() <= c.labels.items(), labels=hint)[:2].tolist()

    assert counts(plain, {}) == counts(told, selected) == [2, 0]
    made.bind(made.add_pod(pod("later", labels={"app": "x", "new": "yes"})), 1)
    assert counts(plain, {}) == counts(told, selected) == [2, 1]
    assert Tallies(made).get("z", lambda c: False, labels={"app": "nobody"})[:2].tolist() == [0, 0]
