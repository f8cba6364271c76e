"""Ports of nodes that pods take from each other.

Source: kubernetes/kubernetes v1.36 pkg/scheduler/framework/plugins/nodeports.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tonnage.fleet.ports import NO_PORTS, Port, clash, host_ports
from tonnage.health.blocker import NO_NODE, UNSCHEDULABLE, Blocker
from tonnage.health.setting import Pods, Setting
from tonnage.objects import core


def ports(setting: Setting) -> Iterator[Blocker]:
    """Ports that a DaemonSet has on every node that the pods may have."""
    daemons = [pods for pods in setting.pods if pods.is_daemon]
    for pods in setting.pods:
        mine = host_ports(pods.spec)
        for other in daemons if mine and not pods.is_daemon else ():
            port = clash(mine, host_ports(other.spec))
            if port is not None and _everywhere(other.spec, pods.spec):
                yield _blocker(pods, port, f"the DaemonSet {other.object.name} has it on every node that they may have")


def of_daemons(blocker: Blocker, setting: Setting) -> Blocker | None:
    """The blocker of unschedulable pods, where a port that a DaemonSet has there is why; None of others."""
    if NO_PORTS not in blocker.said or blocker.some:
        return None
    daemons = [pods for pods in setting.pods if pods.is_daemon]
    for pods in (one for one in setting.pods if one.ref == blocker.object):
        for other in daemons:
            port = clash(host_ports(pods.spec), host_ports(other.spec))
            if port is not None:
                why = f"the DaemonSet {other.object.name} has it on the otherwise feasible nodes"
                return msgspec.structs.replace(_blocker(pods, port, why), said=blocker.said)
    return None


def _everywhere(daemon: core.PodSpec, pod: core.PodSpec) -> bool:
    """Whether the daemon is surely on every node that the pod may have: it asks for no node that the pod does not ask
    for."""
    selects = all(pod.node_selector.get(key) == value for key, value in daemon.node_selector.items())
    affinity = daemon.affinity.node_affinity if daemon.affinity else None
    return selects and (affinity is None or affinity.required_during_scheduling_ignored_during_execution is None)


def taken(setting: Setting, nodes: int) -> Iterator[Blocker]:
    """Ports for which there are not nodes enough, of which there will be this many: who is placed first has them,
    by priority and name."""
    using = [(pods, mine) for pods in setting.pods if not pods.is_daemon and (mine := host_ports(pods.spec))]
    using.sort(key=lambda one: (-(setting.admission.priorities.of(one[0].spec) or 0), one[0].object.name))
    for place, (pods, mine) in enumerate(using):
        before = sum(other.counted.pods for other, theirs in using[:place] if clash(theirs, mine))
        left = max(0, nodes - before)
        if pods.counted.pods <= left:
            continue
        port = clash(mine, next((theirs for _, theirs in using[:place] if clash(theirs, mine)), mine)) or mine[0]
        others = ", ".join(
            f"{other.object.kind} {other.object.name}" for other, theirs in using[:place] if clash(theirs, mine)
        )
        why = f"{pods.counted.pods} pods want it on {nodes} node{'s' if nodes != 1 else ''}"
        why += f", and {before} of {others} have it there" if before else ""
        yield _blocker(pods, port, why, some=left > 0)


def _blocker(pods: Pods, port: Port, why: str, *, some: bool = False) -> Blocker:
    return Blocker(
        "host-port-taken",
        UNSCHEDULABLE,
        pods.ref,
        pods.where(_field(pods.spec, port)),
        f"port {port.number}/{port.protocol} of the node is taken: {why}",
        "use another host port, or a Service instead of ports of the node",
        NO_NODE,
        NO_PORTS,
        some,
    )


def _field(spec: core.PodSpec, port: Port) -> str:
    """Where the pod names the port."""
    for index, container in enumerate(spec.containers):
        for number, one in enumerate(container.ports):
            if port.number in (one.host_port, one.container_port):
                part = "hostPort" if one.host_port else "containerPort"
                return f"containers[{index}].ports[{number}].{part}"
    return "hostNetwork"
