"""Existing nodes while a plan puts pods on them."""

from __future__ import annotations

from tonnage.facts.labels import NOT_READY, UNREACHABLE
from tonnage.fleet.asks import Kind
from tonnage.fleet.ports import Port, clash
from tonnage.objects import selectors
from tonnage.provisioning import labels
from tonnage.provisioning.load import Stage
from tonnage.provisioning.pods import ExistingNode
from tonnage.provisioning.requirements import Requirement, Requirements
from tonnage.provisioning.template import ALL_EFFECTS

EPHEMERAL_TAINTS = frozenset(
    {
        (NOT_READY, "NoSchedule"),
        (NOT_READY, "NoExecute"),
        (UNREACHABLE, "NoSchedule"),
        ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule"),
        ("karpenter.sh/unregistered", "NoExecute"),
    }
)
"""Taints of a node that is starting (kubernetes-sigs/karpenter pkg/scheduling/taints.go, KnownEphemeralTaints)."""

EPHEMERAL_PREFIXES = ("readiness.k8s.io/",)
"""How keys of further such taints begin."""


class StandingNode:
    """A node with what is left of it. ``requirements`` begin as its labels; a pod that asks for a label to be anything
    but some value adds that, though the node has no such label: pods that ask for the label are admitted from then
    on."""

    def __init__(self, node: ExistingNode) -> None:
        self.ref = node.ref
        self.host = node.labels.get(labels.HOSTNAME, node.ref.name)
        own = Requirements.of_labels({**node.labels, labels.HOSTNAME: self.host})
        self.requirements = own
        self.free = dict(node.free)
        self.devices = node.devices and node.devices.copy()
        self.ports: tuple[Port, ...] = node.host_ports
        self.held = node.held
        self.taints = node.taints
        if not node.initialized:
            passing = {(taint.key, taint.effect) for taint in node.startup_taints} | EPHEMERAL_TAINTS
            self.taints = tuple(
                taint
                for taint in node.taints
                if (taint.key, taint.effect) not in passing and not taint.key.startswith(EPHEMERAL_PREFIXES)
            )

    def copy(self) -> StandingNode:
        """The node as it is now; what one of the two takes from then on, the other does not have."""
        made = StandingNode.__new__(StandingNode)
        made.__dict__.update(self.__dict__, free=dict(self.free), devices=self.devices and self.devices.copy())
        return made

    def full(self, stage: Stage) -> bool:
        """Whether it takes no such pod any more, whatever else joins it: for want of room, or because of its taints."""
        if any(amount > self.free.get(resource, 0) for resource, amount in stage.amounts.items() if amount):
            return True
        if self.held and stage.moved:
            return True
        if any(amount < 0 for amount in self.free.values()) or clash(stage.ports, self.ports):
            return True
        return selectors.untolerated(self.taints, stage.step.tolerations, ALL_EFFECTS) is not None

    def wanted(self, stage: Stage) -> Requirements | None:
        """Its requirements with such a pod's; ``None`` where they do not go together."""
        wanted = stage.step.requirements
        return self.requirements.merged(wanted) if self.requirements.compatible(wanted) else None

    def add(self, stage: Stage, wanted: Requirements, narrowed: tuple[Requirement, ...]) -> bool:
        """Put such a pod on it if the labels that rules about other pods leave are its own and devices have room."""
        extra = Requirements(narrowed)
        if narrowed and not wanted.compatible(extra):
            return False
        if self.devices is None:
            if stage.ask.shares:
                return False
        elif stage.ask.kind is not Kind.NONE and not self.devices.take(0, stage.ask, stage.amounts):
            return False
        self.requirements = wanted.merged(extra)
        self.ports += stage.ports
        for resource, amount in stage.amounts.items():
            if amount:
                self.free[resource] -= amount
        return True
