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
    eksctl,
    groups,
    karpenter,
    keda,
    leaderworker,
    monitoring,
    policy,
    quota,
    ray,
    storage,
    training,
    volcano,
)
from tonnage.objects.api.errors import label_faults
from tonnage.objects.api.refused import refused_metadata
from tonnage.objects.api.warnings import warnings
from tonnage.objects.base import KubeObject, Unknown, where
from tonnage.objects.decode import without_nulls
from tonnage.objects.templates import templates
from tonnage.objects.validate import (
    amounts,
    cluster_configs,
    jobs,
    node_classes,
    nodepools,
    pod_groups,
    prometheus,
    scaledobjects,
    served,
    training_jobs,
)
from tonnage.objects.validate.common import Place, Report

_SERVED: tuple[type[KubeObject], ...] = (
    core.Pod,
    core.Node,
    core.Service,
    core.ConfigMap,
    core.PriorityClass,
    apps.Deployment,
    apps.DaemonSet,
    apps.StatefulSet,
    apps.ReplicaSet,
    autoscaling.HorizontalPodAutoscaler,
    policy.PodDisruptionBudget,
    batch.Job,
)
"""Kubernetes' own kinds of which kube-apiserver refuses more than their metadata."""
_BY_KIND: dict[type[KubeObject], Callable[[Any, Report], None]] = {
    keda.ScaledObject: scaledobjects.scaled_object,
    karpenter.NodePool: nodepools.node_pool,
    karpenter.EC2NodeClass: node_classes.ec2_node_class,
    karpenter.NodeOverlay: nodepools.node_overlay,
    eksctl.ClusterConfig: cluster_configs.cluster_config,
    monitoring.ServiceMonitor: prometheus.service_monitor,
    monitoring.PrometheusRule: prometheus.prometheus_rule,
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
    ray.RayService: training_jobs.ray_service,
    volcano.VolcanoJob: training_jobs.volcano_job,
    groups.KaiPodGroup: pod_groups.kai_pod_group,
    groups.VolcanoPodGroup: pod_groups.volcano_pod_group,
    groups.CoschedulingPodGroup: pod_groups.coscheduling_pod_group,
    groups.KubePodGroup: pod_groups.kube_pod_group,
    groups.KubeWorkload: pod_groups.kube_workload,
    groups.Topology: pod_groups.topology,
    quota.ResourceQuota: amounts.amounts,
    quota.LimitRange: amounts.amounts,
    quota.RuntimeClass: amounts.amounts,
    storage.PersistentVolume: amounts.amounts,
    storage.PersistentVolumeClaim: amounts.amounts,
}


def check(obj: KubeObject, place: Place) -> list[Problem]:
    """Everything that is wrong with one object. Pods and nodes that an API server has given a uid it has taken: a dump
    has thousands of them."""
    if isinstance(obj, core.Pod | core.Node) and obj.metadata.uid:
        return []
    report = Report(place, obj.lines, obj.written or msgspec.to_builtins(obj))
    report.refused(refused_metadata(obj.kind, dict(report.written)))
    if obj.namespace:
        report.matches("metadata.namespace", obj.namespace, label_faults)
    rules = _BY_KIND.get(type(obj))
    if isinstance(obj, _SERVED):
        served.served(obj.kind, report)
    elif rules is not None:
        rules(obj, report)
    return report.problems


def check_warned(obj: KubeObject, place: Place) -> list[Problem]:
    """What the API takes and warns of."""
    if not isinstance(obj, _SERVED):
        return []
    return [Problem(place(one.at), one.text.removeprefix(": ").strip()) for one in warnings(obj.kind, obj.written)]


def check_unread(obj: Unknown, place: Place) -> list[Problem]:
    """What is wrong with the pods of an object whose kind is not read otherwise: all where it is Kubernetes' own, of
    others what would be no quantity."""
    report = Report(place, obj.lines, without_nulls(obj.content))
    if obj.api_version == "batch/v1" and obj.kind == "CronJob":
        served.job_spec("spec.jobTemplate.spec", report)
    else:
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
                f"{obj.kind} {obj.name} is defined already at {origin.file}:{origin.line}",
                "rename or remove one",
            )
