"""Which StorageClass a claim is of (DefaultStorageClass admission), and what is bound to it."""

from __future__ import annotations

from typing import Any

import pytest

from tonnage.facts.labels import STORAGE_CLASS
from tonnage.objects.base import ObjectMeta
from tonnage.objects.storage import (
    DEFAULT_CLASS,
    ClaimReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
    StorageClass,
)
from tonnage.workloads.volumes.book import UNBOUND, Volumes

STABLE, BETA = DEFAULT_CLASS


def class_(name: str, made: str | None = None, default: str = STABLE) -> StorageClass:
    annotations = {default: "true"} if default else {}
    meta = ObjectMeta(name=name, annotations=annotations, creation_timestamp=made)
    return StorageClass(api_version="storage.k8s.io/v1", kind="StorageClass", metadata=meta, provisioner="p")


def claim(named: str | None = None, annotation: str = "", phase: str = "", **spec: Any) -> PersistentVolumeClaim:
    annotations = {STORAGE_CLASS: annotation} if annotation else {}
    return PersistentVolumeClaim(
        api_version="v1",
        kind="PersistentVolumeClaim",
        metadata=ObjectMeta(name="c", namespace="default", annotations=annotations, uid="u" if phase else ""),
        spec=PersistentVolumeClaimSpec(storage_class_name=named, **spec),
        status=PersistentVolumeClaimStatus(phase=phase),
    )


@pytest.mark.parametrize(
    ("classes", "asked", "found"),
    [
        ([class_("a", default="")], claim(), ""),
        ([class_("a", default=""), class_("b", default=BETA)], claim(), "b"),
        ([class_("b"), class_("a")], claim(), "a"),
        ([class_("a", "2026-01-01T00:00:00Z"), class_("b", "2026-02-01T00:00:00Z")], claim(), "b"),
        ([class_("b", "2026-01-01T00:00:00Z"), class_("a", "2026-01-01T00:00:00Z")], claim(), "a"),
        ([class_("a")], claim(""), ""),
        ([class_("a"), class_("b", default="")], claim("b"), "b"),
        ([class_("a")], claim("a", annotation="b"), "b"),
    ],
    ids=["none", "beta", "by name", "newest", "as old, by name", "empty is none", "its own", "annotation first"],
)
def test_the_class_of_a_claim(classes: list[StorageClass], asked: PersistentVolumeClaim, found: str) -> None:
    assert Volumes(classes).class_of(asked) == found


@pytest.mark.parametrize(("phase", "waits"), [("Pending", UNBOUND), ("Lost", UNBOUND), ("Bound", "")])
def test_a_claim_that_names_a_volume_is_bound_to_it_only_when_it_says_so(phase: str, waits: str) -> None:
    kept = ClaimReference(name="c" if phase == "Bound" else "other", namespace="default")
    spec = PersistentVolumeSpec(capacity={"storage": "1Gi"}, claim_ref=kept)
    volume = PersistentVolume(api_version="v1", kind="PersistentVolume", metadata=ObjectMeta(name="disk"), spec=spec)
    book = Volumes([volume, claim("", phase=phase, volume_name="disk")])
    asked = [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]
    assert book.need("default", "pod", asked).waits == waits
