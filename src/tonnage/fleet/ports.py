"""Ports of its node that a pod takes.

Source: kubernetes/kubernetes v1.36 pkg/scheduler/framework/plugins/nodeports and
staging/src/k8s.io/kube-scheduler/framework HostPortInfo.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tonnage.objects import core

EVERY_ADDRESS = "0.0.0.0"
NO_PORTS = "node(s) didn't have free ports for the requested pod ports"
"""How kube-scheduler says that another pod has one of them."""


class Port(NamedTuple):
    """A port of the node, on one of its addresses or on every one."""

    address: str
    protocol: str
    number: int

    def meets(self, other: Port) -> bool:
        """Whether both cannot be had on one node."""
        return (self.protocol, self.number) == (other.protocol, other.number) and (
            self.address == other.address or EVERY_ADDRESS in (self.address, other.address)
        )


def host_ports(spec: core.PodSpec) -> tuple[Port, ...]:
    """Those that the pod takes: hostPort, and all its container ports where it is in the network of its node."""
    found = {
        Port(port.host_ip or EVERY_ADDRESS, port.protocol or "TCP", number)
        for container in (*spec.containers, *spec.init_containers)
        if container.ports and (container.is_sidecar or container in spec.containers)
        for port in container.ports
        if (number := port.host_port or (port.container_port if spec.host_network else 0))
    }
    return tuple(sorted(found)) if found else ()


def clash(mine: Iterable[Port], others: Iterable[Port]) -> Port | None:
    """The first port that both want; None where there is none."""
    theirs = tuple(others)
    return next((port for port in mine if any(port.meets(other) for other in theirs)), None)
