"""Which objects a cluster has, by what is in the files and by what every cluster has."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any

from tonnage.objects.base import KubeObject, Unknown

DEFAULT = "default"
_EVERYWHERE = {"ServiceAccount": ("default",), "ConfigMap": ("kube-root-ca.crt",)}
"""What each namespace has without anybody's doing."""
_MAKERS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "Secret": (
        ("external-secrets.io", "ExternalSecret", "spec.target.name"),
        ("bitnami.com", "SealedSecret", "spec.template.metadata.name"),
        ("cert-manager.io", "Certificate", "spec.secretName"),
        ("secrets.infisical.com", "InfisicalSecret", "spec.managedSecretReference.secretName"),
        ("onepassword.com", "OnePasswordItem", ""),
        ("secrets.hashicorp.com", "VaultStaticSecret", "spec.destination.name"),
    ),
    "PersistentVolumeClaim": (
        ("data.fluid.io", "Dataset", ""),
        ("cdi.kubevirt.io", "DataVolume", ""),
        ("volsync.backube", "ReplicationDestination", ""),
    ),
}
"""(API group, kind, field that names what a controller makes of it, else it is called the same)."""


class Inventory:
    """The objects of a set of files, or of a cluster's dump, by kind, namespace and name."""

    def __init__(self, objects: Iterable[KubeObject]) -> None:
        self.objects = tuple(objects)
        self._known: dict[tuple[str, str], dict[str, KubeObject]] = {}
        for one in self.objects:
            self._known.setdefault((one.kind, _namespace(one)), {}).setdefault(one.name, one)
            for kind, made in _made(one):
                self._known.setdefault((kind, _namespace(one)), {}).setdefault(made, one)

    def has(self, kind: str, name: str, namespace: str = "") -> bool:
        """Whether there is one; cluster-scoped kinds have no namespace."""
        return name in _EVERYWHERE.get(kind, ()) or self.find(kind, name, namespace) is not None

    def find(self, kind: str, name: str, namespace: str = "") -> KubeObject | None:
        """The object, or the one of which a controller makes it; of a cluster-scoped kind wherever it was put."""
        if namespace:
            return self._known.get((kind, namespace), {}).get(name)
        return next((named[name] for (known, _), named in self._known.items() if known == kind and name in named), None)

    def near(self, kind: str, name: str, namespace: str = "") -> str:
        """The name most like it of those that exist; empty where none is."""
        names = [n for (known, at), named in self._known.items() if known == kind and at == namespace for n in named]
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


def _made(one: KubeObject) -> Iterator[tuple[str, str]]:
    """(kind, name) of what a controller makes of the object."""
    group = one.api_version.rpartition("/")[0]
    for kind, makers in _MAKERS.items():
        for maker_group, maker, field in makers:
            if (group, one.kind) == (maker_group, maker):
                yield kind, _field(content(one), field) or one.name


def _field(value: Any, path: str) -> str:
    for step in path.split(".") if path else ():
        value = value.get(step) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""
