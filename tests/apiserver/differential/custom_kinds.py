"""CustomResourceDefinitions for the custom kinds that the embedded API serves, so that a real API server does too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml_text
from tonnage.apiserver.openapi import custom_schema
from tonnage.apiserver.tables import columns
from tonnage.kube.resources import Resource

Json = dict[str, Any]


def definition(resource: Resource, published: Path | None = None) -> Json:
    """Karpenter's own CRD where its folder has one; else one with the embedded API's schema and columns."""
    file = published / "crds" / f"{resource.group}_{resource.plural}.yaml" if published else None
    if file is not None and file.exists():
        found: Json = yaml_text.load(file.read_text(encoding="utf-8"))
        return found
    names: Json = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.singular,
    }
    if resource.short_names:
        names["shortNames"] = list(resource.short_names)
    if resource.categories:
        names["categories"] = list(resource.categories)
    printed = [
        {
            "name": column.name,
            "type": column.type,
            "priority": column.priority,
            "jsonPath": "." + re.sub(r"\[(\w+)\]", r'[?(@.type=="\1")]', column.path),
        }
        for column in columns(resource.kind)
        if column.path
    ]
    version: Json = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": custom_schema(resource)},
        "additionalPrinterColumns": printed,
        "subresources": {"status": {}} if "status" in resource.subresources else {},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": names,
            "versions": [version],
        },
    }
