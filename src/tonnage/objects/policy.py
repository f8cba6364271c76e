"""policy/v1, and the arithmetic of disruption budgets.

Source of the arithmetic: kubernetes/kubernetes v1.36 pkg/controller/disruption,
pkg/registry/core/pod/storage/eviction.go and apimachinery pkg/util/intstr.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, floor

from tonnage.objects.base import Field, KubeObject
from tonnage.objects.core import LabelSelector


class PodDisruptionBudgetSpec(Field, frozen=True, kw_only=True):
    """How many of the selected pods may be missing; a number or a percentage."""

    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    unhealthy_pod_eviction_policy: str = ""


class PodDisruptionBudget(KubeObject, kw_only=True):
    """policy/v1 PodDisruptionBudget."""

    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()


def scaled(value: int | str, total: int, *, up: bool) -> int:
    """A number, or a percentage of ``total`` rounded up or down. Raises ValueError for any other text."""
    if isinstance(value, int):
        return value
    if not value.endswith("%") or not value[:-1].isdigit():
        raise ValueError(f"{value!r} is neither a number nor a percentage")
    share = int(value[:-1]) * total / 100
    return ceil(share) if up else floor(share)


@dataclass(frozen=True, slots=True)
class DisruptionAllowance:
    """What a PodDisruptionBudget allows now. Of ``expected`` pods, ``desired`` must stay healthy."""

    healthy: int
    desired: int
    expected: int

    @property
    def allowed(self) -> int:
        """Evictions of healthy pods that are allowed now."""
        return max(0, self.healthy - self.desired) if self.expected > 0 else 0

    def spares(self, *, ready: bool, policy: str) -> bool:
        """Whether a pod may go whatever ``allowed`` says: one that is not ready, by unhealthyPodEvictionPolicy."""
        return not ready and (policy == "AlwaysAllow" or self.healthy >= self.desired > 0)


def is_closed(spec: PodDisruptionBudgetSpec) -> bool:
    """Whether a budget never lets any pod go, however many are healthy (kubernetes-sigs/karpenter pkg/utils/pdb)."""
    return spec.max_unavailable in (0, "0%") or spec.min_available == "100%"


def needs(
    at_least: int | str | None, at_most: int | str | None, selected: int, scale: Callable[[], int]
) -> tuple[int, int]:
    """(pods that must stay healthy, pods expected) under minAvailable and maxUnavailable.

    ``selected``: pods there are; ``scale``: pods that their controllers want, asked only where it counts. Without
    either limit no pod is expected. Raises ValueError for text that is not a percentage, and what ``scale`` raises."""
    if at_most is not None:
        expected = scale()
        return max(0, expected - scaled(at_most, expected, up=True)), expected
    if isinstance(at_least, str):
        expected = scale()
        return scaled(at_least, expected, up=True), expected
    return (0, 0) if at_least is None else (at_least, selected)
