"""The published fragmentation policy against its definition, computed slowly in floats."""

from __future__ import annotations

from random import Random

import pytest
from value_cases import points, random_fleet, share, typical

import tonnage.scheduling.value.view as value_view
from builders import fleet, node, pod
from deep_seeds import deep
from tonnage.decisions import Bind
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet
from tonnage.scheduling import place
from tonnage.scheduling.place import Cache
from tonnage.scheduling.value.mix import Mix
from tonnage.scheduling.view import NEVER, TIE_BITS


def _keys(made: Fleet, row: int, policy: str = "fgd", cache: Cache | None = None) -> list[int]:
    view = (cache or Cache(made)).view(made.pod_class(row), policy)
    return [int(view.key[n]) for n in made.node_rows()]


@pytest.mark.parametrize("clusters", [130, *deep([400])])
def test_scores_are_those_of_the_definition_on_hundreds_of_small_clusters(clusters: int) -> None:
    compared = 0
    for seed in range(clusters):
        made = random_fleet(Random(seed))
        mix = typical([p.spec for p in made.pods if p is not None])
        if not any(gpus for _, _, gpus, _, _ in mix):
            continue
        cache = Cache(made)
        for row in made.pending:
            view = cache.view(made.pod_class(row), "fgd")
            for n in made.node_rows():
                if view.key[n] != NEVER:
                    parts = dict(view.parts(n))
                    assert parts["fragment"] == points(mix, made, n, made.pod(row).spec), (seed, made.pod(row).spec)
                    known = round(1000 * parts["fragment"]) + view.scale * int(parts["preferred"])
                    assert int(view.key[n]) >> TIE_BITS == known
                    compared += 1
    assert compared > 2.5 * clusters


def test_the_best_score_wins_and_the_earlier_name_where_they_are_equal() -> None:
    for seed in range(200):
        made = random_fleet(Random(seed), pending=1)
        (row,) = made.pending
        mix = typical([p.spec for p in made.pods if p is not None])
        fitting = place.feasible(made, row)
        (decision,) = place.decide(Snapshot(0, made), place.Settings("fgd"))
        assert isinstance(decision, Bind) == bool(fitting)
        if isinstance(decision, Bind):
            best = max(fitting, key=lambda n: points(mix, made, n, made.pod(row).spec))
            assert decision.node.name == made.node(best).spec.name


@pytest.mark.parametrize("policy", ["fgd", "tonnage"])
def test_nodes_weighed_one_by_one_and_all_at_once_have_the_same_keys(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(60):
        made = random_fleet(Random(seed))
        one_by_one = [_keys(made, row, policy) for row in made.pending]
        monkeypatch.setattr(value_view, "FEW", -1)
        at_once = [_keys(made, row, policy) for row in made.pending]
        monkeypatch.undo()
        assert one_by_one == at_once


@pytest.mark.parametrize("policy", ["fgd", "tonnage", "bestfit"])
@pytest.mark.parametrize("fleets", [6, *deep([16])])
def test_keys_kept_up_to_date_are_those_of_a_fresh_table(policy: str, fleets: int) -> None:
    for seed in range(fleets):
        rng = Random(seed)
        made = random_fleet(rng, pending=6)
        mix = Mix.of(made)
        kept = Cache(made, mix)
        for _ in range(8):
            row = rng.randrange(len(made.pods))
            if made.pods[row] is None:
                continue
            if made.pod(row).node >= 0:
                made.unbind(row)
            elif nodes := place.feasible(made, row):
                made.bind(row, rng.choice(nodes))
            if rng.random() < 0.1:
                made.set_schedulable(rng.choice(made.node_rows()), rng.random() < 0.5)
            for waiting in made.pending:
                fresh = Cache(made, mix)
                assert _keys(made, waiting, policy, kept) == _keys(made, waiting, policy, fresh)


def test_a_share_goes_to_the_device_that_leaves_the_smallest_fragment() -> None:
    mix = [share(f"h{i}", 500) for i in range(4)] + [share("o", 250)]
    made = fleet(node("a", gpus=2), pods=[*mix, share("p", 250)])
    first = made.pod_by_key["default", "o"]
    made.bind(first, 0, (1,))
    row = made.pod_by_key["default", "p"]
    cache = Cache(made)
    assert cache.view(made.pod_class(row), "fgd").devices(0) == (1,)


def test_without_pods_that_ask_for_devices_all_nodes_that_fit_are_as_good() -> None:
    made = fleet(node("b", gpus=1), node("a", gpus=4), pods=[pod("p")])
    (row,) = made.pending
    assert len({key >> TIE_BITS for key in _keys(made, row)}) == 1
