"""The replica calculator, called with rows: pods, samples and a target in, a count out."""

from __future__ import annotations

import pytest

from tonnage.scaling.calculator import (
    Calculated,
    PodSample,
    SelectedPod,
    Windows,
    external_per_pod_replicas,
    external_replicas,
    metric_replicas,
    object_per_pod_replicas,
    object_replicas,
    raw_resource_replicas,
    resource_replicas,
)
from tonnage.scaling.replicas import Tolerance
from tonnage.units import NS_PER_S

S = NS_PER_S
NOW = 10_000 * S
OLD = NOW - 3_600 * S


def pods(*states: str, request: int = 1000, **changed: object) -> list[SelectedPod]:
    """One pod a word: ready, unready, pending, failed, deleted, no-condition, succeeded."""
    made = {
        "ready": {},
        "unready": {"ready": "False", "ready_changed_ns": OLD},
        "pending": {"phase": "Pending", "ready": "False"},
        "failed": {"phase": "Failed", "ready": "False"},
        "succeeded": {"phase": "Succeeded", "ready": "False"},
        "deleted": {"deleted": True},
        "no-condition": {"ready": None},
    }
    return [
        SelectedPod(f"p{i}", **{"started_ns": OLD, "requests": {"c": request}, **made[state], **changed})  # type: ignore[arg-type]
        for i, state in enumerate(states)
    ]


def samples(*milli: int | None, at_ns: int = NOW - 15 * S, window_s: int = 60) -> dict[str, PodSample]:
    return {f"p{i}": PodSample(value, at_ns, window_s * S) for i, value in enumerate(milli) if value is not None}


def cpu(states: str, values: list[int | None], target: int, current: int | None = None, **more: object) -> Calculated:
    found = pods(*states.split())
    return resource_replicas(
        found,
        samples(*values),
        current_replicas=len(found) if current is None else current,
        target_utilization=target,
        resource="cpu",
        now_ns=NOW,
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("states", "values", "target", "expected"),
    [
        ("ready ready ready", [300, 500, 700], 30, Calculated(5, 50, 500)),
        ("ready ready ready", [330, 330, 330], 30, Calculated(3, 33, 330)),  # 1.1 is within tolerance
        ("ready ready ready", [340, 340, 340], 30, Calculated(4, 34, 340)),
        ("ready ready ready", [309, 309, 309], 10, Calculated(9, 30, 309)),  # utilization is cut to whole percent
        ("ready ready ready", [100, 100, 100], 30, Calculated(1, 10, 100)),
        ("ready ready pending", [800, 800, None], 40, Calculated(4, 80, 800)),  # 1600 m over three pods
        ("ready pending pending", [800, None, None], 40, Calculated(3, 80, 800)),  # would turn round: stays
        ("ready ready pending", [100, 100, None], 40, Calculated(1, 10, 100)),  # left out on the way down
        ("ready ready ready", [800, 800, None], 40, Calculated(4, 80, 800)),  # a missing pod uses nothing
        ("ready ready ready", [100, 100, None], 50, Calculated(3, 10, 100)),  # or all of its request: 40 of 50
        ("ready ready ready", [100, 100, None], 200, Calculated(2, 10, 100)),  # above 100 % the target: (10+10+200)/3
        ("ready ready failed", [800, 800, 800], 40, Calculated(4, 80, 800)),
        ("ready ready deleted", [800, 800, 800], 40, Calculated(4, 80, 800)),
        ("ready ready succeeded", [800, 800, None], 40, Calculated(4, 80, 800)),  # counts as missing
        ("ready ready no-condition", [800, 800, 900], 40, Calculated(4, 80, 800)),
    ],
)
def test_utilization_over_pods(states: str, values: list[int | None], target: int, expected: Calculated) -> None:
    assert cpu(states, values, target) == expected


