"""The HPA controller's replica calculator, called as it calls it: pods, their samples and a target in, a count out.

One function for each way of counting, so that a row of a table (replicas, values by pod, requests, readiness, phases,
start times, timestamps and windows of samples, a target) can be passed as it stands. What pods and samples mean is
decided here, the arithmetic is :mod:`tonnage.scaling.replicas`. Amounts are in thousandths of their unit ("milli"),
times in nanoseconds. Source: kubernetes/kubernetes pkg/controller/podautoscaler/replica_calculator.go (groupPods,
calculateRequests), v1.36.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tonnage.scaling.replicas import (
    PodReading,
    PodState,
    Proposal,
    Scaled,
    Tolerance,
    propose_average_value,
    propose_pod_average,
    propose_utilization,
    propose_value,
    total,
)
from tonnage.units import NS_PER_S

CPU_INITIALIZATION_NS = 300 * NS_PER_S
"""kube-controller-manager ``--horizontal-pod-autoscaler-cpu-initialization-period``: so long after its start a pod's
CPU counts only while it is ready, and only if it was ready for the whole window of the sample.
"""
INITIAL_READINESS_DELAY_NS = 30 * NS_PER_S
"""kube-controller-manager ``--horizontal-pod-autoscaler-initial-readiness-delay``: a pod that has not been ready until
so long after its start, and is not ready, was never ready.
"""
SAMPLE_WINDOW_NS = 60 * NS_PER_S
"""The window of a sample that names none."""


@dataclass(frozen=True, slots=True)
class Windows:
    """How long the controller distrusts the CPU of pods that have just started."""

    cpu_initialization_ns: int = CPU_INITIALIZATION_NS
    initial_readiness_delay_ns: int = INITIAL_READINESS_DELAY_NS


@dataclass(frozen=True, slots=True)
class SelectedPod:
    """A pod that the workload's selector finds.

    ``ready`` is the status of its Ready condition ("True", "False", "Unknown"), None without one, and
    ``ready_changed_ns`` that condition's lastTransitionTime. ``requests`` has the request of the resource in question
    by container, sidecars included, None for a container that has none; ``pod_level`` says that the pod as a whole has
    requests, of this resource ``pod_request``; without one of it the containers' count, those that have one.
    """

    name: str
    phase: str = "Running"
    ready: str | None = "True"
    started_ns: int | None = 0
    ready_changed_ns: int = 0
    deleted: bool = False
    requests: Mapping[str, int | None] = field(default_factory=dict)
    pod_level: bool = False
    pod_request: int | None = None


@dataclass(frozen=True, slots=True)
class PodSample:
    """What the metrics API says of one pod: a value, when it was taken and over what time."""

    milli: int
    at_ns: int = 0
    window_ns: int = SAMPLE_WINDOW_NS


@dataclass(frozen=True, slots=True)
class Calculated:
    """A count, or the error that there is none (``replicas`` is 0 then).

    ``utilization`` is in whole percent, with a target in percent only. ``milli`` is the current value: the mean over
    the pods of a per-pod metric and of an average value, otherwise the value itself.
    """

    replicas: int
    utilization: int | None = None
    milli: int = 0
    error: str = ""


def resource_replicas(
    pods: Sequence[SelectedPod],
    samples: Mapping[str, PodSample] | None,
    *,
    current_replicas: int,
    target_utilization: int,
    resource: str,
    now_ns: int,
    container: str = "",
    tolerance: Tolerance | None = None,
    windows: Windows | None = None,
) -> Calculated:
    """Resource and ContainerResource metrics with target Utilization, in percent of requests.

    ``samples`` is by pod, None where the metrics API answers nothing at all. ``container`` names the one container
    that counts.
    """
    if samples is None:
        return _no_samples(resource)
    readings = group(pods, samples, resource, now_ns, windows or Windows())
    requests, problem = requested(pods, resource, container)
    with_requests = [PodReading(one.name, one.milli, requests.get(one.name, 0), one.state) for one in readings]
    found = propose_utilization(
        with_requests, target_utilization, current_replicas, tolerance or Tolerance(), unrequested=problem
    )
    return _calculated(found, percent=True)


def raw_resource_replicas(
    pods: Sequence[SelectedPod],
    samples: Mapping[str, PodSample] | None,
    *,
    current_replicas: int,
    target_milli: int,
    resource: str,
    now_ns: int,
    tolerance: Tolerance | None = None,
    windows: Windows | None = None,
) -> Calculated:
    """Resource and ContainerResource metrics with target AverageValue; ``samples`` are the container's then."""
    if samples is None:
        return _no_samples(resource)
    readings = group(pods, samples, resource, now_ns, windows or Windows())
    return _calculated(propose_pod_average(readings, target_milli, current_replicas, tolerance or Tolerance()))


def metric_replicas(
    pods: Sequence[SelectedPod],
    samples: Mapping[str, PodSample] | None,
    *,
    current_replicas: int,
    target_milli: int,
    name: str = "metric",
    tolerance: Tolerance | None = None,
) -> Calculated:
    """Pods metrics, whose target is an AverageValue. Readiness plays no part."""
    if samples is None:
        return Calculated(0, error=f"unable to get metric {name}: no metrics returned from custom metrics API")
    readings = group(pods, samples, "", 0, Windows())
    return _calculated(propose_pod_average(readings, target_milli, current_replicas, tolerance or Tolerance()))


