"""What a Service asks for about zones, and what of it a run does: said where the Service says it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tonnage.decisions import Finding, Ref
from tonnage.facts.labels import TOPOLOGY_HINTS
from tonnage.machines.cluster import SimulatedCluster
from tonnage.objects import core
from tonnage.objects.base import where

NEAR = ("PreferClose", "PreferSameZone")
"""Values of trafficDistribution with which pods of the client's zone are preferred (PreferClose is the old name).

Source: kubernetes/kubernetes v1.36 staging/src/k8s.io/api/core/v1/types.go (ServiceTrafficDistribution…)."""
SAME_NODE = "PreferSameNode"
HINTS = ("service.kubernetes.io/topology-mode", TOPOLOGY_HINTS)
"""Annotations with which EndpointSlices get hints; the second is the old name."""
_FREE = "bytes that cross zones cost neither money nor time here, as traffic counts tokens and not bytes"


def prefers_zone(service: core.Service) -> bool:
    """Whether requests stay in the client's zone while it has a pod."""
    return not hints(service) and service.spec.traffic_distribution in NEAR


def hints(service: core.Service) -> str:
    """The annotation that asks for hints, which goes before trafficDistribution; empty where none does."""
    asked = (name for name in HINTS if service.metadata.annotations.get(name, "").lower() == "auto")
    return next(asked, "")


def zone_findings(services: Iterable[core.Service], cluster: SimulatedCluster) -> Iterator[Finding]:
    """A finding for each Service with traffic that says where its requests shall go."""
    zoned = {one.name: one.requests.arrivals.zones is not None for one in cluster.services}
    for service in services:
        key = f"{service.namespace or 'default'}/{service.name}"
        told = _told(service, known=zoned[key]) if key in zoned else None
        if told is not None:
            field, severity, message = told
            ref = Ref("Service", service.name, service.namespace or "default")
            yield Finding("zones-not-simulated", severity, ref, where(service, field), message)


def _told(service: core.Service, *, known: bool) -> tuple[str, str, str] | None:
    """The field, the severity, and what there is to say. ``known``: requests come from zones."""
    annotation, wanted = hints(service), service.spec.traffic_distribution
    unknown = "" if known else "; no request has a zone, as its traffic has no clientZones"
    field, severity = "spec.trafficDistribution", "warning"
    if annotation:
        field = f"metadata.annotations.{annotation}"
        said = f"{annotation}: Auto is not followed, no hints by the CPUs of zones are made: requests go to any zone"
    elif wanted == SAME_NODE:
        said = f"{wanted} is not followed, clients have no node: requests go to pods of any"
    elif wanted in NEAR and not known:
        said, unknown = f"{wanted} has no effect: no request has a zone, as its traffic has no clientZones", ""
    elif wanted in NEAR:
        severity, said = "info", f"{wanted}: what goes to another zone is counted (cross_zone)"
    else:
        return None
    return field, severity, f"{said}{unknown}; {_FREE}"
