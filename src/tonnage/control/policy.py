"""From a policy, as a scenario or flags state it, to the controllers that follow it: the one way in every world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

from tonnage.control.choices import KARPENTER, RELAYOUT, STATIC
from tonnage.control.loops import Loop
from tonnage.control.nodes import Pools
from tonnage.control.scheduler import Scheduler
from tonnage.provisioning.catalogue import Catalogue
from tonnage.scheduling import place
from tonnage.scheduling.defrag import DefragLimits
from tonnage.scheduling.gangs.release import Patience
from tonnage.scheduling.queue import Queue


@dataclass(frozen=True, slots=True)
class Policy:
    """How pods are placed and GPUs partitioned.

    ``placement``: the placement policy, the scheduler's default unless given; ``preemption``: whether pods make room
    for others of higher priority; ``defragmentation``: whether pods are moved to make room for others;
    ``partitioning``: whether MIG layouts are changed (``relayout``) when pods wait for what none gives;
    ``provisioning``: whether nodes are planned as Karpenter does, or the cheapest set of them (``optimal``);
    ``rebalance``: whether pods move off spot nodes that have a rebalance recommendation, which Karpenter lets be;
    ``spot_to_spot``: whether spot nodes give way to cheaper spot nodes (Karpenter's SpotToSpotConsolidation);
    ``node_repair``: whether nodes go whose GPUs stay unhealthy (Karpenter's NodeRepair).
    """

    placement: str = ""
    preemption: bool = True
    defragmentation: bool = False
    partitioning: str = STATIC
    provisioning: str = KARPENTER
    rebalance: bool = False
    spot_to_spot: bool = False
    node_repair: bool = False

    @classmethod
    def of(cls, stated: object) -> Policy:
        """As a scenario's policy or a command's flags state it, which have fields of the same names."""
        return cls(**{one.name: getattr(stated, one.name) for one in fields(cls)})

    def settings(self, scheduler_names: Sequence[str], *, strict: bool) -> place.Settings:
        """Those of the scheduler that places the pods with these schedulerNames. ``strict``: as in
        :class:`tonnage.scheduling.place.Settings`."""
        names = tuple(dict.fromkeys(scheduler_names))
        return replace(
            place.DEFAULTS,
            policy=self.placement or place.DEFAULTS.policy,
            preemption=self.preemption,
            defrag=DefragLimits(schedulers=names) if self.defragmentation else None,
            scheduler_names=names,
            strict=strict,
        )

    def scheduling_loops(self, settings: place.Settings, patience: Patience | None) -> list[Loop]:
        """The loops that place pods and partition GPUs. ``patience``: as in :class:`Scheduler`; where bindings may
        fail, pending pods stand in a queue (:mod:`tonnage.scheduling.queue`)."""
        queue = Queue(settings) if patience is not None else None
        return [Scheduler(settings, patience, queue=queue).loop(), *self.partitioning_loops(settings)]

    def node_loops(
        self, catalogue: Catalogue, pools: Callable[[], Pools], epoch_ns: int = 0, *, expires: bool = False
    ) -> tuple[Loop, ...]:
        """The loops that launch and terminate nodes. ``epoch_ns``, ``expires``: as for
        :class:`tonnage.control.disruption.NodeDisruption`."""
        from tonnage.control.disruption import node_loops  # these and what they load are for those who launch nodes
        from tonnage.control.rebalance import Rebalance
        from tonnage.provisioning.consolidation import Gates

        more = [lambda provisioner: Rebalance(provisioner).loop()] if self.rebalance else []
        gates = Gates(spot_to_spot_consolidation=self.spot_to_spot, node_repair=self.node_repair)
        return node_loops(catalogue, pools, epoch_ns, self.provisioning, gates, expires=expires, more=more)

    def partitioning_loops(self, settings: place.Settings) -> list[Loop]:
        """The loop that changes MIG layouts for pods that the scheduler with these settings places, where the policy
        wants that."""
        if self.partitioning != RELAYOUT:
            return []
        from tonnage.control.partitioner import Partitioner

        return [Partitioner(settings).loop()]


DEFAULT = Policy()
