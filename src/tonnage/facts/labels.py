"""Well-known labels, annotations, taints and prefixes, by their names. Every key that several modules read or write
stands here once; what one module alone knows stands there.

Sources: kubernetes.io, Well-Known Labels, Annotations and Taints; karpenter.sh, Scheduling (well-known labels);
NVIDIA/k8s-device-plugin, docs/gpu-feature-discovery; NVIDIA/mig-parted deployments/container; eksctl.io, Node groups;
docs.aws.amazon.com, EKS User Guide, Managed node groups; kubernetes-sigs/aws-ebs-csi-driver docs/parameters.md.
"""

from __future__ import annotations

HOSTNAME = "kubernetes.io/hostname"
ARCH = "kubernetes.io/arch"
OS = "kubernetes.io/os"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
REGION = "topology.kubernetes.io/region"
ZONE = "topology.kubernetes.io/zone"
BETA_ARCH = "beta.kubernetes.io/arch"
"""The old name of :data:`ARCH`, as the others with BETA are of theirs."""
BETA_OS = "beta.kubernetes.io/os"
BETA_REGION = "failure-domain.beta.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""Of a namespace: its name."""
BATCH = "batch.kubernetes.io/"
"""What labels of a Job's pods begin with; the old ones have the same names without it."""
OLD_JOB_NAME = "job-name"
OLD_JOB_UID = "controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
JOB_UID = "batch.kubernetes.io/controller-uid"
POD_TEMPLATE_HASH = "pod-template-hash"
TEMPLATE_GENERATION = "pod-template-generation"
REVISION_HASH = "controller-revision-hash"
STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
"""An annotation: the class of a claim, before its field."""
TOPOLOGY_HINTS = "service.kubernetes.io/topology-aware-hints"
"""An annotation: the old name of ``service.kubernetes.io/topology-mode``."""

NOT_READY = "node.kubernetes.io/not-ready"
"""A taint, as the others of a node's conditions are."""
UNREACHABLE = "node.kubernetes.io/unreachable"
MEMORY_PRESSURE = "node.kubernetes.io/memory-pressure"
DISK_PRESSURE = "node.kubernetes.io/disk-pressure"
PID_PRESSURE = "node.kubernetes.io/pid-pressure"
NETWORK_UNAVAILABLE = "node.kubernetes.io/network-unavailable"
UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"

APP_NAME = "app.kubernetes.io/name"
SCALED_OBJECT_NAME = "scaledobject.keda.sh/name"

CAPACITY_TYPE = "karpenter.sh/capacity-type"
INITIALIZED = "karpenter.sh/initialized"
NODE_POOL = "karpenter.sh/nodepool"
EC2_NODE_CLASS = "karpenter.k8s.aws/ec2nodeclass"
AWS_INSTANCE = "karpenter.k8s.aws/instance-"
"""What Karpenter's labels of an EC2 instance type begin with."""
EKS_CAPACITY_TYPE = "eks.amazonaws.com/capacityType"
EKS_NODE_GROUP = "eks.amazonaws.com/nodegroup"
EKSCTL_NODE_GROUP = "alpha.eksctl.io/nodegroup-name"
AWS_ZONE_ID = "topology.k8s.aws/zone-id"
EBS_ZONE = "topology.ebs.csi.aws.com/zone"

NVIDIA = "nvidia.com/"
"""What labels, annotations and resources of NVIDIA begin with."""
GPU = "nvidia.com/gpu"
"""The resource of whole GPUs."""
MIG_PREFIX = "nvidia.com/mig-"
"""What resources of MIG instances begin with."""
MIG_CONFIG = "nvidia.com/mig.config"
GPU_COUNT = "nvidia.com/gpu.count"
GPU_MEMORY = "nvidia.com/gpu.memory"
DRA_PLUGIN = "nvidia.com/dra-kubelet-plugin"
"""Of a node on which NVIDIA's DRA driver runs, and no device plugin: ``true`` (GPU Operator documentation, 2026)."""
MIG_RELAYOUT = "tonnage.dev/mig-relayout"
"""Of a node whose MIG layout may be changed: ``true``; with :data:`DRA_PLUGIN` by its DRA driver, for each claim."""
GPU_PRESENT = "nvidia.com/gpu.present"
DRIVER_UPGRADE_STATE = "nvidia.com/gpu-driver-upgrade-state"
"""How far the GPU operator has come with a node's driver, :mod:`tonnage.facts.gpu_stack` has the words."""
DRIVER_UPGRADE_SKIP = "nvidia.com/gpu-driver-upgrade.skip"
"""A node with ``true`` keeps its driver, whatever the ClusterPolicy says."""
GPU_CLIQUE = "nvidia.com/gpu.clique"
"""The NVLink fabric of a node: `CLUSTER.CLIQUE`; nodes of one clique reach each other's GPU memory."""
GPU_PRODUCT = "nvidia.com/gpu.product"
MIG_PRODUCT = "-MIG-"
"""What stands between the product and the profile where :data:`GPU_PRODUCT` names both."""
SHARED_PRODUCT = "-SHARED"
"""What :data:`GPU_PRODUCT` ends with where GPUs or instances are shared."""


def product_of(value: str) -> tuple[str, str]:
    """Product of the GPU and name of the MIG profile, empty where there is none, in a value of :data:`GPU_PRODUCT`."""
    product, _, profile = value.removesuffix(SHARED_PRODUCT).partition(MIG_PRODUCT)
    return product, profile
