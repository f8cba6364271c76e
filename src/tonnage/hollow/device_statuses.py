"""Which devices the containers of a simulated pod were given, and how healthy they are, as its kubelet says it."""

from __future__ import annotations

from typing import Any

from tonnage.facts.labels import MIG_PREFIX
from tonnage.fleet.asks import is_device
from tonnage.live.places import places_of
from tonnage.machines.objects import SimulatedNode, SimulatedPod
from tonnage.machines.site import Site
from tonnage.node.health_effects import allocated_resources_status
from tonnage.objects import core
from tonnage.objects.quantity import amount


def allocated(cluster: Site, pod: SimulatedPod) -> dict[str, list[dict[str, Any]]]:
    """``allocatedResourcesStatus`` by container, of those that were given devices. Ids are those of a device plugin:
    GPU-…, MIG-…, and ``::n`` of replicas."""
    row = cluster.fleet.pod(pod.row)
    node = cluster.nodes.get(pod.node)
    if node is None or row.node < 0:
        return {}
    cuts, given = cluster.fleet.cards, []
    for device, start in places_of(cluster.fleet, pod.row):
        replicas = cuts.cut_of(row.node, device).replicas
        given.append((_id(node, device, start, pod.row if replicas > 1 else None), device, start is not None))
    found = {}
    for container in pod.template.spec.containers:
        own: dict[str, dict[str, bool | None]] = {}
        for name, count in _asked(container).items():
            mig = name.startswith(MIG_PREFIX)
            taken = [one for one in given if one[2] == mig or not mig][:count]
            given = [one for one in given if one not in taken]
            own[name] = {id_: node.health.healthy(node.gpu_uuid(device)) for id_, device, _ in taken}
        if said := allocated_resources_status(own):
            found[container.name] = said
    return found


def _id(node: SimulatedNode, device: int, start: int | None, replica: int | None) -> str:
    gpu = node.gpu_uuid(device)
    if start is not None:
        return f"MIG-{gpu.removeprefix('GPU-')}-{start}"
    return gpu if replica is None else f"{gpu}::{replica}"


def _asked(container: core.Container) -> dict[str, int]:
    """Devices and MIG instances by resource."""
    asked = {**container.resources.requests, **container.resources.limits}
    names = (name for name in sorted(asked) if is_device(name) or name.startswith(MIG_PREFIX))
    return {name: amount(name, asked[name]) for name in names}
