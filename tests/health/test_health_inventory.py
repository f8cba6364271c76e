"""Which objects there are, by files and by a cluster's dump."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import yaml_text
from tonnage.health.inventory import Inventory
from tonnage.objects import load


def inventory(tmp_path: Path, *objects: dict[str, Any]) -> Inventory:
    (tmp_path / "x.yaml").write_text(yaml_text.dump_all(objects))
    return Inventory(load.read([tmp_path / "x.yaml"]).objects)


def obj(api: str, kind: str, name: str, namespace: str = "a", **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, **fields.pop("metadata", {})}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **fields}


SECRET = obj("v1", "Secret", "s")


@pytest.mark.parametrize(
    ("written", "kind", "name", "namespace", "has"),
    [
        (SECRET, "Secret", "s", "a", True),
        (SECRET, "Secret", "s", "b", False),
        (SECRET, "ConfigMap", "kube-root-ca.crt", "b", True),
        (
            obj("external-secrets.io/v1", "ExternalSecret", "e", spec={"target": {"name": "s"}}),
            "Secret",
            "s",
            "a",
            True,
        ),
        (obj("external-secrets.io/v1", "ExternalSecret", "e", spec={}), "Secret", "e", "a", True),
        (obj("example.com/v1", "ExternalSecret", "e", spec={}), "Secret", "e", "a", False),
        (
            obj(
                "secrets-store.csi.x-k8s.io/v1",
                "SecretProviderClass",
                "p",
                spec={"secretObjects": [{"secretName": "s"}]},
            ),
            "Secret",
            "s",
            "a",
            True,
        ),
        (obj("trust.cert-manager.io/v1alpha1", "Bundle", "ca", namespace="x"), "ConfigMap", "ca", "a", True),
        (
            obj("v1", "Secret", "s", metadata={"annotations": {"replicator.v1.mittwald.de/replicate-to": "b"}}),
            "Secret",
            "s",
            "b",
            True,
        ),
    ],
)
def test_what_is_there_and_what_controllers_make(
    tmp_path: Path, written: dict[str, Any], kind: str, name: str, namespace: str, has: bool
) -> None:
    assert inventory(tmp_path, written).has(kind, name, namespace) is has


@pytest.mark.parametrize(("kind", "has"), [("Secret", True), ("ConfigMap", False)])
def test_a_kind_that_a_dump_leaves_out_is_not_known_to_be_missing(tmp_path: Path, kind: str, has: bool) -> None:
    dumped = obj("v1", "ConfigMap", "c", metadata={"uid": "1"})
    assert inventory(tmp_path, dumped).has(kind, "other", "a") is has
