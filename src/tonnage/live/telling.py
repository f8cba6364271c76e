"""The life of a pod as the objects of a cluster tell it: what was written into its status and events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tonnage.health.told import ENDED, FAILS, SERVES, STARTS, Told
from tonnage.objects import core
from tonnage.objects.base import KubeObject, Unknown

TOLD = 6
"""Events that are told."""
_FINE = ("ContainerCreating", "PodInitializing", "")
Json = Mapping[str, Any]


def of_pod(pod: core.Pod, objects: Sequence[KubeObject]) -> Told | None:
    """What has become of the pod; None while it has no node, and for one written by hand."""
    status: Json = pod.written.get("status") or {}
    about = f"{pod.namespace}/{pod.name}"
    if not pod.spec.node_name or not status:
        return None
    events = tuple(_events(pod, objects))
    phase = status.get("phase", "")
    if phase in core.FINISHED:
        why = ": ".join(part for part in (str(status.get("reason", "")), str(status.get("message", ""))) if part)
        return Told(
            about,
            ENDED if phase == "Succeeded" else FAILS,
            f"has {phase.lower()}" + (f": {why}" if why else ""),
            events,
        )
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    for container in containers:
        failing = _failing(container)
        if failing:
            return Told(about, FAILS, failing, events)
    node = pod.spec.node_name
    conditions = {one.get("type"): one for one in status.get("conditions") or ()}
    ready = conditions.get("Ready", {})
    if ready.get("status") == "True":
        return Told(
            about, SERVES, f"runs on {node}, Ready since {ready.get('lastTransitionTime', 'its start')}", events
        )
    gates = [g.get("conditionType") for g in (pod.written.get("spec") or {}).get("readinessGates") or ()]
    closed = [gate for gate in gates if conditions.get(gate, {}).get("status") != "True"]
    started = all("running" in (one.get("state") or {}) for one in containers) and bool(containers)
    if started and closed and conditions.get("ContainersReady", {}).get("status") == "True":
        return Told(about, FAILS, f"runs on {node} and is not Ready: readiness gate {closed[0]} is not open", events)
    if started:
        last = next((e for e in reversed(events) if "Unhealthy" in e), "")
        return Told(about, STARTS, f"runs on {node} and is not Ready yet" + (f": {last}" if last else ""), events)
    last = next((e for e in reversed(events) if "Failed" in e or "Pulling" in e), "")
    return Told(
        about, STARTS, f"is on {node}, its containers are being created" + (f": {last}" if last else ""), events
    )


def _failing(container: Json) -> str:
    """What keeps a container from running; empty where nothing does."""
    state, last = container.get("state") or {}, (container.get("lastState") or {}).get("terminated") or {}
    waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
    reason = str(waiting.get("reason", ""))
    restarts = int(container.get("restartCount") or 0)
    name = container.get("name", "")
    if reason not in _FINE:
        after = last or ended
        told = f", last {after.get('reason', 'Error')} with exit code {after.get('exitCode')}" if after else ""
        said = str(after.get("message") or waiting.get("message") or "").strip().splitlines()
        text = f": {said[-1].strip()}" if said else ""
        return f"container {name} is in {reason}" + (f", {restarts} restarts{told}" if restarts else told) + text
    if ended and ended.get("exitCode"):
        return f"container {name} exited with code {ended['exitCode']} ({ended.get('reason', 'Error')})"
    return ""


def _events(pod: core.Pod, objects: Sequence[KubeObject]) -> Iterator[str]:
    """The last events about the pod that are among the objects."""
    found = []
    for one in objects:
        if isinstance(one, Unknown) and one.kind == "Event":
            about = one.content.get("involvedObject") or one.content.get("regarding") or {}
            if (about.get("kind"), about.get("namespace"), about.get("name")) == ("Pod", pod.namespace, pod.name):
                found.append(one.content)
    found.sort(key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or ""))
    for event in found[-TOLD:]:
        count = int(event.get("count") or 1)
        times = f" (x{count})" if count > 1 else ""
        at = event.get("lastTimestamp") or event.get("eventTime") or ""
        yield f"{at} {event.get('reason', '')}: {event.get('message') or event.get('note') or ''}{times}".strip()
