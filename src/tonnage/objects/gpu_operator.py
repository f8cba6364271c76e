"""nvidia.com/v1: the ClusterPolicy of NVIDIA's GPU operator: what it runs on nodes, and how GPUs are partitioned.

Source: NVIDIA/gpu-operator api/nvidia/v1/clusterpolicy_types.go, controllers/object_controls.go."""

from __future__ import annotations

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


class DevicePluginSpec(OperandSpec, frozen=True, kw_only=True):
    """The device plugin, and GPU feature discovery with it."""

    config: ConfigMapChoice = ConfigMapChoice()


class MigManagerSpec(OperandSpec, frozen=True, kw_only=True):
    """mig-manager, which runs mig-parted."""

    config: ConfigMapChoice = ConfigMapChoice()


class ClusterPolicySpec(Field, frozen=True, kw_only=True):
    """What the operator installs, and with which settings."""

    mig: MigSpec = MigSpec()
    device_plugin: DevicePluginSpec = DevicePluginSpec()
    mig_manager: MigManagerSpec = MigManagerSpec()
    driver: OperandSpec = OperandSpec()
    toolkit: OperandSpec = OperandSpec()
    dcgm: OperandSpec = OperandSpec()
    dcgm_exporter: OperandSpec = OperandSpec()
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
