"""The API resources that Tonnage reads, writes or serves: their paths, names and subresources.

Source: kubernetes/kubernetes api/openapi-spec (v1.36) for the built-in groups; the CRDs of kubernetes-sigs/karpenter
v1, aws/karpenter-provider-aws v1, kedacore/keda v2 and prometheus-operator for the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class PrinterColumn(NamedTuple):
    """A column of `kubectl get`. ``path``: where its value stands, ``status.conditions[Ready].status``; ``[last]`` is
    the last item of a list. ``priority`` 1: for ``-o wide`` only."""

    name: str
    type: str
    path: str
    priority: int = 0


AGE = PrinterColumn("Age", "date", "metadata.creationTimestamp")


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of the API. ``plural`` is its name in paths; ``group`` is empty for core/v1."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    short_names: tuple[str, ...] = field(default=(), compare=False)
    categories: tuple[str, ...] = field(default=(), compare=False)
    subresources: tuple[str, ...] = ()
    custom: bool = False  # defined by a CRD on a real cluster
    open: bool = False  # may have any field
    columns: tuple[PrinterColumn, ...] = field(
        default=(), compare=False
    )  # of an open kind, beside its name: what `kubectl get` prints

    @property
    def api_version(self) -> str:
        """``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def struct(self) -> str:
        """The name under which the tables of the embedded API describe its fields; empty when it may have any."""
        return "" if self.open else self.kind

    @property
    def root(self) -> str:
        """``/api/v1`` or ``/apis/group/version``."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of the collection, of one object, or of its subresource. No namespace means all of them."""
        parts = [self.root]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/".join(parts)


PODS = Resource(
    "", "v1", "Pod", "pods", "pod", True, ("po",), ("all",), ("status", "binding", "eviction", "ephemeralcontainers")
)
NODES = Resource("", "v1", "Node", "nodes", "node", False, ("no",), (), ("status",))
NAMESPACES = Resource("", "v1", "Namespace", "namespaces", "namespace", False, ("ns",), (), ("status", "finalize"))
SERVICES = Resource("", "v1", "Service", "services", "service", True, ("svc",), ("all",), ("status",))
CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps", "configmap", True, ("cm",))
EVENTS = Resource("", "v1", "Event", "events", "event", True, ("ev",))
SERVICE_ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts", "serviceaccount", True, ("sa",))
DEPLOYMENTS = Resource(
    "apps", "v1", "Deployment", "deployments", "deployment", True, ("deploy",), ("all",), ("status", "scale")
)
REPLICA_SETS = Resource(
    "apps", "v1", "ReplicaSet", "replicasets", "replicaset", True, ("rs",), ("all",), ("status", "scale")
)
DAEMON_SETS = Resource("apps", "v1", "DaemonSet", "daemonsets", "daemonset", True, ("ds",), ("all",), ("status",))
STATEFUL_SETS = Resource(
    "apps", "v1", "StatefulSet", "statefulsets", "statefulset", True, ("sts",), ("all",), ("status", "scale")
)
JOBS = Resource("batch", "v1", "Job", "jobs", "job", True, (), ("all",), ("status",))
HPAS = Resource(
    "autoscaling",
    "v2",
    "HorizontalPodAutoscaler",
    "horizontalpodautoscalers",
    "horizontalpodautoscaler",
    True,
    ("hpa",),
    ("all",),
    ("status",),
)
PDBS = Resource(
    "policy",
    "v1",
    "PodDisruptionBudget",
    "poddisruptionbudgets",
    "poddisruptionbudget",
    True,
    ("pdb",),
    (),
    ("status",),
)
LEASES = Resource("coordination.k8s.io", "v1", "Lease", "leases", "lease", True)
NODE_LEASES = "kube-node-lease"
"""The namespace of the leases that kubelets renew."""
PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", "priorityclass", False, ("pc",)
)
NODE_POOLS = Resource(
    "karpenter.sh", "v1", "NodePool", "nodepools", "nodepool", False, (), ("karpenter",), ("status", "scale"), True
)
NODE_CLAIMS = Resource(
    "karpenter.sh", "v1", "NodeClaim", "nodeclaims", "nodeclaim", False, (), ("karpenter",), ("status",), True
)
EC2_NODE_CLASSES = Resource(
    "karpenter.k8s.aws",
    "v1",
    "EC2NodeClass",
    "ec2nodeclasses",
    "ec2nodeclass",
    False,
    ("ec2nc", "ec2ncs"),
    ("karpenter",),
    ("status",),
    True,
)
SCALED_OBJECTS = Resource(
    "keda.sh", "v1alpha1", "ScaledObject", "scaledobjects", "scaledobject", True, ("so",), (), ("status",), True
)
SERVICE_MONITORS = Resource(
    "monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors", "servicemonitor", True, ("smon",), (), (), True
)
CLUSTER_POLICIES = Resource(
    "nvidia.com", "v1", "ClusterPolicy", "clusterpolicies", "clusterpolicy", False, (), (), ("status",), True, True
)

COMPUTE_DOMAINS = Resource(
    "resource.nvidia.com",
    "v1beta1",
    "ComputeDomain",
    "computedomains",
    "computedomain",
    True,
    (),
    (),
    ("status",),
    True,
    True,
    (PrinterColumn("Status", "string", "status.status"), AGE),
)

