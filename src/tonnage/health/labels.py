"""Which pods a selector means, by the labels of templates and those that controllers add."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from tonnage.facts.labels import (
    BATCH,
    JOB_NAME,
    OLD_JOB_NAME,
    OLD_JOB_UID,
    POD_TEMPLATE_HASH,
    REVISION_HASH,
    TEMPLATE_GENERATION,
)
from tonnage.health.setting import Pods, Setting
from tonnage.objects.base import Unknown
from tonnage.objects.core import LabelSelector
from tonnage.objects.selectors import matches
from tonnage.workloads.marks import JOB_SET, LWS, RAY_CLUSTER, TRAINING_JOB, VOLCANO_JOB

_JOB = (BATCH, OLD_JOB_NAME, OLD_JOB_UID)
_STATEFUL = ("statefulset.kubernetes.io/", "apps.kubernetes.io/")
_JOB_SET = (*_JOB, "jobset.sigs.k8s.io/")
_TRAIN_JOB = (*_JOB_SET, "trainer.kubeflow.org/")
_TRAINING = ("training.kubeflow.org/",)
_RAY = ("ray.io/", "app.kubernetes.io/")
_ADDED: Mapping[str, tuple[str, ...]] = {
    "Deployment": (POD_TEMPLATE_HASH,),
    "DaemonSet": (REVISION_HASH, TEMPLATE_GENERATION),
    "StatefulSet": (*_STATEFUL, REVISION_HASH),
    "Job": (*_JOB, "volcano.sh/"),
    "CronJob": _JOB,
    "JobSet": _JOB_SET,
    "TrainingRuntime": _TRAIN_JOB,
    "ClusterTrainingRuntime": _TRAIN_JOB,
    "LeaderWorkerSet": ("leaderworkerset.sigs.k8s.io/", *_STATEFUL),
    "RayCluster": _RAY,
    "RayJob": _RAY,
    "RayService": _RAY,
    "PyTorchJob": _TRAINING,
    "TFJob": _TRAINING,
    "XGBoostJob": _TRAINING,
    "JAXJob": _TRAINING,
    "MPIJob": _TRAINING,
    "Pod": (),
    "ReplicaSet": (),
    "ReplicationController": (),
}
"""Beginnings of the label keys that the controllers of a kind add to their pods; those of other kinds may add any."""
_NAMES = {
    "Job": (OLD_JOB_NAME, JOB_NAME, VOLCANO_JOB),
    "JobSet": (JOB_SET,),
    "LeaderWorkerSet": (LWS,),
    "RayCluster": (RAY_CLUSTER,),
    "PyTorchJob": (TRAINING_JOB,),
    "TFJob": (TRAINING_JOB,),
    "XGBoostJob": (TRAINING_JOB,),
    "JAXJob": (TRAINING_JOB,),
    "MPIJob": (TRAINING_JOB,),
}
"""Of these keys, those whose value is the name of the object."""
_PASSIVE = frozenset(
    [
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "autoscaling",
        "autoscaling.k8s.io",
        "bitnami.com",
        "cert-manager.io",
        "cilium.io",
        "coordination.k8s.io",
        "crd.projectcalico.org",
        "discovery.k8s.io",
        "elbv2.k8s.aws",
        "eventing.keda.sh",
        "events.k8s.io",
        "external-secrets.io",
        "flowcontrol.apiserver.k8s.io",
        "gateway.networking.k8s.io",
        "generators.external-secrets.io",
        "inference.networking.k8s.io",
        "inference.networking.x-k8s.io",
        "k8s.cni.cncf.io",
        "karpenter.k8s.aws",
        "karpenter.sh",
        "keda.sh",
        "kueue.x-k8s.io",
        "kustomize.config.k8s.io",
        "kyverno.io",
        "monitoring.coreos.com",
        "monitoring.googleapis.com",
        "networking.istio.io",
        "networking.gke.io",
        "networking.k8s.io",
        "node.k8s.io",
        "onepassword.com",
        "policy",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
        "secrets-store.csi.x-k8s.io",
        "secrets.doppler.com",
        "secrets.hashicorp.com",
        "secrets.infisical.com",
        "security.istio.io",
        "snapshot.storage.k8s.io",
        "storage.k8s.io",
        "telemetry.istio.io",
        "topology.kubernetes.io",
        "trust.cert-manager.io",
        "apps",
        "batch",
    ]
) | {""}
"""API groups whose objects make no pods but by templates that can be seen."""


class Near(Struct, frozen=True):
    """Pods that a selector nearly means: ``key`` and ``value`` are what it would have to say, empty where the labels
    are as it says and the namespace is another."""

    pods: Pods
    key: str = ""
    value: str = ""


def selected(setting: Setting, selector: LabelSelector, namespace: str) -> tuple[Pods, ...]:
    """The pods of the namespace that have the labels, or may have them."""
    return tuple(pods for pods in setting.pods if pods.namespace == namespace and may_match(pods, selector))


def may_match(pods: Pods, selector: LabelSelector) -> bool:
    """Whether the labels of the template, with what a controller adds, satisfy the selector."""
    return matches(selector, {**dict(_added(pods, selector)), **pods.template.metadata.labels})


def _added(pods: Pods, selector: LabelSelector) -> Iterator[tuple[str, str]]:
    """Labels that the selector asks for and that a controller adds, as far as is known."""
    kind = pods.object.kind
    wanted = [(key, [value]) for key, value in selector.match_labels.items()]
    wanted += [(one.key, one.values) for one in selector.match_expressions if one.operator == "In"]
    wanted += [(one.key, ["any"]) for one in selector.match_expressions if one.operator == "Exists"]
    for key, values in wanted:
        if key in _NAMES.get(kind, ()):
            yield key, pods.object.name
        elif values and (kind not in _ADDED or key.startswith(_ADDED[kind])):
            yield key, values[0]


def nearest(setting: Setting, labels: Mapping[str, str], namespace: str) -> Near | None:
    """The pods whose labels come closest: those of another namespace where all fit, else of the same namespace."""
    for pods in setting.pods:
        if pods.namespace != namespace and may_match(pods, LabelSelector(match_labels=dict(labels))):
            return Near(pods)
    best: tuple[int, Near] | None = None
    for pods in setting.pods:
        own = pods.template.metadata.labels
        differing = [key for key, value in labels.items() if own.get(key) != value]
        if pods.namespace == namespace and differing:
            key = next((key for key in differing if key in own), differing[0])
            alike = sum(4 for k in labels if k not in differing) + sum(1 for k in differing if k in own)
            if best is None or alike > best[0]:
                best = (alike, Near(pods, key, own.get(key, "")))
    return best[1] if best else None


def others_may_make(setting: Setting, namespace: str) -> bool:
    """Whether the namespace may have pods that cannot be seen here: made by an object of a kind that is not read, or
    none of its pods are among the files."""
    if not any(pods.namespace == namespace for pods in setting.pods):
        return True
    return any(
        isinstance(one, Unknown)
        and (one.namespace or "default") == namespace
        and one.api_version.rpartition("/")[0] not in _PASSIVE
        for one in setting.objects
    )
