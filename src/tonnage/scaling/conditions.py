"""Conditions of a HorizontalPodAutoscaler's status: which the controller sets, with which reason and message.

A condition stays as it was until a pass sets it again. Source: kubernetes/kubernetes
pkg/controller/podautoscaler/horizontal.go (setCondition, removeCondition and their calls), v1.36.3.
"""

from __future__ import annotations

from dataclasses import dataclass

ABLE, ACTIVE, LIMITED, TO_ZERO = "AbleToScale", "ScalingActive", "ScalingLimited", "ScaledToZero"
"""Types of conditions."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of the HPA's status."""

    type: str  # AbleToScale, ScalingActive, ScalingLimited or ScaledToZero
    status: bool
    reason: str
    message: str


Conditions = tuple[Condition, ...]

GOT_SCALE = Condition(ABLE, True, "SucceededGetScale", "the HPA controller was able to get the target's current scale")
SCALED_TO_ZERO = Condition(TO_ZERO, True, "ScaledToZero", "the HPA controller scaled the workload to zero")
NOT_SCALED_TO_ZERO = Condition(
    TO_ZERO, False, "NotScaledToZero", "the HPA controller did not scale the workload to zero"
)


def put(conditions: Conditions, *changed: Condition) -> Conditions:
    """The conditions with these set: each in the place of the one of its type, a new one at the end."""
    found = list(conditions)
    for one in changed:
        place = next((index for index, other in enumerate(found) if other.type == one.type), None)
        if place is None:
            found.append(one)
        else:
            found[place] = one
    return tuple(found)


def without(conditions: Conditions, kind: str) -> Conditions:
    """The conditions without the one of this type."""
    return tuple(one for one in conditions if one.type != kind)


def inactive(reason: str, message: str) -> Condition:
    """No count could be had from the metrics."""
    return Condition(ACTIVE, False, reason, message)


def active(metric: str) -> Condition:
    """A count could be had; ``metric`` is the one that asks for most."""
    message = f"the HPA was able to successfully calculate a replica count from {metric}"
    return Condition(ACTIVE, True, "ValidMetricFound", message)


def stabilised(reason: str) -> Condition:
    """Whether a stabilisation window held the recommendation back: ScaleUpStabilized, ScaleDownStabilized or ""."""
    return Condition(ABLE, True, reason or "ReadyForNewScale", _MESSAGES[reason])


def limited(reason: str) -> Condition:
    """Whether a rate policy or a bound held the count back: its reason, or ""."""
    return Condition(LIMITED, bool(reason), reason or "DesiredWithinRange", _MESSAGES[reason or "-"])


def rescaled(replicas: int) -> Condition:
    """The target has been given another count."""
    message = f"the HPA controller was able to update the target scale to {replicas}"
    return Condition(ABLE, True, "SucceededRescale", message)


_MESSAGES = {
    "": "recommended size matches current size",
    "-": "the desired count is within the acceptable range",
    "ScaleUpStabilized": (
        "recent recommendations were lower than current one, applying the lowest recent recommendation"
    ),
    "ScaleDownStabilized": (
        "recent recommendations were higher than current one, applying the highest recent recommendation"
    ),
    "ScaleUpLimit": "the desired replica count is increasing faster than the maximum scale rate",
    "ScaleDownLimit": "the desired replica count is decreasing faster than the maximum scale rate",
    "TooManyReplicas": "the desired replica count is more than the maximum replica count",
    "TooFewReplicas": "the desired replica count is less than the minimum replica count",
}
