"""What a ScaledObject says, with KEDA's defaults filled in.

Source: kedacore/keda v2.21 apis/keda/v1alpha1/scaledobject_types.go, pkg/fallback/fallback.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tonnage.decisions import Ref
from tonnage.metrics.promql import Query
from tonnage.scaling.behavior import Behavior
from tonnage.scaling.cron import CronWindow
from tonnage.scaling.formula import Formula
from tonnage.scaling.replicas import TargetKind
from tonnage.units import NS_PER_S

POLLING_INTERVAL_NS = 30 * NS_PER_S
COOLDOWN_NS = 300 * NS_PER_S
DEFAULT_MAX_REPLICAS = 100
DEFAULT_HPA_MIN_REPLICAS = 1
"""Defaults of apis/keda/v1alpha1/scaledobject_types.go and the operator."""


class FallbackBehavior(Enum):
    """How many replicas a fallback holds."""

    STATIC = "static"
    CURRENT = "currentReplicas"
    CURRENT_IF_HIGHER = "currentReplicasIfHigher"
    CURRENT_IF_LOWER = "currentReplicasIfLower"
    SCALING_MODIFIERS = "scalingModifiers"  # none: the trigger is nil in the formula, whose ?? decides


@dataclass(frozen=True, slots=True)
class Fallback:
    """After more than ``failure_threshold`` consecutive failures of a trigger, act as if it asked for
    ``replicas``.
    """

    failure_threshold: int
    replicas: int
    behavior: FallbackBehavior = FallbackBehavior.STATIC

    def held(self, current: int) -> int:
        """The replicas that the fallback asks for."""
        if self.behavior is FallbackBehavior.CURRENT:
            return current
        if self.behavior is FallbackBehavior.CURRENT_IF_HIGHER:
            return max(current, self.replicas)
        if self.behavior is FallbackBehavior.CURRENT_IF_LOWER:
            return min(current, self.replicas)
        return self.replicas


@dataclass(frozen=True, slots=True)
class Trigger:
    """One trigger. ``query`` belongs to the prometheus type, ``window`` to cron; cpu and memory are left to the HPA and
    have neither, ``container`` is the one container of theirs that counts.

    ``threshold`` is in the metric's unit (percent for Utilization).
    """

    type: str
    threshold: float
    target_kind: TargetKind = TargetKind.AVERAGE_VALUE
    query: Query | None = None
    activation_threshold: float = 0.0
    ignore_null_values: bool = True
    name: str = ""
    window: CronWindow | None = None
    container: str = ""
    use_cached_metrics: bool = False

    @property
    def external(self) -> bool:
        """Whether KEDA's metrics server serves it, rather than the resource metrics API."""
        return self.type not in ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Modifiers:
    """``scalingModifiers``: one metric made of the external triggers by a formula, which calls them by name.

    ``whole_target`` says whether the target was written as a whole number: KEDA falls back with no other.
    """

    formula: Formula
    target: float
    target_kind: TargetKind = TargetKind.AVERAGE_VALUE
    activation_target: float = 0.0
    whole_target: bool = True


@dataclass(frozen=True, slots=True)
class Paused:
    """What the annotations ``autoscaling.keda.sh/paused…`` switch off; ``replicas`` is paused-replicas."""

    all: bool = False
    replicas: int | None = None
    scale_in: bool = False
    scale_out: bool = False


@dataclass(frozen=True, slots=True)
class KedaSpec:
    """What a ScaledObject says, with KEDA's defaults filled in."""

    scaled_object: Ref
    target: Ref
    triggers: tuple[Trigger, ...]
    min_replicas: int = 0
    max_replicas: int = DEFAULT_MAX_REPLICAS
    idle_replicas: int | None = None
    polling_interval_ns: int = POLLING_INTERVAL_NS
    cooldown_ns: int = COOLDOWN_NS
    initial_cooldown_ns: int = 0
    fallback: Fallback | None = None
    behavior: Behavior = field(default_factory=Behavior)
    hpa_name: str = ""
    paused: Paused = field(default_factory=Paused)
    force_activation: bool = False
    modifiers: Modifiers | None = None

    @property
    def polls_matter(self) -> bool:
        """Whether KEDA's own loop asks the triggers: towards zero or idle, for cached metrics, and for a formula."""
        reaches_down = self.min_replicas == 0 or self.idle_replicas is not None
        return reaches_down or self.modifiers is not None or any(one.use_cached_metrics for one in self.triggers)

    @property
    def valid_fallback(self) -> Fallback | None:
        """The fallback, unless KEDA does not take it beside these modifiers."""
        whole = self.modifiers is None or self.modifiers.whole_target
        return self.fallback if whole else None
