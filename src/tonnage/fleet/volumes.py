"""What the volumes of a pod ask of its node."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from tonnage.objects import core


class Reach(msgspec.Struct, frozen=True):
    """Nodes from which a volume can be reached. ``why``: what kube-scheduler says of the others."""

    why: str
    nodes: core.NodeSelector


@dataclass(frozen=True, slots=True)
class VolumeNeed:
    """``waits``: why the pod is unschedulable while its claims are as they are, in kube-scheduler's words; empty where
    one may. ``reach``: all of these have to hold of its node. ``alone``: claims (namespace/name) that one pod uses at a
    time (ReadWriteOncePod). ``known``: whether anybody looked at them. ``attaches``: (driver, volume) of those that
    count against what a node can attach, where that is known of any node."""

    waits: str = ""
    reach: tuple[Reach, ...] = ()
    alone: tuple[str, ...] = ()
    known: bool = True
    attaches: tuple[tuple[str, str], ...] = ()


NO_VOLUMES, UNKNOWN = VolumeNeed(), VolumeNeed(known=False)
"""That of a pod without claims, and that of one of which nobody knows."""


def folded(spec: core.PodSpec, need: VolumeNeed) -> core.PodSpec:
    """The spec with the reach of its volumes among its node affinity, for who plans nodes that are not there yet."""
    if not need.reach:
        return spec
    affinity = spec.affinity or core.Affinity()
    node = affinity.node_affinity or core.NodeAffinity()
    required = node.required_during_scheduling_ignored_during_execution
    terms = list(required.node_selector_terms) if required is not None else [core.NodeSelectorTerm()]
    for one in need.reach:
        terms = [_both(mine, theirs) for mine in terms for theirs in one.nodes.node_selector_terms]
    selector = core.NodeSelector(node_selector_terms=terms)
    node = msgspec.structs.replace(node, required_during_scheduling_ignored_during_execution=selector)
    return msgspec.structs.replace(spec, affinity=msgspec.structs.replace(affinity, node_affinity=node))


def _both(one: core.NodeSelectorTerm, other: core.NodeSelectorTerm) -> core.NodeSelectorTerm:
    return core.NodeSelectorTerm(
        match_expressions=[*one.match_expressions, *other.match_expressions],
        match_fields=[*one.match_fields, *other.match_fields],
    )
