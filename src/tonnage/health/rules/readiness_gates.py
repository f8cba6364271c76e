"""Readiness gates: conditions that somebody has to set before a pod counts as Ready.

Sources: kubernetes/enhancements KEP-580; kubernetes-sigs/aws-load-balancer-controller docs/deploy/pod_readiness_gate;
GoogleCloudPlatform/ingress-gce pkg/neg/readiness; openkruise/kruise apis/pub (InPlaceUpdateReady).
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.health.blocker import NOT_READY, Blocker
from tonnage.health.inventory import content
from tonnage.health.setting import Pods, Setting
from tonnage.objects.base import KubeObject
from tonnage.objects.core import Service

_AWS = ("target-health.elbv2.k8s.aws/", "target-health.alb.ingress.k8s.aws/")
_GCE = "cloud.google.com/load-balancer-neg-ready"
_OWN = ("apps.kruise.io/", "InPlaceUpdateReady", "KruisePodReady")
"""Set by controllers of workloads of these kinds, which need no other object."""


def readiness_gates(setting: Setting) -> Iterator[Blocker]:
    """Gates that nobody opens: the pods run and are never Ready."""
    for pods in setting.pods:
        for index, gate in enumerate(pods.template.needs.readiness_gates):
            condition = gate.get("conditionType")
            if isinstance(condition, str) and condition and not _opened(setting, pods, condition):
                yield Blocker(
                    "readiness-gate-never-opens",
                    NOT_READY,
                    pods.ref,
                    pods.where(f"readinessGates[{index}].conditionType"),
                    f"nothing sets the condition {condition} of the readiness gate: the pods are never Ready",
                    _remedy(condition),
                    "ReadinessGatesNotReady",
                    f'corresponding condition of pod readiness gate "{condition}" does not exist.',
                )


def _opened(setting: Setting, pods: Pods, condition: str) -> bool:
    if condition.startswith(_AWS):
        return any(_is_aws(one) for one in setting.objects if one.namespace in ("", pods.namespace))
    if condition == _GCE:
        return any(_has_neg(one) for one in setting.objects)
    if condition.startswith(_OWN):
        return "kruise" in pods.object.api_version
    return any(_says(content(one), condition) for one in setting.objects if one is not pods.object)


def _is_aws(one: KubeObject) -> bool:
    """Whether the AWS load balancer controller makes a target group for it."""
    if one.kind in ("TargetGroupBinding", "Ingress", "Gateway", "HTTPRoute"):
        return True
    return isinstance(one, Service) and one.spec.type == "LoadBalancer"


def _has_neg(one: KubeObject) -> bool:
    """Whether GKE makes a network endpoint group for it."""
    metadata = content(one).get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    named = isinstance(annotations, dict) and "cloud.google.com/neg" in annotations
    return named or one.kind in ("Ingress", "Gateway", "HTTPRoute")


def _says(value: object, text: str) -> bool:
    """Whether an object names the text, as an argument of what opens the gate may; other gates do not count."""
    if isinstance(value, dict):
        return any(_says(one, text) for key, one in value.items() if key != "readinessGates")
    if isinstance(value, list):
        return any(_says(one, text) for one in value)
    return isinstance(value, str) and text in value


def _remedy(condition: str) -> str:
    if condition.startswith(_AWS):
        return "add the TargetGroupBinding or the Ingress whose target group it waits for, or remove the gate"
    if condition == _GCE:
        return "add the annotation cloud.google.com/neg to the Service, or remove the gate"
    return "remove the gate, or add the controller that sets the condition"
