"""Claims for volumes and ResourceClaims in the simulated cluster: what a pod's ask of its node, and what becomes of
them with it."""

from __future__ import annotations

from collections.abc import Mapping

from tonnage.fleet.claim_needs import ClaimNeed
from tonnage.fleet.volumes import NO_VOLUMES, VolumeNeed
from tonnage.machines.objects import SimulatedPod
from tonnage.machines.site import Site
from tonnage.objects import core


def need(cluster: Site, namespace: str, name: str, spec: core.PodSpec) -> VolumeNeed:
    """What the volumes of a pod ask of its node now."""
    return cluster.declared.volumes.need(namespace, name, spec.volumes) if spec.volumes else NO_VOLUMES


def devices(cluster: Site, namespace: str, name: str, spec: core.PodSpec) -> ClaimNeed:
    """What the ResourceClaims of a pod ask of its node now; those that it has templates of are made."""
    return cluster.fleet.device_claims.need(namespace, name, "", spec)


def follow(cluster: Site) -> None:
    """Claims serve other extended resources: what waiting pods ask of them is another now."""
    for row in list(cluster.fleet.pending):
        spec = cluster.fleet.pod(row).spec
        cluster.fleet.set_claims(row, devices(cluster, spec.namespace, spec.name, spec.spec))


def ended(cluster: Site, pod: SimulatedPod) -> None:
    """The pod is gone, and its ResourceClaims are given up."""
    keys = cluster.fleet.device_claims.used_by(pod.row)
    cluster.fleet.remove_pod(pod.row)
    cluster.fleet.device_claims.give_up(keys, pod.name, pod.uid)


def bind(cluster: Site, pod: SimulatedPod, labels: Mapping[str, str]) -> None:
    """The pod stands on a node with these labels: claims that waited for that are bound, which binds other pods."""
    if not cluster.declared.volumes.bind(pod.namespace, pod.name, pod.template.spec.volumes, labels):
        return
    for row in list(cluster.fleet.pending):
        spec = cluster.fleet.pod(row).spec
        if spec.namespace == pod.namespace and spec.spec.volumes:
            cluster.fleet.set_volumes(row, need(cluster, spec.namespace, spec.name, spec.spec))
