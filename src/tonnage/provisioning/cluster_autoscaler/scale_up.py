"""Which node group the Cluster Autoscaler would let grow for pending pods, and by how many machines.

In each loop pods that fit the nodes that are there or on their way are left to the scheduler. For the rest every group
that may grow is tried by itself (:mod:`~.estimate`), and one grows, as its expander says (:mod:`~.expanders`); what is
left waits for the next loop. Nothing compares two groups that grow together.

A group makes machines in the zone where it has fewest; with --balance-similar-node-groups the one that has fewest of
those that are alike makes the next. Source: kubernetes/autoscaler cluster-autoscaler
core/scaleup/orchestrator, 1.36.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from tonnage.decisions import Alternative, Launch, Reason, Ref, Scalar, Wait
from tonnage.facts import claim_support
from tonnage.facts.claim_support import PARTITION, WHOLE
from tonnage.objects import karpenter
from tonnage.provisioning import labels
from tonnage.provisioning.catalogue import Catalogue, OfferingKey
from tonnage.provisioning.cluster_autoscaler import expanders, fitting
from tonnage.provisioning.cluster_autoscaler.estimate import NewMachines, estimate
from tonnage.provisioning.cluster_autoscaler.expanders import ExpansionOption
from tonnage.provisioning.cluster_autoscaler.fitting import Fitting
from tonnage.provisioning.cluster_autoscaler.flags import PROGRAM
from tonnage.provisioning.cluster_autoscaler.groups import ScalableGroup, group_of, machine_of
from tonnage.provisioning.cluster_autoscaler.options import DEFAULTS, AutoscalingOptions
from tonnage.provisioning.group_pools import is_node_group
from tonnage.provisioning.node_groups import labels_of_machine
from tonnage.provisioning.plans import Nomination, Plan, PlannedClaim, PlanSettings
from tonnage.provisioning.pods import BoundPod, ExistingNode, PendingPod
from tonnage.provisioning.requirements import Requirements
from tonnage.provisioning.standing import StandingNode
from tonnage.units import usd

NONE_FIT = "fits none of these pods"
UNSEEN = "it has had no node so far, so that nobody knows which devices one would have for ResourceClaims"
"""Source: kubernetes/autoscaler cluster-autoscaler docs/dra_support.md ("Configuration"), cloudprovider/aws (the
template of a group without nodes has no ResourceSlices), processors/nodeinfosprovider (what one node had is kept),
1.36."""


def plan(
    pods: Iterable[PendingPod],
    nodes: Iterable[ExistingNode],
    node_pools: Iterable[karpenter.NodePool],
    catalogue: Catalogue,
    settings: PlanSettings | None = None,
    options: AutoscalingOptions = DEFAULTS,
    *,
    loops: int | None = None,
) -> Plan:
    """The machines that node groups would be asked for. Of ``node_pools`` those count that stand for a node group
    (:mod:`~tonnage.provisioning.group_pools`). ``loops``: so many, one group each; ``None``: until no group grows.

    Pods that no group takes wait, with the reason of each group; with ``loops`` just those that none ever could.
    Raises :class:`~tonnage.errors.InputError` for a requirement that cannot be read.
    """
    pools = [pool for pool in node_pools if is_node_group(pool)]
    made = _Plan(catalogue, settings or PlanSettings(), options, list(nodes))
    made.bound.extend(made.settings.bound)
    pods = list(pods)
    waiting = made.without_room(sorted(pods, key=lambda pod: (pod.creation_ns, pod.ref)))
    waits: list[Wait] = []
    loop = 0
    while waiting and loop != loops:
        loop += 1
        groups = [group_of(pool, made.nodes, catalogue, made.settings) for pool in pools]
        choice = made.choose(groups, waiting)
        waits = made.waits(waiting, groups, never=choice is not None)
        if choice is None:
            break
        made.ask(choice)
        placed = {ref for on in choice.estimate.pods for ref in on}
        waiting = made.without_room([pod for pod in waiting if pod.ref not in placed])
        waits = [wait for wait in waits if wait.pod not in placed]
    unplanned = Counter(kind for pod in pods for kind in pod.shape.unplanned)
    waits.sort(key=lambda wait: wait.pod)
    return Plan(tuple(made.launches), tuple(made.claims), tuple(made.nominations), tuple(waits), dict(unplanned))


class _Choice(msgspec.Struct, frozen=True):
    """``groups``: those that share the machines, of which the first was chosen."""

    groups: tuple[ScalableGroup, ...]
    estimate: NewMachines
    reason: Reason


@dataclass(slots=True)
class _Plan:
    """What has been asked for so far. ``nodes``: those that there are, and those on their way; of the latter those of
    this plan hold their pods already."""

    catalogue: Catalogue
    settings: PlanSettings
    options: AutoscalingOptions
    nodes: list[ExistingNode]
    bound: list[BoundPod] = field(default_factory=list)
    nominations: list[Nomination] = field(default_factory=list)
    claims: list[PlannedClaim] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)

    def without_room(self, waiting: Sequence[PendingPod]) -> list[PendingPod]:
        """The pods that fit on no node which is there or on its way; the others are expected there from now on."""
        mine = {claim.ref for claim in self.claims}
        usable = [one for one in self.nodes if not one.deleted and one.ref not in mine]
        usable.sort(key=lambda one: (not one.initialized, one.ref.name))
        of = Fitting(self.catalogue, self.settings, self.bound, waiting, self.nodes)
        there = [StandingNode(fitting.as_node(one)) for one in usable]
        refs = {one.ref.name: one.ref for one in usable}
        left, taken = [], dict[str, StandingNode]()
        for pod, node in fitting.expected(of, waiting, there):
            if node is None:
                left.append(pod)
                continue
            taken[node.ref.name] = node
            self.nominations.append(Nomination(pod.ref, refs[node.ref.name]))
            self.bound.append(fitting.bound(pod, node.ref.name))
        self.nodes = [
            msgspec.structs.replace(one, free=dict(taken[one.ref.name].free), devices=taken[one.ref.name].devices)
            if one.ref.name in taken
            else one
            for one in self.nodes
        ]
        return left

    def choose(self, groups: Sequence[ScalableGroup], waiting: Sequence[PendingPod]) -> _Choice | None:
        """The group that grows, if one does, with what was weighed."""
        there = sum(not one.deleted for one in self.nodes)
        total = self.options.max_nodes_total
        left = max(0, total - there) if total else None
        found: dict[str, tuple[ScalableGroup, ExpansionOption, NewMachines]] = {}
        whys: dict[str, str] = {}
        for group in groups:
            if left == 0:
                group.held = group.held or f"the cluster is at its maximum of {total} nodes (--max-nodes-total)"
            if group.held:
                whys[group.name] = group.held
                continue
            room = sum(one.room for one in self._sharing(group, groups))
            most = min(room, self.options.max_nodes_per_scaleup or room)
            of = Fitting(self.catalogue, self.settings, self.bound, waiting, self.nodes)
            made = estimate(group, [pod for pod in waiting if not self.unserved(pod, group)], of, self.settings, most)
            if made.nodes:
                found[group.name] = group, _option(group, made), made
            else:
                whys[group.name] = next(filter(None, (self.unserved(pod, group) for pod in waiting)), NONE_FIT)
        if not found:
            return None
        turn = self.settings.first_claim + len(self.claims)
        best = expanders.best([option for _, option, _ in found.values()], self.options, there, turn)
        group, _, made = found[best.group]
        if left is not None and len(made.nodes) > left:
            made = NewMachines(made.nodes[:left], made.pods[:left], made.requests)
        said = {name: _weighed(option, there) for name, (_, option, _) in found.items()} | whys
        beaten = tuple(Alternative(name, said[name]) for name in sorted(said) if name != best.group)
        evidence: tuple[tuple[str, Scalar], ...] = (
            ("expander", ",".join(self.options.expanders)),
            ("nodes", len(made.nodes)),
            ("pods", sum(map(len, made.pods))),
            ("waste", round(expanders.waste(best), 4)),
            ("usd_per_hour", usd((best.micro_usd_per_hour or 0) * len(made.nodes))),
        )
        reason = Reason("its expander lets this node group grow", evidence, beaten)
        return _Choice(self._sharing(group, groups), made, reason)

    def unserved(self, pod: PendingPod, group: ScalableGroup) -> str:
        """Why the autoscaler does not know whether nodes of the group have devices for the pod's ResourceClaims; empty
        where it does, or the pod has none."""
        if not pod.shape.claims:
            return ""
        known = claim_support.autoscalers()[PROGRAM, PARTITION if pod.shape.ask.profiles else WHOLE]
        if self.options.release is not None and self.options.release < claim_support.release(known.since):
            number = ".".join(map(str, self.options.release))
            return f"the Cluster Autoscaler serves such ResourceClaims from {known.since} on, and this one is {number}"
        return "" if group.seen else UNSEEN

    def _sharing(self, group: ScalableGroup, groups: Sequence[ScalableGroup]) -> tuple[ScalableGroup, ...]:
        """The group and, where they are to be kept equal, those like it that may grow."""
        if not self.options.balance_similar_node_groups:
            return (group,)
        return (group, *(one for one in groups if one is not group and not one.held and one.is_similar(group)))

    def ask(self, choice: _Choice) -> None:
        """The machines are on their way from now on, with their pods."""
        grown: Counter[str] = Counter()
        in_zone = Counter((one.node_pool, one.labels.get(labels.ZONE, "")) for one in self.nodes if not one.deleted)
        for standing, refs in zip(choice.estimate.nodes, choice.estimate.pods, strict=True):
            able = [one for one in choice.groups if grown[one.name] < one.room]
            group = min(able, key=lambda one: (one.size + grown[one.name], choice.groups.index(one)))
            zone = min(group.zones, key=lambda one: (in_zone[group.name, one], one))
            grown[group.name] += 1
            in_zone[group.name, zone] += 1
            of = group.launch
            ref = Ref("NodeClaim", f"{group.name}-{self.settings.first_claim + len(self.claims):05d}")
            room = {name: amount - of.daemons.get(name, 0) for name, amount in of.allocatable.items()}
            requests = {name: amount - standing.free.get(name, 0) for name, amount in room.items()}
            launch = msgspec.structs.replace(
                of,
                claim=ref,
                zone=zone,
                price_micro_usd_per_hour=group.zones[zone],
                reason=choice.reason,
                pods=tuple(refs),
                labels=labels_of_machine(of.instance_type, zone, group.declared),
                requests={name: amount for name, amount in requests.items() if amount},
            )
            self.launches.append(launch)
            self.claims.append(_claim(launch, standing))
            machine = machine_of(launch, self.settings)
            self.nodes.append(
                msgspec.structs.replace(machine, ref=ref, free=dict(standing.free), devices=standing.devices)
            )

    def waits(self, waiting: Sequence[PendingPod], groups: Sequence[ScalableGroup], *, never: bool) -> list[Wait]:
        """Why each group takes none of them. ``never``: only those that no group could take, whatever its size."""
        of = Fitting(self.catalogue, self.settings, self.bound, waiting, self.nodes)
        told: dict[int, Reason | None] = {}
        waits = []
        for pod in waiting:
            pods = of.alike(pod)
            if id(pods) not in told:
                attempts = of.attempts(pods)
                whys = {
                    group.name: self.unserved(pod, group) or fitting.unfit(group.node, attempts[-1].stage)
                    for group in groups
                    if attempts
                }
                rules = f"no domain is left by {attempts[-1].rules}" if attempts else ""
                reason = pods.refused or _nobody(groups, whys, rules)
                told[id(pods)] = None if never and attempts and not all(whys.values()) else reason
            if (found := told[id(pods)]) is not None:
                waits.append(Wait(pod.ref, found, "provisioner"))
        return waits


def _option(group: ScalableGroup, made: NewMachines) -> ExpansionOption:
    launch = group.launch
    pods = tuple(ref for on in made.pods for ref in on)
    gpus = any(name.endswith("/gpu") and amount for name, amount in launch.allocatable.items())
    price = launch.price_micro_usd_per_hour
    return ExpansionOption(group.name, len(made.nodes), pods, launch.capacity, made.requests, price, gpus)


def _claim(launch: Launch, standing: StandingNode) -> PlannedClaim:
    return PlannedClaim(
        ref=launch.claim,
        node_pool=launch.node_pool,
        offering=OfferingKey(launch.instance_type, launch.zone, launch.capacity_type),
        instance_types=(launch.instance_type,),
        requirements=Requirements.of_labels(launch.labels),
        labels=launch.labels,
        taints=launch.taints,
        startup_taints=launch.startup_taints,
        requests=launch.requests,
        daemons=launch.daemons,
        allocatable=launch.allocatable,
        capacity=launch.capacity,
        pods=launch.pods,
        devices=standing.devices,
    )


def _nobody(groups: Sequence[ScalableGroup], whys: Mapping[str, str], rules: str) -> Reason:
    if not groups:
        return Reason("no feasible node, and there is no node group")
    beaten = tuple(Alternative(f"node group {one.name}", whys.get(one.name, "") or one.held or rules) for one in groups)
    return Reason("no feasible node, and no node group can scale up for it", (), beaten)


def _weighed(option: ExpansionOption, cluster_nodes: int) -> str:
    """What an option that was not taken came to."""
    amounts = f"{option.nodes} nodes for {len(option.pods)} pods, waste {expanders.waste(option):.4f}"
    return f"{amounts}, price score {expanders.score(option, cluster_nodes):.1f}"
