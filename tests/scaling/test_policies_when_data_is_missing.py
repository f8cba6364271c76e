"""Steady traffic whose metrics are missing, NaN, late or begin again, and pods that are Ready now and then: no policy
goes to zero or to the maximum for that."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scaling_builders import Loop as HpaLoop
from scaling_builders import cpu, pod, pods_metric, spec
from slo_builders import TICK_S, A, Cluster, target

from deep_seeds import examples
from tonnage.control.replicas import Autoscalers, Planned, ReplicaPlanner
from tonnage.decisions import Decision, Ref, Scale
from tonnage.errors import InputError
from tonnage.fleet.snapshot import Snapshot
from tonnage.metrics.promql import Result, evaluate, parse
from tonnage.metrics.store import SeriesStore, key_of
from tonnage.scaling.keda import KedaSpec, Trigger
from tonnage.scaling.replicas import MetricReading, PodState, TargetKind
from tonnage.units import NS_PER_S

RATE, HELD, MOST = 5.5, 40.0, 12
"""Requests a second, of which a replica serves one; requests in flight, of which a replica is to have ten."""
RECEIVED = "envoy_cluster_upstream_rq_total"
ACTIVE = "envoy_cluster_upstream_rq_active"
UTIL = "DCGM_FI_DEV_GPU_UTIL"
TROUBLES = ("well", "well", "dead", "silent", "nan", "late", "restarted", "unready", "none ready")


@dataclass
class Faulty:
    """A world of one workload whose pods serve as soon as they are asked for, and what goes wrong in a tick."""

    replicas: int = 6
    now_s: int = 0
    received: float = 0.0
    trouble: str = "well"
    store: SeriesStore = field(default_factory=SeriesStore)
    late: list[tuple[str, int, float]] = field(default_factory=list)

    def scrape(self, trouble: str) -> None:
        """Let a tick pass: "dead": the exporters do not answer; "silent": Prometheus does not; "late": samples come
        with the next that come in time; "restarted": the counter begins again; "not due": nothing is scraped."""
        self.now_s, self.trouble = self.now_s + TICK_S, trouble
        self.received = (0.0 if trouble == "restarted" else self.received) + RATE * TICK_S
        now = self.now_s * NS_PER_S
        busy = min(100.0, 70 * 6 / max(self.replicas, 1))
        for name, value in ((RECEIVED, self.received), (ACTIVE, HELD), (UTIL, busy)):
            if trouble == "dead":
                self.store.mark_stale(name, {}, now)
            elif trouble != "not due":
                self.late.append((name, now, math.nan if trouble == "nan" else value))
        if trouble != "late":
            for name, at, value in self.late:
                if self.store.last_ns(key_of(name, {})) < at:
                    self.store.append(name, {}, at, value)
            self.late.clear()

    def now(self) -> int:
        return self.now_s * NS_PER_S

    def snapshot(self) -> Snapshot:
        ready = {"unready": self.replicas // 2, "none ready": 0}.get(self.trouble, self.replicas)
        return _cluster(self.replicas, ready).snapshot(self.now_s)

    def measure(self, query: str, at_ns: int) -> Result:
        if self.trouble == "silent":
            raise InputError.at("no answer")
        return evaluate(parse(query), self.store, at_ns)

    def note(self, about: Ref, reason: str, message: str, *, warning: bool = True) -> None:
        """Nobody reads events here."""

    def take(self, decisions: Sequence[Decision]) -> None:
        for one in decisions:
            assert isinstance(one, Scale) and one.current == self.replicas
            self.replicas = one.replicas


@cache
def _cluster(replicas: int, ready: int) -> Cluster:
    made = Cluster(kept=0, bought=1, gpus=MOST).pods(A, *["bought-1"] * ready)
    return made.pods(A, *["bought-1"] * (replicas - ready), ready=False)


Policy = Callable[[Faulty], Sequence[Decision]]
WORKLOAD = Ref("Deployment", "a", "inference")


def _slo(new_node_s: int) -> Policy:
    planned = Planned(
        "slo", target(maximum=MOST, new_node_ns=new_node_s * NS_PER_S), f"sum({RECEIVED})", f"sum({ACTIVE})"
    )
    planner = ReplicaPlanner("slo", lambda snapshot: [planned])
    return planner.decide  # type: ignore[return-value]


def _keda(query: str, threshold: float, kind: TargetKind, ignore: bool = False) -> Policy:
    """The HPA each tick, KEDA's own loop every other one, down to zero replicas."""
    trigger = Trigger("prometheus", threshold, kind, parse(query), ignore_null_values=ignore)
    scaled = KedaSpec(Ref("ScaledObject", "a", "inference"), WORKLOAD, (trigger,), 0, MOST)
    autoscalers = Autoscalers([], [scaled], {})

    def tick(world: Faulty) -> Sequence[Decision]:
        if world.now_s % 30 == 0:
            world.take(autoscalers.poll(scaled, world))  # type: ignore[arg-type]
        return autoscalers.sync(world)  # type: ignore[arg-type]

    return tick


