"""How fast replicas may change: the HorizontalPodAutoscaler's stabilisation windows and rate policies.

Source: kubernetes/kubernetes pkg/controller/podautoscaler/horizontal.go (stabilizeRecommendation*,
convertDesiredReplicas*, calculateScale*, storeScaleEvent) and pkg/apis/autoscaling/v2/defaults.go, v1.36.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from msgspec import Struct

from tonnage.scaling.replicas import Tolerance
from tonnage.units import NS_PER_S

DOWNSCALE_STABILIZATION_NS = 300 * NS_PER_S
"""kube-controller-manager ``--horizontal-pod-autoscaler-downscale-stabilization``."""
DEFAULT_PERIOD_NS = 15 * NS_PER_S
"""The period of the default policies."""
LEGACY_UP_FACTOR = 2.0
"""Without a behavior, replicas may at most double in one step …"""
LEGACY_UP_MINIMUM = 4.0
"""… or reach this many."""


class PolicyKind(Enum):
    """What a policy's value counts."""

    PODS = "Pods"
    PERCENT = "Percent"


class SelectPolicy(Enum):
    """Which of several policies wins."""

    MAX = "Max"  # the largest change
    MIN = "Min"  # the smallest change
    DISABLED = "Disabled"  # no change in this direction


class ScalingPolicy(Struct, frozen=True):
    """At most ``value`` pods, or percent of the pods at the start of the period, may come or go in
    ``period_ns``.
    """

    kind: PolicyKind
    value: int
    period_ns: int


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """The rules of one direction."""

    window_ns: int
    policies: tuple[ScalingPolicy, ...]
    select: SelectPolicy = SelectPolicy.MAX

    @property
    def longest_period_ns(self) -> int:
        """How long a change has to be remembered."""
        return max((policy.period_ns for policy in self.policies), default=0)


DEFAULT_UP = ScalingRules(
    0, (ScalingPolicy(PolicyKind.PODS, 4, DEFAULT_PERIOD_NS), ScalingPolicy(PolicyKind.PERCENT, 100, DEFAULT_PERIOD_NS))
)
DEFAULT_DOWN = ScalingRules(DOWNSCALE_STABILIZATION_NS, (ScalingPolicy(PolicyKind.PERCENT, 100, DEFAULT_PERIOD_NS),))


@dataclass(frozen=True, slots=True)
class Behavior:
    """Both directions with the API's defaults filled in.

    ``explicit`` is False when the object has no ``spec.behavior``: then the older code path with its own
    limits acts.
    """

    up: ScalingRules = DEFAULT_UP
    down: ScalingRules = DEFAULT_DOWN
    tolerance: Tolerance = field(default_factory=Tolerance)
    explicit: bool = False


class Recommendation(Struct, frozen=True):
    """A recommendation before stabilisation, and when it was made."""

    at_ns: int
    replicas: int


class ScaleEvent(Struct, frozen=True):
    """A change of the replica count that took place: by how many pods, never negative."""

    at_ns: int
    pods: int


@dataclass(frozen=True, slots=True)
class History:
    """What the controller remembers of one target: recommendations, oldest first, additions and removals."""

    recommendations: tuple[Recommendation, ...] = ()
    ups: tuple[ScaleEvent, ...] = ()
    downs: tuple[ScaleEvent, ...] = ()


class Limited(Struct, frozen=True):
    """A replica count and what bounded it: the reason of the object's condition, "" when nothing did."""

    replicas: int
    reason: str = ""


def stabilise(behavior: Behavior, history: History, *, current: int, desired: int, now_ns: int) -> Limited:
    """The recommendation after the stabilisation windows: the lowest recent one on the way up, the
    highest on the way down. ``history`` does not hold ``desired`` yet.
    """
    recent = history.recommendations
    if not behavior.explicit:
        oldest = now_ns - behavior.down.window_ns
        highest = max([desired, *(r.replicas for r in recent if r.at_ns >= oldest)])
        return Limited(highest, "ScaleDownStabilized" if highest != desired else "")
    low = min([desired, *(r.replicas for r in recent if r.at_ns > now_ns - behavior.up.window_ns)])
    high = max([desired, *(r.replicas for r in recent if r.at_ns > now_ns - behavior.down.window_ns)])
    stable = min(max(current, low), high)
    if stable == desired:
        return Limited(stable)
    return Limited(stable, "ScaleUpStabilized" if desired >= current else "ScaleDownStabilized")


