"""ComputeDomains: the ResourceClaimTemplate of each, by which its pods claim channels, and which nodes they came to.

NVIDIA's controller does that where its driver is installed. IMEX daemons are taken to be ready at once. Source:
kubernetes-sigs/dra-driver-nvidia-gpu v0.5.0 cmd/compute-domain-controller (resourceclaimtemplate.go,
computedomain.go).
"""

from __future__ import annotations

from typing import Any

import msgspec

from tonnage.apiserver.controllers.context import Context
from tonnage.apiserver.controllers.meta import (
    Key,
    controller_reference,
    is_deleting,
    key_of,
    labels_of,
    spec_of,
    status_of,
    uid_of,
)
from tonnage.facts.labels import GPU_CLIQUE
from tonnage.kube.resources import COMPUTE_DOMAINS, NODES, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, Resource
from tonnage.kube.verbs import JsonObject
from tonnage.objects.compute_domains import ComputeDomain, channel_template, domain_of
from tonnage.objects.dra import ResourceClaimSpec

READY, NOT_READY = "Ready", "NotReady"
OF_DOMAIN = "resource.nvidia.com/computeDomain"
"""The label of what is made for a domain: its UID."""


class ComputeDomains:
    """NVIDIA's controller of ComputeDomains."""

    name = "compute-domain-controller"

    def __init__(self, context: Context) -> None:
        self._context = context

    def changed(self, resource: Resource, old: JsonObject | None, new: JsonObject | None) -> None:
        if _is_domain(resource):
            if new is not None:
                self._look_at(key_of(new))
        elif resource == RESOURCE_CLAIM_TEMPLATES and new is None and old is not None:
            self._look_at_all(key_of(old)[0])
        elif resource == RESOURCE_CLAIMS and _domain(new or old or {}):
            self._look_at_all(key_of(new or old or {})[0])

    def _look_at(self, key: Key) -> None:
        self._context.queue.add((self.name, key))

    def _look_at_all(self, namespace: str) -> None:
        for one in self._context.cache.in_namespace_of(COMPUTE_DOMAINS, namespace):
            self._look_at(key_of(one))

    def sync(self, key: Key) -> None:
        cache, writer = self._context.cache, self._context.writer
        domain = cache.get(COMPUTE_DOMAINS, key)
        if domain is None or is_deleting(domain):
            return
        try:
            read = msgspec.convert(domain, ComputeDomain, strict=False)
        except msgspec.ValidationError:
            return  # a kind of which any field may be written: what cannot be read is left as it is
        body = msgspec.to_builtins(channel_template(read))
        name = (key[0], str(body["metadata"].get("name") or ""))
        if name[1] and cache.get(RESOURCE_CLAIM_TEMPLATES, name) is None:
            body["metadata"] |= {
                "namespace": key[0],
                "labels": {OF_DOMAIN: uid_of(domain)},
                "ownerReferences": [controller_reference(COMPUTE_DOMAINS, domain)],
            }
            writer.create(RESOURCE_CLAIM_TEMPLATES, body)
        status = self._status(domain)
        if {name: status_of(domain).get(name) for name in status} != status:
            writer.put_status(COMPUTE_DOMAINS, domain, {**status_of(domain), **status})

    def _status(self, domain: JsonObject) -> dict[str, Any]:
        """The nodes on which pods have channels of the domain, by name, and whether these are enough."""
        there = set[str]()
        for claim in self._context.cache.in_namespace_of(RESOURCE_CLAIMS, key_of(domain)[0]):
            if _domain(claim) == uid_of(domain):
                given = ((status_of(claim).get("allocation") or {}).get("devices") or {}).get("results") or ()
                there.update(str(one.get("pool", "")) for one in given)
        nodes = [self._node(name) for name in sorted(there)]
        wanted = spec_of(domain).get("numNodes") or 0
        return {"status": READY if nodes and len(nodes) >= wanted else NOT_READY, "nodes": nodes}

    def _node(self, name: str) -> dict[str, str]:
        node = self._context.cache.get(NODES, ("", name))
        clique = labels_of(node).get(GPU_CLIQUE, "") if node is not None else ""
        return {"name": name, "cliqueID": clique, "status": READY}


def _is_domain(resource: Resource) -> bool:
    """Whether it is the kind, however it is defined."""
    return (resource.group, resource.kind) == (COMPUTE_DOMAINS.group, COMPUTE_DOMAINS.kind)


def _domain(claim: JsonObject) -> str:
    """The ComputeDomain, by its UID, of which a claim asks for a channel; empty for any other claim."""
    try:
        return domain_of(msgspec.convert(spec_of(claim), ResourceClaimSpec, strict=False))
    except msgspec.ValidationError:
        return ""