POLICIES: dict[str, Callable[[], Policy]] = {
    "slo near": lambda: _slo(0),
    "slo far": lambda: _slo(700),
    "KEDA by requests in flight": lambda: _keda(f"sum({ACTIVE})", 8.0, TargetKind.AVERAGE_VALUE),
    "KEDA by arrivals": lambda: _keda(f"sum(rate({RECEIVED}[2m]))", 1.0, TargetKind.AVERAGE_VALUE),
    "rule by GPU utilisation": lambda: _keda(f"avg({UTIL})", 70.0, TargetKind.VALUE),
}


def _played(policy: Policy, troubles: Sequence[str]) -> list[int]:
    """The replicas after each tick; 20 ticks go well first."""
    world, seen = Faulty(), []
    for trouble in (*["well"] * 20, *troubles):
        world.scrape(trouble)
        world.take(policy(world))
        seen.append(world.replicas)
    return seen[20:]


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=examples(30), deadline=None)
@given(troubles=st.lists(st.tuples(st.sampled_from(TROUBLES), st.integers(1, 12)), min_size=1, max_size=12))
def test_no_policy_goes_to_zero_or_to_the_maximum(name: str, troubles: list[tuple[str, int]]) -> None:
    """Troubles last from a tick to three minutes, one after the other; a counter begins again once in a trouble, as one
    that does so at every scrape stands still for Prometheus."""
    if (
        name == "KEDA by arrivals"
    ):  # behind a NaN Prometheus' rate() sees no reset: it is negative, and KEDA goes by that
        troubles = [one for one in troubles if one[0] != "nan"]
    ticks: list[str] = []
    for trouble, count in troubles:
        ticks += [trouble, *["well" if trouble == "restarted" else trouble] * (count - 1)]
    seen = _played(POLICIES[name](), ticks)
    assert all(2 <= replicas < MOST for replicas in seen)


@pytest.mark.parametrize("trouble", ["dead", "silent", "nan"])
@pytest.mark.parametrize("name", POLICIES)
def test_an_hour_without_data_changes_nothing(name: str, trouble: str) -> None:
    assert set(_played(POLICIES[name](), [trouble] * 240)) == {_played(POLICIES[name](), ["well"])[0]}


@pytest.mark.parametrize("every", [2, 4, 8])
@pytest.mark.parametrize("name", POLICIES)
def test_a_longer_scrape_interval_changes_nothing_in_steady_traffic(name: str, every: int) -> None:
    """A sample each half minute, minute or two minutes, and a decision every 15 s."""
    seen = _played(POLICIES[name](), ["not due" if tick % every else "well" for tick in range(80)])
    assert set(seen) == set(_played(POLICIES[name](), ["well"] * 80))


@pytest.mark.parametrize("trouble", ["dead", "nan"])
def test_keda_goes_to_zero_where_it_is_not_told_that_no_data_is_an_error(trouble: str) -> None:
    """Its default, ``ignoreNullValues: "true"``; the finding ``trigger-no-data-is-zero`` says so."""
    seen = _played(_keda(f"sum({ACTIVE})", 8.0, TargetKind.AVERAGE_VALUE, ignore=True), [trouble] * 60)
    assert seen[-1] == 0


@pytest.mark.parametrize("metric", [pods_metric(10), cpu(50)], ids=["Pods", "Resource"])
@settings(max_examples=examples(60), deadline=None)
@given(
    states=st.lists(
        st.lists(st.sampled_from(["counted", "missing", "unready"]), min_size=4, max_size=4), min_size=1, max_size=40
    )
)
def test_an_hpa_by_pods_of_which_some_tell_nothing_stays_between(metric: Any, states: list[list[str]]) -> None:
    """Each pod that tells is at its target: what is not known pulls an HPA down no further than it is, and never up."""
    loop = HpaLoop(spec(metric, low=1, high=10), 4)
    value = 10.0 if metric.kind == "Pods" else 0.5
    for tick in states:
        rows = tuple(
            pod(
                f"pod-{number}",
                None if state == "missing" else value,
                state=PodState.UNREADY if state == "unready" else PodState.COUNTED,
            )
            for number, state in enumerate(tick)
        )
        assert loop.tick(MetricReading(pods=rows)) == 4
