"""From which nodes a volume can be reached, by its node affinity and its labels.

Sources: kubernetes/kubernetes v1.36 pkg/scheduler/framework/plugins/{volumebinding,volumezone}.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from tonnage.facts.labels import BETA_REGION, BETA_ZONE, EBS_ZONE, HOSTNAME, REGION, ZONE
from tonnage.fleet.volumes import Reach
from tonnage.objects import core, selectors
from tonnage.objects.storage import PersistentVolume

NOT_REACHED = "node(s) didn't match PersistentVolume's node affinity"
NO_ZONE = "node(s) had no available volume zone"
ZONE_LABELS = (
    ZONE,
    REGION,
    BETA_ZONE,
    BETA_REGION,
)
_SEVERAL = "__"
"""Between the values of a volume's zone label that names several."""
SAME_AS = {
    EBS_ZONE: ZONE_LABELS[0],
    "topology.gke.io/zone": ZONE_LABELS[0],
    BETA_ZONE: ZONE_LABELS[0],
    BETA_REGION: ZONE_LABELS[1],
}
"""Labels of drivers and of old, by which that has the same value."""


def reach_of(volume: PersistentVolume) -> Iterator[Reach]:
    """By its node affinity, and by its labels."""
    affinity = volume.spec.node_affinity
    if affinity is not None and affinity.required is not None:
        yield Reach(NOT_REACHED, usual_keys(affinity.required))
    zones = [
        core.NodeSelectorRequirement(
            key=SAME_AS.get(key, key), operator="In", values=volume.metadata.labels[key].split(_SEVERAL)
        )
        for key in ZONE_LABELS
        if key in volume.metadata.labels
    ]
    if zones:
        yield Reach(NO_ZONE, core.NodeSelector(node_selector_terms=[core.NodeSelectorTerm(match_expressions=zones)]))


def reached(volume: PersistentVolume, node: Mapping[str, str]) -> bool:
    labels = dict(node)
    return all(
        selectors.any_matches(one.nodes.node_selector_terms, labels, labels.get(HOSTNAME, ""))
        for one in reach_of(volume)
    )


def usual_keys(selector: core.NodeSelector) -> core.NodeSelector:
    terms = [
        msgspec.structs.replace(
            term,
            match_expressions=[
                msgspec.structs.replace(one, key=SAME_AS.get(one.key, one.key)) for one in term.match_expressions
            ],
        )
        for term in selector.node_selector_terms
    ]
    return core.NodeSelector(node_selector_terms=terms)
