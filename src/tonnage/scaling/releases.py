"""What kube-controller-manager does with HorizontalPodAutoscalers by default, by its release.

The arithmetic is the same in both. Source: kubernetes/kubernetes pkg/features/kube_features.go, v1.36.3 and v1.37.0;
KEP-2021 (HPAScaleToZero: alpha and off up to 1.36, beta and on from 1.37), KEP-4951 (HPAConfigurableTolerance: beta and
on from 1.35).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Release:
    """A release of Kubernetes, or one with feature gates set otherwise."""

    version: str
    scale_to_zero: bool = True  # HPAScaleToZero
    configurable_tolerance: bool = True  # HPAConfigurableTolerance


KUBERNETES_1_36 = Release("1.36", scale_to_zero=False)
KUBERNETES_1_37 = Release("1.37")
