"""What a pod asks for that is not placed here: such a pod is left waiting, with the reason, and never bound blindly."""

from __future__ import annotations

from tonnage.fleet.rows import PodSpec
from tonnage.workloads.membership import named


def beyond(pod: PodSpec) -> str:
    """What of the pod this scheduler cannot weigh; empty when it can place it.

    A claim for a volume or a device has to be bound together with the pod (kube-scheduler's VolumeBinding and
    DynamicResources plugins); ports of the host have to be free on the node (NodePorts). A pod that names a pod group
    which is not known here is not bound alone: its group is placed whole or not at all.
    """
    spec = pod.spec
    if any(volume.get("persistentVolumeClaim") or volume.get("ephemeral") for volume in spec.volumes):
        return "persistent volume claims"
    if spec.resource_claims:
        return "resource claims"
    containers = (*spec.init_containers, *spec.containers)
    if any(port.host_port for container in containers for port in container.ports):
        return "host ports"
    if not pod.gang:
        for group, _ in named(pod.namespace, pod.labels, pod.annotations, spec):
            return f"the pods of group {group}, which is not known here,"
    return ""