def object_replicas(
    pods: Sequence[SelectedPod],
    milli: int,
    *,
    current_replicas: int,
    target_milli: int,
    tolerance: Tolerance | None = None,
) -> Calculated:
    """Object metrics with target Value: the pods that are running and ready count."""
    ready = sum(pod.phase == "Running" and pod.ready == "True" for pod in pods)
    scaled = Scaled(current_replicas, len(pods), ready)
    return _calculated(propose_value(milli, target_milli, scaled, tolerance or Tolerance()))


def object_per_pod_replicas(
    milli: int, *, status_replicas: int, target_milli: int, tolerance: Tolerance | None = None
) -> Calculated:
    """Object metrics with target AverageValue; ``status_replicas`` is how many pods the scale's status counts."""
    scaled = Scaled(status_replicas, status_replicas, status_replicas)
    found = propose_average_value(milli, target_milli, scaled, tolerance or Tolerance(), external=False)
    return _calculated(found)


def external_replicas(
    pods: Sequence[SelectedPod],
    values: Sequence[int] | None,
    *,
    current_replicas: int,
    target_milli: int,
    name: str = "metric",
    tolerance: Tolerance | None = None,
) -> Calculated:
    """External metrics with target Value; ``values`` has one entry a series."""
    if not values:
        return _no_series(name)
    milli = total(values, average=False)
    return object_replicas(
        pods, milli, current_replicas=current_replicas, target_milli=target_milli, tolerance=tolerance
    )


def external_per_pod_replicas(
    values: Sequence[int] | None,
    *,
    status_replicas: int,
    target_milli: int,
    name: str = "metric",
    tolerance: Tolerance | None = None,
) -> Calculated:
    """External metrics with target AverageValue; ``values`` has one entry a series."""
    if not values:
        return _no_series(name)
    scaled = Scaled(status_replicas, status_replicas, status_replicas)
    milli = total(values, average=True)
    return _calculated(propose_average_value(milli, target_milli, scaled, tolerance or Tolerance()))


def group(
    pods: Sequence[SelectedPod], samples: Mapping[str, PodSample], resource: str, now_ns: int, windows: Windows
) -> list[PodReading]:
    """How each pod enters an average, then the samples of pods that are no more. Readiness plays a part for ``cpu``."""
    readings = []
    for pod in pods:
        sample = samples.get(pod.name)
        state = _state(pod, sample, resource, now_ns, windows)
        readings.append(PodReading(pod.name, None if sample is None else sample.milli, state=state))
    listed = {pod.name for pod in pods}
    readings += [
        PodReading(name, sample.milli, state=PodState.UNLISTED)
        for name, sample in samples.items()
        if name not in listed
    ]
    return readings


def requested(pods: Sequence[SelectedPod], resource: str, container: str = "") -> tuple[dict[str, int], str]:
    """The request of each pod, of one container if it is named, and why the first pod without one has none."""
    found: dict[str, int] = {}
    for pod in pods:
        if pod.pod_level and not container:
            known = [milli for milli in pod.requests.values() if milli is not None]
            if pod.pod_request is None and not known:
                return found, f"missing pod-level request for {resource} in Pod {pod.name}"
            found[pod.name] = sum(known) if pod.pod_request is None else pod.pod_request
            continue
        if container and container not in pod.requests:
            return found, f"container {container} not found in Pod {pod.name}"
        sought = {container: pod.requests[container]} if container else pod.requests
        missing = next((name for name, milli in sought.items() if milli is None), None)
        if missing is not None:
            return found, f"missing request for {resource} in container {missing} of Pod {pod.name}"
        found[pod.name] = sum(milli for milli in sought.values() if milli is not None)
    return found, ""


def _state(pod: SelectedPod, sample: PodSample | None, resource: str, now_ns: int, windows: Windows) -> PodState:
    if pod.deleted or pod.phase == "Failed":
        return PodState.IGNORED
    if pod.phase == "Pending":
        return PodState.UNREADY
    if sample is not None and resource == "cpu" and _unready(pod, sample, now_ns, windows):
        return PodState.UNREADY
    return PodState.COUNTED


def _unready(pod: SelectedPod, sample: PodSample, now_ns: int, windows: Windows) -> bool:
    """Whether a pod's CPU is left out: it may still be that of its start."""
    if pod.ready is None or pod.started_ns is None:
        return True
    if pod.started_ns + windows.cpu_initialization_ns > now_ns:
        return pod.ready == "False" or sample.at_ns < pod.ready_changed_ns + sample.window_ns
    return pod.ready == "False" and pod.started_ns + windows.initial_readiness_delay_ns > pod.ready_changed_ns


def _calculated(found: Proposal, percent: bool = False) -> Calculated:
    """The controller answers 0 beside an error; utilization and mean stay where they were already known."""
    utilization = found.milli // 1000 if percent and found.milli is not None else None
    return Calculated(found.replicas or 0, utilization, found.current_milli or 0, found.error)


def _no_samples(resource: str) -> Calculated:
    problem = "no metrics returned from resource metrics API"
    return Calculated(0, error=f"unable to get metrics for resource {resource}: {problem}")


def _no_series(name: str) -> Calculated:
    return Calculated(0, error=f"unable to get external metric {name}: no metrics returned from external metrics API")
