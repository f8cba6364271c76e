"""ConfigMaps and Secrets that containers read or mount, and keys of them, that do not exist.

Sources: kubernetes/kubernetes pkg/kubelet/kubelet_pods.go (makeEnvironmentVariables), pkg/volume/{configmap,secret,
projected} (MountVolume.SetUp), pkg/kubelet/volumemanager/populator (volumes that nothing mounts are left alone).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any, NamedTuple

from tonnage.health.blocker import CREATING, Blocker
from tonnage.health.inventory import Inventory, content
from tonnage.health.rules.naming import remedy
from tonnage.health.setting import Pods, Setting
from tonnage.objects.needs import ContainerNeeds, KeyedVolume, Volume

CONFIG_ERROR = "CreateContainerConfigError"
FAILED_MOUNT = "FailedMount"
SECRETS_STORE = "secrets-store.csi.k8s.io"


def environment(setting: Setting) -> Iterator[Blocker]:
    """Variables that come from a ConfigMap or a Secret, or from a key of one, that is not there."""
    for pods in setting.pods:
        for part, container in pods.containers():
            for kind, name, key, field in _read(container):
                at, keys = f"{part}.{field}", _keys(setting.inventory, pods, kind, name)
                if not setting.inventory.has(kind, name, pods.namespace):
                    yield missing(setting.inventory, pods, kind, name, f"{at}.name")
                elif key and keys is not None and key not in keys:
                    said = f"couldn't find key {key} in {kind} {pods.namespace}/{name}"
                    yield _missing_key(pods, kind, name, key, keys, f"{at}.key", CONFIG_ERROR, said)


def _read(container: ContainerNeeds) -> Iterator[tuple[str, str, str, str]]:
    """(kind, name, key, field) of what has to be there before the container is created."""
    for index, one in enumerate(container.env_from):
        for kind, ref, field in (
            ("ConfigMap", one.config_map_ref, "configMapRef"),
            ("Secret", one.secret_ref, "secretRef"),
        ):
            if ref is not None and not ref.optional:
                yield kind, ref.name, "", f"envFrom[{index}].{field}"
    for index, variable in enumerate(container.env):
        source = variable.value_from
        for kind, ref, field in (
            ("ConfigMap", source.config_map_key_ref if source else None, "configMapKeyRef"),
            ("Secret", source.secret_key_ref if source else None, "secretKeyRef"),
        ):
            if ref is not None and not ref.optional:
                yield kind, ref.name, ref.key, f"env[{index}].valueFrom.{field}"


class Mounted(NamedTuple):
    """What a volume takes from an object. ``field``: where it stands; ``named``: the field of the object's name."""

    kind: str
    source: KeyedVolume
    field: str
    named: str = "name"


def volumes(setting: Setting) -> Iterator[Blocker]:
    """Volumes that are mounted, of a ConfigMap or a Secret, or of a key of one, that is not there."""
    for pods in setting.pods:
        mounted = {mount.name for _, container in pods.containers() for mount in container.volume_mounts}
        for index, volume in enumerate(pods.template.needs.volumes):
            if volume.name in mounted:
                for one in _mounted(volume, f"volumes[{index}]"):
                    yield from _unmountable(setting, pods, volume.name, one)


def _mounted(volume: Volume, at: str) -> Iterator[Mounted]:
    if volume.config_map is not None:
        yield Mounted("ConfigMap", volume.config_map, f"{at}.configMap")
    if volume.secret is not None:
        secret = volume.secret
        keyed = KeyedVolume(name=secret.secret_name, optional=secret.optional, items=secret.items)
        yield Mounted("Secret", keyed, f"{at}.secret", "secretName")
    for index, source in enumerate(volume.projected.sources if volume.projected else ()):
        if source.config_map is not None:
            yield Mounted("ConfigMap", source.config_map, f"{at}.projected.sources[{index}].configMap")
        if source.secret is not None:
            yield Mounted("Secret", source.secret, f"{at}.projected.sources[{index}].secret")
    attributes = (volume.csi or {}).get("volumeAttributes")
    provider = attributes.get("secretProviderClass") if isinstance(attributes, dict) else None
    if (volume.csi or {}).get("driver") == SECRETS_STORE and isinstance(provider, str):
        field = f"{at}.csi.volumeAttributes"
        yield Mounted("SecretProviderClass", KeyedVolume(name=provider), field, "secretProviderClass")
    published = (volume.csi or {}).get("nodePublishSecretRef")
    if isinstance(published, dict) and isinstance(published.get("name"), str):
        yield Mounted("Secret", KeyedVolume(name=published["name"]), f"{at}.csi.nodePublishSecretRef")


def _unmountable(setting: Setting, pods: Pods, volume: str, one: Mounted) -> Iterator[Blocker]:
    kind, source = one.kind, one.source
    if source.optional or not source.name:
        return
    setup = f'MountVolume.SetUp failed for volume "{volume}" : '
    if not setting.inventory.has(kind, source.name, pods.namespace):
        said = f'{setup}{kind.lower()} "{source.name}" not found'
        yield missing(setting.inventory, pods, kind, source.name, f"{one.field}.{one.named}", FAILED_MOUNT, said)
        return
    keys = _keys(setting.inventory, pods, kind, source.name)
    for index, item in enumerate(source.items if keys is not None else ()):
        key = item.get("key")
        if isinstance(key, str) and keys is not None and key not in keys:
            what = (
                "configmap references non-existent config" if kind == "ConfigMap" else "references non-existent secret"
            )
            said, field = f"{setup}{what} key: {key}", f"{one.field}.items[{index}].key"
            yield _missing_key(pods, kind, source.name, key, keys, field, FAILED_MOUNT, said)


def _keys(inventory: Inventory, pods: Pods, kind: str, name: str) -> tuple[str, ...] | None:
    """The keys of a ConfigMap or Secret; None where another object, or nothing here, says what is in it."""
    found = inventory.find(kind, name, pods.namespace)
    if found is None or found.kind != kind:
        return None
    written = content(found)
    parts: list[Any] = [written.get(part) for part in ("data", "binaryData", "stringData")]
    return tuple(str(key) for part in parts if isinstance(part, dict) for key in part)


def missing(
    inventory: Inventory, pods: Pods, kind: str, name: str, field: str, reason: str = CONFIG_ERROR, said: str = ""
) -> Blocker:
    """The pods are bound, and their containers are never created."""
    rule = "missing-secret-provider-class" if kind == "SecretProviderClass" else "missing-secret"
    rule = "missing-config-map" if kind == "ConfigMap" else rule
    return Blocker(
        rule,
        CREATING,
        pods.ref,
        pods.where(field),
        f"{kind} {name} does not exist in namespace {pods.namespace}: the containers are never created",
        remedy(inventory, kind, name, pods.namespace),
        reason,
        said or f'{kind.lower()} "{name}" not found',
    )


def _missing_key(
    pods: Pods, kind: str, name: str, key: str, keys: tuple[str, ...], field: str, reason: str, said: str
) -> Blocker:
    near = difflib.get_close_matches(key, keys, 1)
    has = f"has {', '.join(keys)}" if keys else "is empty"
    return Blocker(
        "missing-key",
        CREATING,
        pods.ref,
        pods.where(field),
        f"{kind} {name} has no key {key}: the containers are never created",
        f"did you mean {near[0]}?" if near else f"add the key {key} to {kind} {name}, which {has}",
        reason,
        said,
    )
