"""Empties a node that is going to be terminated, and then terminates it.

Source: kubernetes-sigs/karpenter pkg/controllers/node/termination (controller.go, terminator).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

from tonnage.control.running import stays
from tonnage.decisions import Decision, Evict, Reason, Ref, Return
from tonnage.fleet.rows import NodeRow
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet
from tonnage.objects import karpenter
from tonnage.provisioning.candidates import is_protected
from tonnage.scheduling.budgets import Budgets
from tonnage.units import NS_PER_S

UNFINISHED = Reason("its termination began and did not finish")
POD_GRACE_NS = 30 * NS_PER_S
"""Time that a pod has to end, where it does not say (the API server's default)."""


def may_go(fleet: Fleet) -> list[NodeRow]:
    """The nodes, where any is of a NodePool or its termination began; none else: then nobody may terminate one."""
    nodes = [fleet.node(row) for row in fleet.node_rows()]
    return nodes if any(node.spec.node_pool or node.unfinished for node in nodes) else []


def unfinished(nodes: Iterable[NodeRow], mine: Container[str]) -> list[Return]:
    """A Return for each node whose termination began and which nobody drains any more; ``mine``: the names of those
    that are drained now."""
    left = [node.spec for node in nodes if node.unfinished and node.spec.name not in mine]
    return [Return(Ref("Node", spec.name, uid=spec.uid), UNFINISHED) for spec in left]


@dataclass(slots=True)
class Draining:
    """One node. ``grace_ns``: its terminationGracePeriod; None: it waits for its pods for ever. ``begun_ns``: since
    when it is drained; ``returned``: its termination has been asked for."""

    node: Ref
    reason: Reason
    grace_ns: int | None = None
    begun_ns: int | None = None
    returned: bool = False

    def go_on(self, snapshot: Snapshot, budgets: Budgets, epoch_ns: int) -> Iterator[Decision]:
        """Evict for each pod that may be evicted; Return once none is left that is waited for. ``budgets``: what other
        nodes that are drained leave of them.

        Pods that do-not-disrupt protects and those that PodDisruptionBudgets keep are waited for, until grace is over;
        those that tolerate the taint of a drained node are not."""
        if self.returned:
            return
        if self.begun_ns is None:
            self.begun_ns = snapshot.now_ns
        ends_ns = None if self.grace_ns is None else self.begun_ns + self.grace_ns
        fleet = snapshot.fleet
        row = fleet.node_by_name[self.node.name]
        waited = 0
        for pod_row in sorted(fleet.node(row).pods):
            pod = fleet.pod(pod_row)
            spec, life = pod.spec, snapshot.life(pod.key)
            if spec.daemon or stays(spec.spec):
                continue
            waited += 1
            written = spec.spec.termination_grace_period_seconds
            own_ns = POD_GRACE_NS if written is None else written * NS_PER_S
            over = ends_ns is not None and snapshot.now_ns >= ends_ns - own_ns
            note = spec.annotations.get(karpenter.DO_NOT_DISRUPT, "")
            started_ns = None if life.started_ns is None else epoch_ns + life.started_ns
            if life.leaving or (not over and is_protected(note, started_ns, epoch_ns + snapshot.now_ns)):
                continue
            if over or not budgets.forbids(pod_row):
                budgets.spend((pod_row,))
                yield Evict(spec.ref, self.reason, by=self.node, forced=over)
        if not waited or (ends_ns is not None and snapshot.now_ns >= ends_ns):
            yield Return(self.node, self.reason, drained=True)
