"""Takes nodes back: empty, drifted, underused and expired ones, as Karpenter's disruption controller does.

A command is found, looked at once more 15 s later, and begun: its nodes take no more pods, and what replaces them is
launched. Once that is initialised, their pods are evicted as PodDisruptionBudgets allow, and the nodes are terminated.
Where nothing comes of the replacement the nodes stay.

Source: kubernetes-sigs/karpenter pkg/controllers/disruption (controller.go, queue.go, validation.go) and
pkg/controllers/nodeclaim/expiration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from tonnage.control import node_repair
from tonnage.control.choices import CLUSTER_AUTOSCALER, KARPENTER
from tonnage.control.draining import Draining, may_go, unfinished
from tonnage.control.loops import Loop, Taken
from tonnage.control.nodes import (
    DISRUPTION_NS,
    Pools,
    Provisioner,
    coming_of,
    existing_nodes,
    namespaces,
    pending_pods,
)
from tonnage.control.running import movable_pods, running_nodes
from tonnage.control.scale_down import ScaleDown
from tonnage.control.static_capacity import StaticCapacity
from tonnage.control.world import World
from tonnage.decisions import Applied, Decision, Disrupt, Keep, Launch, Reason, Ref, Return, Scalar
from tonnage.fleet.rows import NodeRow
from tonnage.fleet.snapshot import Snapshot
from tonnage.objects import duration
from tonnage.provisioning import consolidation, disruption, reserving, static
from tonnage.provisioning.candidates import RunningNode
from tonnage.provisioning.catalogue import Catalogue, OfferingKey
from tonnage.provisioning.consolidation import Command, Gates, Round
from tonnage.provisioning.devices import beyond_counting
from tonnage.provisioning.drift import drift
from tonnage.provisioning.group_pools import is_node_group
from tonnage.provisioning.labels import RESERVATION_ID
from tonnage.provisioning.on_its_way import on_its_way
from tonnage.scheduling.budgets import Budgets
from tonnage.units import NS_PER_S, usd

VALIDATION_NS = 15 * NS_PER_S
"""A command waits this long before it is looked at once more (commandValidationDelay)."""
STEP_NS = DISRUPTION_NS // 2
"""How often commands under way are looked after."""
GIVEN_UP_NS = 600 * NS_PER_S
"""A replacement has to be there within this time (minRetryDuration)."""
SETTLED_NS = 300 * NS_PER_S
"""Where nothing was found and nothing has changed, nobody looks for so long."""
FAILED = Reason("its replacement did not become ready")

Idle: TypeAlias = tuple[int, frozenset[tuple[str, str, str]], int]


@dataclass(slots=True)
class _Underway:
    """A command that was begun. ``claims``: what replaces the nodes, by name, with the node that each became."""

    nodes: list[Draining]
    begun_ns: int
    claims: dict[str, str] = field(default_factory=dict)
    draining: bool = False
    failed: bool = False


@dataclass(slots=True)
class NodeDisruption:
    """Takes nodes back. ``epoch_ns`` is added to the world's times to make them Unix times: budgets have cron
    schedules. ``expires``: nodes that are older than their NodePool's expireAfter go too, and those beyond the replicas
    of static NodePools; where Karpenter manages NodeClaims it sees to that itself.

    It remembers what it has begun. After a restart what is left of that are nodes whose termination was begun: they
    are terminated where they are empty and kept where they are not."""

    pools: Callable[[], Pools]
    provisioner: Provisioner
    epoch_ns: int = 0
    gates: Gates = field(default_factory=Gates)
    expires: bool = False
    _proposed: tuple[int, Command] | None = None
    _underway: list[_Underway] = field(default_factory=list)
    _round_ns: int = 0
    _drifted: dict[str, int] = field(default_factory=dict)
    _idle: Idle | None = None
    _told: dict[str, str] = field(default_factory=dict)

    def decide(self, world: World) -> Sequence[Decision]:
        """Disrupt and Launch to begin a command, Evict and Return to end it, Keep to give it up."""
        snapshot = world.snapshot()
        fleet = snapshot.fleet
        nodes = may_go(fleet)
        if not nodes:
            return ()
        decisions: list[Decision] = list(self._go_on(snapshot))
        mine = {one.node.name for each in self._underway for one in each.nodes}
        decisions += unfinished(nodes, mine)
        if self.expires:
            decisions += self._expire(snapshot)
            decisions += self._of_ending_blocks(snapshot)
            decisions += self._beyond_replicas(snapshot)
            decisions += self._unhealthy(snapshot)
        decisions += self._unneeded(snapshot)
        if self._proposed is not None:
            if snapshot.now_ns < self._proposed[0] + VALIDATION_NS:
                return decisions
            begun = self._validated(snapshot, self._proposed[1])
            self._proposed, self._round_ns = None, snapshot.now_ns
            if begun:
                return [*decisions, *begun]
        if snapshot.now_ns >= self._round_ns and not self._is_idle(snapshot):
            self._round_ns = snapshot.now_ns + DISRUPTION_NS
            decisions += self._found(world, snapshot)
        return decisions

    def learn(self, taken: Taken) -> None:
        """A command of which a part was refused is given up; nodes that were terminated are not terminated again."""
        self.provisioner.learn(taken)
        for decision, outcome in taken:
            applied = isinstance(outcome, Applied)
            for each in self._underway:
                own = [one for one in each.nodes if one.node == decision.target]
                if isinstance(decision, Return) and applied:
                    for one in own:
                        one.returned = True
                begun = isinstance(decision, Disrupt) and bool(own)
                asked = isinstance(decision, Launch) and decision.claim.name in each.claims
                each.failed |= (begun or asked) and not applied

    def loop(self) -> Loop:
        """Rounds every ten seconds; what is under way is looked after twice as often."""
        return Loop("disruption", self.decide, STEP_NS, learn=self.learn)

    # ---- what was begun ----

    def _go_on(self, snapshot: Snapshot) -> Iterator[Decision]:
        fleet = snapshot.fleet
        for each in list(self._underway):
            each.nodes = [one for one in each.nodes if one.node.name in fleet.node_by_name]
            if not each.nodes:
                self._underway.remove(each)
            elif not each.draining and (each.failed or not self._may_still_come(snapshot, each)):
                self._underway.remove(each)
                yield from (Keep(one.node, FAILED) for one in each.nodes if _leaves(snapshot, one.node))
            elif all(each.claims.values()):
                each.draining = True

        drained = [one for each in self._underway if each.draining for one in each.nodes]
        if drained:
            budgets = Budgets(snapshot)
            budgets.count()
            for one in drained:
                yield from one.go_on(snapshot, budgets, self.epoch_ns)

    def _may_still_come(self, snapshot: Snapshot, each: _Underway) -> bool:
        """Note which replacements are initialised; False where one has gone, or takes too long."""
        fleet = snapshot.fleet
        coming = {claim.name: claim.node for claim in snapshot.claims}
        named: dict[str, str] = {}
        for name, node in each.claims.items():
            known = node or coming.get(name, "") or name
            row = fleet.node_by_name.get(known)
            if row is not None and fleet.node(row).initialized:
                named[name] = known
            elif name not in coming and snapshot.now_ns > each.begun_ns + DISRUPTION_NS:
                return False
        each.claims |= named
        return len(named) == len(each.claims) or snapshot.now_ns - each.begun_ns <= GIVEN_UP_NS

    def _expire(self, snapshot: Snapshot) -> Iterator[Decision]:
        """Nodes whose time is over: nothing is launched for them first, and budgets have no say."""
        fleet, pools = snapshot.fleet, self.pools().by_name
        for row in fleet.node_rows():
            node = fleet.node(row)
            pool = pools.get(node.spec.node_pool)
            if pool is None or is_node_group(pool) or node.leaving or not node.initialized:
                continue
            written = pool.spec.template.spec.expire_after
            length = None if written == disruption.NEVER else duration.parse(written)
            if length is None or snapshot.now_ns - node.spec.created_ns < length:
                continue
            ref = Ref("Node", node.spec.name, uid=node.spec.uid)
            evidence = (("expire_after", written), ("node_pool", pool.name))
            reason = Reason("expired: it is older than expireAfter of its NodePool", evidence)
            self._begin(snapshot, [ref], reason, ())
            yield Disrupt(ref, reason, expired=True)

    def _of_ending_blocks(self, snapshot: Snapshot) -> Iterator[Decision]:
        """Nodes in capacity blocks that EC2 is about to take back."""
        ends = reserving.ending(self.provisioner.catalogue.book.reservations, self.epoch_ns + snapshot.now_ns)
        pools = self.pools().by_name if ends else {}
        for node in map(snapshot.fleet.node, snapshot.fleet.node_rows() if ends else ()):
            reservation = node.labels.get(RESERVATION_ID, "")
            if reservation in ends and node.spec.node_pool in pools and node.initialized and not node.leaving:
                ref = Ref("Node", node.spec.name, uid=node.spec.uid)
                evidence = (("reservation", reservation), ("node_pool", node.spec.node_pool))
                reason = Reason("its capacity block ends: EC2 terminates its instances in ten minutes", evidence)
                self._begin(snapshot, [ref], reason, ())
                yield Disrupt(ref, reason, expired=True)

    def _beyond_replicas(self, snapshot: Snapshot) -> Iterator[Decision]:
        """Nodes of static NodePools that have more than they say."""
        pools = [pool for pool in self.pools().node_pools if pool.is_static]
        if not pools:
            return
        mine = {one.node for each in self._underway for one in each.nodes}
        running = [one for one in self._round(snapshot).nodes if not one.state.deleted and one.ref not in mine]
        for pool in pools:
            own = [one for one in running if one.state.node_pool == pool.name]
            ready = [one for one in own if one.state.initialized_ns is not None]
            too_many = max(0, len(own) - (pool.spec.replicas or 0))
            for ref in static.beyond(ready, too_many, self.epoch_ns + snapshot.now_ns):
                evidence = (("replicas", pool.spec.replicas), ("nodes", len(own)), ("node_pool", pool.name))
                reason = Reason("its static NodePool has more nodes than replicas", evidence)
                self._begin(snapshot, [ref], reason, ())
                yield Disrupt(ref, reason, expired=True)

    def _unhealthy(self, snapshot: Snapshot) -> Iterator[Decision]:
        """Nodes whose GPUs stay unhealthy: they go at once, and nothing keeps their pods."""
        if not self.gates.node_repair:
            return
        going = {one.node.name for each in self._underway for one in each.nodes if one.grace_ns == 0}
        for ref, reason in node_repair.unhealthy(snapshot, self.pools(), going):
            for each in self._underway:
                each.nodes = [one for one in each.nodes if one.node != ref]
            self._underway.append(_Underway([Draining(ref, reason, 0)], snapshot.now_ns))
            if not _leaves(snapshot, ref):
                yield Disrupt(ref, reason, expired=True)

    def _unneeded(self, snapshot: Snapshot) -> Iterable[Decision]:
        """Empty nodes of node groups: what waits for them is how long they are unneeded, and nothing else."""
        groups = [pool for pool in self.pools().node_pools if is_node_group(pool)]
        if not groups:
            return ()
        states = [one.state for one in self._round(snapshot).nodes if one.state.node.kind == "Node"]
        return disruption.empty_nodes(states, groups, self.epoch_ns + snapshot.now_ns).returns

    # ---- rounds ----

    def _found(self, world: World, snapshot: Snapshot) -> Sequence[Decision]:
        round_ = self._round(snapshot)
        command = self._empty(round_) or self._next(round_)
        for node, why in round_.stays.items():
            if self._told.get(node.name) != why:
                self._told[node.name] = why
                world.note(node, "Unconsolidatable", why, warning=False)
        if command is None:
            self._idle = (snapshot.revision, snapshot.unavailable, self._until(snapshot, round_))
            return ()
        if command.reason != consolidation.DRIFTED:
            self._proposed = (snapshot.now_ns, command)
            return ()
        self._round_ns = snapshot.now_ns
        return self._begun(snapshot, command)

    def _empty(self, round_: Round) -> Command | None:
        """Nodes without any pod that would have to move."""
        returns = _returns(round_)
        if not returns:
            return None
        return Command(reason=consolidation.EMPTY, method=consolidation.EMPTINESS, nodes=tuple(returns))

    def _next(self, round_: Round) -> Command | None:
        if self.provisioner.policy != KARPENTER:
            from tonnage.control.replanning import replanned  # its solver takes a while to load

            return replanned(round_)
        found = round_.proposal()
        return None if found is None else round_.command(found)

    def _validated(self, snapshot: Snapshot, command: Command) -> Sequence[Decision]:
        """What is left of a command that has waited."""
        round_ = self._round(snapshot)
        if command.method == consolidation.EMPTINESS:
            returns = _returns(round_)
            if bare := [returns[ref] for ref in command.nodes if ref in returns]:
                return bare
        if self.provisioner.policy != KARPENTER and command.method != consolidation.EMPTINESS:
            again = self._next(round_)
            same = again is not None and (again.nodes, len(again.launches)) == (command.nodes, len(command.launches))
            return self._begun(snapshot, again) if again is not None and same else ()
        left = round_.still(command)
        return () if left is None else self._begun(snapshot, left)

    def _begun(self, snapshot: Snapshot, command: Command) -> Sequence[Decision]:
        launches = command.launches
        reason = _reason(command)
        first = self.provisioner.next_number(snapshot)
        renamed = [_numbered(launch, first + number) for number, launch in enumerate(launches)]
        self._begin(snapshot, command.nodes, reason, renamed)
        return [*(Disrupt(node, reason) for node in command.nodes), *renamed]

    def _begin(self, snapshot: Snapshot, nodes: Iterable[Ref], reason: Reason, launches: Iterable[Launch]) -> None:
        fleet, pools = snapshot.fleet, self.pools().by_name
        found = []
        for ref in nodes:
            pool = pools[fleet.node(fleet.node_by_name[ref.name]).spec.node_pool]
            written = pool.spec.template.spec.termination_grace_period
            found.append(Draining(ref, reason, None if written is None else duration.parse(written)))
        self._underway.append(_Underway(found, snapshot.now_ns, {one.claim.name: "" for one in launches}))

    def _round(self, snapshot: Snapshot) -> Round:
        """What there is now."""
        fleet, pools = snapshot.fleet, self.pools()
        now_ns = self.epoch_ns + snapshot.now_ns
        catalogue = self.provisioner.catalogue
        serves = self.provisioner.policy != KARPENTER
        coming = coming_of(fleet, pools, catalogue) if serves else None
        pending = pending_pods(fleet, claims=serves, coming=coming) + self.provisioner.virtual_pods(snapshot, pools)
        on = movable_pods(snapshot, self.epoch_ns, claims=serves, coming=coming)
        asks = {pod.shape.ask for pod in pending} | {pod.pod.shape.ask for held in on.values() for pod in held}
        parts = any(map(beyond_counting, asks))
        there = {node.ref: node for node in existing_nodes(fleet, catalogue, parts=parts)}
        expected = {node for each in self._underway for node in each.claims.values() if node}
        by_name = pools.by_name

        def drifted_ns(node: NodeRow) -> int | None:
            pool = by_name.get(node.spec.node_pool)
            age = snapshot.now_ns - node.spec.created_ns
            asked = pool is not None and not is_node_group(pool)
            kind = (
                drift(pool, node.labels, {}, catalogue, age) if pool is not None and asked and node.initialized else ""
            )
            if not kind:
                self._drifted.pop(node.spec.name, None)
                return None
            return self._drifted.setdefault(node.spec.name, now_ns)

        running = [
            one
            for one, _ in running_nodes(
                snapshot,
                on,
                there,
                epoch_ns=self.epoch_ns,
                nominated=self.provisioner.nominated | expected,
                buffered=self.provisioner.buffered,
                drifted_ns=drifted_ns,
                graced={pool.name for pool in pools.node_pools if pool.spec.template.spec.termination_grace_period},
            )
        ]
        known = {one.ref.name for one in running}
        for claim in snapshot.claims:
            if claim.name not in known and claim.node not in known:
                node = on_its_way(claim.launch, pools.configurations, parts=parts)
                state = disruption.NodeState(
                    node=node.ref, node_pool=node.node_pool, price_micro_usd_per_hour=0, initialized_ns=None
                )
                running.append(RunningNode(state=state, node=node))
        settings = pools.plan_settings(
            frozenset(OfferingKey(*one) for one in snapshot.unavailable), self.provisioner.next_number(snapshot)
        )
        settings = msgspec.structs.replace(settings, namespaces=namespaces(fleet))
        return Round(running, pending, pools.node_pools, catalogue, now_ns, settings, self.gates)

    def _is_idle(self, snapshot: Snapshot) -> bool:
        """Whether nothing was found before, and nothing has changed since."""
        if self._idle is None:
            return False
        revision, unavailable, until_ns = self._idle
        return (revision, unavailable) == (snapshot.revision, snapshot.unavailable) and snapshot.now_ns < until_ns

    def _until(self, snapshot: Snapshot, round_: Round) -> int:
        """When a node may become a candidate though nothing changes."""
        pools = {pool.name: pool for pool in round_.node_pools}
        if any(budget.schedule for pool in pools.values() for budget in pool.spec.disruption.budgets):
            return snapshot.now_ns
        if any(pod.do_not_disrupt not in ("", "true") for one in round_.nodes for pod in one.pods):
            return snapshot.now_ns
        due = [round_.now_ns + SETTLED_NS]
        for one in round_.nodes:
            wait_ns = (
                disruption.consolidate_after_ns(pools[one.state.node_pool]) if one.state.node_pool in pools else None
            )
            if wait_ns is not None and one.state.last_pod_event_ns is not None:
                due.append(one.state.last_pod_event_ns + wait_ns)
        return min(at for at in due if at > round_.now_ns) - self.epoch_ns


def _leaves(snapshot: Snapshot, node: Ref) -> bool:
    return snapshot.fleet.node(snapshot.fleet.node_by_name[node.name]).leaving


def _returns(round_: Round) -> dict[Ref, Return]:
    """Empty nodes that may go now, each with the decision."""
    states = [one.state for one in round_.nodes if one.state.node.kind == "Node" and one.state.node_pool]
    pools = [pool for pool in round_.node_pools if not is_node_group(pool)]
    returns = disruption.empty_nodes(states, pools, round_.now_ns).returns
    return {one.node: one for one in returns}


def _numbered(launch: Launch, number: int) -> Launch:
    """The launch under a name that is free now."""
    name = f"{launch.node_pool}-{number:05d}"
    return msgspec.structs.replace(launch, claim=Ref("NodeClaim", name))


_VERDICTS = {
    consolidation.EMPTY: "empty: no pod would have to move",
    consolidation.DRIFTED: "drifted: it is not what its NodePool asks for",
    consolidation.UNDERUTILIZED: "underutilized: its pods fit on other nodes",
}


def _reason(command: Command) -> Reason:
    verdict = _VERDICTS[command.reason]
    if command.reason == consolidation.UNDERUTILIZED and command.launches:
        verdict = "underutilized: cheaper capacity replaces it"
    evidence: tuple[tuple[str, Scalar], ...] = (
        ("method", command.method),
        ("nodes", len(command.nodes)),
        ("launched", ", ".join(one.instance_type for one in command.launches) or "none"),
        ("saves_usd_per_hour", usd(command.saves_micro_usd_per_hour)),
    )
    return Reason(verdict, evidence)


def node_loops(
    catalogue: Catalogue,
    pools: Callable[[], Pools],
    epoch_ns: int = 0,
    policy: str = KARPENTER,
    gates: Gates | None = None,
    *,
    expires: bool = False,
    more: Sequence[Callable[[Provisioner], Loop]] = (),
) -> tuple[Loop, ...]:
    """Launching nodes and terminating them. ``pools``: those that there are now; ``epoch_ns``, ``gates`` and
    ``expires``: as for Disruption; ``policy``: one of :data:`~tonnage.control.choices.PROVISIONING`; ``more``: what
    else launches nodes, and must not use a name twice."""
    provisioner = Provisioner(catalogue, pools, policy=policy, epoch_ns=epoch_ns)
    if policy == CLUSTER_AUTOSCALER:
        back = ScaleDown(pools, provisioner, epoch_ns).loop()
    else:
        back = NodeDisruption(pools, provisioner, epoch_ns, gates or Gates(), expires).loop()
    also = [make(provisioner) for make in more]
    if expires and policy != CLUSTER_AUTOSCALER:
        also.append(StaticCapacity(provisioner).loop())
    return provisioner.loop(), back, *also
