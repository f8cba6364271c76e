"""What the planner is told: pending pods, the nodes there are or that are on their way, and DaemonSets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from tonnage.decisions import Ref
from tonnage.fleet import asks
from tonnage.fleet.asks import NOTHING, Ask
from tonnage.fleet.ports import Port, host_ports
from tonnage.objects import core
from tonnage.provisioning.devices import FreeDevices
from tonnage.provisioning.requirements import Requirement, Requirements


class PodShape(msgspec.Struct, frozen=True, kw_only=True):
    """What planning can see of a pod; pods of one template share one shape object.

    ``requests``: cpu in millicores, memory in bytes, all else in units, without what stands for parts of devices;
    ``pods: 1`` is added where it is missing. ``ask``: what it wants of devices. ``tolerations``, ``node_selector``,
    ``node_affinity``, ``spread``, ``pod_affinity`` and ``pod_anti_affinity`` as in the pod's spec; ``host_ports``:
    those of its containers. ``claims``: it has ResourceClaims. ``unplanned`` names constraints of the pod that this
    planner does not weigh, so that the plan can say so.
    """

    requests: dict[str, int]
    tolerations: tuple[core.Toleration, ...] = ()
    node_selector: dict[str, str] = {}
    node_affinity: core.NodeAffinity | None = None
    unplanned: tuple[str, ...] = ()
    ask: Ask = NOTHING
    spread: tuple[core.TopologySpreadConstraint, ...] = ()
    pod_affinity: core.PodAffinity | None = None
    pod_anti_affinity: core.PodAntiAffinity | None = None
    host_ports: tuple[Port, ...] = ()
    claims: bool = False

    @property
    def has_rules(self) -> bool:
        """Whether it depends on where other pods are."""
        return bool(self.spread or self.pod_affinity or self.pod_anti_affinity)

    @classmethod
    def of(cls, spec: core.PodSpec, annotations: Mapping[str, str] = {}) -> PodShape:
        """The shape of pods with this spec and these annotations."""
        asked = core.pod_requests(spec)
        ask = asks.read(spec, asked, annotations)
        affinity = spec.affinity
        return cls(
            requests={"pods": 1, **asks.counted(ask, asked)},
            tolerations=tuple(spec.tolerations),
            node_selector=dict(spec.node_selector),
            node_affinity=affinity.node_affinity if affinity else None,
            ask=ask,
            spread=tuple(spec.topology_spread_constraints),
            pod_affinity=affinity.pod_affinity if affinity else None,
            pod_anti_affinity=affinity.pod_anti_affinity if affinity else None,
            host_ports=host_ports(spec),
            claims=bool(spec.resource_claims),
        )


class PendingPod(msgspec.Struct, frozen=True):
    """A pod without a node. ``creation_ns`` is compared in whole seconds, as the API server stores it, then
    the uid. ``labels``: by which constraints on other pods select it, in the namespace of ``ref``. ``moved``: it is on
    a node that may be taken back, and not to be put on one that is ``held``.
    """

    ref: Ref
    shape: PodShape
    creation_ns: int = 0
    labels: dict[str, str] = {}
    moved: bool = False


class BoundPod(msgspec.Struct, frozen=True):
    """``pods`` alike on one node, as far as others keep near them or away from them. ``node``: the node's name. Pods
    that have ended or are being deleted are left out.
    """

    namespace: str
    node: str
    labels: dict[str, str] = {}
    pod_anti_affinity: core.PodAntiAffinity | None = None
    pods: int = 1
    tolerations: tuple[core.Toleration, ...] = ()


class ExistingNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that is there, or a NodeClaim that was launched and is on its way.

    ``free``: allocatable less what pods bound to it or nominated for it request, and less the DaemonSet
    pods still to come, ``pods`` included. ``capacity``: the whole machine, charged against the limits of
    ``node_pool`` ("" for a node that Karpenter does not manage). Until ``initialized``, startup taints and
    the taints of a starting node are ignored. A node that is being ``deleted`` takes no pods and
    does not count against the limits; pods on it still count where others spread.
    ``devices`` (one row): needed where pods ask for parts of devices, or where the node
    offers its devices in parts. ``host_ports``: those that pods on it have taken.
    ``held``: pods came or went so lately that it takes none that are only moved.
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
    devices: FreeDevices | None = None
    host_ports: tuple[Port, ...] = ()
    held: bool = False


class RelaxationStep(msgspec.Struct, frozen=True):
    """A pod at one stage of relaxing: what it still insists on.

    ``strict``: ``requirements`` without what is only preferred. ``required``: what is left of the required node
    affinity terms, each with the node selector; any one will do. ``spread``, ``near``, ``away``: constraints on other
    pods, preferred ones among them until they are given up.
    """

    tolerations: tuple[core.Toleration, ...]
    requirements: Requirements
    strict: Requirements = msgspec.field(default_factory=Requirements)
    required: tuple[Requirements, ...] = ()
    spread: tuple[core.TopologySpreadConstraint, ...] = ()
    near: tuple[core.PodAffinityTerm, ...] = ()
    away: tuple[core.PodAffinityTerm, ...] = ()


PREFER_NO_SCHEDULE = core.Toleration(operator="Exists", effect="PreferNoSchedule")


def relaxations(shape: PodShape, *, preferences: bool, tolerate_prefer_no_schedule: bool) -> Iterator[RelaxationStep]:
    """The pod, then the pod with one constraint less each time, in Karpenter's order.

    Of several required node affinity terms the first is taken and given up first; then preferred pod affinity,
    preferred pod anti-affinity and preferred node affinity, each with the heaviest given up first; then spread
    constraints that say ScheduleAnyway; last, taints with effect PreferNoSchedule are tolerated. With ``preferences``
    False, nothing preferred is looked at. Source: kubernetes-sigs/karpenter
    pkg/controllers/provisioning/scheduling/preferences.go.
    """
    required = strict_requirements(shape)
    wishes = _preferred_terms(shape) if preferences else []
    near, away = shape.pod_affinity, shape.pod_anti_affinity
    must_near = tuple(near.required_during_scheduling_ignored_during_execution) if near else ()
    must_away = tuple(away.required_during_scheduling_ignored_during_execution) if away else ()
    want_near = _heaviest_first(near) if preferences else ()
    want_away = _heaviest_first(away) if preferences else ()
    spread = [one for one in shape.spread if preferences or one.when_unsatisfiable == "DoNotSchedule"]

    def step(tolerations: tuple[core.Toleration, ...] = shape.tolerations) -> RelaxationStep:
        wanted = required[0].merged(wishes[0]) if wishes else required[0]
        terms = tuple(required)
        return RelaxationStep(
            tolerations, wanted, required[0], terms, tuple(spread), must_near + want_near, must_away + want_away
        )

    yield step()
    while len(required) > 1:
        required = required[1:]
        yield step()
    while want_near:
        want_near = want_near[1:]
        yield step()
    while want_away:
        want_away = want_away[1:]
        yield step()
    while wishes:
        wishes = wishes[1:]
        yield step()
    while (
        soft := next((at for at, one in enumerate(spread) if one.when_unsatisfiable == "ScheduleAnyway"), None)
    ) is not None:
        spread[soft] = spread[-1]
        spread.pop()
        yield step()
    if tolerate_prefer_no_schedule and PREFER_NO_SCHEDULE not in shape.tolerations:
        yield step((*shape.tolerations, PREFER_NO_SCHEDULE))


def _heaviest_first(affinity: core.PodAffinity | core.PodAntiAffinity | None) -> tuple[core.PodAffinityTerm, ...]:
    preferred = affinity.preferred_during_scheduling_ignored_during_execution if affinity else []
    return tuple(one.pod_affinity_term for one in sorted(preferred, key=lambda term: -term.weight))


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
