"""Nodes: taints that follow their conditions, and nodes whose heartbeat stopped.

Source of taints, reasons, messages and the 50 s: kubernetes/kubernetes v1.36 pkg/controller/nodelifecycle. Left out:
the rate limits by zone for evictions, which spare a zone that fails as a whole.
"""

from __future__ import annotations

from typing import Any

from tonnage.apiserver.controllers.context import Context
from tonnage.apiserver.controllers.meta import (
    Key,
    condition_of,
    key_of,
    spec_of,
    stamp,
    status_of,
    uid_of,
)
from tonnage.facts.labels import (
    DISK_PRESSURE,
    MEMORY_PRESSURE,
    NETWORK_UNAVAILABLE,
    NOT_READY,
    PID_PRESSURE,
    UNREACHABLE,
    UNSCHEDULABLE_TAINT,
)
from tonnage.kube.resources import LEASES, NODE_LEASES, NODES, PODS, Resource
from tonnage.kube.verbs import JsonObject

_BY_CONDITION = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): MEMORY_PRESSURE,
    ("DiskPressure", "True"): DISK_PRESSURE,
    ("NetworkUnavailable", "True"): NETWORK_UNAVAILABLE,
    ("PIDPressure", "True"): PID_PRESSURE,
}
_SCHEDULE_KEYS = frozenset((*_BY_CONDITION.values(), UNSCHEDULABLE_TAINT))
_WATCHED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


class Nodes:
    """The node lifecycle controller. ``grace_s``: seconds without a heartbeat until a node is unknown; 0 for never."""

    name = "node-controller"

    def __init__(self, context: Context, grace_s: float) -> None:
        self._context = context
        self._grace_s = grace_s
        self._heartbeats: dict[str, float] = {}
        self._unready: dict[str, str] = {}

    def changed(self, resource: Resource, old: JsonObject | None, new: JsonObject | None) -> None:
        if resource is NODES:
            if new is None and old is not None:
                self._heartbeats.pop(key_of(old)[1], None)
                self._unready.pop(key_of(old)[1], None)
            elif new is not None:
                if old is None or _reported(old) != _reported(new):
                    self._heard(key_of(new)[1])
                if old is None or _judged(old) != _judged(new):
                    self._context.queue.add((self.name, key_of(new)))
        elif resource is LEASES and new is not None and key_of(new)[0] == NODE_LEASES:
            if old is None or spec_of(old).get("renewTime") != spec_of(new).get("renewTime"):
                self._heard(key_of(new)[1])
        elif resource is PODS and new is not None and old is None:
            node = spec_of(new).get("nodeName", "")
            if node in self._unready:
                self._context.queue.add((self.name, ("", node)))

    def sync(self, key: Key) -> None:
        node = self._context.cache.get(NODES, key)
        if node is None:
            return
        node = self._check_heartbeat(node)
        node = self._set_taints(node)
        self._set_pods(node)

    def _heard(self, name: str) -> None:
        """Note a heartbeat; one timer a node runs, and is reset when it fires."""
        self._heartbeats[name] = self._context.clock()
        if self._grace_s:
            self._context.queue.add_at((self.name, ("", name)), self._heartbeats[name] + self._grace_s)

    def _check_heartbeat(self, node: JsonObject) -> JsonObject:
        name, now = key_of(node)[1], self._context.clock()
        if not self._grace_s:
            return node
        due = self._heartbeats.setdefault(name, now) + self._grace_s
        if now < due:
            self._context.queue.add_at((self.name, ("", name)), due)
            return node
        ready = condition_of(status_of(node), "Ready")
        if ready is not None and ready.get("status") == "Unknown":
            return node
        conditions = [_silent(one, now) for one in status_of(node).get("conditions") or ()]
        known = {one["type"] for one in conditions}
        created = node["metadata"].get("creationTimestamp")
        conditions += [_never_told(kind, created, now) for kind in _WATCHED if kind not in known]
        status = {**status_of(node), "conditions": conditions}
        changed = self._context.writer.put_status(NODES, node, status)
        message = f"Node {name} status is now: NodeNotReady"
        self._context.recorder.event(self.name, NODES, changed, "NodeNotReady", message)
        return changed

    def _set_taints(self, node: JsonObject) -> JsonObject:
        """The taints that its conditions ask for, and no others of these keys."""
        wanted = _wanted_taints(node)
        taints: list[dict[str, Any]] = spec_of(node).get("taints") or []
        kept = []
        for taint in taints:
            mark = taint["key"], taint["effect"]
            ours = mark[0] in _SCHEDULE_KEYS and mark[1] == "NoSchedule"
            ours = ours or (mark[0] in (NOT_READY, UNREACHABLE) and mark[1] == "NoExecute")
            if not ours or mark in wanted:
                kept.append(taint)
        have = {(taint["key"], taint["effect"]) for taint in kept}
        when = stamp(self._context.clock())
        added = [
            {"key": key, "effect": effect, "timeAdded": when} for key, effect in wanted if (key, effect) not in have
        ]
        if not added and len(kept) == len(taints):
            return node
        return self._context.writer.patch(NODES, node, {"spec": {"taints": [*kept, *added] or None}})

    def _set_pods(self, node: JsonObject) -> None:
        """The pods of a node that is not ready are not ready either."""
        name = key_of(node)[1]
        ready = condition_of(status_of(node), "Ready")
        if ready is None or ready.get("status") == "True":
            self._unready.pop(name, None)
            return
        self._unready[name] = uid_of(node)
        for pod in self._context.cache.pods_on(name):
            condition = condition_of(status_of(pod), "Ready")
            if condition is None or condition.get("status") != "True":
                continue
            since = stamp(self._context.clock())
            unready = {**condition, "status": "False", "lastTransitionTime": since}
            conditions = [unready if one is condition else one for one in status_of(pod)["conditions"]]
            self._context.writer.patch(PODS, pod, {"status": {"conditions": conditions}}, "status")
            self._context.recorder.event(self.name, PODS, pod, "NodeNotReady", "Node is not ready", "Warning")


