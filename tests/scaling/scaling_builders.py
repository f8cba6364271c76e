"""Builders for HPA specs, short enough that a test's numbers stand out."""

from __future__ import annotations

from tonnage.decisions import Ref, Scale
from tonnage.scaling.behavior import Behavior, PolicyKind, ScalingPolicy, ScalingRules, SelectPolicy
from tonnage.scaling.hpa import HpaSpec, HpaState, Metric, recommend
from tonnage.scaling.replicas import MetricReading, PodReading, PodState, TargetKind, to_milli
from tonnage.units import NS_PER_S

TARGET = Ref("Deployment", "model-a-serving", "inference")


def external(target: float, kind: TargetKind = TargetKind.AVERAGE_VALUE, name: str = "s0-prometheus") -> Metric:
    return Metric("External", name, kind, to_milli(target))


def pods_metric(target: float) -> Metric:
    return Metric("Pods", "requests_running", TargetKind.AVERAGE_VALUE, to_milli(target))


def cpu(percent: int) -> Metric:
    return Metric("Resource", "cpu", TargetKind.UTILIZATION, percent)


def spec(*metrics: Metric, low: int = 1, high: int = 10, behavior: Behavior | None = None) -> HpaSpec:
    ref = Ref("HorizontalPodAutoscaler", "model-a", "inference")
    return HpaSpec(ref, TARGET, high, metrics or (external(10),), low, behavior or Behavior())


def rules(*policies: tuple[str, int, int], window_s: int = 0, select: str = "Max") -> ScalingRules:
    made = tuple(ScalingPolicy(PolicyKind(kind), value, period * NS_PER_S) for kind, value, period in policies)
    return ScalingRules(window_s * NS_PER_S, made, SelectPolicy(select))


def pod(name: str, value: float | None, *, request: float = 1.0, state: PodState = PodState.COUNTED) -> PodReading:
    return PodReading(name, None if value is None else to_milli(value), to_milli(request), state)


def pods(*values: float | None) -> MetricReading:
    return MetricReading(pods=tuple(pod(f"pod-{i}", value) for i, value in enumerate(values)))


class Loop:
    """A target under an HPA, with a clock that ticks every 15 s; ready replicas are all replicas."""

    def __init__(self, hpa: HpaSpec, replicas: int) -> None:
        self.hpa, self.replicas, self.state, self.now_s = hpa, replicas, HpaState(), 1_000

    def tick(self, *readings: MetricReading | float | None, after_s: int = 15) -> int:
        self.now_s += after_s
        decision = self.evaluate(*readings)
        if decision is not None:
            assert decision.current == self.replicas
            self.replicas = decision.replicas
        return self.replicas

    def evaluate(self, *readings: MetricReading | float | None) -> Scale | None:
        made = [
            r if isinstance(r, MetricReading) else MetricReading() if r is None else MetricReading.of(r)
            for r in readings
        ]
        decision, self.state = recommend(
            self.hpa,
            self.state,
            made,
            current_replicas=self.replicas,
            ready_replicas=self.replicas,
            now_ns=self.now_s * NS_PER_S,
        )
        return decision
