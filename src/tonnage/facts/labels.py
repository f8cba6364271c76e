"""Well-known labels and prefixes, by their names.

Sources: kubernetes.io, Well-Known Labels, Annotations and Taints; karpenter.sh, Scheduling (well-known labels);
NVIDIA/k8s-device-plugin, docs/gpu-feature-discovery.
"""

from __future__ import annotations

HOSTNAME = "kubernetes.io/hostname"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
REGION = "topology.kubernetes.io/region"
ZONE = "topology.kubernetes.io/zone"
JOB_NAME = "batch.kubernetes.io/job-name"
REVISION_HASH = "controller-revision-hash"
STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
"""An annotation: the class of a claim, before its field."""
NOT_READY = "node.kubernetes.io/not-ready"
"""A taint, as :data:`UNREACHABLE` is."""
UNREACHABLE = "node.kubernetes.io/unreachable"

CAPACITY_TYPE = "karpenter.sh/capacity-type"
INITIALIZED = "karpenter.sh/initialized"
NODE_POOL = "karpenter.sh/nodepool"
AWS_INSTANCE = "karpenter.k8s.aws/instance-"
"""What Karpenter's labels of an EC2 instance type begin with."""

NVIDIA = "nvidia.com/"
"""What labels, annotations and resources of NVIDIA begin with."""
GPU_COUNT = "nvidia.com/gpu.count"
GPU_PRODUCT = "nvidia.com/gpu.product"
MIG_PRODUCT = "-MIG-"
"""What stands between the product and the profile where ``nvidia.com/gpu.product`` names both."""
