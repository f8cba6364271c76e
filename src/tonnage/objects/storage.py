"""Volumes: core/v1 PersistentVolume and PersistentVolumeClaim, storage.k8s.io/v1 StorageClass and CSINode."""

from __future__ import annotations

from typing import Any

from tonnage.objects.base import Field, KubeObject
from tonnage.objects.core import LabelSelector, NodeSelector, ResourceRequirements

DEFAULT_CLASS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
"""Annotations of the StorageClass that claims without one get."""
NO_PROVISIONER = "kubernetes.io/no-provisioner"
"""The provisioner of classes whose volumes are made by hand."""
WAIT_FOR_CONSUMER = "WaitForFirstConsumer"
"""Binding mode of classes whose claims are bound when a pod that uses them is."""


class PersistentVolumeClaimSpec(Field, frozen=True, kw_only=True):
    """What volume is asked for. ``storage_class_name``: None is the default class, empty is none."""

    access_modes: list[str] = []
    selector: LabelSelector | None = None
    resources: ResourceRequirements = ResourceRequirements()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str = ""


class PersistentVolumeClaimStatus(Field, frozen=True, kw_only=True):
    """What has become of a claim: Pending, Bound or Lost."""

    phase: str = ""


class PersistentVolumeClaim(KubeObject, kw_only=True):
    """core/v1 PersistentVolumeClaim."""

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class ClaimReference(Field, frozen=True, kw_only=True):
    """The claim for which a volume is kept."""

    name: str = ""
    namespace: str = ""
    uid: str = ""


class VolumeNodeAffinity(Field, frozen=True, kw_only=True):
    """From which nodes a volume can be reached."""

    required: NodeSelector | None = None


class CsiSource(Field, frozen=True, kw_only=True):
    """A volume of a CSI driver."""

    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(Field, frozen=True, kw_only=True):
    """What a volume is."""

    capacity: dict[str, str | int | float] = {}
    access_modes: list[str] = []
    storage_class_name: str = ""
    volume_mode: str = ""
    claim_ref: ClaimReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiSource | None = None


class PersistentVolumeStatus(Field, frozen=True, kw_only=True):
    """Available, Bound, Released or Failed."""

    phase: str = ""


class PersistentVolume(KubeObject, kw_only=True):
    """core/v1 PersistentVolume."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class TopologyRequirement(Field, frozen=True, kw_only=True):
    """One of these values of a node's label."""

    key: str
    values: list[str] = []


class TopologyTerm(Field, frozen=True, kw_only=True):
    """All of these hold."""

    match_label_expressions: list[TopologyRequirement] = []


class StorageClass(KubeObject, kw_only=True):
    """storage.k8s.io/v1 StorageClass."""

    provisioner: str = ""
    parameters: dict[str, Any] = {}
    volume_binding_mode: str = "Immediate"
    allowed_topologies: list[TopologyTerm] = []

    @property
    def is_default(self) -> bool:
        """Whether claims that name no class get this one."""
        return any(self.metadata.annotations.get(key) == "true" for key in DEFAULT_CLASS)


class CSINodeAllocatable(Field, frozen=True, kw_only=True):
    """How many volumes of a driver a node takes."""

    count: int | None = None


class CSINodeDriver(Field, frozen=True, kw_only=True):
    """A CSI driver that runs on a node."""

    name: str = ""
    allocatable: CSINodeAllocatable | None = None


class CSINodeSpec(Field, frozen=True, kw_only=True):
    """The CSI drivers of a node."""

    drivers: list[CSINodeDriver] = []


class CSINode(KubeObject, kw_only=True):
    """storage.k8s.io/v1 CSINode."""

    spec: CSINodeSpec = CSINodeSpec()
