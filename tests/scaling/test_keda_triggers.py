"""KEDA's triggers beside prometheus: cron, cpu of one container, cached metrics; and public reports on its scaling."""

from __future__ import annotations

import calendar
from dataclasses import replace
from pathlib import Path

import guide_manifests as guide
import pytest
from scaling_builders import TARGET

from tonnage.control.replicas import Autoscalers
from tonnage.decisions import Ref
from tonnage.errors import InputError
from tonnage.fleet.snapshot import Snapshot, WorkloadView
from tonnage.fleet.state import Fleet
from tonnage.metrics.promql import Vector, parse
from tonnage.objects.keda import ScaledObject
from tonnage.scaling.cron import CronWindow
from tonnage.scaling.hpa import Metric
from tonnage.scaling.keda import (
    Fallback,
    KedaSpec,
    KedaState,
    Paused,
    Trigger,
    TriggerValue,
    generated_hpa,
    poll,
    serve,
    thousandths,
    trigger_value,
)
from tonnage.scaling.manifests import keda_spec
from tonnage.scaling.replicas import MetricReading, TargetKind
from tonnage.units import NS_PER_S

CRON = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: m, namespace: inference}
spec:
  scaleTargetRef: {name: model-a-serving}
  cooldownPeriod: 60
  triggers:
    - type: cron
      metadata: {timezone: Europe/Berlin, start: "0 8 * * 1-5", end: "30 18 * * 1-5", desiredReplicas: "4"}
