"""Features of the pod API that a pod needs of its node's kubelet.

Source: kubernetes/kubernetes v1.36 staging/src/k8s.io/component-helpers/nodedeclaredfeatures/features, and the plugin
NodeDeclaredFeatures of kube-scheduler. Features that only matter when a pod is resized are not among them.
"""

from __future__ import annotations

from tonnage.objects import core

RESTART_ALL, USER_NAMESPACES = "RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"
KUBELET = (RESTART_ALL,)
"""Those of a kubelet of v1.36 whose feature gates are as they come."""


def needed(spec: core.PodSpec) -> tuple[str, ...]:
    """What the node has to declare, by name."""
    found = []
    if any(
        rule.action == "RestartAllContainers"
        for container in (*spec.containers, *spec.init_containers)
        for rule in container.restart_policy_rules
    ):
        found.append(RESTART_ALL)
    if spec.host_network and spec.host_users is False:
        found.append(USER_NAMESPACES)
    return tuple(found)
