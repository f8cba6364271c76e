"""A pod's row: what it does, in one word.

Source: kubernetes/kubernetes v1.36 pkg/printers/internalversion/printers.go (printPod).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tonnage.apiserver.ages import since
from tonnage.objects import core

JsonObject: TypeAlias = dict[str, Any]

_NONE = "<none>"


@dataclass(slots=True)
class _Restarts:
    """How often, and when last (a time of the API; they sort as text)."""

    count: int = 0
    last: str = ""

    def add(self, status: JsonObject) -> None:
        self.count += status.get("restartCount", 0)
        ended = (status.get("lastState") or {}).get("terminated") or {}
        self.last = max(self.last, ended.get("finishedAt") or "")


@dataclass(slots=True)
class _Reading:
    """What the containers say."""

    reason: str
    ready: int = 0
    initializing: bool = False
    all_init: _Restarts = field(default_factory=_Restarts)
    running: _Restarts = field(default_factory=_Restarts)  # sidecars, then containers


def cells(pod: JsonObject, now_s: float) -> list[Any]:
    """Name, ready, status, restarts, age; IP, node, nominated node, readiness gates."""
    meta, spec, status = (pod.get(part) or {} for part in ("metadata", "spec", "status"))
    reading = _read(spec, status)
    restarts = reading.all_init
    if not reading.initializing or _holds(status, "Initialized"):
        _containers(status, reading)
        restarts = reading.running
    sidecars = sum(1 for container in spec.get("initContainers") or () if _is_sidecar(container))
    total = len(spec.get("containers") or ()) + sidecars
    again = str(restarts.count)
    if restarts.count and restarts.last:
        again += f" ({since(restarts.last, now_s)} ago)"
    addresses = status.get("podIPs") or ()
    return [
        meta.get("name", ""),
        f"{reading.ready}/{total}",
        _deleted(meta, status, reading.reason),
        again,
        since(meta.get("creationTimestamp"), now_s),
        (addresses[0].get("ip") if addresses else "") or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        _gates(spec, status),
    ]


def row_conditions(pod: JsonObject) -> list[JsonObject]:
    """A pod that has ended is marked so in its row."""
    phase = (pod.get("status") or {}).get("phase")
    return [{"type": "Completed", "status": "True", "reason": phase}] if phase in core.FINISHED else []


def _is_sidecar(container: JsonObject) -> bool:
    return container.get("restartPolicy") == "Always"


def _holds(status: JsonObject, type_: str) -> bool:
    return any(one.get("type") == type_ and one.get("status") == "True" for one in status.get("conditions") or ())


def _read(spec: JsonObject, status: JsonObject) -> _Reading:
    """The reason before the containers are looked at, and what the init containers say."""
    reading = _Reading(status.get("reason") or status.get("phase") or "")
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reading.reason = "SchedulingGated"
    wanted = spec.get("initContainers") or ()
    sidecars = {container.get("name") for container in wanted if _is_sidecar(container)}
    for index, one in enumerate(status.get("initContainerStatuses") or ()):
        reading.all_init.add(one)
        is_sidecar = one.get("name") in sidecars
        if is_sidecar:
            reading.running.add(one)
        state = one.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting") or {}
        if ended is not None and not ended.get("exitCode"):
            continue
        if is_sidecar and one.get("started"):
            reading.ready += 1 if one.get("ready") else 0
            continue
        if ended is not None:
            reading.reason = f"Init:{_why_ended(ended)}"
        elif waiting.get("reason", "") not in ("", "PodInitializing"):
            reading.reason = f"Init:{waiting['reason']}"
        else:
            reading.reason = f"Init:{index}/{len(wanted)}"
        reading.initializing = True
        break
    return reading


def _why_ended(ended: JsonObject) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"


def _containers(status: JsonObject, reading: _Reading) -> None:
    """The first container with something to say has the last word."""
    is_running = False
    for one in reversed(status.get("containerStatuses") or ()):
        reading.running.add(one)
        state = one.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            reading.reason = waiting["reason"]
        elif ended is not None:
            reading.reason = _why_ended(ended)
        elif one.get("ready") and state.get("running") is not None:
            is_running = True
            reading.ready += 1
    if reading.reason == "Completed" and is_running:
        reading.reason = "Running" if _holds(status, "Ready") else "NotReady"


def _deleted(meta: JsonObject, status: JsonObject, reason: str) -> str:
    if not meta.get("deletionTimestamp"):
        return reason
    if status.get("reason") == "NodeLost":
        return "Unknown"
    return reason if status.get("phase") in core.FINISHED else "Terminating"


def _gates(spec: JsonObject, status: JsonObject) -> str:
    gates = spec.get("readinessGates") or ()
    if not gates:
        return _NONE
    return f"{sum(1 for gate in gates if _holds(status, gate.get('conditionType', '')))}/{len(gates)}"