@pytest.mark.parametrize(
    ("started_s", "ready", "changed_s", "sampled_s", "window_s", "counts"),
    [
        (-60, "True", -50, 0, 30, True),  # ready for the whole window
        (-60, "True", -20, 0, 30, False),  # the sample has time in it in which the pod was not ready
        (-60, "True", -30, 0, 30, True),  # exactly the window
        (-60, "False", -50, 0, 10, False),
        (-60, "Unknown", -50, 0, 10, True),  # only False is not ready
        (-299, "False", -100, 0, 10, False),
        (-301, "False", -280, 0, 10, False),  # became unready within 30 s of its start: never was ready
        (-301, "False", -270, 0, 10, True),  # was ready once: its load counts
        (-301, "True", -1, 0, 60, True),  # after the initialization period windows do not matter
        (None, "True", -50, 0, 30, False),
    ],
)
def test_cpu_of_a_pod_that_may_still_be_starting(started_s, ready, changed_s, sampled_s, window_s, counts) -> None:
    new = SelectedPod(
        "new",
        ready=ready,
        started_ns=None if started_s is None else NOW + started_s * S,
        ready_changed_ns=NOW + changed_s * S,
        requests={"c": 1000},
    )
    old = SelectedPod("old", started_ns=OLD, requests={"c": 1000})
    taken = {"new": PodSample(900, NOW + sampled_s * S, window_s * S), "old": PodSample(300, NOW, window_s * S)}
    found = resource_replicas([new, old], taken, current_replicas=2, target_utilization=60, resource="cpu", now_ns=NOW)
    assert found.milli == (600 if counts else 300)
    memory = resource_replicas(
        [new, old], taken, current_replicas=2, target_utilization=60, resource="memory", now_ns=NOW
    )
    assert memory.milli == 600  # readiness plays no part


def test_the_periods_are_the_controllers_flags() -> None:
    new = SelectedPod(
        "p0", ready="False", started_ns=NOW - 100 * S, ready_changed_ns=NOW - 50 * S, requests={"c": 1000}
    )
    asked = {"current_replicas": 1, "target_milli": 100, "resource": "cpu", "now_ns": NOW}
    assert raw_resource_replicas([new], samples(500), **asked).error
    flags = Windows(cpu_initialization_ns=60 * S, initial_readiness_delay_ns=10 * S)
    assert raw_resource_replicas([new], samples(500), **asked, windows=flags) == Calculated(5, None, 500)


@pytest.mark.parametrize(
    ("made", "values", "container", "error"),
    [
        ({"requests": {"c": None}}, samples(500), "", "missing request for cpu in container c of Pod p0"),
        (
            {"requests": {"c": 500, "side": None}},
            samples(500),
            "",
            "missing request for cpu in container side of Pod p0",
        ),
        ({"requests": {"c": 500}}, samples(500), "other", "container other not found in Pod p0"),
        ({"pod_level": True, "requests": {"c": None}}, samples(500), "", "missing pod-level request for cpu in Pod p0"),
        ({"requests": {"c": 0}}, samples(500), "", "no metrics returned matched known pods"),
        ({}, {}, "", "did not receive metrics for targeted pods"),
        ({"phase": "Pending"}, samples(500), "", "did not receive metrics for targeted pods"),
        ({}, None, "", "unable to get metrics for resource cpu: no metrics returned from resource metrics API"),
    ],
)
def test_errors_are_the_controllers(made, values, container, error) -> None:
    pod = SelectedPod("p0", **{"started_ns": OLD, "requests": {"c": 1000}, **made})
    found = resource_replicas(
        [pod],
        values,
        current_replicas=1,
        target_utilization=50,
        resource="cpu",
        now_ns=NOW,
        container=container,
    )
    assert (found.replicas, found.utilization) == (0, None)
    assert found.error.startswith(error)


def test_without_pods_there_is_no_count() -> None:
    gone = samples(500)
    found = metric_replicas([], gone, current_replicas=1, target_milli=100)
    assert found.error == "no pods returned by selector while calculating replica count"
    value = external_replicas([], [500], current_replicas=1, target_milli=100)
    assert value.error.startswith("unable to calculate ready pods: no pods returned")
    assert external_replicas([], [500], current_replicas=0, target_milli=100) == Calculated(5, None, 500)


