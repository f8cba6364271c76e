"""What kube-apiserver takes and warns of (the Warning header, which kubectl shows).

Source: kubernetes/kubernetes v1.36 pkg/registry (WarningsOnCreate) of core, apps and batch, pkg/api/service/warnings.go
and pkg/api/persistentvolumeclaim/util.go; of pods: :mod:`tonnage.objects.api.warnings_pods`. How IP addresses are
written is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from tonnage.facts.labels import STORAGE_CLASS, TOPOLOGY_HINTS
from tonnage.objects.api.errors import label_faults
from tonnage.objects.api.warnings_pods import Warned, claim, each, of_key, part, template, warned

JsonObject: TypeAlias = dict[str, Any]

_NAMES = {
    "Pod": "the Pod's hostname",
    **dict.fromkeys(("CronJob", "Deployment", "Job", "ReplicaSet", "ReplicationController"), "Pod names and hostnames"),
}
_TEMPLATES = {
    **dict.fromkeys(
        ("DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet"), "spec.template"
    ),
    "CronJob": "spec.jobTemplate.spec.template",
    "Pod": "",
    "PodTemplate": "template",
}
"""Where each kind has its pod template."""


def warnings(kind: str, obj: JsonObject) -> Iterator[Warned]:
    """Every warning for an object of a built-in kind, with defaults filled in or as it was written."""
    spec, metadata = part(obj, "spec"), part(obj, "metadata")
    name = metadata.get("name") or ""
    if kind in _NAMES and name and label_faults(name):
        why = (
            f"this is used in {_NAMES[kind]}, which can result in surprising behavior; "
            f"a DNS label is recommended: [{' '.join(label_faults(name))}]"
        )
        yield warned("metadata.name", why)
    if kind in _TEMPLATES:
        yield from template(_TEMPLATES[kind], _below(obj, _TEMPLATES[kind]))
    if kind == "StatefulSet":
        yield from _stateful_set(spec)
    elif kind == "PersistentVolumeClaim":
        if STORAGE_CLASS in part(metadata, "annotations"):
            why = 'deprecated since v1.8; use "storageClassName" attribute instead'
            yield of_key("metadata.annotations", STORAGE_CLASS, why)
        yield from claim("spec", spec)
    elif kind == "Service":
        yield from _service(spec, part(metadata, "annotations"))
    elif kind == "Node" and spec.get("externalID"):
        yield warned("spec.externalID", "this field is deprecated, and is unused by Kubernetes")


def _below(obj: JsonObject, path: str) -> JsonObject:
    for name in path.split(".") if path else ():
        obj = part(obj, name)
    return obj


def _stateful_set(spec: JsonObject) -> Iterator[Warned]:
    for index, wanted in each(spec, "volumeClaimTemplates"):
        yield from claim(f"spec.volumeClaimTemplates[{index}].spec", part(wanted, "spec"))
    kept = spec.get("revisionHistoryLimit")
    if isinstance(kept, int) and kept < 0:
        why = "a negative value retains all historical revisions; a value >= 0 is recommended"
        yield warned("spec.revisionHistoryLimit", why)


def _service(spec: JsonObject, annotations: JsonObject) -> Iterator[Warned]:
    def said(field: str, why: str) -> Warned:
        return Warned(f"spec.{field}", f" {why}", f"spec.{field}")

    if TOPOLOGY_HINTS in annotations:
        why = f" {TOPOLOGY_HINTS} is deprecated, please use service.kubernetes.io/topology-mode instead"
        yield Warned("annotation", why, f"metadata.annotations.{TOPOLOGY_HINTS}")
    type_, external = spec.get("type") or "ClusterIP", spec.get("externalIPs")
    headless = type_ == "ClusterIP" and spec.get("clusterIP") == "None"
    if headless:
        if spec.get("loadBalancerIP"):
            yield said("loadBalancerIP", "is ignored for headless services")
        if external:
            yield said("externalIPs", "is ignored for headless services")
        if (spec.get("sessionAffinity") or "None") != "None":
            yield Warned("spec.SessionAffinity", " is ignored for headless services", "spec.sessionAffinity")
    if external and type_ == "ExternalName":
        yield said("externalIPs", 'is ignored when spec.type is "ExternalName"')
    elif external and not headless:
        yield said("externalIPs", "is deprecated and may no longer be implemented in some clusters")
    if type_ != "ExternalName" and spec.get("externalName"):
        yield said("externalName", 'is ignored when spec.type is not "ExternalName"')
    if spec.get("trafficDistribution") == "PreferClose":
        yield warned("spec.trafficDistribution", '"PreferClose" is deprecated; use "PreferSameZone"')
