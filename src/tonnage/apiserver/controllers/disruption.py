"""PodDisruptionBudgets: how many pods may be evicted now.

Source of the arithmetic, reasons and times: kubernetes/kubernetes v1.36 pkg/controller/disruption.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tonnage.apiserver.controllers.context import Context
from tonnage.apiserver.controllers.meta import (
    Key,
    condition_of,
    controller_uid,
    generation_of,
    is_deleting,
    key_of,
    labels_of,
    pod_ready_since,
    seconds_of,
    selector_of,
    spec_of,
    stamp,
    status_of,
    uid_of,
)
from tonnage.kube.resources import DAEMON_SETS, DEPLOYMENTS, PDBS, PODS, REPLICA_SETS, Resource
from tonnage.kube.verbs import JsonObject
from tonnage.objects.core import LabelSelector
from tonnage.objects.policy import DisruptionAllowance, needs
from tonnage.objects.selectors import matches

_DELETION_TIMEOUT_S = 120.0


class Uncountable(Exception):
    """The number of expected pods cannot be known."""


@dataclass(slots=True)
class _Selected:
    """The pods that a budget selects, counted pod by pod: uid to (whether it is healthy, uid of its controller)."""

    selector: LabelSelector | None
    healthy: int = 0
    pods: dict[str, tuple[bool, str]] = field(default_factory=dict)
    controllers: Counter[str] = field(default_factory=Counter)

    def put(self, pod: JsonObject) -> bool:
        """Count a pod if it is selected; whether it is."""
        if not matches(self.selector, labels_of(pod)):
            return False
        healthy = not is_deleting(pod) and pod_ready_since(pod) is not None
        self.pods[uid_of(pod)] = healthy, controller_uid(pod)
        self.healthy += healthy
        self.controllers[controller_uid(pod)] += 1
        return True

    def drop(self, uid: str) -> bool:
        """Count a pod no more; whether it was counted."""
        healthy, controller = self.pods.pop(uid, (None, ""))
        if healthy is None:
            return False
        self.healthy -= healthy
        self.controllers[controller] -= 1
        if not self.controllers[controller]:
            del self.controllers[controller]
        return True


class DisruptionController:
    """The disruption controller."""

    name = "controllermanager"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._selected: dict[str, _Selected] = {}

    def changed(self, resource: Resource, old: JsonObject | None, new: JsonObject | None) -> None:
        if resource is PDBS:
            self._budget_changed(old, new)
        elif resource is PODS:
            self._pod_changed(old, new)
        elif resource is REPLICA_SETS or resource is DEPLOYMENTS:
            changed = new or old
            if changed is None or (old and new and spec_of(old).get("replicas") == spec_of(new).get("replicas")):
                return
            for budget in self._context.cache.in_namespace_of(PDBS, key_of(changed)[0]):
                self._context.queue.add((self.name, key_of(budget)))

    def sync(self, key: Key) -> None:
        budget = self._context.cache.get(PDBS, key)
        if budget is None:
            return
        selected = self._pods_of(budget)
        if not selected.pods:
            self._context.recorder.event(self.name, PDBS, budget, "NoPods", "No matching pods found")
        try:
            expected, wanted = self._expected(budget, selected)
        except Uncountable as error:
            message = f"Failed to calculate the number of expected pods: {error}"
            self._context.recorder.event(self.name, PDBS, budget, "CalculateExpectedPodCountFailed", message, "Warning")
            self._fail_safe(budget, str(error))
            return
        disrupted, recheck = self._disrupted(budget, selected)
        healthy = selected.healthy - sum(selected.pods[uid][0] for uid in disrupted)
        names = dict(disrupted.values())
        self._write(budget, healthy, wanted, expected, names)
        if recheck is not None:
            self._context.queue.add_at((self.name, key), recheck)

    def _budget_changed(self, old: JsonObject | None, new: JsonObject | None) -> None:
        if old is not None and (new is None or spec_of(old).get("selector") != spec_of(new).get("selector")):
            self._selected.pop(uid_of(old), None)
        if new is not None:
            self._context.queue.add((self.name, key_of(new)))

    def _pod_changed(self, old: JsonObject | None, new: JsonObject | None) -> None:
        pod = new or old
        if pod is None:
            return
        for budget in self._context.cache.in_namespace_of(PDBS, key_of(pod)[0]):
            selected = self._pods_of(budget)
            was = old is not None and selected.drop(uid_of(old))
            if new is not None:
                selected.drop(uid_of(new))
            now = new is not None and selected.put(new)
            if was or now:
                self._context.queue.add((self.name, key_of(budget)))

    def _pods_of(self, budget: JsonObject) -> _Selected:
        """The selected pods. No selector selects nothing, an empty one all pods of the namespace."""
        uid = uid_of(budget)
        if uid not in self._selected:
            selected = self._selected[uid] = _Selected(selector_of(spec_of(budget).get("selector")))
            for pod in self._context.cache.in_namespace_of(PODS, key_of(budget)[0]):
                selected.put(pod)
        return self._selected[uid]

    def _expected(self, budget: JsonObject, selected: _Selected) -> tuple[int, int]:
        """Expected pods, and how many of them have to be healthy."""
        spec = spec_of(budget)

        def scale() -> int:
            return self._scale_of_controllers(budget, selected)

        try:
            wanted, expected = needs(spec.get("minAvailable"), spec.get("maxUnavailable"), len(selected.pods), scale)
        except ValueError as error:
            raise Uncountable(str(error)) from error
        return expected, wanted

    def _scale_of_controllers(self, budget: JsonObject, selected: _Selected) -> int:
        """The sum of spec.replicas over the controllers of the pods, a Deployment's for its ReplicaSets."""
        scales: dict[str, int] = {}
        for uid in selected.controllers:
            if uid:
                top, scale = self._scale(uid)
                scales[top] = scale
        if selected.controllers[""]:
            message = (
                "Pods selected by this PodDisruptionBudget have no controller, so the number of expected pods is not "
                "known. To count them, set .spec.minAvailable to a number."
            )
            self._context.recorder.event(self.name, PDBS, budget, "UnmanagedPods", message, "Warning")
        return sum(scales.values())

    def _scale(self, uid: str) -> tuple[str, int]:
        """The uid and the size of what a controller of pods is part of."""
        found = self._context.cache.find(uid)
        if found is None or found[0] is DAEMON_SETS or "replicas" not in spec_of(found[1]):
            pod = next(pod for pod in self._context.cache.dependents(uid, PODS))
            raise Uncountable(f'found no controllers for pod "{key_of(pod)[1]}"')
        above = self._context.cache.find(controller_uid(found[1]))
        top = above[1] if found[0] is REPLICA_SETS and above is not None and above[0] is DEPLOYMENTS else found[1]
        return uid_of(top), int(spec_of(top).get("replicas", 1))

    def _disrupted(self, budget: JsonObject, selected: _Selected) -> tuple[dict[str, tuple[str, str]], float | None]:
        """Pods whose eviction was granted and that are still there, uid to (name, when); when the first is overdue."""
        now, namespace = self._context.clock(), key_of(budget)[0]
        kept: dict[str, tuple[str, str]] = {}
        recheck: float | None = None
        for name, when in (status_of(budget).get("disruptedPods") or {}).items():
            pod = self._context.cache.get(PODS, (namespace, name))
            if pod is None or uid_of(pod) not in selected.pods or is_deleting(pod):
                continue
            due = (seconds_of(when) or 0.0) + _DELETION_TIMEOUT_S
            if due <= now:
                message = f"Pod was expected by PDB {'/'.join(key_of(budget))} to be deleted but it wasn't"
                self._context.recorder.event(self.name, PODS, pod, "NotDeleted", message, "Warning")
                continue
            kept[uid_of(pod)] = name, when
            recheck = due if recheck is None else min(recheck, due)
        return kept, recheck

    def _write(self, budget: JsonObject, healthy: int, wanted: int, expected: int, disrupted: dict[str, str]) -> None:
        allowed = DisruptionAllowance(healthy, wanted, expected).allowed
        reason = "SufficientPods" if allowed else "InsufficientPods"
        status: dict[str, Any] = {
            "currentHealthy": healthy,
            "desiredHealthy": wanted,
            "disruptionsAllowed": allowed,
            "expectedPods": expected,
            "observedGeneration": generation_of(budget),
            "conditions": self._conditions(budget, "True" if allowed else "False", reason, ""),
        }
        if disrupted:
            status["disruptedPods"] = disrupted
        old = {k: v for k, v in status_of(budget).items() if v or k in status}
        if old != status:
            self._context.writer.put_status(PDBS, budget, status)

    def _fail_safe(self, budget: JsonObject, message: str) -> None:
        """Allow no disruption where the pods cannot be counted."""
        conditions = self._conditions(budget, "False", "SyncFailed", message)
        status = {**status_of(budget), "disruptionsAllowed": 0, "conditions": conditions}
        for count in ("currentHealthy", "desiredHealthy", "expectedPods"):
            status.setdefault(count, 0)
        if status != status_of(budget):
            self._context.writer.put_status(PDBS, budget, status)

    def _conditions(self, budget: JsonObject, status: str, reason: str, message: str) -> list[dict[str, Any]]:
        old = condition_of(status_of(budget), "DisruptionAllowed")
        same = old is not None and old.get("status") == status
        since = old.get("lastTransitionTime") if old is not None and same else stamp(self._context.clock())
        others = [one for one in status_of(budget).get("conditions") or () if one.get("type") != "DisruptionAllowed"]
        new = {
            "type": "DisruptionAllowed",
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": since,
            "observedGeneration": generation_of(budget),
        }
        return [*others, new]
