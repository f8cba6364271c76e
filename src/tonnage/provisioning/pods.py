"""What the planner is told: pending pods, the nodes there are or that are on their way, and DaemonSets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from tonnage.decisions import Ref
from tonnage.fleet import asks
from tonnage.fleet.asks import NOTHING, Ask
from tonnage.objects import core
from tonnage.provisioning.devices import Devices
from tonnage.provisioning.requirements import Requirement, Requirements


class PodShape(msgspec.Struct, frozen=True, kw_only=True):
    """What planning can see of a pod; pods of one template share one shape object.

    ``requests``: cpu in millicores, memory in bytes, all else in units, without what stands for parts of devices;
    ``pods: 1`` is added where it is missing. ``ask``: what it wants of devices. ``tolerations``,
    ``node_selector`` and ``node_affinity`` as in the pod's spec. ``unplanned`` names constraints of the pod that this
    planner does not weigh (spread, pod affinity, volumes), so that the plan can say so.
    """

    requests: dict[str, int]
    tolerations: tuple[core.Toleration, ...] = ()
    node_selector: dict[str, str] = {}
    node_affinity: core.NodeAffinity | None = None
    unplanned: tuple[str, ...] = ()
    ask: Ask = NOTHING

    @classmethod
    def of(cls, spec: core.PodSpec, annotations: Mapping[str, str] = {}) -> PodShape:
        """The shape of pods with this spec and these annotations."""
        asked = core.pod_requests(spec)
        ask = asks.read(spec, asked, annotations)
        affinity = spec.affinity
        unplanned = [
            name
            for name, given in (
                ("topologySpreadConstraints", spec.topology_spread_constraints),
                ("podAffinity", affinity and affinity.pod_affinity),
                ("podAntiAffinity", affinity and affinity.pod_anti_affinity),
            )
            if given
        ]
        return cls(
            requests={"pods": 1, **asks.counted(ask, asked)},
            tolerations=tuple(spec.tolerations),
            node_selector=dict(spec.node_selector),
            node_affinity=affinity.node_affinity if affinity else None,
            unplanned=tuple(unplanned),
            ask=ask,
        )


class PendingPod(msgspec.Struct, frozen=True):
    """A pod without a node. ``creation_ns`` is compared in whole seconds, as the API server stores it, then
    the uid.
    """

    ref: Ref
    shape: PodShape
    creation_ns: int = 0


class ExistingNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that is there, or a NodeClaim that was launched and is on its way.

    ``free``: allocatable less what pods bound to it or nominated for it request, and less the DaemonSet
    pods still to come, ``pods`` included. ``capacity``: the whole machine, charged against the limits of
    ``node_pool`` ("" for a node that Karpenter does not manage). Until ``initialized``, startup taints and
    the taints of a starting node are ignored. A node that is being ``deleted`` takes no pods but still
    counts against the limits. ``devices`` (one row): needed where pods ask for parts of devices, or where the node
    offers its devices in parts.
    """

    ref: Ref
    labels: dict[str, str]
    free: dict[str, int]
    taints: tuple[core.Taint, ...] = ()
    startup_taints: tuple[core.Taint, ...] = ()
    initialized: bool = True
    node_pool: str = ""
    capacity: dict[str, int] = {}
    deleted: bool = False
    devices: Devices | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A pod at one stage of relaxing: what it still insists on."""

    tolerations: tuple[core.Toleration, ...]
    requirements: Requirements


PREFER_NO_SCHEDULE = core.Toleration(operator="Exists", effect="PreferNoSchedule")


def relaxations(shape: PodShape, *, preferences: bool, tolerate_prefer_no_schedule: bool) -> Iterator[Step]:
    """The pod, then the pod with one constraint less each time, in Karpenter's order.

    Of several required node affinity terms the first is taken and given up first; then preferred node
    affinity, the heaviest taken and given up first; last, taints with effect PreferNoSchedule are
    tolerated. With ``preferences`` False, preferred node affinity is not looked at. Source:
    kubernetes-sigs/karpenter pkg/controllers/provisioning/scheduling/preferences.go.
    """
    required = strict_requirements(shape)
    preferred = [*_preferred_terms(shape), Requirements()] if preferences else [Requirements()]
    for wanted in required[:-1]:
        yield Step(shape.tolerations, wanted.merged(preferred[0]))
    for wish in preferred:
        yield Step(shape.tolerations, required[-1].merged(wish))
    if tolerate_prefer_no_schedule:
        yield Step((*shape.tolerations, PREFER_NO_SCHEDULE), required[-1])


def strict_requirements(shape: PodShape) -> list[Requirements]:
    """What the pod insists on, one entry for each required node affinity term (any one will do); at least
    one entry.
    """
    selector = Requirements.of_labels(shape.node_selector)
    affinity = shape.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None or not required.node_selector_terms:
        return [selector]
    return [selector.merged(_requirements(term)) for term in required.node_selector_terms]


def uses_match_fields(shape: PodShape) -> bool:
    """Whether a required term selects nodes by field; Karpenter does not provision for such pods."""
    affinity = shape.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return required is not None and any(term.match_fields for term in required.node_selector_terms)


def _preferred_terms(shape: PodShape) -> list[Requirements]:
    affinity = shape.node_affinity
    preferred = affinity.preferred_during_scheduling_ignored_during_execution if affinity else []
    heaviest_first = sorted(preferred, key=lambda term: -term.weight)
    return [_requirements(term.preference) for term in heaviest_first]


def _requirements(term: core.NodeSelectorTerm) -> Requirements:
    return Requirements(
        Requirement.of(expression.key, expression.operator, expression.values) for expression in term.match_expressions
    )
