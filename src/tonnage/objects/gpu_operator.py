"""nvidia.com/v1: the ClusterPolicy of NVIDIA's GPU operator: what it runs on nodes, and how GPUs are partitioned.

Source: NVIDIA/gpu-operator api/nvidia/v1/clusterpolicy_types.go, controllers/object_controls.go."""

from __future__ import annotations

import msgspec

from tonnage.objects.base import Field, KubeObject

OWN_MIG_CONFIG_MAP = "default-mig-parted-config"
"""The ConfigMap with mig-parted's own configurations, which the operator makes (assets/state-mig-manager)."""


class ConfigMapChoice(Field, frozen=True, kw_only=True):
    """A ConfigMap of the operator's namespace, and the configuration in it of nodes without a label."""

    name: str = ""
    default: str = ""


class MigSpec(Field, frozen=True, kw_only=True):
    """The MIG strategy of all nodes."""

    strategy: str = ""


class OperandSpec(Field, frozen=True, kw_only=True):
    """A program that the operator runs on GPU nodes. ``enabled``: None where nothing is said."""

    enabled: bool | None = None
    version: str = ""


class UpgradePolicySpec(Field, frozen=True, kw_only=True):
    """How the operator upgrades drivers. ``auto_upgrade``: node by node, by itself; None where nothing is said."""

    auto_upgrade: bool | None = None


class DriverSpec(OperandSpec, frozen=True, kw_only=True):
    """The driver. ``use_nvidia_driver_crd``: NVIDIADriver objects say which, and not the ClusterPolicy."""

    upgrade_policy: UpgradePolicySpec = UpgradePolicySpec()
    use_nvidia_driver_crd: bool = msgspec.field(default=False, name="useNvidiaDriverCRD")


class DevicePluginSpec(OperandSpec, frozen=True, kw_only=True):
    """The device plugin, and GPU feature discovery with it."""

    config: ConfigMapChoice = ConfigMapChoice()


class HpcJobMappingSpec(Field, frozen=True, kw_only=True):
    """Files of a batch system with the jobs on each GPU."""

    enabled: bool | None = None
    directory: str = "/var/lib/dcgm-exporter/job-mapping"


class DcgmExporterSpec(OperandSpec, frozen=True, kw_only=True):
    """dcgm-exporter. ``enable_pod_labels``: labels of pods become labels of their metrics, those whose keys an
    expression of ``pod_label_allowlist_regex`` matches; without expressions all of them."""

    enable_pod_labels: bool | None = None
    pod_label_allowlist_regex: list[str] | str = []
    hpc_job_mapping: HpcJobMappingSpec = HpcJobMappingSpec()


class MigManagerSpec(OperandSpec, frozen=True, kw_only=True):
    """mig-manager, which runs mig-parted."""

    config: ConfigMapChoice = ConfigMapChoice()


class ClusterPolicySpec(Field, frozen=True, kw_only=True):
    """What the operator installs, and with which settings."""

    mig: MigSpec = MigSpec()
    device_plugin: DevicePluginSpec = DevicePluginSpec()
    mig_manager: MigManagerSpec = MigManagerSpec()
    driver: DriverSpec = DriverSpec()
    toolkit: OperandSpec = OperandSpec()
    dcgm: OperandSpec = OperandSpec()
    dcgm_exporter: DcgmExporterSpec = DcgmExporterSpec()
    gfd: OperandSpec = OperandSpec()
    node_status_exporter: OperandSpec = OperandSpec()
    validator: OperandSpec = OperandSpec()

    def enabled(self, field: str) -> bool | None:
        """Whether an operand, by the name of its field in the manifest (``dcgmExporter``), is on; None where nothing is
        said of it."""
        found = getattr(self, "".join(f"_{c.lower()}" if c.isupper() else c for c in field))
        return found.enabled if isinstance(found, OperandSpec) else None


class ClusterPolicy(KubeObject, kw_only=True):
    """nvidia.com/v1 ClusterPolicy."""

    spec: ClusterPolicySpec = ClusterPolicySpec()

    @property
    def mig_config_map(self) -> str:
        """The ConfigMap with the configurations of mig-parted."""
        return self.spec.mig_manager.config.name or OWN_MIG_CONFIG_MAP
