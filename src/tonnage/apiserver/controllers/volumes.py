"""Binding claims to volumes, and making volumes for them as an external provisioner would.

Source: kubernetes/kubernetes v1.36 pkg/controller/volume/persistentvolume/pv_controller.go. A provisioner that is known
by name, or any but ``kubernetes.io/no-provisioner``, makes what it is asked for at once.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tonnage.apiserver.controllers.context import Context
from tonnage.apiserver.controllers.meta import Key, annotations_of, is_deleting, key_of, status_of, uid_of
from tonnage.facts import provisioners
from tonnage.facts.labels import ZONE
from tonnage.kube.resources import NODES, SELECTED_NODE, STORAGE_CLASSES, VOLUME_CLAIMS, VOLUMES, Resource
from tonnage.kube.transport import ApiError
from tonnage.kube.verbs import JsonObject
from tonnage.objects import storage
from tonnage.objects.base import KubeObject
from tonnage.workloads.volumes.book import Volumes
from tonnage.workloads.volumes.claims import best, is_kept_for

_KINDS: tuple[tuple[Resource, type[KubeObject]], ...] = (
    (VOLUME_CLAIMS, storage.PersistentVolumeClaim),
    (VOLUMES, storage.PersistentVolume),
    (STORAGE_CLASSES, storage.StorageClass),
)


class VolumeBinder:
    """The persistent volume controller, and whoever provisions."""

    name = "persistentvolume-controller"

    def __init__(self, context: Context) -> None:
        self._context = context

    def changed(self, resource: Resource, old: JsonObject | None, new: JsonObject | None) -> None:
        if resource == VOLUME_CLAIMS and new is not None:
            self._context.queue.add((self.name, key_of(new)))
        elif resource in (VOLUMES, STORAGE_CLASSES) and new is not None:
            for claim in self._context.cache.everything():
                if claim[0] == VOLUME_CLAIMS and status_of(claim[1]).get("phase") != "Bound":
                    self._context.queue.add((self.name, key_of(claim[1])))

    def sync(self, key: Key) -> None:
        written = self._context.cache.get(VOLUME_CLAIMS, key)
        if written is None or is_deleting(written):
            return
        book = Volumes(self._objects())
        for resource, obj in self._context.cache.everything():
            if resource == NODES:
                book.note_node(obj["metadata"].get("labels") or {})
        claim = book.claims.get(key)
        if claim is None:
            return
        if claim.spec.volume_name in book.volumes and status_of(written).get("phase") == "Bound":
            return
        volume = self._volume(book, claim, written)
        if volume is None:
            self._tell(book, claim, written)
            if status_of(written).get("phase") != "Pending":
                self._context.writer.put_status(VOLUME_CLAIMS, written, {"phase": "Pending"})
            return
        self._bind(written, volume)

    def _tell(self, book: Volumes, claim: storage.PersistentVolumeClaim, written: JsonObject) -> None:
        """Say why the claim waits, as pv_controller.go does (syncUnboundClaim)."""
        class_name = book.class_of(claim)
        class_, named = book.storage_class(class_name), book.volumes.get(claim.spec.volume_name)
        if claim.spec.volume_name:
            if named is None or named.spec.claim_ref is None or is_kept_for(named, claim):
                return
            told = "Warning", "FailedBinding", f'volume "{named.name}" already bound to a different claim.'
        elif class_ is not None and class_.volume_binding_mode == storage.WAIT_FOR_CONSUMER:
            told = "Normal", "WaitForFirstConsumer", "waiting for first consumer to be created before binding"
        elif class_ is None and class_name:
            told = "Warning", "ProvisioningFailed", f'storageclass.storage.k8s.io "{class_name}" not found'
        elif class_ is None:
            why = "no persistent volumes available for this claim and no storage class is set"
            told = "Normal", "FailedBinding", why
        else:
            return
        kind, reason, message = told
        self._context.recorder.event(self.name, VOLUME_CLAIMS, written, reason, message, kind)

    def _objects(self) -> Iterator[KubeObject]:
        for resource, obj in self._context.cache.everything():
            kind = next((type_ for known, type_ in _KINDS if known == resource), None)
            if kind is not None:
                try:
                    yield msgspec.convert(obj, kind, strict=False)
                except msgspec.ValidationError:
                    continue  # it has a field of the wrong type: nothing is bound to it

    def _volume(self, book: Volumes, claim: storage.PersistentVolumeClaim, written: JsonObject) -> str | None:
        """The name of the volume that the claim gets now; None where it waits."""
        class_name = book.class_of(claim)
        class_ = book.storage_class(class_name)
        waits = class_ is not None and class_.volume_binding_mode == storage.WAIT_FOR_CONSUMER
        kept = [one for one in book.volumes.values() if one.spec.claim_ref is not None]
        found = best(claim, class_name, kept if waits else book.volumes.values())
        if found is not None:
            return found.name
        node = annotations_of(written).get(SELECTED_NODE, "")
        if class_ is None or (waits and not node) or not book.is_made(claim, class_):
            return None
        return self._made(claim, class_, written, node, book)

    def _made(
        self,
        claim: storage.PersistentVolumeClaim,
        class_: storage.StorageClass,
        written: JsonObject,
        node: str,
        book: Volumes,
    ) -> str:
        name = f"pvc-{uid_of(written)}"
        maker = provisioners.all().get(class_.provisioner)
        at = self._context.cache.get(NODES, ("", node)) if node else None
        labels = (at or {}).get("metadata", {}).get("labels") or {}
        usual = (maker.reach, ZONE) if maker is not None and maker.reach else ()
        reach = next((key for key in usual if key in labels), "")
        if usual and not node:
            reach, zone = book.zone_of(claim, class_)
            labels = {reach: zone}
        spec: JsonObject = {
            "capacity": dict(claim.spec.resources.requests),
            "accessModes": claim.spec.access_modes,
            "storageClassName": class_.name,
            "persistentVolumeReclaimPolicy": "Delete",
            "csi": {"driver": class_.provisioner, "volumeHandle": name},
        }
        if reach:
            only = {"key": reach, "operator": "In", "values": [labels[reach]]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [only]}]}}
        body = {
            "apiVersion": VOLUMES.api_version,
            "kind": VOLUMES.kind,
            "metadata": {"name": name},
            "spec": spec,
            "status": {"phase": "Available"},
        }
        try:
            self._context.writer.create(VOLUMES, body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            self._context.writer.read(VOLUMES, ("", name))
        return name

    def _bind(self, claim: JsonObject, name: str) -> None:
        """Both name each other, and both are Bound."""
        writer = self._context.writer
        volume = self._context.cache.get(VOLUMES, ("", name))
        if volume is None:
            return
        namespace, claim_name = key_of(claim)
        kept = {"kind": VOLUME_CLAIMS.kind, "namespace": namespace, "name": claim_name, "uid": uid_of(claim)}
        bound = {"spec": {"claimRef": {**kept, "apiVersion": "v1"}}}
        writer.put_status(VOLUMES, writer.patch(VOLUMES, volume, bound), {"phase": "Bound"})
        named = writer.patch(VOLUME_CLAIMS, claim, {"spec": {"volumeName": name}})
        spec = volume["spec"]
        status = {"phase": "Bound", "accessModes": spec.get("accessModes"), "capacity": spec.get("capacity")}
        writer.put_status(VOLUME_CLAIMS, named, status)
