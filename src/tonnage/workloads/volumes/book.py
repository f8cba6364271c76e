"""The claims, volumes and storage classes of a cluster, and what they mean for a pod.

Sources: kubernetes/kubernetes v1.36 pkg/scheduler/framework/plugins/{volumebinding,volumezone,volumerestrictions} and
pkg/controller/volume/persistentvolume.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from tonnage.facts import provisioners
from tonnage.facts.labels import STORAGE_CLASS
from tonnage.fleet.volumes import NO_VOLUMES, Reach, VolumeNeed
from tonnage.objects import core
from tonnage.objects.base import DEFAULT_NAMESPACE, KubeObject, ObjectMeta
from tonnage.objects.storage import (
    NO_PROVISIONER,
    WAIT_FOR_CONSUMER,
    ClaimReference,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
    StorageClass,
    VolumeNodeAffinity,
)
from tonnage.workloads.volumes.claims import NamedClaim, best, mismatch, named, provisioned_in
from tonnage.workloads.volumes.reach import NOT_REACHED, SAME_AS, ZONE_LABELS, reach_of, reached, usual_keys

NOTHING_TO_BIND = "node(s) didn't find available persistent volumes to bind"
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"

ONE_POD = "ReadWriteOncePod"
_UNBOUND = ("Pending", "Lost")
"""Phases of claims that nothing is bound to, whatever volume they name."""


class Volumes:
    """Claims, volumes and classes as they are now. Claims that were never in a cluster (without a uid) are taken, where
    ``binds``, as the binding controller and the provisioners of a cluster would make them."""

    def __init__(self, objects: Iterable[KubeObject] = (), *, binds: bool = False) -> None:
        self.claims: dict[tuple[str, str], PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.binds = binds
        self.attach_limits: dict[str, dict[str, int]] = {}
        """Node → CSI driver → how many volumes of it the node can attach."""
        self._places: dict[str, set[str]] = {}
        for one in objects:
            self.see(one)
            if isinstance(one, core.Node):
                self.note_node(one.metadata.labels)

    def note_node(self, labels: Mapping[str, str]) -> None:
        """A node with these labels is there before any claim: what is made at once is made where nodes are."""
        for key in ZONE_LABELS:
            if key in labels:
                self._places.setdefault(SAME_AS.get(key, key), set()).add(labels[key])

    def see(self, one: KubeObject) -> bool:
        """Note an object; whether it is one that counts here."""
        match one:
            case PersistentVolumeClaim():
                self.claims[one.namespace or DEFAULT_NAMESPACE, one.name] = one
            case PersistentVolume():
                self.volumes[one.name] = one
            case StorageClass():
                self.classes[one.name] = one
            case CSINode():
                counts = {driver.name: driver.allocatable for driver in one.spec.drivers}
                limits = {name: has.count for name, has in counts.items() if has is not None and has.count is not None}
                self.attach_limits[one.name] = limits
            case _:
                return False
        return True

    def forget(self, one: KubeObject) -> None:
        """The object is gone."""
        match one:
            case PersistentVolumeClaim():
                self.claims.pop((one.namespace or DEFAULT_NAMESPACE, one.name), None)
            case PersistentVolume():
                self.volumes.pop(one.name, None)
            case StorageClass():
                self.classes.pop(one.name, None)
            case CSINode():
                self.attach_limits.pop(one.name, None)

    # ---- classes ----

    def class_of(self, claim: PersistentVolumeClaim) -> str:
        """The name of the claim's class: the default where it names none (:func:`default_class`); empty for none, which
        is another thing."""
        written = claim.metadata.annotations.get(STORAGE_CLASS, claim.spec.storage_class_name)
        if written is not None:
            return written
        default = default_class(self.classes.values())
        return default.name if default is not None else ""

    def storage_class(self, name: str) -> StorageClass | None:
        """The class; one that managed clusters have from the start where no object says otherwise."""
        found = self.classes.get(name)
        known = provisioners.of_class().get(name) if found is None and self.binds else None
        return found if known is None else _usual(name, known.name)

    def is_written(self, claim: PersistentVolumeClaim) -> bool:
        """Whether nobody has bound the claim yet who could, so that it counts as it would be bound."""
        return self.binds and not claim.metadata.uid and not claim.status.phase

    # ---- what a pod needs ----

    def need(self, namespace: str, pod: str, volumes: Iterable[Mapping[str, Any]]) -> VolumeNeed:
        """What the pod's volumes ask of its node."""
        found: list[Reach] = []
        alone: list[str] = []
        attaches: list[tuple[str, str]] = []
        limited = {driver for limits in self.attach_limits.values() for driver in limits}
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
            driver = self._driver_of(claim) if limited else ""
            if driver in limited:
                attaches.append((driver, claim.spec.volume_name or f"{namespace}/{claim.name}"))
        if not (found or alone or attaches):
            return NO_VOLUMES
        return VolumeNeed("", tuple(found), tuple(alone), attaches=tuple(sorted(set(attaches))))

    def _driver_of(self, claim: PersistentVolumeClaim) -> str:
        """The CSI driver of the volume that the claim has or gets; empty where that is not known."""
        volume = self.bound_to(claim)
        if volume is not None and volume.spec.csi is not None:
            return volume.spec.csi.driver
        class_ = self.storage_class(self.class_of(claim))
        return class_.provisioner if class_ is not None else ""

    def _claim(self, namespace: str, one: NamedClaim) -> PersistentVolumeClaim | None:
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
            return "", list(reach_of(volume))
        written, name = self.is_written(claim), self.class_of(claim)
        if claim.spec.volume_name and not written and claim.status.phase not in _UNBOUND:
            if claim.status.phase == "Bound" and self.binds:
                return "", []  # files of a cluster without its volumes
            bound = f'persistentvolumeclaim "{claim.name}" bound to non-existent persistentvolume'
            return f'{bound} "{claim.spec.volume_name}"', []
        class_ = self.storage_class(name)
        if class_ is None:
            somewhere = written and claim.spec.storage_class_name is None and not self.classes
            return ("", []) if somewhere else (UNBOUND, [])  # the default class of whatever cluster this is
        if class_.volume_binding_mode != WAIT_FOR_CONSUMER:
            made = written and self.is_made(claim, class_)
            return ("", list(self._made_at_once(claim, class_))) if made else (UNBOUND, [])
        return "", list(self._waiting(claim, class_))

    def is_made(self, claim: PersistentVolumeClaim, class_: StorageClass) -> bool:
        """Whether the class's provisioner makes a volume for the claim."""
        plain = class_.provisioner != NO_PROVISIONER and not claim.spec.volume_name and claim.spec.selector is None
        return plain and not self.not_provided(claim, class_)

    def not_provided(self, claim: PersistentVolumeClaim, class_: StorageClass) -> list[str]:
        """The access modes of the claim that volumes of the class's provisioner, where that is known, do not have."""
        maker = provisioners.all().get(class_.provisioner)
        if maker is None or claim.spec.volume_mode == "Block":
            return []
        return [mode for mode in claim.spec.access_modes if mode not in maker.modes]

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
            yield Reach(NOTHING_TO_BIND, usual_keys(core.NodeSelector(node_selector_terms=terms)))

    def zone_of(self, claim: PersistentVolumeClaim, class_: StorageClass) -> tuple[str, str]:
        """(label, value) of the nodes that reach the volume which is made at once for the claim: the zone that the
        provisioner picks; empty where all nodes reach it, or where it is made is not known."""
        maker = provisioners.all().get(class_.provisioner)
        key = SAME_AS.get(maker.reach, maker.reach) if maker is not None else ""
        if key not in ZONE_LABELS or class_.volume_binding_mode == WAIT_FOR_CONSUMER:
            return "", ""
        allowed = [e for term in class_.allowed_topologies for e in term.match_label_expressions]
        named_here = [value for one in allowed if SAME_AS.get(one.key, one.key) == key for value in one.values]
        zone = provisioned_in(claim.name, named_here or self._places.get(key, ()))
        return (key, zone) if zone else ("", "")

    def _made_at_once(self, claim: PersistentVolumeClaim, class_: StorageClass) -> Iterator[Reach]:
        key, zone = self.zone_of(claim, class_)
        if not zone:
            yield from self.made_where(class_)
            return
        only = core.NodeSelectorRequirement(key=key, operator="In", values=[zone])
        terms = [core.NodeSelectorTerm(match_expressions=[only])]
        yield Reach(NOT_REACHED, core.NodeSelector(node_selector_terms=terms))

    def _waiting(self, claim: PersistentVolumeClaim, class_: StorageClass) -> Iterator[Reach]:
        """Of a claim that is bound when its pod is: where a volume that is there can be reached, or one be made."""
        if self.is_made(claim, class_):
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
        yield Reach(NOTHING_TO_BIND, usual_keys(core.NodeSelector(node_selector_terms=terms)))

    def limits(
        self, namespace: str, pod: str, volumes: Iterable[Mapping[str, Any]]
    ) -> Iterator[tuple[str, KubeObject, str]]:
        """(claim, object, its field) of all that leaves the pod some nodes only."""
        for one in named(pod, volumes):
            claim = self._claim(namespace, one)
            volume = self.bound_to(claim) if claim is not None else None
            if volume is not None:
                affine = volume.spec.node_affinity is not None
                for _ in list(reach_of(volume))[:1]:
                    yield one.name, volume, "spec.nodeAffinity" if affine else "metadata.labels"
            elif claim is not None and (class_ := self.storage_class(self.class_of(claim))) is not None:
                if self.zone_of(claim, class_)[1]:
                    yield one.name, claim, "spec.storageClassName"
                elif class_.allowed_topologies:
                    yield one.name, class_, "allowedTopologies"
                for found in self.volumes.values():
                    if not mismatch(claim, class_.name, found) and found.spec.node_affinity is not None:
                        yield one.name, found, "spec.nodeAffinity"

    def waiting(
        self, namespace: str, pod: str, volumes: Iterable[Mapping[str, Any]], node: Mapping[str, str]
    ) -> Iterator[tuple[PersistentVolumeClaim, PersistentVolume | None]]:
        """The claims that are bound once the pod is on a node with these labels, each with the volume that is there for
        it; None where one is made."""
        for one in named(pod, volumes):
            claim = self._claim(namespace, one)
            if claim is None or claim.spec.volume_name or self.is_written(claim):
                continue
            class_ = self.storage_class(self.class_of(claim))
            if class_ is not None and class_.volume_binding_mode == WAIT_FOR_CONSUMER:
                yield claim, self._found_on(claim, node)

    # ---- binding ----

    def bound_to(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """The volume that the claim is bound to, or would be before a pod uses it."""
        name = claim.spec.volume_name
        if not self.is_written(claim):
            return self.volumes.get(name) if name and claim.status.phase not in _UNBOUND else None
        class_ = self.storage_class(self.class_of(claim))
        if class_ is not None and class_.volume_binding_mode == WAIT_FOR_CONSUMER and not name:
            return None
        return self._settled().get((claim.namespace or DEFAULT_NAMESPACE, claim.name))

    def bind(self, namespace: str, pod: str, volumes: Iterable[Mapping[str, Any]], node: Mapping[str, str]) -> bool:
        """A pod with these volumes stands on a node with these labels: claims that waited for that are bound now, to a
        volume that is there or one that is made. Whether any was."""
        changed = False
        for one in named(pod, volumes):
            claim = self._claim(namespace, one)
            if claim is None or not self.is_written(claim):
                continue
            volume = self.bound_to(claim) or self._found_on(claim, node) or self._made_on(claim, node)
            spec = msgspec.structs.replace(claim.spec, volume_name=volume.name)
            status = PersistentVolumeClaimStatus(phase="Bound")
            self.claims[namespace, claim.name] = msgspec.structs.replace(claim, spec=spec, status=status)
            kept = ClaimReference(name=claim.name, namespace=namespace)
            self.see(msgspec.structs.replace(volume, spec=msgspec.structs.replace(volume.spec, claim_ref=kept)))
            changed = True
        return changed

    def _found_on(self, claim: PersistentVolumeClaim, node: Mapping[str, str]) -> PersistentVolume | None:
        """The volume that is there which the claim gets from this node."""
        within = [one for one in self.volumes.values() if reached(one, node)]
        return best(claim, self.class_of(claim), within)

    def _made_on(self, claim: PersistentVolumeClaim, node: Mapping[str, str]) -> PersistentVolume:
        """The volume that is made for the claim where a pod that uses it stands on this node."""
        name = self.class_of(claim)
        class_ = self.storage_class(name)
        maker = provisioners.all().get(class_.provisioner) if class_ is not None else None
        reach = SAME_AS.get(maker.reach, maker.reach) if maker is not None else ""
        affinity = None
        if reach in node:
            only = core.NodeSelectorRequirement(key=reach, operator="In", values=[node[reach]])
            term = core.NodeSelectorTerm(match_expressions=[only])
            affinity = VolumeNodeAffinity(required=core.NodeSelector(node_selector_terms=[term]))
        spec = PersistentVolumeSpec(
            capacity=dict(claim.spec.resources.requests),
            access_modes=claim.spec.access_modes,
            storage_class_name=name,
            node_affinity=affinity,
        )
        metadata = ObjectMeta(name=f"pvc-{claim.namespace or DEFAULT_NAMESPACE}-{claim.name}")
        return PersistentVolume(api_version="v1", kind="PersistentVolume", metadata=metadata, spec=spec)

    def _settled(self) -> dict[tuple[str, str], PersistentVolume]:
        """Which claim has which volume when all are bound that can be, in the order of their names."""
        free = dict(self.volumes)
        found: dict[tuple[str, str], PersistentVolume] = {}
        for key, claim in sorted(self.claims.items(), key=lambda one: (not one[1].spec.volume_name, one[0])):
            one = best(claim, self.class_of(claim), free.values())
            if one is not None:
                found[key] = free.pop(one.name)
        return found


def default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """The class of claims that name none: of several that say so the newest, by name among equals.

    Source: kubernetes/kubernetes v1.36 pkg/volume/util/storageclass.go GetDefaultClass."""
    by_name = sorted((one for one in classes if one.is_default), key=lambda one: one.name)
    return max(by_name, key=lambda one: one.metadata.creation_timestamp or "", default=None)


def _usual(name: str, provisioner: str) -> StorageClass:
    return StorageClass(
        api_version="storage.k8s.io/v1",
        kind="StorageClass",
        metadata=ObjectMeta(name=name),
        provisioner=provisioner,
        volume_binding_mode=WAIT_FOR_CONSUMER,
    )
