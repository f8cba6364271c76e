"""The claims, volumes and storage classes of a cluster, and what they mean for a pod.

Sources: kubernetes/kubernetes v1.36 pkg/scheduler/framework/plugins/{volumebinding,volumezone,volumerestrictions} and
pkg/controller/volume/persistentvolume.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from tonnage.facts import provisioners
from tonnage.fleet.volumes import NO_VOLUMES, Reach, VolumeNeed
from tonnage.objects import core
from tonnage.objects.base import KubeObject, ObjectMeta
from tonnage.objects.storage import (
    NO_PROVISIONER,
    WAIT_FOR_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    StorageClass,
)
from tonnage.workloads.volumes.claims import Named, best, mismatch, named

NOT_REACHED = "node(s) didn't match PersistentVolume's node affinity"
NO_ZONE = "node(s) had no available volume zone"
NOTHING_TO_BIND = "node(s) didn't find available persistent volumes to bind"
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"

ZONE_LABELS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
ONE_POD = "ReadWriteOncePod"
DEFAULT = "default"
_SEVERAL = "__"
"""Between the values of a volume's zone label that names several."""


class Volumes:
    """Claims, volumes and classes as they are now. A controller of its own binds claims where ``binds``: then they are
    as the binding controller and the provisioners of a cluster would have made them."""

    def __init__(self, objects: Iterable[KubeObject] = (), *, binds: bool = False) -> None:
        self.claims: dict[tuple[str, str], PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.binds = binds
        for one in objects:
            self.see(one)

    def see(self, one: KubeObject) -> bool:
        """Note an object; whether it is one that counts here."""
        match one:
            case PersistentVolumeClaim():
                self.claims[one.namespace or DEFAULT, one.name] = one
            case PersistentVolume():
                self.volumes[one.name] = one
            case StorageClass():
                self.classes[one.name] = one
            case _:
                return False
        return True

    def forget(self, one: KubeObject) -> None:
        """The object is gone."""
        match one:
            case PersistentVolumeClaim():
                self.claims.pop((one.namespace or DEFAULT, one.name), None)
            case PersistentVolume():
                self.volumes.pop(one.name, None)
            case StorageClass():
                self.classes.pop(one.name, None)

    # ---- classes ----

    def class_of(self, claim: PersistentVolumeClaim) -> str:
        """The name of the claim's class: the default where it names none; empty for none."""
        written = claim.spec.storage_class_name
        if written is not None:
            return written
        defaults = [one for one in self.classes.values() if one.is_default]
        newest = max(defaults, key=lambda one: (one.metadata.creation_timestamp or "", one.name), default=None)
        return newest.name if newest is not None else ""

    def storage_class(self, name: str) -> StorageClass | None:
        """The class; one that managed clusters have from the start where no object says otherwise."""
        found = self.classes.get(name)
        known = provisioners.of_class().get(name) if found is None and self.binds else None
        return found if known is None else _usual(name, known.name)

    # ---- what a pod needs ----

    def need(self, namespace: str, pod: str, volumes: Iterable[Mapping[str, Any]]) -> VolumeNeed:
        """What the pod's volumes ask of its node."""
        found: list[Reach] = []
        alone: list[str] = []
        for one in named(pod, volumes):
            claim = self._claim(namespace, one)
            if claim is None:
                return VolumeNeed(f'persistentvolumeclaim "{one.name}" not found')
            if claim.metadata.deletion_timestamp:
                return VolumeNeed(f'persistentvolumeclaim "{one.name}" is being deleted')
            if ONE_POD in claim.spec.access_modes:
                alone.append(f"{namespace}/{claim.name}")
            waits, reach = self._of_claim(claim)
            if waits:
                return VolumeNeed(waits)
            found += [more for more in reach if more not in found]
        return VolumeNeed("", tuple(found), tuple(alone)) if found or alone else NO_VOLUMES

    def _claim(self, namespace: str, one: Named) -> PersistentVolumeClaim | None:
        found = self.claims.get((namespace, one.name))
        if found is None and one.made is not None and self.binds:
            try:
                spec = msgspec.convert(one.made, PersistentVolumeClaimSpec, strict=False)
            except msgspec.ValidationError:
                return None
            metadata = ObjectMeta(name=one.name, namespace=namespace)
            return PersistentVolumeClaim(api_version="v1", kind="PersistentVolumeClaim", metadata=metadata, spec=spec)
        return found

    def _of_claim(self, claim: PersistentVolumeClaim) -> tuple[str, list[Reach]]:
        """(why the pod waits, where it can be)."""
        volume = self.bound_to(claim)
        if volume is not None:
            return "", list(_reach_of(volume))
        if claim.status.phase == "Lost" or (claim.spec.volume_name and claim.status.phase == "Bound"):
            name = claim.spec.volume_name
            if claim.status.phase == "Bound" and self.binds:
                return "", []  # a cluster's claim without its volume: that is there
            return f'persistentvolumeclaim "{claim.name}" bound to non-existent persistentvolume "{name}"', []
        name = self.class_of(claim)
        class_ = self.storage_class(name)
        if class_ is None:
            if name:
                return f'storageclass.storage.k8s.io "{name}" not found' if not self.binds else UNBOUND, []
            if claim.spec.storage_class_name is None and self.binds and not self.classes:
                return "", []  # the default class of whatever cluster this is
            return UNBOUND, []
        if class_.volume_binding_mode != WAIT_FOR_CONSUMER:
            return ("", list(self.made_where(class_))) if self._is_made(claim, class_) and self.binds else (UNBOUND, [])
        return "", list(self._waiting(claim, class_))

    def _is_made(self, claim: PersistentVolumeClaim, class_: StorageClass) -> bool:
        return class_.provisioner != NO_PROVISIONER and not claim.spec.volume_name and claim.spec.selector is None

    def made_where(self, class_: StorageClass) -> Iterator[Reach]:
        """From where a volume that the class's provisioner makes can be reached, as far as its class says."""
        if class_.allowed_topologies:
            terms = [
                core.NodeSelectorTerm(
                    match_expressions=[
                        core.NodeSelectorRequirement(key=one.key, operator="In", values=one.values)
                        for one in term.match_label_expressions
                    ]
                )
                for term in class_.allowed_topologies
            ]
            yield Reach(NOTHING_TO_BIND, core.NodeSelector(node_selector_terms=terms))

    def _waiting(self, claim: PersistentVolumeClaim, class_: StorageClass) -> Iterator[Reach]:
        """Of a claim that is bound when its pod is: where a volume that is there can be reached, or one be made."""
        if self._is_made(claim, class_):
            made = list(self.made_where(class_))
            if not made:
                return
        else:
            made = []
        terms: list[core.NodeSelectorTerm] = [term for one in made for term in one.nodes.node_selector_terms]
        for volume in self.volumes.values():
            if not mismatch(claim, class_.name, volume):
                affinity = volume.spec.node_affinity
                if affinity is None or affinity.required is None:
                    return
                terms += affinity.required.node_selector_terms
        yield Reach(NOTHING_TO_BIND, core.NodeSelector(node_selector_terms=terms))

    # ---- binding ----

    def bound_to(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """The volume that the claim is bound to; where claims are bound here, that which it would be bound to."""
        name = claim.spec.volume_name
        if name and (not self.binds or claim.status.phase == "Bound"):
            return self.volumes.get(name)
        if not self.binds:
            return None
        class_name = self.class_of(claim)
        class_ = self.storage_class(class_name)
        if class_ is not None and class_.volume_binding_mode == WAIT_FOR_CONSUMER and not name:
            return None
        return self._settled().get((claim.namespace or DEFAULT, claim.name))

    def _settled(self) -> dict[tuple[str, str], PersistentVolume]:
        """Which claim has which volume when all are bound that can be, in the order of their names."""
        free = dict(self.volumes)
        found: dict[tuple[str, str], PersistentVolume] = {}
        for key, claim in sorted(self.claims.items(), key=lambda one: (not one[1].spec.volume_name, one[0])):
            one = best(claim, self.class_of(claim), free.values())
            if one is not None:
                found[key] = free.pop(one.name)
        return found


def _reach_of(volume: PersistentVolume) -> Iterator[Reach]:
    """By its node affinity, and by its labels."""
    affinity = volume.spec.node_affinity
    if affinity is not None and affinity.required is not None:
        yield Reach(NOT_REACHED, affinity.required)
    zones = [
        core.NodeSelectorRequirement(key=key, operator="In", values=volume.metadata.labels[key].split(_SEVERAL))
        for key in ZONE_LABELS
        if key in volume.metadata.labels
    ]
    if zones:
        yield Reach(NO_ZONE, core.NodeSelector(node_selector_terms=[core.NodeSelectorTerm(match_expressions=zones)]))


def _usual(name: str, provisioner: str) -> StorageClass:
    return StorageClass(
        api_version="storage.k8s.io/v1",
        kind="StorageClass",
        metadata=ObjectMeta(name=name),
        provisioner=provisioner,
        volume_binding_mode=WAIT_FOR_CONSUMER,
    )
