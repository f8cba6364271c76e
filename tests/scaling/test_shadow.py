"""Autoscalers that look on, in a run and in a world that is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from scaling_builders import TARGET, external, rules, spec

from tonnage.control.loops import Loop
from tonnage.control.opt_in import AUTOSCALE, opted_in
from tonnage.control.past import READY, REPLICAS, Past, PastWorkload, play
from tonnage.control.replicas import Autoscalers, ReplicaPlanner
from tonnage.control.shadow import ScalerStep, ShadowAutoscalers, ShadowPlanner
from tonnage.decisions import Ref
from tonnage.metrics.promql import parse
from tonnage.metrics.samples import stored
from tonnage.metrics.store import key_of
from tonnage.objects import core
from tonnage.scaling.behavior import Behavior
from tonnage.scaling.keda import KedaSpec, Trigger
from tonnage.scaling.replicas import TargetKind
from tonnage.traffic.readings import StoredReadings
from tonnage.units import NS_PER_S

LABELS = {"namespace": "inference", "deployment": TARGET.name}
CHAT = PastWorkload("Deployment", "inference", TARGET.name, core.PodSpec(containers=[]))
MINUTES = 60 * NS_PER_S


def measured(**series: Sequence[float]) -> StoredReadings:
    """One sample every 15 s of each metric from second 0; ``replicas`` and ``ready`` as kube-state-metrics has them."""
    names = {"replicas": REPLICAS["Deployment"], "ready": READY["Deployment"]}
    samples = [
        (i * 15 * NS_PER_S, key_of(names.get(name, name), LABELS if name in names else {}), float(value))
        for name, values in series.items()
        for i, value in enumerate(values)
    ]
    return StoredReadings(stored(samples))


def keda(behavior: Behavior | None = None, high: int = 20) -> KedaSpec:
    trigger = Trigger("prometheus", 10.0, TargetKind.AVERAGE_VALUE, query=parse("load"), ignore_null_values=False)
    return KedaSpec(Ref("ScaledObject", "chat", "inference"), TARGET, (trigger,), min_replicas=1, max_replicas=high,
                    behavior=behavior or Behavior())  # fmt: skip


def seen(
    past: StoredReadings, workload: PastWorkload, scaled: KedaSpec, *, until_s: int, after_s: int = 0
) -> list[ScalerStep]:
    steps: list[ScalerStep] = []
    loops = ShadowAutoscalers(Autoscalers([], [scaled], {}), steps.append).loops()
    play(Past(past, [workload], after_s * NS_PER_S), loops, 0, until_s * NS_PER_S)
    return [one for one in steps if one.by == "hpa"]


def test_the_replicas_of_the_past_stay_whatever_is_decided() -> None:
    steps = seen(measured(load=[60] * 9, replicas=[4] * 9, ready=[4] * 9), CHAT, keda(), until_s=120)
    assert [(one.replicas, one.wanted) for one in steps] == [(4, 6)] * 8


def test_followed_replicas_become_what_is_decided() -> None:
    steps = seen(measured(load=[60] * 9), replace(CHAT, replicas=4), keda(), until_s=120)
    assert [(one.replicas, one.wanted) for one in steps] == [(4, 6)] + [(6, 6)] * 7


def test_followed_replicas_are_ready_a_cold_start_later() -> None:
    steps = seen(measured(load=[60] * 9), replace(CHAT, replicas=4), keda(), until_s=120, after_s=45)
    assert [one.ready for one in steps] == [4, 4, 4, 6, 6, 6, 6, 6]


def test_followed_replicas_that_go_are_gone_at_once() -> None:
    loads = [60] * 2 + [10] * 30
    steps = seen(measured(load=loads), replace(CHAT, replicas=6), keda(), until_s=450)
    assert (steps[-1].replicas, steps[-1].ready) == (1, 1)
    first = next(one for one in steps if one.wanted < one.replicas)
    assert first.at_ns == 330 * NS_PER_S  # what was asked for at 15 s counts for five minutes


def test_of_a_time_without_counts_nothing_is_said() -> None:
    steps = seen(measured(load=[60] * 60, replicas=[4]), CHAT, keda(), until_s=900)
    assert steps[-1].at_ns == 285 * NS_PER_S  # a sample counts for less than five minutes


def test_replicas_without_a_count_of_ready_ones_are_taken_to_be_ready() -> None:
    assert {one.ready for one in seen(measured(load=[40] * 3, replicas=[4] * 3), CHAT, keda(), until_s=30)} == {4}


def test_a_change_that_never_came_does_not_count_against_the_policies() -> None:
    slow = Behavior(up=rules(("Pods", 2, 600)), explicit=True)
    past = measured(load=[100] * 9, replicas=[4] * 9)
    assert [one.wanted for one in seen(past, CHAT, keda(slow), until_s=60)] == [6, 6, 6, 6]


def test_a_change_that_came_counts_against_the_policies() -> None:
    slow = Behavior(up=rules(("Pods", 2, 600)), explicit=True)
    past = measured(load=[100] * 9, replicas=[4, 4, 6, 6, 6, 6, 6, 6, 6])
    assert [one.wanted for one in seen(past, CHAT, keda(slow), until_s=75)] == [6, 6, 6, 6, 6]


def test_without_data_the_hpa_says_so_and_asks_for_what_there_is() -> None:
    (first, *_) = seen(measured(other=[1] * 9, replicas=[4] * 9), CHAT, keda(), until_s=30)
    assert (first.wanted, first.replicas) == (4, 4)
    assert first.reason.verdict.startswith("FailedGetExternalMetric")


def test_an_hpa_of_its_own_is_looked_at_beside_keda() -> None:
    steps: list[ScalerStep] = []
    plain = spec(external(10, name="queue"))
    loops = ShadowAutoscalers(Autoscalers([plain], [], {}), steps.append).loops()
    play(Past(measured(replicas=[4] * 9), [CHAT]), loops, 0, 60 * NS_PER_S)
    assert [one.object for one in steps] == [plain.hpa] * 4


def test_kedas_own_loop_is_looked_at_at_its_polling_interval() -> None:
    steps: list[ScalerStep] = []
    scaled = replace(keda(), min_replicas=0, cooldown_ns=60 * NS_PER_S)
    loads = [60.0] * 9 + [0.0] * 20
    loops = ShadowAutoscalers(Autoscalers([], [scaled], {}), steps.append).loops()
    play(Past(measured(load=loads), [replace(CHAT, replicas=0)]), loops, 0, 420 * NS_PER_S)
    own = [(one.at_ns // NS_PER_S, one.replicas, one.wanted) for one in steps if one.by == "keda"]
    assert own[0] == (30, 0, 1)
    assert own[-1] == (420, 0, 0)
    assert (210, 6, 0) in own  # the last look that found load was at 120 s, and the cooldown takes more than a minute


def annotated(**more: str) -> PastWorkload:
    written = {
        AUTOSCALE: "slo",
        "tonnage.dev/max-replicas": "9",
        "tonnage.dev/requests-per-second-per-replica": "2",
        "tonnage.dev/requests-in-flight-per-replica": "8",
        "tonnage.dev/received-query": "received",
        "tonnage.dev/in-flight-query": "flying",
    }
    return replace(CHAT, annotations={**written, **{f"tonnage.dev/{name}": text for name, text in more.items()}})


def planned(past: StoredReadings, workload: PastWorkload, until_s: int) -> list[ScalerStep]:
    steps: list[ScalerStep] = []
    planner = ReplicaPlanner("slo", lambda snapshot: opted_in(snapshot)[0])
    loops: list[Loop] = ShadowPlanner(planner, steps.append).loops()
    play(Past(past, [workload]), loops, 0, until_s * NS_PER_S)
    return steps


def test_the_slo_policy_looks_at_the_past_too_and_says_why_it_holds() -> None:
    steady = measured(received=[75 * i for i in range(20)], flying=[4] * 20, replicas=[3] * 20)
    steps = planned(steady, annotated(), 285)
    assert steps[0].reason.verdict == "held: too few samples of the arrival rate"
    assert {(one.wanted, one.reason.verdict) for one in steps[8:]} == {(3, "held: all replicas are needed")}
    assert dict(steps[-1].reason.evidence)["arrivals_per_s"] == 5.0


@pytest.mark.parametrize("name", ["received", "flying"])
def test_the_slo_policy_holds_without_data_and_names_what_is_missing(name: str) -> None:
    series = {"received": [75 * i for i in range(20)], "flying": [4] * 20, "replicas": [3] * 20}
    del series[name]
    steps = planned(measured(**series), annotated(), 285)
    assert {one.wanted for one in steps} == {3}
    assert steps[-1].reason.verdict == f"held: no data for arrivals or requests in flight: {name} answers nothing"


def test_the_slo_policy_follows_its_own_replicas() -> None:
    grows = measured(received=[45 * i + max(0, i - 9) * 90 for i in range(40)], flying=[20] * 40)
    steps = planned(grows, replace(annotated(), replicas=2), 585)
    assert [one.wanted for one in steps if one.wanted > one.replicas]
    assert (steps[-1].replicas, steps[-1].wanted) == (5, 5)  # 9 requests a second, 2 for each