def limit(
    behavior: Behavior, history: History, *, current: int, desired: int, bounds: tuple[int, int], now_ns: int
) -> Limited:
    """The count that the rate policies and the bounds (minimum, maximum) allow on the way to ``desired``."""
    lowest, highest = bounds
    if not behavior.explicit:
        return _limit_legacy(current, desired, lowest, highest)
    if desired > current:
        rate = max(up_limit(behavior.up, history, current, now_ns), current)
        allowed = min(highest, rate)
        if desired > allowed:
            return Limited(allowed, "ScaleUpLimit" if highest > rate else "TooManyReplicas")
    elif desired < current:
        rate = min(down_limit(behavior.down, history, current, now_ns), current)
        allowed = max(lowest, rate)
        if desired < allowed:
            return Limited(allowed, "ScaleDownLimit" if lowest < rate else "TooFewReplicas")
    return Limited(desired)


def _limit_legacy(current: int, desired: int, lowest: int, highest: int) -> Limited:
    rate = int(max(LEGACY_UP_FACTOR * current, LEGACY_UP_MINIMUM))
    if desired < lowest:
        return Limited(lowest, "TooFewReplicas")
    if desired > min(highest, rate):
        return Limited(min(highest, rate), "ScaleUpLimit" if highest > rate else "TooManyReplicas")
    return Limited(desired)


def up_limit(rules: ScalingRules, history: History, current: int, now_ns: int) -> int:
    """The highest count that the policies allow now. Percentages round up, so that small counts can grow
    at all.
    """
    allowed = _allowed(rules, history, current, now_ns, 1, math.ceil)
    return min(allowed) if rules.select is SelectPolicy.MIN else max(allowed)


def down_limit(rules: ScalingRules, history: History, current: int, now_ns: int) -> int:
    """The lowest count that the policies allow now. Percentages truncate: 25 % off 10 is 7, not 8."""
    allowed = _allowed(rules, history, current, now_ns, -1, math.trunc)
    return max(allowed) if rules.select is SelectPolicy.MIN else min(allowed)


def _allowed(
    rules: ScalingRules, history: History, current: int, now_ns: int, sign: int, whole: Callable[[float], int]
) -> list[int]:
    """What each policy allows; as many as there are now where none counts."""
    if rules.select is SelectPolicy.DISABLED or not rules.policies:
        return [current]
    allowed = []
    for policy in rules.policies:
        start = _at_period_start(history, current, now_ns - policy.period_ns)
        if policy.kind is PolicyKind.PODS:
            allowed.append(start + sign * policy.value)
        else:
            allowed.append(whole(start * (1 + sign * policy.value / 100)))
    return allowed


def recommended(history: History, behavior: Behavior, replicas: int, now_ns: int) -> History:
    """The history with a new recommendation, without those that no window reaches any more."""
    oldest = now_ns - max(behavior.up.window_ns, behavior.down.window_ns)
    kept = tuple(r for r in history.recommendations if r.at_ns >= oldest)
    return History((*kept, Recommendation(now_ns, replicas)), history.ups, history.downs)


def scaled(history: History, behavior: Behavior, before: int, after: int, now_ns: int) -> History:
    """The history with a change of the count that has taken place.

    A change takes the place of the last one in its direction that is older than every policy of that direction. Those
    that are not replaced stay, for the policies of the other direction look at them too, with periods of their own.
    """
    if not behavior.explicit or before == after:
        return history
    if after > before:
        ups = _stored(history.ups, ScaleEvent(now_ns, after - before), behavior.up)
        return History(history.recommendations, ups, history.downs)
    downs = _stored(history.downs, ScaleEvent(now_ns, before - after), behavior.down)
    return History(history.recommendations, history.ups, downs)


def _stored(events: tuple[ScaleEvent, ...], event: ScaleEvent, rules: ScalingRules) -> tuple[ScaleEvent, ...]:
    oldest = event.at_ns - rules.longest_period_ns
    place = next((index for index in reversed(range(len(events))) if events[index].at_ns < oldest), None)
    if place is None:
        return (*events, event)
    return (*events[:place], event, *events[place + 1 :])


def _at_period_start(history: History, current: int, start_ns: int) -> int:
    added = sum(change.pods for change in history.ups if change.at_ns > start_ns)
    removed = sum(change.pods for change in history.downs if change.at_ns > start_ns)
    return current - added + removed
