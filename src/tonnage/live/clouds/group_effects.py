"""Nodes launched and terminated by the sizes of node groups: for real, or only said."""

from __future__ import annotations

from tonnage.decisions import OBSERVING, Applied, Disrupt, Launch, Outcome, Ref, Refused, Return, Stale
from tonnage.errors import InputError
from tonnage.kube.clock import Clock
from tonnage.kube.resources import NODES
from tonnage.kube.transport import ClientError
from tonnage.kube.verbs import Client, JsonObject
from tonnage.live.annotations import RETURNING
from tonnage.live.api_effects import ApiEffects
from tonnage.live.clouds.arrivals import GroupNodes
from tonnage.live.clouds.port import NodeGroups
from tonnage.live.clouds.watched import WatchedGroups
from tonnage.live.effects import Observing
from tonnage.objects import karpenter
from tonnage.provisioning.node_groups import NoGroup, sizes


def grow(decision: Launch, groups: NodeGroups, nodes: GroupNodes) -> Outcome:
    """Let one group have one machine more: the group that was planned with, or another that can make the node."""
    pool = nodes.pool(decision.node_pool)
    if pool is None:
        return Stale(f"node group {decision.node_pool} is gone")
    wanted = pool.without_reserve(decision)
    shapes = {pod: shape for pod in decision.pods if (shape := nodes.shape_of(pod)) is not None}
    known = groups.list()
    found = sizes([wanted], [pool.group], shapes)
    if not found.resizes:
        found = sizes([wanted], known, shapes)
    if not found.resizes:
        return Refused(_why_not(found.refused[0]))
    resize = found.resizes[0]
    return groups.set_size(resize.group, resize.desired, resize.expect)


def _why_not(refused: NoGroup) -> str:
    whys = [f"{one.name}: {one.why}" for one in refused.reason.alternatives]
    return refused.reason.verdict if len(whys) < 2 else f"{refused.reason.verdict}: {'; '.join(whys)}"


class GroupEffects(ApiEffects):
    """All else through the API, nodes by the sizes of groups.

    A node goes as others do (tainted, looked at again), then its very machine is removed from its group. A Node object
    that outlives its machine is deleted by the cloud's own node controller too.
    """

    makes_claims = False

    def __init__(self, client: Client, clock: Clock, groups: WatchedGroups, nodes: GroupNodes) -> None:
        super().__init__(client, clock)
        self._groups = groups
        self._nodes = nodes

    def launch(self, decision: Launch, pool: karpenter.NodePool | None) -> Outcome:
        """One machine more of a group. What other decisions of this tick have asked for is known by then."""
        return grow(decision, self._groups, self._nodes)

    def _end(self, node: JsonObject) -> Outcome:
        name, machine = node["metadata"]["name"], node.get("spec", {}).get("providerID", "")
        outcome = self._remove(name, machine)
        if self._removed_before(node, machine):
            outcome = Applied()
        if not isinstance(outcome, Applied):
            self._untaint(name)
            return outcome
        try:
            self._client.delete(NODES, name, uid=node["metadata"]["uid"])
        except ClientError:
            return outcome  # the machine is gone, and the cloud's node controller deletes its Node
        return outcome

    def _removed_before(self, node: JsonObject, machine: str) -> bool:
        """Whether an earlier attempt has marked the node and given its machine back, and only its Node is left."""
        begun = RETURNING in node["metadata"].get("annotations", {})
        return begun and bool(machine) and not self._groups.problem and self._nodes.group_of(machine) is None

    def _remove(self, name: str, machine: str) -> Outcome:
        group = self._nodes.group_of(machine)
        if group is None:
            return Stale(f"node {name}: no node group counts its machine {machine or '(no provider id)'}")
        outcome = self._groups.remove(machine, group.name, group.desired)
        if not isinstance(outcome, Stale):
            return outcome
        try:
            self._groups.read()
        except InputError as error:
            return Stale(f"{outcome.changed}; and the groups cannot be read: {error}")
        return outcome if self._nodes.group_of(machine) else Applied()  # it was done, only the answer was lost


class _Said:
    """Nodes are neither launched nor terminated: ``groups`` says what would be asked of it."""

    def __init__(self, groups: NodeGroups, nodes: GroupNodes) -> None:
        self._groups = groups
        self._nodes = nodes

    def grow(self, decision: Launch) -> Outcome:
        return grow(decision, self._groups, self._nodes)

    def shrink(self, decision: Return) -> Outcome:
        machine = self._nodes.machine_of(decision.node.name)
        group = self._nodes.group_of(machine)
        if group is None:
            return Stale(f"node {decision.node.name}: no node group counts its machine")
        return self._groups.remove(machine, group.name, group.desired)


class GroupReporting(ApiEffects):
    """Places and scales; of nodes it only says which group would get which size."""

    makes_claims = False
    WHY = Refused("nodes are only reported", OBSERVING)

    def __init__(self, client: Client, clock: Clock, groups: NodeGroups, nodes: GroupNodes) -> None:
        super().__init__(client, clock)
        self._said = _Said(groups, nodes)

    def launch(self, decision: Launch, pool: karpenter.NodePool | None) -> Outcome:
        return self._said.grow(decision)

    def disrupt(self, decision: Disrupt) -> Outcome:
        return self.WHY

    def give_back(self, decision: Return) -> Outcome:
        return self._said.shrink(decision)

    def keep(self, node: Ref) -> Outcome:
        return self.WHY


class GroupObserving(Observing):
    """Does nothing; of nodes it says which group would get which size."""

    def __init__(self, groups: NodeGroups, nodes: GroupNodes) -> None:
        self._said = _Said(groups, nodes)

    def launch(self, decision: Launch, pool: karpenter.NodePool | None) -> Outcome:
        return self._said.grow(decision)

    def give_back(self, decision: Return) -> Outcome:
        return self._said.shrink(decision)