def test_a_container_has_its_own_request_and_a_pod_level_request_replaces_the_sum() -> None:
    def utilization(pod: SelectedPod, container: str = "") -> int | None:
        return resource_replicas(
            [pod],
            samples(300),
            current_replicas=1,
            target_utilization=50,
            resource="cpu",
            now_ns=NOW,
            container=container,
        ).utilization

    both = SelectedPod("p0", started_ns=OLD, requests={"main": 500, "proxy": 1000})
    assert [utilization(both, name) for name in ("", "main", "proxy")] == [20, 60, 30]
    whole = SelectedPod("p0", started_ns=OLD, requests={"main": 500, "proxy": None}, pod_level=True, pod_request=600)
    assert [utilization(whole, name) for name in ("", "main")] == [50, 60]
    of_another = SelectedPod("p0", started_ns=OLD, requests={"main": 500, "proxy": None}, pod_level=True)
    assert utilization(of_another) == 60


def test_a_pods_metric_counts_pods_that_are_not_ready_and_samples_of_pods_that_are_gone() -> None:
    assert metric_replicas(pods("ready", "unready"), samples(30, 10), current_replicas=2, target_milli=10).replicas == 4
    ghost = {**samples(30, 30), "gone": PodSample(0)}
    assert metric_replicas(pods("ready", "ready"), ghost, current_replicas=2, target_milli=10) == Calculated(
        4, None, 20
    )


@pytest.mark.parametrize(
    ("values", "current", "states", "expected"),
    [
        ([8600], 3, "ready ready ready", Calculated(6, None, 8600)),
        ([4000, 4600], 3, "ready ready ready", Calculated(6, None, 8600)),  # series add up
        ([8600], 3, "ready unready pending", Calculated(2, None, 8600)),  # ready pods count
        ([4840], 3, "ready ready ready", Calculated(3, None, 4840)),  # within tolerance
        ([2**63 - 1, 5], 3, "ready", Calculated(2**31 - 1, None, 2**63 - 1)),
        ([], 3, "ready", Calculated(0, None, 0, "unable to get external metric q")),
    ],
)
def test_external_metrics_with_a_value(values, current, states, expected) -> None:
    found = external_replicas(pods(*states.split()), values, current_replicas=current, target_milli=4400, name="q")
    assert (found.replicas, found.milli) == (expected.replicas, expected.milli)
    assert found.error.startswith(expected.error) and bool(found.error) == bool(expected.error)


@pytest.mark.parametrize(
    ("value", "status", "expected"),
    [
        (8600, 3, Calculated(4, None, 2867)),  # the mean is rounded up
        (6600, 3, Calculated(3, None, 2200)),
        (0, 3, Calculated(0, None, 0)),
        (-500, 3, Calculated(0, None, -166)),
    ],
)
def test_average_values_of_one_object_and_of_external_series_are_counted_alike(value, status, expected) -> None:
    assert object_per_pod_replicas(value, status_replicas=status, target_milli=2200) == expected
    if value >= 0:
        assert external_per_pod_replicas([value], status_replicas=status, target_milli=2200) == expected


def test_a_negative_sum_of_external_series_counts_as_an_overflow() -> None:
    found = external_per_pod_replicas([-5], status_replicas=2, target_milli=2200)
    assert found == Calculated(2**31 - 1, None, 2**63 - 1)


def test_tolerance_is_per_direction() -> None:
    band = Tolerance(up=0.5, down=0.0)
    up = object_replicas(pods("ready"), 1400, current_replicas=1, target_milli=1000, tolerance=band)
    down = object_replicas(pods("ready", "ready"), 499, current_replicas=2, target_milli=1000, tolerance=band)
    assert (up.replicas, down.replicas) == (1, 1)


def test_counts_that_do_not_fit_wrap_where_the_controller_does_not_cap_them() -> None:
    huge = samples(2**62)
    plain = metric_replicas(pods("ready"), huge, current_replicas=1, target_milli=1)
    assert plain.replicas == -(2**31)
    assert object_replicas(pods("ready"), 2**62, current_replicas=1, target_milli=1).replicas == 2**31 - 1
    assert object_per_pod_replicas(2**62, status_replicas=1, target_milli=1).replicas == -(2**31)
