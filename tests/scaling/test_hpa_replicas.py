from __future__ import annotations

import math

import pytest
from scaling_builders import pod

from tonnage.scaling.replicas import (
    PodState,
    Proposal,
    Scaled,
    Tolerance,
    propose_average_value,
    propose_pod_average,
    propose_utilization,
    propose_value,
    to_milli,
)

BAND = Tolerance()


@pytest.mark.parametrize(
    ("value", "target", "replicas", "asked"),
    [
        (100, 70, 2, 2),  # avg of GPU utilisation at its ceiling asks for 2, and for ever
        (100, 70, 10, 2),
        (71, 70, 1, 1),  # within 10 %
        (78, 70, 1, 2),
        (1, 80, 3, 1),  # a share of 1 against a threshold of 80
        (0, 10, 5, 0),
        (35, 10, 2, 4),
        (30, 10, 3, 3),
        (33, 10, 3, 3),  # ratio 1.1 is still within
        (33.1, 10, 3, 4),
    ],
)
def test_an_average_value_asks_for_the_sum_over_the_target_whatever_runs_now(value, target, replicas, asked) -> None:
    scaled = Scaled(replicas, replicas, replicas)
    assert propose_average_value(to_milli(value), to_milli(target), scaled, BAND).replicas == asked


def test_within_tolerance_an_average_value_keeps_the_existing_pods_not_the_asked_ones() -> None:
    assert propose_average_value(30_000, 10_000, Scaled(spec=5, status=3, ready=3), BAND).replicas == 3


@pytest.mark.parametrize(
    ("value", "target", "spec", "ready", "asked"),
    [
        (100, 70, 2, 2, 3),  # Value grows with what is ready: 2 × 1.43
        (100, 70, 3, 3, 5),
        (100, 70, 4, 2, 3),  # pods that are not ready do not multiply
        (75, 70, 4, 4, 4),
        (30, 70, 4, 4, 2),
        (140, 70, 0, 0, 2),  # at zero there is no tolerance and no multiplication
    ],
)
def test_a_value_multiplies_the_ready_pods_by_the_ratio(value, target, spec, ready, asked) -> None:
    assert propose_value(to_milli(value), to_milli(target), Scaled(spec, spec, ready), BAND).replicas == asked


def test_tolerance_may_differ_by_direction() -> None:
    band = Tolerance(up=0.0, down=0.5)
    assert propose_value(10_100, 10_000, Scaled(4, 4, 4), band).replicas == 5
    assert propose_value(5_000, 10_000, Scaled(4, 4, 4), band).replicas == 4
    assert propose_value(4_900, 10_000, Scaled(4, 4, 4), band).replicas == 2


@pytest.mark.parametrize(
    ("values", "target", "asked"),
    [
        ([10, 20, 30], 10, 6),  # mean 20, ratio 2
        ([10, 10.5, 11], 10, 3),
        ([5, 5, 5, 5], 10, 2),
        ([30, None, None], 10, 3),  # missing count 0 on the way up: mean 10, within tolerance
        ([60, None, None], 10, 6),
        ([1, None, None], 10, 3),  # missing count as the target on the way down: mean 7, 2.1 pods
        ([0, 0, 0, None], 10, 1),
    ],
)
def test_missing_pods_damp_a_change_of_a_pod_average(values, target, asked) -> None:
    readings = [pod(f"p{i}", value) for i, value in enumerate(values)]
    assert propose_pod_average(readings, to_milli(target), len(values), BAND).replicas == asked


def test_unready_pods_count_zero_on_the_way_up_and_are_left_out_on_the_way_down() -> None:
    up = [pod("a", 30), pod("b", 30), pod("new", None, state=PodState.UNREADY)]
    assert propose_pod_average(up, 10_000, 3, BAND) == Proposal(6, 2.0, 30_000)  # 60 over three pods, not over two
    down = [pod("a", 2), pod("b", 2), pod("new", None, state=PodState.UNREADY)]
    assert propose_pod_average(down, 10_000, 3, BAND).replicas == 1


def test_assumptions_about_missing_pods_never_turn_the_direction_round() -> None:
    up_turned_down = [pod("a", 12), *(pod(f"m{i}", None) for i in range(5))]
    assert propose_pod_average(up_turned_down, 10_000, 6, BAND).replicas == 6


def test_ignored_pods_and_pods_without_samples_give_no_answer() -> None:
    assert propose_pod_average([], 10_000, 0, BAND).replicas is None
    gone = [pod("a", 30, state=PodState.IGNORED)]
    assert propose_pod_average(gone, 10_000, 1, BAND) == Proposal(
        None, error="did not receive metrics for targeted pods (pods might be unready)"
    )


def test_utilisation_is_a_share_of_requests_in_whole_percent() -> None:
    readings = [pod("a", 0.9, request=1), pod("b", 0.9, request=1)]
    assert propose_utilization(readings, 60, 2, BAND) == Proposal(3, 1.5, 90_000)


def test_a_missing_pod_counts_as_its_whole_request_on_the_way_down_or_more_if_the_target_is_higher() -> None:
    readings = [pod("a", 0.1, request=1), pod("b", None, request=1)]
    assert propose_utilization(readings, 60, 2, BAND).replicas == 2  # 55 % of 60 is within tolerance
    assert propose_utilization(readings, 150, 2, BAND).replicas == 2  # b counts 150 %, mean 80 of 150: 1.07 → 2


def test_utilisation_without_requests_is_an_error() -> None:
    assert propose_utilization([pod("a", 0.5, request=0)], 60, 1, BAND).replicas is None


def test_milli_values_round_up_from_the_decimal_form() -> None:
    assert [to_milli(v) for v in (0.57, 8.41, 33.001, 0.0001, 70)] == [570, 8_410, 33_001, 1, 70_000]


def test_no_existing_pods_and_no_load_ask_for_nothing() -> None:
    proposal = propose_average_value(0, 10_000, Scaled(0, 0, 0), BAND)
    assert proposal.replicas == 0
    assert math.isnan(proposal.ratio or 0.0)
