"""How many Jobs KEDA creates for a ScaledJob."""

from __future__ import annotations

import pytest

from tonnage.scaling.scaled_jobs import (
    Asked,
    Calculation,
    JobScaling,
    Strategy,
    TriggerQueue,
    asked,
    is_pending,
    to_create,
)


@pytest.mark.parametrize(
    ("calculation", "queues", "expected"),
    [
        (
            Calculation.MAX,
            [TriggerQueue(20, 2), TriggerQueue(10, 1), TriggerQueue(90, 1, active=False)],
            Asked(True, 20, 10),
        ),
        (
            Calculation.MIN,
            [TriggerQueue(20, 2), TriggerQueue(9, 1), TriggerQueue(1, 1, active=False)],
            Asked(True, 9, 9),
        ),
        (Calculation.AVG, [TriggerQueue(20, 2), TriggerQueue(9, 1)], Asked(True, 15, 10)),  # 14.5 and 9.5, rounded up
        (Calculation.SUM, [TriggerQueue(20, 2), TriggerQueue(9, 1)], Asked(True, 29, 19)),
        (
            Calculation.SUM,
            [TriggerQueue(90, 1), TriggerQueue(90, 1)],
            Asked(True, 180, 100),
        ),  # no more than maxReplicaCount
        (Calculation.MAX, [TriggerQueue(5, 0)], Asked(True, 5, 0)),
        (Calculation.MAX, [TriggerQueue(20, 1, active=False)], Asked(False, 0, 0)),
        (Calculation.MAX, [], Asked(False, 0, 0)),
    ],
)
def test_which_of_several_triggers_counts(calculation, queues, expected) -> None:
    assert asked(JobScaling(calculation=calculation), queues) == expected


@pytest.mark.parametrize(
    ("strategy", "most", "running", "pending", "created"),
    [
        (Strategy.DEFAULT, 10, 4, 2, 6),  # running Jobs are taken off
        (Strategy.DEFAULT, 3, 4, 0, 0),
        (Strategy.ACCURATE, 10, 4, 2, 8),  # only those that wait
        (Strategy.ACCURATE, 10, 15, 2, 5),  # 10 + 15 − 2 is more than 20: what is free
        (Strategy.EAGER, 10, 4, 2, 10),
        (Strategy.EAGER, 18, 4, 2, 14),
        (Strategy.EAGER, 10, 16, 4, 0),
        (Strategy.CUSTOM, 10, 5, 0, 7),  # 1 deducted, and 5 × 0.5 cut to 2
    ],
)
def test_what_runs_and_waits_is_taken_off_by_the_strategy(strategy, most, running, pending, created) -> None:
    scaling = JobScaling(max_replicas=20, strategy=strategy, deduction=1, running_share=0.5)
    assert to_create(scaling, Asked(True, 100, most), running=running, pending=pending) == created


def test_eager_creates_for_what_is_free_not_for_what_waits() -> None:
    scaling = JobScaling(max_replicas=20, strategy=Strategy.EAGER)
    assert to_create(scaling, Asked(True, 1, 5), running=0, pending=0) == 5
    assert to_create(JobScaling(max_replicas=20), Asked(True, 1, 5), running=0, pending=0) == 1


def test_custom_without_a_share_is_the_default() -> None:
    scaling = JobScaling(strategy=Strategy.CUSTOM, deduction=3)
    assert to_create(scaling, Asked(True, 100, 10), running=2, pending=0) == 8


@pytest.mark.parametrize(
    ("running", "created"),
    [(0, 3), (2, 1), (3, 4), (5, 2)],
)
def test_the_minimum_comes_first_and_is_not_counted_afterwards(running: int, created: int) -> None:
    scaling = JobScaling(min_replicas=3, max_replicas=10)
    wanted = asked(scaling, [TriggerQueue(4, 1)])
    assert to_create(scaling, wanted, running=running, pending=0) == created


def test_a_minimum_keeps_it_active_and_above_the_maximum_it_is_the_maximum() -> None:
    scaling = JobScaling(min_replicas=30, max_replicas=10)
    assert (scaling.lowest, scaling.room) == (10, 10)
    assert to_create(scaling, asked(scaling, []), running=4, pending=0) == 6
    assert to_create(JobScaling(), asked(JobScaling(), []), running=0, pending=0) == 0


@pytest.mark.report(406)
@pytest.mark.parametrize(
    ("wanted", "phases", "conditions", "pending"),
    [
        ((), ["Pending", "Pending"], [], True),
        ((), ["Pending", "Running"], [], False),
        ((), ["Failed"], [], True),
        (("Ready", "PodScheduled"), ["Running", "Running"], [{"PodScheduled"}, {"Ready"}], True),  # no pod has both
        (("Ready", "PodScheduled"), ["Running", "Pending"], [{"PodScheduled", "Ready"}, set()], False),
    ],
)
def test_a_job_waits_until_one_of_its_pods_has_all_conditions(wanted, phases, conditions, pending) -> None:
    assert is_pending(JobScaling(pending_conditions=wanted), phases, conditions) is pending
