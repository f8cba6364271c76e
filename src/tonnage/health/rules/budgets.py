"""PodDisruptionBudgets that never let a pod go, so that nodes are never drained or consolidated.

Source: kubernetes/kubernetes pkg/controller/disruption/disruption.go (getExpectedPodCount, getExpectedScale).
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.decisions import Ref
from tonnage.health import labels
from tonnage.health.blocker import NO_EFFECT, Blocker
from tonnage.health.bounds import PodRange, bounds
from tonnage.health.inventory import DEFAULT
from tonnage.health.setting import Pods, Setting
from tonnage.objects.base import where
from tonnage.objects.core import LabelSelector
from tonnage.objects.policy import PodDisruptionBudget, needs

_UNSCALED = {
    "Job": "jobs.batch",
    "CronJob": "jobs.batch",
    "JobSet": "jobs.batch",
    "TrainingRuntime": "jobs.batch",
    "ClusterTrainingRuntime": "jobs.batch",
    "DaemonSet": "daemonsets.apps",
}
"""Kinds whose pods belong to an object without a scale subresource."""
_BLOCKED = "Cannot evict pod as it would violate the pod's disruption budget."


def budgets(setting: Setting) -> Iterator[Blocker]:
    """Budgets that allow no eviction as long as all pods are healthy, and those that select nothing."""
    for budget in setting.objects:
        if not isinstance(budget, PodDisruptionBudget):
            continue
        namespace = budget.namespace or DEFAULT
        selector = budget.spec.selector
        chosen = () if selector is None else labels.selected(setting, selector, namespace)
        if not chosen:
            yield _selects_nothing(setting, budget, namespace, selector)
        else:
            yield from _Budget(setting, budget, namespace, chosen).blockers()


def _selects_nothing(
    setting: Setting, budget: PodDisruptionBudget, namespace: str, selector: LabelSelector | None
) -> Blocker:
    wanted = selector.match_labels if selector is not None else {}
    near = labels.nearest(setting, wanted, namespace) if wanted else None
    field = f"spec.selector.matchLabels.{near.key}" if near is not None and near.key else "spec.selector"
    help_ = "select the labels of the pods that it is to protect"
    if near is not None and near.key and near.value:
        help_ = f"set {near.key}: {near.value}, as the pods of {near.pods.ref} have it"
    elif near is not None and not near.key:
        help_ = f"put it into namespace {near.pods.namespace}, where {near.pods.ref} is"
    message = f"the budget selects no pods in namespace {namespace}: it protects nothing"
    ref = Ref("PodDisruptionBudget", budget.name, namespace)
    return Blocker("pdb-selects-nothing", NO_EFFECT, ref, where(budget, field), message, help_, some=True)


class _Budget:
    """One budget and the pods that it selects."""

    def __init__(self, setting: Setting, budget: PodDisruptionBudget, namespace: str, chosen: tuple[Pods, ...]) -> None:
        self.budget = budget
        self.ref = Ref("PodDisruptionBudget", budget.name, namespace)
        self.chosen = chosen
        self.bounds = [bounds(setting, pods) for pods in chosen]
        self.at_least, self.at_most = budget.spec.min_available, budget.spec.max_unavailable
        self.field = "spec.maxUnavailable" if self.at_most is not None else "spec.minAvailable"
        self.reason = "InsufficientPods"
        self.who = ", ".join(str(pods.ref) for pods in chosen)

    def blockers(self) -> Iterator[Blocker]:
        if self.at_least is None and self.at_most is None:
            self.field = "spec"
            why = "neither minAvailable nor maxUnavailable is set, which allows no eviction"
            yield self._blocker(why, "set maxUnavailable: 1")
            return
        scaled = self.at_most is not None or isinstance(self.at_least, str)
        unscaled = [pods for pods in self.chosen if pods.object.kind in _UNSCALED]
        if scaled and unscaled:
            resource = _UNSCALED[unscaled[0].object.kind]
            why = f"{resource} does not implement the scale subresource, so {self._written()} cannot be computed"
            self.reason = "SyncFailed"
            yield self._blocker(why, "set minAvailable to a number", some=len(unscaled) < len(self.chosen))
            return
        if self.at_most is not None and _is_zero(self.at_most):
            yield self._blocker(f"{self._written()} allows no eviction", "set maxUnavailable: 1")
            return
        if self.at_least == "100%":
            yield self._blocker(f"{self._written()} allows no eviction", "set maxUnavailable: 1")
            return
        known = [one for one in self.bounds if one is not None]
        if len(known) < len(self.chosen):
            return
        total = PodRange(sum(one.least for one in known), sum(one.most for one in known))
        if total.most and not self._allows(total.most):
            yield self._blocker(self._of(total.most), self._remedy(total.most))
        elif total.least and not self._allows(total.least):
            why = f"{self._of(total.least)} while the autoscaler is at its minimum"
            yield self._blocker(why, self._remedy(total.least), some=True)

    def _allows(self, pods: int) -> bool:
        desired, _ = needs(self.at_least, self.at_most, pods, lambda: pods)
        return pods > desired

    def _written(self) -> str:
        name, _, value = (
            self.field.removeprefix("spec."),
            "",
            self.at_most if self.at_most is not None else self.at_least,
        )
        return f"{name} {value}"

    def _of(self, pods: int) -> str:
        return f"{self._written()} of {pods} {'pod' if pods == 1 else 'pods'} allows no eviction"

    def _remedy(self, pods: int) -> str:
        if isinstance(self.at_least, int):
            less = f"set minAvailable: {pods - 1}" if pods > 1 else "set maxUnavailable: 1"
            return f"{less}, or at least {self.at_least + 1} replicas"
        return "set maxUnavailable: 1"

    def _blocker(self, why: str, help_: str, *, some: bool = False) -> Blocker:
        message = f"{why}: no pod of {self.who} may be evicted, and their nodes are never drained"
        at = where(self.budget, self.field)
        return Blocker("pdb-blocks-eviction", NO_EFFECT, self.ref, at, message, help_, self.reason, _BLOCKED, some)


def _is_zero(value: int | str) -> bool:
    return value in (0, "0%")
