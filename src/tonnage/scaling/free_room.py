"""Free GPUs of nodes that are kept anyway, filled with replicas for a trial."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.fleet.asks import Kind
from tonnage.fleet.rows import FleetPod
from tonnage.fleet.snapshot import Snapshot
from tonnage.objects import core
from tonnage.scaling.waiting import Seats, another


class FreeRoom:
    """Of the nodes that no NodePool made, and that are not cordoned. To be used inside a what-if of the fleet."""

    def __init__(self, snapshot: Snapshot, seats: Seats) -> None:
        self._snapshot, self._fleet = snapshot, snapshot.fleet
        self._filters = seats.filters(snapshot.fleet)
        fleet = snapshot.fleet
        self._kept = [row for row in fleet.node_rows() if fleet.schedulable[row] and not fleet.node(row).spec.node_pool]
        self._made = 0

    def fill(self, workload: str, gpus: int) -> bool:
        """Bind one more replica of the workload to the first of the nodes that is feasible and of which it gets
        devices; whether there is one. ``gpus``: devices of a replica; a workload without pods shows no more than
        that."""
        return any(map(self._bind, self._replicas(workload, gpus)))

    def _replicas(self, workload: str, gpus: int) -> Iterator[FleetPod]:
        """What the replica may look like: like the first pod of the workload, else this many devices of each kind."""
        self._made += 1
        known = another(self._snapshot, workload, -self._made)
        if known is not None:
            yield known
            return
        everywhere = [core.Toleration(operator="Exists")]
        for resource in dict.fromkeys(self._fleet.node(row).spec.device_resource for row in self._kept):
            if resource and gpus:
                requests = core.ResourceRequirements(requests={resource: str(gpus)})
                spec = core.PodSpec(
                    containers=[core.Container(name="replica", resources=requests)], tolerations=everywhere
                )
                yield FleetPod("", f"{workload}/{self._made}", "", {}, spec)

    def _bind(self, replica: FleetPod) -> bool:
        fleet = self._fleet
        pod = fleet.add_pod(replica)
        pod_class = fleet.pod_class(pod)
        if fleet.classes.shapes[pod_class.shape].ask.kind is not Kind.NONE:
            there = self._filters.take(pod_class)
            row = next((row for row in self._kept if there[row]), None)
            if row is not None:
                fleet.bind(pod, row)
                return True
        fleet.remove_pod(pod)
        return False
