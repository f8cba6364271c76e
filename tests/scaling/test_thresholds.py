from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.decisions import Ref
from tonnage.errors import InputError
from tonnage.scaling.thresholds import WorkloadUse, decide, profile, profiles, two_sided
from tonnage.units import NS_PER_S

A, B, C = (Ref("Deployment", f"model-{x}", "inference") for x in "abc")


@pytest.mark.parametrize(
    ("name", "up", "down", "cooldown_s"),
    [
        ("realtime-inference", 70, 30, 60),
        ("batch-processing", 85, 40, 300),
        ("interactive-service", 60, 25, 30),
        ("conservative-start", 80, 20, 300),
    ],
)
def test_the_published_thresholds(name: str, up: float, down: float, cooldown_s: int) -> None:
    found = profile(name)
    assert (found.up, found.down, found.cooldown_ns) == (up, down, cooldown_s * NS_PER_S)
    assert found.source


def test_an_unknown_profile_is_told_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="one of realtime-inference"):
        profile("fast")


@pytest.mark.parametrize(
    ("used", "replicas", "wanted"),
    [(71, 2, 3), (70, 2, 2), (30, 2, 2), (29, 2, 1), (29, 1, 1), (90, 4, 4), (None, 2, 2)],
)
def test_one_step_outside_the_thresholds_and_none_between_or_without_data(used, replicas, wanted) -> None:
    load = WorkloadUse(A, used, replicas, min_replicas=1, max_replicas=4)
    decision, reason = two_sided(profile("realtime-inference"), load, last_change_ns=None, now_ns=0)
    assert (decision.replicas if decision else replicas) == wanted
    assert reason.verdict


def test_nothing_changes_during_the_cooldown() -> None:
    rule, load = profile("realtime-inference"), WorkloadUse(A, 95, 2)
    held, reason = two_sided(rule, load, last_change_ns=0, now_ns=59 * NS_PER_S)
    assert held is None and reason.alternatives[0].name == "3 replicas"
    assert two_sided(rule, load, last_change_ns=0, now_ns=60 * NS_PER_S)[0] is not None


def test_a_busy_model_takes_from_the_pool_and_an_idle_one_gives_back() -> None:
    decisions = decide([WorkloadUse(A, 85, 2), WorkloadUse(B, 20, 3), WorkloadUse(C, 50, 1)], pool_free_gpus=1)
    assert [(d.target.name, d.current, d.replicas) for d in decisions] == [("model-a", 2, 3), ("model-b", 3, 2)]


def test_an_empty_pool_allocates_nothing_and_the_busiest_comes_first() -> None:
    assert decide([WorkloadUse(A, 85, 2)], pool_free_gpus=0) == ()
    [only] = decide([WorkloadUse(A, 85, 2), WorkloadUse(B, 95, 2)], pool_free_gpus=1)
    assert only.target == B
    assert decide([WorkloadUse(A, 99, 1, gpus_per_replica=4)], pool_free_gpus=3) == ()


def test_no_data_decides_nothing() -> None:
    assert decide([WorkloadUse(A, None, 2)], pool_free_gpus=8) == ()


@given(
    st.sampled_from(sorted(profiles())),
    st.lists(st.one_of(st.none(), st.floats(0, 100)), max_size=30),
    st.integers(1, 5),
)
def test_replicas_stay_within_bounds_and_move_one_step_per_cooldown(name, loads, replicas) -> None:
    rule, last, now = profile(name), None, 0
    for used in loads:
        now += 15 * NS_PER_S
        load = WorkloadUse(A, used, replicas, min_replicas=1, max_replicas=5)
        decision, _ = two_sided(rule, load, last_change_ns=last, now_ns=now)
        if decision is not None:
            assert abs(decision.replicas - replicas) == 1 and 1 <= decision.replicas <= 5
            assert last is None or now - last >= rule.cooldown_ns
            replicas, last = decision.replicas, now
