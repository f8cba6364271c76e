"""What the API server and the admission webhooks refuse, found before anything runs.

Only refusals, each by the rule that its source states. What is accepted and does harm is another room's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tonnage.errors import Problem
from tonnage.objects import (
    apps,
    autoscaling,
    batch,
    buffers,
    core,
    dra,
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
from tonnage.objects.api import label_keys, placing
from tonnage.objects.api.errors import FieldError, label_faults
from tonnage.objects.api.refused import refused_metadata
from tonnage.objects.api.warnings import warnings
from tonnage.objects.base import KubeObject, Unknown, where
from tonnage.objects.decode import without_nulls
from tonnage.objects.templates import templates
from tonnage.objects.validate import (
    amounts,
    capacity_buffers,
    cluster_configs,
    devices,
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
_CUSTOM: tuple[type[KubeObject], ...] = (
    keda.ScaledObject,
    karpenter.NodePool,
    karpenter.EC2NodeClass,
    monitoring.ServiceMonitor,
    monitoring.PrometheusRule,
)
"""Custom kinds of which the types are known (``api/api_types.csv``): their rules may rely on them."""
_OTHER_KEY = "remove the key from one of the two"
_BUILT_IN = ("v1", "apps/v1", "batch/v1")
"""API versions of Kubernetes' own kinds of which kube-apiserver warns."""
_BY_KIND: dict[type[KubeObject], Callable[[Any, Report], None]] = {
    keda.ScaledObject: scaledobjects.scaled_object,
    karpenter.NodePool: nodepools.node_pool,
    karpenter.EC2NodeClass: node_classes.ec2_node_class,
    karpenter.NodeOverlay: nodepools.node_overlay,
    buffers.CapacityBuffer: capacity_buffers.capacity_buffer,
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
    dra.DeviceClass: devices.devices,
    dra.DeviceTaintRule: devices.devices,
    dra.ResourceClaim: devices.devices,
    dra.ResourceClaimTemplate: devices.devices,
    dra.ResourceSlice: devices.devices,
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
    elif rules is not None and (not isinstance(obj, _CUSTOM) or served.has_types(obj.kind, report)):
        rules(obj, report)
    return report.problems


def check_warned(obj: KubeObject, place: Place) -> list[Problem]:
    """What the API takes and warns of."""
    if isinstance(obj, Unknown):
        read = obj.api_version in _BUILT_IN and any(templates(obj))
        written = without_nulls(obj.content) if read else {}
    else:
        written = obj.written if isinstance(obj, (*_SERVED, storage.PersistentVolumeClaim)) else {}
    found = [Problem(place(one.at), one.text.removeprefix(": ").strip()) for one in warnings(obj.kind, written)]
    return found + [Problem(place(at), text, _OTHER_KEY) for at, text in _refused_later(obj, written)]


def _refused_later(obj: KubeObject, written: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(field, text) of what is taken of a pod template and refused of each pod that is made from it: label keys that
    stand in their selector too once a pod's labels are merged into it."""
    if isinstance(obj, core.Pod) or "atchLabelKeys" not in str(written):
        return
    for one in templates(obj):
        spec = msgspec.to_builtins(one.spec)
        before = {error.at for error in _of_keys(one.field, spec)}
        label_keys.merge({"metadata": {"labels": one.metadata.labels}, "spec": spec})
        for error in _of_keys(one.field, spec):
            if error.at not in before:
                yield error.at, f"the API refuses each pod that is made from this: {error.message}"


def _of_keys(path: str, spec: dict[str, Any]) -> list[FieldError]:
    errors = placing.affinity(f"{path}.affinity", spec.get("affinity") or {})
    errors += placing.spread(f"{path}.topologySpreadConstraints", spec.get("topologySpreadConstraints") or [])
    return [error for error in errors if placing.BOTH in error.message]


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