"""


def unix_ns(*date: int) -> int:
    return calendar.timegm((*date, 0)) * NS_PER_S  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("date", "open_"),
    [
        ((2026, 3, 2, 6, 59), False),  # a Monday, Berlin is an hour ahead of UTC
        ((2026, 3, 2, 7, 0), True),
        ((2026, 3, 2, 17, 29), True),
        ((2026, 3, 2, 17, 30), False),
        ((2026, 3, 7, 10, 0), False),  # a Saturday
        ((2026, 7, 6, 6, 0), True),  # two hours in summer
    ],
)
def test_a_cron_window_is_open_between_start_and_end_in_its_time_zone(date: tuple[int, ...], open_: bool) -> None:
    window = CronWindow("0 8 * * 1-5", "30 18 * * 1-5", "Europe/Berlin", 4)
    assert window.is_open(unix_ns(*date)) is open_
    assert window.value(unix_ns(*date)) == (4.0 if open_ else 0.0)


@pytest.mark.parametrize(("hour", "open_"), [(21, False), (22, True), (3, True), (6, False)])
def test_a_cron_window_may_pass_midnight(hour: int, open_: bool) -> None:
    assert CronWindow("0 22 * * *", "0 6 * * ?", "UTC", 2).is_open(unix_ns(2026, 3, 2, hour, 0)) is open_


def test_a_cron_trigger_is_an_external_metric_with_a_target_of_one(tmp_path: Path) -> None:
    [scaled] = guide.read(tmp_path, CRON).of(ScaledObject)
    hpa = generated_hpa(keda_spec(scaled))
    assert hpa is not None
    name = "s0-cron-Europe-Berlin-08xx1-5-3018xx1-5"
    assert hpa.metrics == (Metric("External", name, TargetKind.AVERAGE_VALUE, 1_000),)


@pytest.mark.parametrize(
    ("old", "new", "field", "problem"),
    [
        ("0 8 * * 1-5", "0 8 * *", "start", "'0 8 * *': expected five fields"),
        ("0 8 * * 1-5", "0 25 * * *", "start", "expected five fields of cron (Bad hour)"),
        ("30 18 * * 1-5", "30 18 L * *", "end", "with numbers, names"),
        ("30 18 * * 1-5", "0 0 31 2 *", "end", "'0 0 31 2 *'"),
        ("Europe/Berlin", "Europe/Bonn", "timezone", "'Europe/Bonn': expected an IANA time zone"),
    ],
)
def test_a_schedule_that_is_none_is_told_with_its_line(tmp_path, old, new, field, problem) -> None:
    [scaled] = guide.read(tmp_path, CRON.replace(old, new)).of(ScaledObject)
    with pytest.raises(InputError) as caught:
        keda_spec(scaled)
    [found] = caught.value.problems
    assert found.where.line == 9 and found.where.field == f"spec.triggers[0].metadata.{field}"
    assert problem in found.message


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("timezone: Europe/Berlin, ", "", "metadata.timezone: the field is missing: expected an IANA time zone"),
        (
            'desiredReplicas: "4"',
            'desiredReplicas: "0"',
            "metadata.desiredReplicas: '0': expected a whole number above 0",
        ),
        ("30 18 * * 1-5", "0 8 * * 1-5", "metadata.end: '0 8 * * 1-5': expected another time than start"),
    ],
)
def test_what_keda_makes_no_cron_trigger_of_is_told(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in CRON
    [scaled] = guide.read(tmp_path, CRON.replace(old, new)).of(ScaledObject)
    with pytest.raises(InputError) as caught:
        keda_spec(scaled)
    assert problem in str(caught.value)


class World:
    """One workload without metrics."""

    def __init__(self, replicas: int) -> None:
        self.now_ns, self.replicas = 0, replicas

    def snapshot(self) -> Snapshot:
        view = WorkloadView(TARGET.kind, TARGET.namespace, TARGET.name, self.replicas, ())
        return Snapshot(self.now_ns, Fleet(), {TARGET.workload: view})

    def measure(self, query: str, at_ns: int) -> Vector:
        return Vector()

    def note(self, *told: object) -> None:
        """At zero the HPA says that it rests."""


def test_a_cron_trigger_acts_by_the_worlds_time(tmp_path: Path) -> None:
    [scaled] = guide.read(tmp_path, CRON).of(ScaledObject)
    autoscalers = Autoscalers([], [keda_spec(scaled)], {}, epoch_ns=unix_ns(2026, 3, 2, 6, 58))
    world, found = World(0), []
    for _ in range(12):
        for loop in autoscalers.loops():
            for decision in loop.decide(world):  # type: ignore[arg-type]
                world.replicas = decision.replicas  # type: ignore[union-attr]
        found.append(world.replicas)
        world.now_ns += 30 * NS_PER_S
    assert found[:4] == [0, 0, 0, 0]
    assert found[4] >= 1 and found[-1] == 4


def prometheus(**more: object) -> Trigger:
    return Trigger("prometheus", 10.0, query=parse("sum(up)"), **more)  # type: ignore[arg-type]


def keda(*triggers: Trigger, **more: object) -> KedaSpec:
    return KedaSpec(Ref("ScaledObject", "m", "inference"), TARGET, triggers, **more)  # type: ignore[arg-type]


def test_the_metrics_of_a_generated_hpa_stand_by_kind_and_the_answers_with_them() -> None:
    spec = keda(
        Trigger("cpu", 60.0, TargetKind.UTILIZATION),
        prometheus(),
        Trigger("memory", 80.0, TargetKind.UTILIZATION, container="main"),
        prometheus(name="b"),
    )
    hpa = generated_hpa(spec)
    assert hpa is not None
    assert [(m.kind, m.name) for m in hpa.metrics] == [
        ("ContainerResource", "memory"),
        ("External", "s1-prometheus"),
        ("External", "s3-prometheus"),
        ("Resource", "cpu"),
    ]
    values = [TriggerValue(), TriggerValue(5.0), TriggerValue(), TriggerValue(7.0)]
    readings, _ = serve(spec, KedaState(), values, current_replicas=1, ready_replicas=1)
    assert readings == (MetricReading(), MetricReading(milli=5_000), MetricReading(milli=7_000), MetricReading())


def test_cached_metrics_are_what_the_last_poll_found() -> None:
    spec = keda(prometheus(use_cached_metrics=True), prometheus(), min_replicas=2)
    assert spec.polls_matter
    before, after = [TriggerValue(5.0)] * 2, [TriggerValue(90.0)] * 2
    readings, state = serve(spec, KedaState(), before, current_replicas=2, ready_replicas=2)
    assert [reading.milli for reading in readings] == [5_000, 5_000]  # nothing is cached yet
    _, state = poll(spec, state, before, replicas=2, now_ns=0)
    readings, state = serve(spec, state, after, current_replicas=2, ready_replicas=2)
    assert [reading.milli for reading in readings] == [5_000, 90_000]
    _, state = poll(spec, state, after, replicas=2, now_ns=0)
    readings, _ = serve(spec, state, before, current_replicas=2, ready_replicas=2)
    assert [reading.milli for reading in readings] == [90_000, 5_000]


def test_a_cached_failure_fails_until_the_next_poll() -> None:
    spec = keda(prometheus(use_cached_metrics=True))
    _, state = poll(spec, KedaState(), [TriggerValue(error="timeout")], replicas=1, now_ns=0)
    readings, _ = serve(spec, state, [TriggerValue(5.0)], current_replicas=1, ready_replicas=1)
    assert readings[0].error == "timeout"


@pytest.mark.parametrize(("active", "after"), [(True, 1), (False, 2)])
def test_polls_count_failures_only_where_the_hpa_does_not_ask(active: bool, after: int) -> None:
    spec, failed = keda(prometheus(), min_replicas=2, fallback=Fallback(5, 4)), [TriggerValue(error="timeout")]
    _, state = serve(spec, KedaState(), failed, current_replicas=2, ready_replicas=2)
    _, state = poll(spec, state, failed, replicas=2, now_ns=0, hpa_active=active)
    assert state.failures == (after,)


@pytest.mark.report(401)
def test_values_that_are_no_amount_become_zero_and_never_a_count() -> None:
    assert [thousandths(value) for value in (-5.0, float("nan"), float("inf"), float("-inf"))] == [0, 0, 0, 0]


@pytest.mark.report(402)
@pytest.mark.parametrize(("ignored", "reading"), [(True, MetricReading(milli=0)), (False, None)])
def test_an_empty_answer_is_zero_only_where_nulls_are_ignored(ignored: bool, reading: MetricReading | None) -> None:
    trigger = prometheus(ignore_null_values=ignored)
    value = trigger_value(trigger, Vector())
    [found], _ = serve(keda(trigger), KedaState(), [value], current_replicas=3, ready_replicas=3)
    assert found == reading if reading is not None else found.error


@pytest.mark.report(403)
@pytest.mark.parametrize(("kind", "replicas"), [(TargetKind.AVERAGE_VALUE, 1), (TargetKind.VALUE, 0)])
def test_a_fallback_starts_a_workload_from_zero_unless_its_target_needs_ready_pods(kind, replicas) -> None:
    spec = keda(prometheus(target_kind=kind), fallback=Fallback(0, 4))
    decision, _ = poll(spec, KedaState(), [TriggerValue(error="timeout")], replicas=0, now_ns=0)
    assert (decision.replicas if decision else 0) == replicas


@pytest.mark.report(404)
def test_unpausing_gives_control_back() -> None:
    paused = keda(prometheus(), paused=Paused(replicas=3))
    decision, state = poll(paused, KedaState(), [TriggerValue(50.0)], replicas=1, now_ns=0)
    assert decision is not None and decision.replicas == 3 and generated_hpa(paused) is None
    running = replace(paused, paused=Paused())
    assert generated_hpa(running) is not None
    readings, state = serve(running, state, [TriggerValue(50.0)], current_replicas=3, ready_replicas=3)
    assert readings == (MetricReading(milli=50_000),)
    decision, _ = poll(running, state, [TriggerValue(0.0)], replicas=3, now_ns=400 * NS_PER_S)
    assert decision is not None and decision.replicas == 0
