"""Deployments and DaemonSets. Source: kubernetes/kubernetes pkg/apis/apps/validation/validation.go."""

from __future__ import annotations

from collections.abc import Mapping

from tonnage.objects.apps import DaemonSet, Deployment
from tonnage.objects.core import LabelSelector, PodTemplateSpec
from tonnage.objects.selectors import matches
from tonnage.objects.validate.common import Report
from tonnage.objects.validate.pods import pod_spec


def deployment(obj: Deployment, report: Report) -> None:
    report.within("spec.replicas", obj.spec.replicas, 0)
    report.within("spec.minReadySeconds", obj.spec.min_ready_seconds, 0)
    kind = obj.spec.strategy.get("type", "RollingUpdate")
    report.one_of("spec.strategy.type", kind, ("Recreate", "RollingUpdate"))
    if kind == "Recreate" and obj.spec.strategy.get("rollingUpdate") is not None:
        report.add("spec.strategy.rollingUpdate", "rollingUpdate stands beside type Recreate", "remove one of them")
    _template(obj.spec.selector, obj.spec.template, report)


def daemon_set(obj: DaemonSet, report: Report) -> None:
    _template(obj.spec.selector, obj.spec.template, report)


def _template(selector: LabelSelector, template: PodTemplateSpec, report: Report) -> None:
    report.selector("spec.selector", selector)
    labels = template.metadata.labels
    selects_its_pods(selector, labels, report)
    report.labels("spec.template.metadata.labels", labels)
    if template.spec.restart_policy != "Always":
        report.refuse("spec.template.spec.restartPolicy", template.spec.restart_policy, "Always")
    pod_spec("spec.template.spec", template.spec, report)


def selects_its_pods(selector: LabelSelector, labels: Mapping[str, str], report: Report) -> None:
    """The selector of a workload, and the labels of its template."""
    if not selector.match_labels and not selector.match_expressions:
        report.add("spec.selector", "the selector is empty", "select the labels of spec.template.metadata")
    elif not matches(selector, labels):
        shown = ", ".join(f"{key}={value}" for key, value in labels.items()) or "none"
        message = f"the selector does not match the template's labels ({shown})"
        report.add("spec.template.metadata.labels", message, "give the template the labels that spec.selector wants")
