"""Sets replicas by the thresholds on GPU utilisation that published guides recommend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tonnage.control.loops import Loop
from tonnage.control.replicas import Asker, MovedBounds
from tonnage.control.world import World
from tonnage.decisions import Ref, Scale
from tonnage.fleet.snapshot import Snapshot, WorkloadView
from tonnage.scaling import hpa
from tonnage.scaling.thresholds import DECISION_TABLE, WorkloadUse, decide, profile, two_sided

SERIES = "DCGM_FI_DEV_GPU_UTIL"
"""Of dcgm-exporter; its ``namespace`` and ``pod`` are those of the pod that holds the GPU, or have another name where
the ServiceMonitor does not honor labels."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A workload, the bounds of its replicas and the whole GPUs of each."""

    workload: str
    minimum: int
    maximum: int
    gpus: int


@dataclass(slots=True)
class ThresholdScaler:
    """One of :func:`tonnage.scaling.thresholds.presets` over all its workloads. No data of a workload holds it."""

    preset: str
    watched: Sequence[Watched]
    moved: MovedBounds = field(default_factory=dict)
    changed_ns: dict[str, int] = field(default_factory=dict)
    """When the replicas of a workload last changed."""

    def decide(self, world: World) -> Sequence[Scale]:
        """A Scale for each workload that is to have more or fewer replicas."""
        snapshot = world.snapshot()
        ask = Asker(world, snapshot.now_ns)
        uses = {
            one.workload: self._use(one, view, ask)
            for one in self.watched
            if (view := snapshot.workloads.get(one.workload)) is not None
        }
        if self.preset == DECISION_TABLE:
            return decide(tuple(uses.values()), pool_free_gpus=free_gpus(snapshot))
        decisions, rule = [], profile(self.preset)
        for key, use in uses.items():
            made, _ = two_sided(rule, use, last_change_ns=self.changed_ns.get(key), now_ns=snapshot.now_ns)
            if made is not None:
                self.changed_ns[key] = snapshot.now_ns
                decisions.append(made)
        return decisions

    def _use(self, one: Watched, view: WorkloadView, ask: Asker) -> WorkloadUse:
        ref = Ref(view.kind, view.name, view.namespace, view.uid)
        used = ask.number(utilisation(view)) if view.pods else None
        least, most = self.moved.get(one.workload, (one.minimum, one.maximum))
        return WorkloadUse(ref, used, view.replicas, least, most, one.gpus)

    def loop(self) -> Loop:
        """As often as the HPA controller."""
        return Loop(self.preset, self.decide, hpa.SYNC_PERIOD_NS)


def free_gpus(snapshot: Snapshot) -> int:
    """Whole GPUs that no pod holds, of the nodes on which pods can be placed."""
    fleet = snapshot.fleet
    found = 0
    for row in fleet.node_rows():
        resource = fleet.node(row).spec.device_resource
        if resource and fleet.schedulable[row]:
            found += max(0, int(fleet.free[row, fleet.resource(resource)]))
    return found


def utilisation(view: WorkloadView) -> str:
    """PromQL: the mean utilisation of the GPUs that the workload's pods hold, 0 to 100."""
    pods = "|".join(sorted(pod.name for pod in view.pods))
    own = f'{SERIES}{{namespace="{view.namespace}",pod=~"{pods}"}}'
    renamed = f'{SERIES}{{exported_namespace="{view.namespace}",exported_pod=~"{pods}"}}'
    return f"avg({own} or {renamed})"
