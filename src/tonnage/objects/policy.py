"""policy/v1."""

from __future__ import annotations

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
