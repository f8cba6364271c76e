"""What a cluster has besides a scenario's manifests and those count on: default classes, and what operators make.

An API server that others manage has it already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tonnage.facts import provisioners
from tonnage.kube.verbs import JsonObject
from tonnage.objects.base import KubeObject
from tonnage.objects.gpu_operator import ClusterPolicy
from tonnage.objects.quota import RuntimeClass
from tonnage.objects.storage import DEFAULT_CLASS, PersistentVolumeClaim, StorageClass
from tonnage.objects.templates import mappings
from tonnage.workloads.admission.chain import OF_GPU_OPERATOR

STANDARD = "standard"
"""The default StorageClass of a cluster whose manifests have none."""
PROVISIONER = "simulated.tonnage.dev"
"""Makes volumes at once that every node reaches."""
_LARGE = "1Pi"


def given(objects: Iterable[KubeObject], made_claims: Iterable[PersistentVolumeClaim]) -> Iterator[JsonObject]:
    """The bodies of the objects, in the order in which they are created. ``made_claims``: claims that controllers make
    of something else."""
    known = tuple(objects)
    yield from _runtimes(known)
    yield from _classes(known)
    for claim in made_claims:
        yield from _bound(claim)


def _runtimes(objects: tuple[KubeObject, ...]) -> Iterator[JsonObject]:
    if not any(isinstance(one, ClusterPolicy) for one in objects):
        return
    written = {one.name for one in objects if isinstance(one, RuntimeClass)}
    for name in OF_GPU_OPERATOR:
        if name not in written:
            named = {"metadata": {"name": name}, "handler": name}
            yield {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", **named}


def _classes(objects: tuple[KubeObject, ...]) -> Iterator[JsonObject]:
    """The StorageClasses that claims count on and no manifest has."""
    written = {one.name for one in objects if isinstance(one, StorageClass)}
    asked = [claim.get("storageClassName") for one in objects for claim in _claims(one.written)]
    for name, maker in sorted(provisioners.of_class().items()):
        if name in asked and name not in written:
            yield _class(name, maker.name, {})
    if None in asked and not written:
        yield _class(STANDARD, PROVISIONER, {DEFAULT_CLASS[0]: "true"})


def _class(name: str, provisioner: str, annotations: dict[str, str]) -> JsonObject:
    meta = {"name": name, "annotations": annotations}
    rest = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": meta, **rest}


def _claims(value: Any) -> Iterator[JsonObject]:
    """Everything in an object that looks like the spec of a claim."""
    return (one for one in mappings(value) if "accessModes" in one and "resources" in one)


def _bound(claim: PersistentVolumeClaim) -> Iterator[JsonObject]:
    """A claim with the volume that it is bound to."""
    name, namespace = claim.name, claim.namespace or "default"
    volume = f"{namespace}-{name}"
    modes = ["ReadWriteMany"]
    yield {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume},
        "spec": {
            "capacity": {"storage": _LARGE},
            "accessModes": modes,
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": name},
            "csi": {"driver": PROVISIONER, "volumeHandle": volume},
        },
    }
    spec = {"volumeName": volume, "storageClassName": "", "accessModes": modes}
    wanted = {"resources": {"requests": {"storage": "1Gi"}}}
    meta = {"name": name, "namespace": namespace}
    yield {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec | wanted}