RESOURCE_QUOTAS = Resource(
    "",
    "v1",
    "ResourceQuota",
    "resourcequotas",
    "resourcequota",
    True,
    ("quota",),
    (),
    ("status",),
    open=True,
    columns=(AGE,),
)
LIMIT_RANGES = Resource(
    "", "v1", "LimitRange", "limitranges", "limitrange", True, ("limits",), open=True, columns=(AGE,)
)
VOLUME_CLAIMS = Resource(
    "",
    "v1",
    "PersistentVolumeClaim",
    "persistentvolumeclaims",
    "persistentvolumeclaim",
    True,
    ("pvc",),
    (),
    ("status",),
    open=True,
    columns=(
        PrinterColumn("Status", "string", "status.phase"),
        PrinterColumn("Volume", "string", "spec.volumeName"),
        PrinterColumn("StorageClass", "string", "spec.storageClassName"),
        AGE,
    ),
)
VOLUMES = Resource(
    "",
    "v1",
    "PersistentVolume",
    "persistentvolumes",
    "persistentvolume",
    False,
    ("pv",),
    (),
    ("status",),
    open=True,
    columns=(
        PrinterColumn("Status", "string", "status.phase"),
        PrinterColumn("Claim", "string", "spec.claimRef.name"),
        PrinterColumn("StorageClass", "string", "spec.storageClassName"),
        AGE,
    ),
)
CSI_NODES = Resource(
    "storage.k8s.io",
    "v1",
    "CSINode",
    "csinodes",
    "csinode",
    False,
    open=True,
    columns=(AGE,),
)
STORAGE_CLASSES = Resource(
    "storage.k8s.io",
    "v1",
    "StorageClass",
    "storageclasses",
    "storageclass",
    False,
    ("sc",),
    open=True,
    columns=(
        PrinterColumn("Provisioner", "string", "provisioner"),
        PrinterColumn("VolumeBindingMode", "string", "volumeBindingMode"),
        AGE,
    ),
)
RUNTIME_CLASSES = Resource(
    "node.k8s.io",
    "v1",
    "RuntimeClass",
    "runtimeclasses",
    "runtimeclass",
    False,
    open=True,
    columns=(PrinterColumn("Handler", "string", "handler"), AGE),
)
DEVICE_CLASSES = Resource(
    "resource.k8s.io", "v1", "DeviceClass", "deviceclasses", "deviceclass", False, open=True, columns=(AGE,)
)
RESOURCE_SLICES = Resource(
    "resource.k8s.io",
    "v1",
    "ResourceSlice",
    "resourceslices",
    "resourceslice",
    False,
    open=True,
    columns=(
        PrinterColumn("Node", "string", "spec.nodeName"),
        PrinterColumn("Driver", "string", "spec.driver"),
        PrinterColumn("Pool", "string", "spec.pool.name"),
        AGE,
    ),
)
RESOURCE_CLAIMS = Resource(
    "resource.k8s.io",
    "v1",
    "ResourceClaim",
    "resourceclaims",
    "resourceclaim",
    True,
    (),
    (),
    ("status",),
    open=True,
    columns=(PrinterColumn("State", "string", ""), AGE),
)
RESOURCE_CLAIM_TEMPLATES = Resource(
    "resource.k8s.io",
    "v1",
    "ResourceClaimTemplate",
    "resourceclaimtemplates",
    "resourceclaimtemplate",
    True,
    open=True,
    columns=(AGE,),
)
DEVICE_TAINT_RULES = Resource(
    "resource.k8s.io",
    "v1beta2",
    "DeviceTaintRule",
    "devicetaintrules",
    "devicetaintrule",
    False,
    (),
    (),
    ("status",),
    open=True,
    columns=(AGE,),
)

CRDS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    "customresourcedefinition",
    False,
    ("crd", "crds"),
    ("api-extensions",),
    ("status",),
    custom=True,
    open=True,
    columns=(PrinterColumn("Created At", "string", "metadata.creationTimestamp"),),
)
"""The definitions of kinds; of the embedded API's own it has none."""

ALL = (
    PODS,
    NODES,
    NAMESPACES,
    SERVICES,
    CONFIG_MAPS,
    EVENTS,
    SERVICE_ACCOUNTS,
    DEPLOYMENTS,
    REPLICA_SETS,
    DAEMON_SETS,
    STATEFUL_SETS,
    JOBS,
    HPAS,
    PDBS,
    LEASES,
    PRIORITY_CLASSES,
    NODE_POOLS,
    NODE_CLAIMS,
    EC2_NODE_CLASSES,
    SCALED_OBJECTS,
    SERVICE_MONITORS,
    RESOURCE_QUOTAS,
    LIMIT_RANGES,
    VOLUME_CLAIMS,
    VOLUMES,
    STORAGE_CLASSES,
    CSI_NODES,
    RUNTIME_CLASSES,
    DEVICE_CLASSES,
    RESOURCE_SLICES,
    RESOURCE_CLAIMS,
    RESOURCE_CLAIM_TEMPLATES,
)
"""What Tonnage knows, and every API has, with the CRDs."""


SERVED = (*ALL, CRDS, DEVICE_TAINT_RULES)
"""What the embedded API serves from the start; a real one has DeviceTaintRules only where that is switched on."""


def by_kind(api_version: str, kind: str) -> Resource | None:
    """The resource of an object, by its apiVersion and kind."""
    return next((r for r in ALL if r.kind == kind and r.api_version == api_version), None)


SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""On a claim: the node for which its provisioner makes a volume."""
