"""Lays a scenario's manifests out on an API: namespaces, the kinds that CRDs define, and the objects themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy

from tonnage.cluster.client.transport import ApiError
from tonnage.cluster.client.verbs import Client, JsonObject
from tonnage.cluster.resources import ALL, CRDS, DAEMON_SETS, DEPLOYMENTS, NAMESPACES, Column, Resource, by_kind
from tonnage.hollow.machines import Machines
from tonnage.objects.base import KubeObject
from tonnage.simulation.run import SetUp

_FIRST = ("PriorityClass", "EC2NodeClass", "NodePool")


def lay_out(made: SetUp, client: Client, machines: Machines, scheduler_name: str = "tonnage") -> None:
    """Create everything that the scenario's manifests have; pods and nodes are left to the machines.

    Objects of kinds that are not served are left out: the configuration's findings name them."""
    define_missing_kinds(client)
    objects = [(resource, body) for resource, body in _bodies(made.configuration.manifest.objects)]
    for namespace in sorted({body["metadata"]["namespace"] for resource, body in objects if resource.namespaced}):
        _create(client, NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for resource, body in sorted(objects, key=lambda one: one[0].kind not in _FIRST):
        if resource in (DEPLOYMENTS, DAEMON_SETS):
            body["spec"]["template"]["spec"].setdefault("schedulerName", scheduler_name)
        stored = _create(client, resource, body)
        if resource in (DEPLOYMENTS, DAEMON_SETS):
            meta = stored["metadata"]
            machines.own(f"{meta['namespace']}/{meta['name']}", stored)


def _bodies(objects: Iterable[KubeObject]) -> Iterator[tuple[Resource, JsonObject]]:
    for one in objects:
        resource = by_kind(one.api_version, one.kind)
        if resource is None or not one.written or one.kind in ("Pod", "Node", "NodeClaim"):
            continue
        body = deepcopy(one.written)
        body.pop("status", None)
        if resource.namespaced:
            body["metadata"].setdefault("namespace", "default")
        yield resource, body


def _create(client: Client, resource: Resource, body: JsonObject) -> JsonObject:
    """The object as it is in the API, made unless it is there."""
    namespace = body["metadata"].get("namespace", "") if resource.namespaced else ""
    try:
        return client.create(resource, body, namespace)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
        return client.get(resource, body["metadata"]["name"], namespace)


def define_missing_kinds(client: Client, wanted: Iterable[Resource] = ALL) -> list[str]:
    """Make CRDs for the kinds that Tonnage reads and the server does not know; the names of those made.

    Their schemas take any field: whoever installs Karpenter or KEDA brings the real ones first."""
    made = []
    for resource in wanted:
        if not resource.custom or _served(client, resource):
            continue
        client.create(CRDS, crd(resource))
        made.append(f"{resource.plural}.{resource.group}")
    for resource in wanted:
        if f"{resource.plural}.{resource.group}" in made:
            _wait_served(client, resource)
    return made


def _served(client: Client, resource: Resource) -> bool:
    try:
        listed = client.call("GET", resource.root).body
    except ApiError as error:
        if error.code == 404:
            return False
        raise
    return f'"name":"{resource.plural}"'.encode() in listed


def _wait_served(client: Client, resource: Resource, tries: int = 100) -> None:
    import time

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


def crd(resource: Resource) -> JsonObject:
    """A CustomResourceDefinition whose objects may have any field."""
    schema: Mapping[str, object] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version: JsonObject = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    if resource.columns:
        version["additionalPrinterColumns"] = [_printed(column) for column in resource.columns]
    if "status" in resource.subresources:
        version["subresources"] = {"status": {}}
    names = {
        "plural": resource.plural,
        "singular": resource.singular,
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "shortNames": list(resource.short_names),
        "categories": list(resource.categories),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "names": {key: value for key, value in names.items() if value},
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [version],
        },
    }


def _printed(column: Column) -> JsonObject:
    path = column.path.replace("[last]", "[-1:]")
    path = re.sub(r"\[(\w+)\]", r'[?(@.type=="\1")]', path) if "[-1:]" not in path else path
    return {"name": column.name, "type": column.type, "priority": column.priority, "jsonPath": f".{path}"}
