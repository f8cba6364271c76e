"""What the API server and the admission webhooks refuse, found before anything runs.

Only refusals, each by the rule that its source states. What is accepted and does harm is another room's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from tonnage.errors import Problem
from tonnage.objects import (
    apps,
    autoscaling,
    batch,
    core,
    groups,
    karpenter,
    keda,
    leaderworker,
    monitoring,
    policy,
    ray,
    training,
    volcano,
)
from tonnage.objects.base import KubeObject, Unknown, where
from tonnage.objects.core import LabelSelector
from tonnage.objects.templates import Template, templates
from tonnage.objects.validate import (
    cluster,
    jobs,
    nodepools,
    pod_groups,
    pods,
    replicas,
    scaledobjects,
    training_jobs,
    workloads,
)
from tonnage.objects.validate.common import Place, Report, Rule
from tonnage.objects.validate.needs import pod_needs

_BY_KIND: dict[type[KubeObject], Callable[[Any, Report], None]] = {
    core.Pod: pods.pod,
    core.Node: cluster.node,
    core.Service: cluster.service,
    core.ConfigMap: cluster.config_map,
    core.PriorityClass: cluster.priority_class,
    apps.Deployment: workloads.deployment,
    apps.DaemonSet: workloads.daemon_set,
    autoscaling.HorizontalPodAutoscaler: replicas.horizontal_pod_autoscaler,
    keda.ScaledObject: scaledobjects.scaled_object,
    karpenter.NodePool: nodepools.node_pool,
    karpenter.EC2NodeClass: nodepools.ec2_node_class,
    monitoring.ServiceMonitor: cluster.service_monitor,
    monitoring.PrometheusRule: cluster.prometheus_rule,
    policy.PodDisruptionBudget: cluster.pod_disruption_budget,
    batch.Job: jobs.job,
    batch.JobSet: jobs.job_set,
    leaderworker.LeaderWorkerSet: jobs.leader_worker_set,
    training.PyTorchJob: training_jobs.kubeflow_job,
    training.TFJob: training_jobs.kubeflow_job,
    training.XGBoostJob: training_jobs.kubeflow_job,
    training.JAXJob: training_jobs.kubeflow_job,
    training.MPIJob: training_jobs.kubeflow_job,
    training.TrainJob: training_jobs.train_job,
    training.TrainingRuntime: training_jobs.training_runtime,
    ray.RayCluster: training_jobs.ray_cluster,
    ray.RayJob: training_jobs.ray_job,
    volcano.VolcanoJob: training_jobs.volcano_job,
    groups.KaiPodGroup: pod_groups.kai_pod_group,
    groups.VolcanoPodGroup: pod_groups.volcano_pod_group,
    groups.CoschedulingPodGroup: pod_groups.coscheduling_pod_group,
    groups.KubePodGroup: pod_groups.kube_pod_group,
    groups.KubeWorkload: pod_groups.kube_workload,
    groups.Topology: pod_groups.topology,
}
_NAMED_BY_LABEL = (core.Service,)
"""Kinds whose names are DNS labels (63 characters, no dots); those of the others are DNS subdomains."""


def check(obj: KubeObject, place: Place) -> list[Problem]:
    """Everything that is wrong with one object."""
    report = Report(place, obj.lines)
    _metadata(obj, report)
    rules = _BY_KIND.get(type(obj))
    if rules is not None:
        rules(obj, report)
    for template in templates(obj):
        pod_needs(template.field, template.needs, report)
    return report.problems


def check_unread(obj: Unknown, place: Place) -> list[Problem]:
    """What is wrong with the pods of an object whose kind is not read otherwise: all where it is Kubernetes' own, of
    others what would be no quantity."""
    report = Report(place, obj.lines)
    if obj.api_version.rpartition("/")[0] not in ("apps", "batch"):
        for template in templates(obj):
            for part, containers in (
                ("initContainers", template.spec.init_containers),
                ("containers", template.spec.containers),
            ):
                for index, container in enumerate(containers):
                    for which in ("requests", "limits"):
                        for name, written in getattr(container.resources, which).items():
                            report.quantity(f"{template.field}.{part}[{index}].resources.{which}.{name}", written)
        return report.problems
    claimed = _names(obj.content.get("spec"), "volumeClaimTemplates")
    for template in templates(obj):
        pods.pod_spec(template.field, template.spec, report)
        pod_needs(template.field, template.needs, report, claimed=claimed)
        _selector(obj, template, report)
    return report.problems


def _names(spec: Any, part: str) -> frozenset[str]:
    listed = spec.get(part) if isinstance(spec, dict) else None
    metas = [one.get("metadata") for one in (listed if isinstance(listed, list) else ()) if isinstance(one, dict)]
    return frozenset(str(meta.get("name")) for meta in metas if isinstance(meta, dict))


def _selector(obj: Unknown, template: Template, report: Report) -> None:
    """StatefulSets and ReplicaSets select the pods that they make."""
    spec = obj.content.get("spec")
    selector = spec.get("selector") if isinstance(spec, dict) else None
    if obj.kind not in ("StatefulSet", "ReplicaSet") or not isinstance(selector, dict):
        return
    try:
        read = msgspec.convert(selector, LabelSelector, strict=False)
    except msgspec.ValidationError:
        return
    workloads.selects_its_pods(read, template.metadata.labels, report)


def duplicates(objects: Sequence[KubeObject]) -> Iterator[Problem]:
    """Objects of one API group, kind, namespace and name that stand twice."""
    seen: dict[tuple[str, str, str, str], KubeObject] = {}
    for obj in objects:
        group = obj.api_version.rpartition("/")[0]
        first = seen.setdefault((group, obj.kind, obj.namespace, obj.name), obj)
        if first is not obj and obj.name:
            origin = first.origin
            yield Problem(
                where(obj, "metadata.name"),
                f"{obj.kind} {obj.name} stands already at {origin.file}:{origin.line}",
                "rename or remove one",
            )


def _metadata(obj: KubeObject, report: Report) -> None:
    """Source: kubernetes/kubernetes staging/src/k8s.io/apimachinery/pkg/api/validation/objectmeta.go."""
    meta = obj.metadata
    if not meta.name:
        report.add("metadata.name", "the name is missing", "every object has a metadata.name")
    else:
        rule = Rule.LABEL if isinstance(obj, _NAMED_BY_LABEL) else Rule.SUBDOMAIN
        report.matches("metadata.name", meta.name, rule)
    if meta.namespace:
        report.matches("metadata.namespace", meta.namespace, Rule.LABEL)
    report.labels("metadata.labels", meta.labels)
    for key in meta.annotations:
        report.matches(f"metadata.annotations.{key}", key.lower(), Rule.QUALIFIED)
