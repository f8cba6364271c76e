"""Objects that a pod names and that do not exist: ConfigMaps, Secrets.

Source: kubernetes/kubernetes pkg/kubelet/kubelet_pods.go (makeEnvironmentVariables) and pkg/kubelet/kuberuntime.
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.health.blocker import CREATING, Blocker
from tonnage.health.inventory import Inventory
from tonnage.health.setting import Pods, Setting
from tonnage.objects.needs import ContainerNeeds

CONFIG_ERROR = "CreateContainerConfigError"


def environment(setting: Setting) -> Iterator[Blocker]:
    """Variables that come from a ConfigMap or a Secret that is not there."""
    for pods in setting.pods:
        needs = pods.template.needs
        for part, containers in (("initContainers", needs.init_containers), ("containers", needs.containers)):
            for index, container in enumerate(containers):
                for kind, name, field in _read(container):
                    if not setting.inventory.has(kind, name, pods.namespace):
                        yield missing(setting.inventory, pods, kind, name, f"{part}[{index}].{field}")


def _read(container: ContainerNeeds) -> Iterator[tuple[str, str, str]]:
    """(kind, name, field) of what has to be there before the container is created."""
    for index, one in enumerate(container.env_from):
        for kind, ref, field in (
            ("ConfigMap", one.config_map_ref, "configMapRef"),
            ("Secret", one.secret_ref, "secretRef"),
        ):
            if ref is not None and not ref.optional:
                yield kind, ref.name, f"envFrom[{index}].{field}.name"
    for index, variable in enumerate(container.env):
        source = variable.value_from
        for kind, key, field in (
            ("ConfigMap", source.config_map_key_ref if source else None, "configMapKeyRef"),
            ("Secret", source.secret_key_ref if source else None, "secretKeyRef"),
        ):
            if key is not None and not key.optional:
                yield kind, key.name, f"env[{index}].valueFrom.{field}.name"


def missing(inventory: Inventory, pods: Pods, kind: str, name: str, field: str) -> Blocker:
    """The pods are bound, and their containers are never created."""
    near, elsewhere = inventory.near(kind, name, pods.namespace), inventory.elsewhere(kind, name)
    if near:
        help_ = f"did you mean {near}? Else add {kind} {name} in namespace {pods.namespace}"
    elif elsewhere:
        help_ = f"{kind} {name} is in namespace {', '.join(elsewhere)}: add it in {pods.namespace}"
    else:
        help_ = f"add {kind} {name} in namespace {pods.namespace} to the files"
    rule = "missing-config-map" if kind == "ConfigMap" else "missing-secret"
    return Blocker(
        rule,
        CREATING,
        pods.ref,
        pods.where(field),
        f"{kind} {name} does not exist in namespace {pods.namespace}: the containers are never created",
        help_,
        CONFIG_ERROR,
        f'{kind.lower()} "{name}" not found',
    )
