"""Takes nodes of node groups back as the Cluster Autoscaler does: those that have been unneeded for long enough.

Which nodes are unneeded is :mod:`tonnage.provisioning.cluster_autoscaler.scale_down`'s. A node without pods is
terminated; of another the pods are evicted first, as PodDisruptionBudgets allow, and where that takes too long the node
stays.

Source: kubernetes/autoscaler cluster-autoscaler core/static_autoscaler.go, core/scaledown/actuation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from tonnage.control.draining import Draining, may_go, unfinished
from tonnage.control.loops import Loop, Taken
from tonnage.control.nodes import Pools, Provisioner, coming_of, existing_nodes, namespaces
from tonnage.control.running import movable_pods, running_nodes
from tonnage.control.world import World
from tonnage.decisions import Applied, Decision, Disrupt, Evict, Keep, Reason, Return, Scalar
from tonnage.fleet.snapshot import Snapshot
from tonnage.provisioning.candidates import RunningNode
from tonnage.provisioning.cluster_autoscaler import scale_down
from tonnage.provisioning.cluster_autoscaler.options import SCAN_NS, AutoscalingOptions
from tonnage.provisioning.cluster_autoscaler.scale_down import EVICTION_NS, Kept, Unneeded
from tonnage.provisioning.devices import beyond_counting
from tonnage.scheduling.budgets import Budgets
from tonnage.units import NS_PER_S, seconds

FAILED = Reason(f"its pods could not be evicted within {EVICTION_NS // NS_PER_S} s")


@dataclass(slots=True)
class ScaleDown:
    """``epoch_ns`` is added to the world's times to make them Unix times. ``kept``: nodes of groups that stay, and why,
    as it was found last.

    It remembers since when nodes have been unneeded, when the last was asked for, and what it drains. After a restart
    that time starts again, and nodes whose termination was begun are terminated once they are empty."""

    pools: Callable[[], Pools]
    provisioner: Provisioner
    epoch_ns: int = 0
    kept: tuple[Kept, ...] = ()
    _since: dict[str, int] = field(default_factory=dict)
    _draining: list[Draining] = field(default_factory=list)
    _added_ns: int | None = None
    _deleted_ns: int | None = None
    _failed_ns: int | None = None

    def decide(self, world: World) -> Sequence[Decision]:
        """Return for nodes without pods; Disrupt, Evict and Return for others; Keep where that fails."""
        snapshot = world.snapshot()
        fleet = snapshot.fleet
        nodes = may_go(fleet)
        if not nodes:
            return ()
        pools = self.pools()
        options = pools.autoscaler
        decisions: list[Decision] = list(self._go_on(snapshot, options))
        mine = {one.node.name for one in self._draining}
        decisions += unfinished(nodes, mine)
        asked = [claim.created_ns for claim in snapshot.claims]
        self._added_ns = max([*asked, *([] if self._added_ns is None else [self._added_ns])], default=None)
        if not options.scale_down_enabled:
            return decisions
        running = self._running(snapshot, pools)
        settings = msgspec.structs.replace(pools.plan_settings(), namespaces=namespaces(fleet))
        found, kept = scale_down.unneeded(
            running, pools.node_pools, self.provisioner.catalogue, self.epoch_ns + snapshot.now_ns, settings, options,
            self._since.keys(),
        )  # fmt: skip
        self.kept = tuple(kept)
        self._since = {one.node.name: self._since.get(one.node.name, snapshot.now_ns) for one in found}
        if not self._cooling(snapshot.now_ns, options):
            decisions += self._begin(snapshot, running, pools, found)
        return decisions

    def learn(self, taken: Taken) -> None:
        """Nodes that were terminated are not terminated again; one that may not be drained is not."""
        for decision, outcome in taken:
            own = [one for one in self._draining if one.node == decision.target]
            if isinstance(decision, Return) and isinstance(outcome, Applied):
                for one in own:
                    one.returned = True
            elif isinstance(decision, Disrupt) and not isinstance(outcome, Applied):
                self._draining = [one for one in self._draining if one not in own]

    def loop(self) -> Loop:
        """Every ten seconds."""
        return Loop("scale-down", self.decide, SCAN_NS, learn=self.learn)

    # ---- inside ----

    def _running(self, snapshot: Snapshot, pools: Pools) -> list[RunningNode]:
        catalogue = self.provisioner.catalogue
        coming = coming_of(snapshot.fleet, pools, catalogue)
        on = movable_pods(snapshot, self.epoch_ns, claims=True, coming=coming)
        parts = any(beyond_counting(pod.pod.shape.ask) for held in on.values() for pod in held)
        there = {one.ref: one for one in existing_nodes(snapshot.fleet, catalogue, parts=parts)}
        nominated = self.provisioner.nominated
        found = running_nodes(snapshot, on, there, epoch_ns=self.epoch_ns, nominated=nominated, sized=True)
        return [one for one, _ in found]

    def _cooling(self, now_ns: int, options: AutoscalingOptions) -> bool:
        """Whether nodes came, went or stayed against its will too lately for any to go."""
        waits = (
            (self._added_ns, options.delay_after_add_ns),
            (self._deleted_ns, options.delay_after_delete_ns),
            (self._failed_ns, options.delay_after_failure_ns),
        )
        return any(at is not None and now_ns < at + wait for at, wait in waits)

    def _begin(
        self, snapshot: Snapshot, running: Sequence[RunningNode], pools: Pools, found: Sequence[Unneeded]
    ) -> Iterator[Decision]:
        now_ns, options = snapshot.now_ns, pools.autoscaler
        go = scale_down.deletions(
            found, self._since, now_ns, running, pools.node_pools, options, draining=len(self._draining)
        )
        for one in go.empty:
            self._deleted_ns = now_ns
            yield Return(one.node, self._reason("unneeded: no pod would have to move", one, now_ns))
        for one in go.drained:
            self._deleted_ns = now_ns
            reason = self._reason("unneeded: its pods fit on other nodes", one, now_ns)
            self._draining.append(Draining(one.node, reason, begun_ns=now_ns))
            yield Disrupt(one.node, reason)

    def _reason(self, verdict: str, one: Unneeded, now_ns: int) -> Reason:
        evidence: tuple[tuple[str, Scalar], ...] = (
            ("unneeded_s", seconds(now_ns - self._since[one.node.name])),
            ("utilization", round(one.utilization, 4)),
            ("pods", len(one.moves)),
        )
        return Reason(verdict, evidence)

    def _go_on(self, snapshot: Snapshot, options: AutoscalingOptions) -> Iterator[Decision]:
        fleet = snapshot.fleet
        self._draining = [one for one in self._draining if one.node.name in fleet.node_by_name]
        budgets = Budgets(snapshot)
        if self._draining:
            budgets.count()
        for one in list(self._draining):
            for_ns = snapshot.now_ns - (one.begun_ns or 0)
            decisions = list(one.go_on(snapshot, budgets, self.epoch_ns))
            left = [row for row in fleet.node(fleet.node_by_name[one.node.name]).pods if self._waits(snapshot, row)]
            if not one.returned and left and for_ns > EVICTION_NS:
                self._draining.remove(one)
                self._failed_ns = snapshot.now_ns
                yield Keep(one.node, FAILED)
            elif not one.returned and for_ns > EVICTION_NS + options.max_graceful_termination_ns:
                yield Return(one.node, one.reason, drained=True)
            else:
                yield from (each for each in decisions if not isinstance(each, Evict) or for_ns <= EVICTION_NS)

    @staticmethod
    def _waits(snapshot: Snapshot, row: int) -> bool:
        """Whether the pod was asked to go and has not begun to."""
        pod = snapshot.fleet.pod(row)
        return not pod.spec.daemon and not snapshot.life(pod.key).leaving