def _judged(node: JsonObject) -> tuple[Any, ...]:
    """What of a node decides its taints; heartbeat times left out."""
    conditions = [(one.get("type"), one.get("status")) for one in status_of(node).get("conditions") or ()]
    return spec_of(node).get("unschedulable"), spec_of(node).get("taints"), conditions


def _reported(node: JsonObject) -> list[Any]:
    return [one.get("lastHeartbeatTime") for one in status_of(node).get("conditions") or ()]


def _wanted_taints(node: JsonObject) -> list[tuple[str, str]]:
    """(key, effect) of the taints that follow from the conditions and from spec.unschedulable."""
    wanted: list[tuple[str, str]] = []
    for one in status_of(node).get("conditions") or ():
        key = _BY_CONDITION.get((one.get("type", ""), one.get("status", "")))
        if key is not None:
            wanted.append((key, "NoSchedule"))
            if one["type"] == "Ready":
                wanted.append((key, "NoExecute"))
    if spec_of(node).get("unschedulable"):
        wanted.append((UNSCHEDULABLE_TAINT, "NoSchedule"))
    return wanted


def _silent(condition: dict[str, Any], now: float) -> dict[str, Any]:
    if condition.get("type") not in _WATCHED or condition.get("status") == "Unknown":
        return condition
    text = {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
    return {**condition, "status": "Unknown", "lastTransitionTime": stamp(now), **text}


def _never_told(kind: str, created: str | None, now: float) -> dict[str, Any]:
    return {
        "type": kind,
        "status": "Unknown",
        "reason": "NodeStatusNeverUpdated",
        "message": "Kubelet never posted node status.",
        "lastHeartbeatTime": created or stamp(now),
        "lastTransitionTime": stamp(now),
    }
