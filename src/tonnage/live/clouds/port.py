"""The port to node groups: read them, set a size, remove one machine."""

from __future__ import annotations

from typing import Protocol

from tonnage.decisions import Outcome
from tonnage.provisioning.node_groups import NodeGroup


class NodeGroups(Protocol):
    """The node groups of one cluster. Calls block; none that could act twice is repeated behind the caller's back.

    ``expect`` is the size that the decision was taken on. An outcome is Stale where it no longer holds, or where it is
    not known whether the cloud did what was asked (it did not answer, or asked to slow down): read the groups again.
    It is Refused where asking again without a change gives the same.
    """

    def list(self) -> tuple[NodeGroup, ...]:
        """Every group, in order of name. Raises InputError when the cloud cannot be asked."""
        ...

    def set_size(self, name: str, desired: int, expect: int) -> Outcome:
        """Let a group have ``desired`` machines. Refused where that would let the cloud choose machines to remove."""
        ...

    def remove(self, provider_id: str, group: str, expect: int) -> Outcome:
        """Terminate this very machine (a node's ``spec.providerID``) and lower the group's size by one."""
        ...


def refusal(group: NodeGroup, desired: int) -> str:
    """Why a group may not be set to this size, whatever its cloud; empty when it may."""
    if not group.minimum <= desired <= group.maximum:
        return f"{group.name} keeps between {group.minimum} and {group.maximum} nodes, not {desired}"
    if desired > group.desired and group.held:
        return f"{group.name} {group.held}"
    if desired < len(group.nodes):
        return (
            f"{group.name} has {len(group.nodes)} nodes: at size {desired} its cloud would choose which of them go;"
            " remove them by name"
        )
    return ""


def moved(group: NodeGroup, expect: int) -> str:
    """What no longer holds when a decision was taken at size ``expect``; empty when it holds."""
    return f"{group.name} has size {group.desired}, expected {expect}" if group.desired != expect else ""
