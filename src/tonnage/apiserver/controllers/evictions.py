"""Pods that cannot stay: on nodes with NoExecute taints, and on nodes that are gone.

Sources: kubernetes/kubernetes v1.36 pkg/controller/tainteviction and pkg/controller/podgc (quarantine of 40 s). The
time a taint is tolerated counts from its timeAdded, so that a restart does not begin it again. The limit on ended pods
(12,500) is left out.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tonnage.apiserver.controllers.context import Context
from tonnage.apiserver.controllers.meta import (
    Key,
    is_deleting,
    key_of,
    pod_is_terminal,
    seconds_of,
    spec_of,
    stamp,
    status_of,
)
from tonnage.kube.resources import NODES, PODS, Resource
from tonnage.kube.verbs import JsonObject
from tonnage.objects.core import Taint, Toleration
from tonnage.objects.selectors import tolerates


class TaintEviction:
    """Deletes pods that do not, or no longer, tolerate a NoExecute taint of their node."""

    name = "taint-eviction-controller"

    def __init__(self, context: Context) -> None:
        self._context = context

    def changed(self, resource: Resource, old: JsonObject | None, new: JsonObject | None) -> None:
        if new is None:
            return
        if resource is NODES:
            if _no_execute(new) and (old is None or _no_execute(old) != _no_execute(new)):
                for pod in self._context.cache.pods_on(key_of(new)[1]):
                    self._context.queue.add((self.name, key_of(pod)))
        elif resource is PODS and spec_of(new).get("nodeName") and (old is None or _placed(old) != _placed(new)):
            node = self._context.cache.get(NODES, ("", spec_of(new)["nodeName"]))
            if node is not None and _no_execute(node):
                self._context.queue.add((self.name, key_of(new)))

    def sync(self, key: Key) -> None:
        pod = self._context.cache.get(PODS, key)
        if pod is None or is_deleting(pod):
            return
        node = self._context.cache.get(NODES, ("", spec_of(pod).get("nodeName", "")))
        taints = _no_execute(node) if node is not None else []
        if not taints:
            return
        now = self._context.clock()
        due = _due(spec_of(pod).get("tolerations") or [], taints, now)
        if due is None:
            return
        if due > now:
            self._context.queue.add_at((self.name, key), due)
            return
        message = f"Marking for deletion Pod {'/'.join(key)}"
        self._context.recorder.event(self.name, PODS, pod, "TaintManagerEviction", message)
        text = "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"
        pod = self._context.writer.patch(PODS, pod, {"status": _disrupted(pod, *text, now)}, "status")
        self._context.writer.delete(PODS, pod)


class PodGarbage:
    """Deletes pods of nodes that are gone for ``quarantine_s`` seconds, and unscheduled pods that are to go."""

    name = "pod-garbage-collector-controller"

    def __init__(self, context: Context, quarantine_s: float) -> None:
        self._context = context
        self._quarantine_s = quarantine_s
        self._missing_since: dict[str, float] = {}

    def changed(self, resource: Resource, old: JsonObject | None, new: JsonObject | None) -> None:
        if resource is NODES:
            if new is not None:
                self._missing_since.pop(key_of(new)[1], None)
            elif old is not None:
                self._context.queue.add((self.name, ("", key_of(old)[1])))
        elif resource is PODS and new is not None:
            node = spec_of(new).get("nodeName", "")
            if not node and is_deleting(new):
                self._context.queue.add((self.name, key_of(new)))
            elif node and node not in self._missing_since and self._context.cache.get(NODES, ("", node)) is None:
                self._context.queue.add((self.name, ("", node)))

    def sync(self, key: Key) -> None:
        if key[0]:
            pod = self._context.cache.get(PODS, key)
            if pod is not None and is_deleting(pod) and not spec_of(pod).get("nodeName"):
                self._context.writer.delete(PODS, pod, grace_s=0)
            return
        name = key[1]
        if self._context.cache.get(NODES, key) is not None:
            return
        now = self._context.clock()
        due = self._missing_since.setdefault(name, now) + self._quarantine_s
        if now < due:
            self._context.queue.add_at((self.name, key), due)
            return
        self._missing_since.pop(name)
        if self._context.writer.read(NODES, key) is not None:
            return
        for pod in self._context.cache.pods_on(name):
            if not pod_is_terminal(pod):
                text = "DeletionByPodGC", "PodGC: node no longer exists"
                status = {"phase": "Failed", **_disrupted(pod, *text, now)}
                pod = self._context.writer.patch(PODS, pod, {"status": status}, "status")
            self._context.writer.delete(PODS, pod, grace_s=0)


def _no_execute(node: JsonObject) -> list[dict[str, Any]]:
    return [taint for taint in spec_of(node).get("taints") or () if taint.get("effect") == "NoExecute"]


def _placed(pod: JsonObject) -> tuple[Any, Any]:
    return spec_of(pod).get("nodeName"), spec_of(pod).get("tolerations")


def _due(tolerations: list[dict[str, Any]], taints: list[dict[str, Any]], now: float) -> float | None:
    """When the pod has to go: now for a taint that it does not tolerate, None for never."""
    given = [(msgspec.convert(raw, Toleration), raw.get("tolerationSeconds")) for raw in tolerations]
    due: list[float] = []
    for raw in taints:
        taint = msgspec.convert(raw, Taint)
        matching = [seconds for toleration, seconds in given if tolerates((toleration,), taint)]
        if not matching:
            return now
        limits = [max(0, int(seconds)) for seconds in matching if seconds is not None]
        if limits:
            due.append((seconds_of(raw.get("timeAdded")) or now) + min(limits))
    return min(due) if due else None


def _disrupted(pod: JsonObject, reason: str, message: str, now: float) -> dict[str, Any]:
    """The part of a pod's status that says that it is being deleted, and why."""
    others = [one for one in status_of(pod).get("conditions") or () if one.get("type") != "DisruptionTarget"]
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastProbeTime": None,
        "lastTransitionTime": stamp(now),
    }
    return {"conditions": [*others, condition]}
