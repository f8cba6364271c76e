"""CustomResourceDefinitions for kinds that an API does not serve: any field may be written."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec

from tonnage.hollow.statuses import ANNOTATION
from tonnage.kube.resources import ALL, CRDS, PrinterColumn, Resource
from tonnage.kube.transport import ApiError
from tonnage.kube.verbs import Client, JsonObject

Kind = tuple[str, str]
"""Group and plural: what a CustomResourceDefinition defines."""


def define_missing_kinds(client: Client, wanted: Iterable[Resource] = ALL) -> list[str]:
    """Make CRDs for the kinds that Tonnage reads and the server does not know; the names of those made.

    One has all versions that are wanted of its kind. Whoever installs Karpenter, KEDA or an operator brings the real
    ones first."""
    kinds: dict[Kind, list[Resource]] = {}
    for resource in dict.fromkeys(wanted):
        if resource.custom:
            kinds.setdefault((resource.group, resource.plural), []).append(resource)
    made = {kind: versions for kind, versions in kinds.items() if served_as(client, versions[0]) is None}
    for versions in made.values():
        client.create(CRDS, crd(*versions))
    for versions in made.values():
        _wait_served(client, versions[0])
    return [f"{plural}.{group}" for group, plural in made]


def served_as(client: Client, resource: Resource) -> Resource | None:
    """The resource in a version that the server has, its own before others; None where the kind is not served."""
    if is_served(client, resource):
        return resource
    try:
        group = msgspec.json.decode(client.call("GET", f"/apis/{resource.group}").body)
    except ApiError as error:
        if error.code != 404:
            raise
        return None
    versions = [replace(resource, version=one["version"]) for one in group["versions"]]
    return next((one for one in versions if is_served(client, one)), None)


def run_here(client: Client) -> set[Kind]:
    """The kinds whose definitions were made here: no operator but a simulated one makes their pods."""
    return {
        (one["spec"]["group"], one["spec"]["names"]["plural"])
        for one in client.list(CRDS)
        if ANNOTATION in one["metadata"].get("annotations", {})
    }


def is_served(client: Client, resource: Resource) -> bool:
    """Whether the server has this kind in this version."""
    try:
        listed = client.call("GET", resource.root).body
    except ApiError as error:
        if error.code == 404:
            return False
        raise
    return f'"name":"{resource.plural}"'.encode() in listed


def _wait_served(client: Client, resource: Resource, tries: int = 100) -> None:
    for _ in range(tries):
        try:
            client.page(resource, limit=1)
        except ApiError as error:
            if error.code != 404:
                raise
            time.sleep(0.1)
        else:
            return
    raise TimeoutError(f"{resource.kind} is not served, though its CRD was made")


def crd(resource: Resource, *others: Resource) -> JsonObject:
    """A CustomResourceDefinition whose objects may have any field. ``others``: further versions of it."""
    names = {
        "plural": resource.plural,
        "singular": resource.singular,
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "shortNames": list(resource.short_names),
        "categories": list(resource.categories),
    }
    return {
        "apiVersion": CRDS.api_version,
        "kind": CRDS.kind,
        "metadata": {"name": f"{resource.plural}.{resource.group}", "annotations": {ANNOTATION: "true"}},
        "spec": {
            "group": resource.group,
            "names": {key: value for key, value in names.items() if value},
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": _versions((resource, *others)),
        },
    }


def _versions(resources: Sequence[Resource]) -> list[JsonObject]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    found = []
    for resource in resources:
        version: JsonObject = {
            "name": resource.version,
            "served": True,
            "storage": resource is resources[0],
            "schema": {"openAPIV3Schema": schema},
        }
        if resource.columns:
            version["additionalPrinterColumns"] = [_printed(column) for column in resource.columns]
        if "status" in resource.subresources:
            version["subresources"] = {"status": {}}
        found.append(version)
    return found


def _printed(column: PrinterColumn) -> JsonObject:
    path = re.sub(r"\[(\w+)\]", r'[?(@.type=="\1")]', column.path.replace("[last]", "[-1:]"))
    return {"name": column.name, "type": column.type, "priority": column.priority, "jsonPath": f".{path}"}
