"""The claims of pods, and matching claims with volumes that are there.

Sources: kubernetes/kubernetes v1.36 pkg/controller/volume/persistentvolume (index.go, pv_controller.go),
staging/src/k8s.io/component-helpers/storage/volume/pv_helpers.go (FindMatchingVolume), pkg/controller/statefulset and
pkg/controller/volume/ephemeral (names of claims).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tonnage.objects import quantity, selectors
from tonnage.objects.storage import PersistentVolume, PersistentVolumeClaim


class NamedClaim(NamedTuple):
    """A claim that a pod names. ``made``: it is made with the pod, from a template in it."""

    name: str
    made: Mapping[str, Any] | None = None


def named(pod: str, volumes: Iterable[Mapping[str, Any]]) -> Iterator[NamedClaim]:
    """The claims of a pod of that name, by its volumes."""
    for volume in volumes:
        claim, ephemeral = volume.get("persistentVolumeClaim"), volume.get("ephemeral")
        if isinstance(claim, Mapping) and isinstance(claim.get("claimName"), str):
            yield NamedClaim(claim["claimName"])
        elif isinstance(ephemeral, Mapping):
            template = ephemeral.get("volumeClaimTemplate")
            spec = template.get("spec") if isinstance(template, Mapping) else None
            yield NamedClaim(f"{pod}-{volume.get('name', '')}", spec if isinstance(spec, Mapping) else {})


def is_kept_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the volume is reserved for this claim, or bound to it."""
    kept = volume.spec.claim_ref
    return kept is not None and (kept.namespace, kept.name) == (claim.namespace or "default", claim.name)


def mismatch(claim: PersistentVolumeClaim, class_name: str, volume: PersistentVolume) -> str:
    """Why the volume is not for the claim, which is of that class; empty where it is."""
    wanted, given = claim.spec, volume.spec
    kept = given.claim_ref
    if kept is not None and not is_kept_for(volume, claim):
        return f"it is reserved for {kept.namespace}/{kept.name}"
    if volume.status.phase in ("Released", "Failed"):
        return f"it is {volume.status.phase}"
    if wanted.volume_name and wanted.volume_name != volume.name:
        return f"the claim names {wanted.volume_name}"
    if given.storage_class_name != class_name:
        return f'it has class "{given.storage_class_name}", the claim "{class_name}"'
    lacking = [mode for mode in wanted.access_modes if mode not in given.access_modes]
    if lacking:
        return f"it has access modes {', '.join(given.access_modes) or 'none'}, the claim asks for {lacking[0]}"
    if (wanted.volume_mode or "Filesystem") != (given.volume_mode or "Filesystem"):
        return f"its volume mode is {given.volume_mode or 'Filesystem'}, not {wanted.volume_mode or 'Filesystem'}"
    if wanted.selector is not None and not selectors.matches(wanted.selector, volume.metadata.labels):
        return "the claim's selector does not select its labels"
    asked = wanted.resources.requests.get("storage", 0)
    if size_of(volume) < quantity.parse(asked):
        return f"it has {given.capacity.get('storage', 0)}, the claim asks for {asked}"
    return ""


def provisioned_in(claim: str, places: Iterable[str]) -> str:
    """Of these zones the one in which a volume is made for a claim of that name before any pod is placed; empty without
    zones. Claims of a StatefulSet's pods go round, those of one pod together.

    Source: kubernetes-csi/external-provisioner pkg/controller/topology.go: sorted, shifted by the FNV-1 hash of the
    name and the number at its end."""
    listed = sorted(set(places))
    base, _, last = claim.rpartition("-")
    number = int(last) if base and last.isascii() and last.isdigit() and int(last) < 1 << 32 else None
    hashed = claim if number is None else base.rpartition("-")[2]
    value = 2166136261
    for byte in hashed.encode():
        value = (value * 16777619) % (1 << 32) ^ byte
    return listed[(value + (number or 0)) % (1 << 32) % len(listed)] if listed else ""


def size_of(volume: PersistentVolume) -> Any:
    """Bytes of a volume."""
    return quantity.parse(volume.spec.capacity.get("storage", 0))


def best(claim: PersistentVolumeClaim, class_name: str, volumes: Iterable[PersistentVolume]) -> PersistentVolume | None:
    """The volume that the claim is bound to: one kept for it, else the smallest that will do; by name among equals."""
    fit = [one for one in volumes if not mismatch(claim, class_name, one)]
    return min(fit, key=lambda one: (one.spec.claim_ref is None, size_of(one), one.name), default=None)
