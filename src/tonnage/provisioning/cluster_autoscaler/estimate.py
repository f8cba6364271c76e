"""How many machines of one group pending pods would take.

Pods are taken by their CPU and memory as shares of a machine, largest first; GPUs do not count. Each goes to the next
machine that has room, from where the last one went on; a further machine comes where none has.

Source: kubernetes/autoscaler cluster-autoscaler estimator/binpacking_estimator.go, decreasing_pod_orderer.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tonnage.decisions import Ref
from tonnage.provisioning.cluster_autoscaler.fitting import Fitting, has_room
from tonnage.provisioning.cluster_autoscaler.groups import ScalableGroup, machine_of, renamed
from tonnage.provisioning.devices import beyond_counting
from tonnage.provisioning.plans import PlanSettings
from tonnage.provisioning.pod_classes import AlikePods
from tonnage.provisioning.pods import PendingPod
from tonnage.provisioning.standing import StandingNode


@dataclass(slots=True)
class NewMachines:
    """New machines, each with its pods, and what these request in all: cpu in millicores, memory in bytes, all else in
    units."""

    nodes: list[StandingNode] = field(default_factory=list)
    pods: list[list[Ref]] = field(default_factory=list)
    requests: Counter[str] = field(default_factory=Counter)

    def add(self, at: int, pod: PendingPod) -> None:
        """The pod goes to this machine."""
        self.pods[at].append(pod.ref)
        self.requests.update(pod.shape.requests)


def estimate(
    group: ScalableGroup, waiting: Sequence[PendingPod], fitting: Fitting, settings: PlanSettings, most: int
) -> NewMachines:
    """Machines of this group alone, ``most`` at most, for as many of the pods as fit them."""
    parts = group.node.devices is None and any(beyond_counting(pod.shape.ask) for pod in waiting)
    machine = machine_of(group.launch, settings, parts=True) if parts else group.node
    alike: dict[int, tuple[AlikePods, list[PendingPod]]] = {}
    for pod in waiting:
        one = fitting.alike(pod)
        alike.setdefault(id(one), (one, []))[1].append(pod)
    fresh = StandingNode(machine)
    taken = [each for each in alike.values() if has_room(fresh, fitting.attempts(each[0]))]
    taken.sort(key=lambda each: -_size(each[1][0], group.launch.allocatable))
    made, last = NewMachines(), 0
    for pods, members in taken:
        attempts, rest = fitting.attempts(pods), list(members)
        while rest:
            order = [(last + step) % len(made.nodes) for step in range(len(made.nodes))]
            at = next((at for at in order if fitting.put(made.nodes[at], attempts)), None)
            if at is None:
                break
            made.add(at, rest.pop(0))
            last = (at + 1) % len(made.nodes)
        for pod in rest:
            if not made.nodes or not fitting.put(made.nodes[-1], attempts):
                if (made.nodes and not made.pods[-1]) or len(made.nodes) >= most:
                    break
                made.nodes.append(fitting.join(renamed(machine, f"{group.name}-new-{len(made.nodes)}")))
                made.pods.append([])
                if not fitting.put(made.nodes[-1], attempts):
                    break
            made.add(len(made.nodes) - 1, pod)
    full = [at for at, on in enumerate(made.pods) if on]
    return NewMachines([made.nodes[at] for at in full], [made.pods[at] for at in full], made.requests)


def _size(pod: PendingPod, allocatable: Mapping[str, int]) -> float:
    """CPU and memory as shares of a machine, together."""
    requests = pod.shape.requests
    return sum(requests.get(name, 0) / allocatable[name] for name in ("cpu", "memory") if allocatable.get(name))
