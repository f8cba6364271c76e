"""Which objects a cluster has, by what is in the files and by what every cluster has."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any

from tonnage.objects.base import DEFAULT_NAMESPACE, KubeObject, Unknown

DEFAULT = DEFAULT_NAMESPACE

_EVERYWHERE = {"ServiceAccount": ("default",), "ConfigMap": ("kube-root-ca.crt",)}
"""What each namespace has without anybody's doing."""
_MAKERS: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {
    ("external-secrets.io", "ExternalSecret"): (("Secret", "spec.target.name"),),
    ("external-secrets.io", "ClusterExternalSecret"): (("Secret", "spec.externalSecretSpec.target.name"),),
    ("bitnami.com", "SealedSecret"): (("Secret", "spec.template.metadata.name"),),
    ("cert-manager.io", "Certificate"): (("Secret", "spec.secretName"),),
    ("secrets.infisical.com", "InfisicalSecret"): (("Secret", "spec.managedSecretReference.secretName"),),
    ("secrets.doppler.com", "DopplerSecret"): (("Secret", "spec.managedSecret.name"),),
    ("onepassword.com", "OnePasswordItem"): (("Secret", ""),),
    ("secrets.hashicorp.com", "VaultStaticSecret"): (("Secret", "spec.destination.name"),),
    ("secrets.hashicorp.com", "VaultDynamicSecret"): (("Secret", "spec.destination.name"),),
    ("secrets.hashicorp.com", "VaultPKISecret"): (("Secret", "spec.destination.name"),),
    ("secrets-store.csi.x-k8s.io", "SecretProviderClass"): (("Secret", "spec.secretObjects[].secretName"),),
    ("trust.cert-manager.io", "Bundle"): (("ConfigMap", ""), ("Secret", "")),
    ("kustomize.config.k8s.io", "Kustomization"): (
        ("ConfigMap", "configMapGenerator[].name"),
        ("Secret", "secretGenerator[].name"),
    ),
    ("data.fluid.io", "Dataset"): (("PersistentVolumeClaim", ""),),
    ("cdi.kubevirt.io", "DataVolume"): (("PersistentVolumeClaim", ""),),
    ("volsync.backube", "ReplicationDestination"): (("PersistentVolumeClaim", ""),),
}
"""(API group, kind) to the kinds of what a controller makes of it, each with the field that names it, else it is called
the same."""
_WIDE = frozenset({"ClusterExternalSecret", "Bundle", "Kustomization"})
"""Kinds of which objects are made in other namespaces than their own."""
_COPIED = (
    "reflector.v1.k8s.emberstack.com/reflection-auto-enabled",
    "replicator.v1.mittwald.de/replicate-to",
    "replicator.v1.mittwald.de/replicate-to-matching",
)
"""Annotations with which a ConfigMap or a Secret is copied to other namespaces under its name."""


class Inventory:
    """The objects of a set of files, or of a cluster's dump, by kind, namespace and name."""

    def __init__(self, objects: Iterable[KubeObject]) -> None:
        self.objects = tuple(objects)
        self._observed = any(one.metadata.uid for one in self.objects)
        self._known: dict[tuple[str, str], dict[str, KubeObject]] = {}
        for one in self.objects:
            self._known.setdefault((one.kind, _namespace(one)), {}).setdefault(one.name, one)
            for kind, made in _made(one):
                at = "" if one.kind in _WIDE or (made == one.name and _copied(one)) else _namespace(one)
                self._known.setdefault((kind, at), {}).setdefault(made, one)

    def has(self, kind: str, name: str, namespace: str = "") -> bool:
        """Whether there is one; cluster-scoped kinds have no namespace. What a cluster has of a kind that its dump
        leaves out is not known, and taken for there."""
        if self._observed and not any(known == kind for known, _ in self._known):
            return True
        return name in _EVERYWHERE.get(kind, ()) or self.find(kind, name, namespace) is not None

    def find(self, kind: str, name: str, namespace: str = "") -> KubeObject | None:
        """The object, or the one of which a controller makes it; of a cluster-scoped kind wherever it was put."""
        if namespace:
            own = self._known.get((kind, namespace), {}).get(name)
            return own or self._known.get((kind, ""), {}).get(name)
        return next((named[name] for (known, _), named in self._known.items() if known == kind and name in named), None)

    def near(self, kind: str, name: str, namespace: str = "") -> str:
        """The name most like it of those that exist; empty where none is. Cluster-scoped kinds have no namespace."""
        places = {at: named for (known, at), named in self._known.items() if known == kind}
        names = [n for at, named in places.items() if namespace in ("", at) for n in named]
        return next(iter(difflib.get_close_matches(name, names, 1)), "")

    def elsewhere(self, kind: str, name: str) -> tuple[str, ...]:
        """The namespaces that have one of that name."""
        return tuple(sorted(at for (known, at), named in self._known.items() if known == kind and name in named))

    def of_kind(self, kind: str, namespace: str | None = None) -> Iterator[KubeObject]:
        """All of one kind, of all namespaces unless one is named."""
        for one in self.objects:
            if one.kind == kind and namespace in (None, _namespace(one)):
                yield one


def content(one: KubeObject) -> dict[str, Any]:
    """The object as it was written."""
    return one.content if isinstance(one, Unknown) else one.written


def _namespace(one: KubeObject) -> str:
    return one.namespace or DEFAULT


def _copied(one: KubeObject) -> bool:
    metadata = content(one).get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return isinstance(annotations, dict) and any(annotations.get(key, "false") != "false" for key in _COPIED)


def _made(one: KubeObject) -> Iterator[tuple[str, str]]:
    """(kind, name) of what a controller makes of the object, or copies elsewhere."""
    group = one.api_version.rpartition("/")[0]
    for kind, field in _MAKERS.get((group, one.kind), ()):
        names = list(_names(content(one), field.split("."))) if field else []
        for name in names or [one.name]:
            yield kind, name
    if _copied(one):
        yield one.kind, one.name


def _names(value: Any, steps: list[str]) -> Iterator[str]:
    """The texts at a path, whose steps may end with ``[]`` for each item of a list."""
    if not steps:
        if isinstance(value, str) and value:
            yield value
        return
    inner = value.get(steps[0].removesuffix("[]")) if isinstance(value, dict) else None
    each = steps[0].endswith("[]")
    for one in (inner if isinstance(inner, list) else ()) if each else (inner,):
        yield from _names(one, steps[1:])
