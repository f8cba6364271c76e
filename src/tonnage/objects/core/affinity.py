"""Where a pod may run: tolerations, affinity and topology spread; label selectors."""

from __future__ import annotations

from tonnage.objects.base import Field


class Toleration(Field, frozen=True, kw_only=True):
    """Lets a pod stand on nodes with a taint. An empty key with ``Exists`` tolerates every taint."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class LabelSelectorRequirement(Field, frozen=True, kw_only=True):
    """``operator``: In, NotIn, Exists, DoesNotExist."""

    key: str
    operator: str
    values: list[str] = []


class LabelSelector(Field, frozen=True, kw_only=True):
    """Selects by labels; an empty selector selects everything, an absent one nothing."""

    match_labels: dict[str, str] = {}
    match_expressions: list[LabelSelectorRequirement] = []


class NodeSelectorRequirement(Field, frozen=True, kw_only=True):
    """``operator``: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: list[str] = []


class NodeSelectorTerm(Field, frozen=True, kw_only=True):
    """All expressions and fields must hold; an empty term matches nothing."""

    match_expressions: list[NodeSelectorRequirement] = []
    match_fields: list[NodeSelectorRequirement] = []


class NodeSelector(Field, frozen=True, kw_only=True):
    """Any one of the terms must hold."""

    node_selector_terms: list[NodeSelectorTerm]


class PreferredSchedulingTerm(Field, frozen=True, kw_only=True):
    """A preference, worth ``weight`` (1 to 100)."""

    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(Field, frozen=True, kw_only=True):
    """Which nodes a pod insists on and prefers."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredSchedulingTerm] = []


class PodAffinityTerm(Field, frozen=True, kw_only=True):
    """Pods selected by label, in these namespaces (the pod's own when none is named), per topology domain."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedPodAffinityTerm(Field, frozen=True, kw_only=True):
    """A preference about other pods, worth ``weight`` (1 to 100)."""

    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(Field, frozen=True, kw_only=True):
    """Near which pods."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] = []
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] = []


class PodAntiAffinity(Field, frozen=True, kw_only=True):
    """Away from which pods."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] = []
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] = []


class Affinity(Field, frozen=True, kw_only=True):
    """Node affinity, pod affinity and pod anti-affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAntiAffinity | None = None


class TopologySpreadConstraint(Field, frozen=True, kw_only=True):
    """Keep the numbers of matching pods in any two domains within ``max_skew``."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: list[str] = []
