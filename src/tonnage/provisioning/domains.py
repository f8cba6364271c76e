"""Where pods of one kind may be and how many there are: by label of their nodes, domain by domain.

A :class:`TopologyGroup` is one rule about other pods, shared by all pods that carry it: a topology spread constraint,
a pod affinity term or a pod anti-affinity term. It counts the pods that its selector matches per domain, a value of the
node label that it names, and says into which domains the next pod may go.

Source: kubernetes-sigs/karpenter pkg/controllers/provisioning/scheduling/topologygroup.go, topologynodefilter.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from msgspec import Struct

from tonnage.decisions import Ref
from tonnage.objects import core, selectors
from tonnage.provisioning import labels
from tonnage.provisioning.requirements import Requirement, Requirements
from tonnage.provisioning.template import ALL_EFFECTS

UNLIMITED = (1 << 31) - 1
"""The skew of pod affinity and anti-affinity, which have none."""


class Pick(Protocol):
    """Which of several domains that are equally good. Karpenter takes any of them."""

    def turn(self, pod: Ref) -> None:
        """It is this pod's turn."""
        ...

    def one(self, key: str, domains: Collection[str]) -> str:
        """One of these domains, values of the label ``key``."""
        ...

    def start(self, key: str, here: Collection[str], anywhere: Collection[str]) -> Collection[str]:
        """Where the first pod goes that wants to be near its like: one of those in which the node may be, if there is
        one, and one of those that the pod allows, which may be the same."""
        ...


class First:
    """The first by name."""

    def turn(self, pod: Ref) -> None:
        """Which pod it is makes no difference."""

    def one(self, key: str, domains: Collection[str]) -> str:
        """The first by name."""
        return min(domains)

    def start(self, key: str, here: Collection[str], anywhere: Collection[str]) -> Collection[str]:
        """The first by name in which the node may be, else the first that the pod allows."""
        return [min(here)] if here else [min(anywhere)] if anywhere else []


class RuleKind(Enum):
    """What a group is about."""

    SPREAD = "topology spread"
    NEAR = "pod affinity"
    AWAY = "pod anti-affinity"


class NodeFilter(Struct, frozen=True):
    """On which nodes a spread constraint counts pods: those that the pod itself may use.

    ``terms``: any one of these must hold, nothing must where there is none. ``tolerations`` are looked at with
    ``honor_taints`` alone, ``terms`` with ``honor_affinity`` alone.
    """

    terms: tuple[Requirements, ...] = ()
    tolerations: tuple[core.Toleration, ...] = ()
    honor_affinity: bool = False
    honor_taints: bool = False

    def matches(self, taints: Iterable[core.Taint], node: Requirements) -> bool:
        """Whether a node with these taints and labels counts."""
        if self.honor_affinity and self.terms and not any(node.compatible(term) for term in self.terms):
            return False
        return not self.honor_taints or selectors.untolerated(taints, self.tolerations, ALL_EFFECTS) is None

    def identity(self) -> object:
        """What tells two filters apart: of requirements only the labels that they are on. Of equal ones an even number
        counts as none."""
        terms = Counter[object](frozenset((one.key, one.min_values) for one in term.values()) for term in self.terms)
        return (self.honor_affinity, self.honor_taints, _odd(terms), _odd(Counter[object](map(repr, self.tolerations))))


def _odd(counted: Mapping[object, int]) -> frozenset[object]:
    return frozenset(one for one, count in counted.items() if count % 2)


class DomainRule(Struct, frozen=True):
    """One constraint of a pod on other pods. ``namespaces``: of the pods that it selects."""

    kind: RuleKind
    key: str
    namespaces: frozenset[str]
    selector: core.LabelSelector | None
    max_skew: int = UNLIMITED
    min_domains: int | None = None
    node_filter: NodeFilter = NodeFilter()

    def identity(self) -> object:
        """Rules with one identity share their counts. How many domains there must be is not part of it."""
        return (
            self.key, self.kind, self.namespaces, self.max_skew, self.node_filter.identity(), _identity(self.selector)
        )  # fmt: skip

    def selects(self, namespace: str, pod_labels: Mapping[str, str]) -> bool:
        """Whether the rule is about such a pod."""
        return namespace in self.namespaces and selectors.matches(self.selector, pod_labels)


def _identity(selector: core.LabelSelector | None) -> object:
    if selector is None:
        return None
    listed = ((one.key, one.operator, _odd(Counter[object](one.values))) for one in selector.match_expressions)
    return (frozenset(listed), frozenset(selector.match_labels.items()))


@dataclass(slots=True, eq=False)
class TopologyGroup:
    """A rule with its counts. ``domains``: pods by domain; a domain is known even where it has none."""

    rule: DomainRule
    domains: dict[str, int] = field(default_factory=dict)
    used: int = 0
    """How many domains have pods."""

    def register(self, domain: str) -> None:
        """There is such a domain."""
        self.domains.setdefault(domain, 0)

    def record(self, domains: Iterable[str], pods: int = 1) -> None:
        """This many pods went into, or may be in, each of these domains."""
        for domain in domains:
            before = self.domains.get(domain, 0)
            self.used += not before
            self.domains[domain] = before + pods

    def next(self, selected: bool, pod: Requirement, node: Requirement, pick: Pick) -> Requirement:
        """Into which domains the next pod may go; no value where into none.

        ``selected``: whether the rule is about that pod too. ``pod``: the domains that the pod allows, ``node`` those
        that the node may be in.
        """
        rule = self.rule
        host = next(iter(node.values)) if rule.key == labels.HOSTNAME and len(node.values) == 1 else None
        if rule.kind is RuleKind.SPREAD:
            allowed = self._spread_host(selected, host) if host else self._spread(selected, pod, node, pick)
        elif rule.kind is RuleKind.NEAR:
            allowed = self._near_host(selected, pod, host) if host else self._near(selected, pod, node, pick)
        elif host:
            allowed = [] if self.domains.get(host) else [host]
        else:
            among = self._among(node)
            allowed = [one for one in among if not self.domains[one] and node.has(one) and pod.has(one)]
        return Requirement(rule.key, complement=False, values=frozenset(allowed))

    def _among(self, node: Requirement) -> Iterable[str]:
        """The domains among which to look: those of the node where it names them."""
        if node.complement or not node.values:
            return self.domains
        return [one for one in sorted(node.values) if one in self.domains]

    def _spread_host(self, selected: bool, host: str) -> list[str]:
        """A new node can always be had: the emptiest host has no pod."""
        return [host] if self.domains.get(host, 0) + selected <= self.rule.max_skew else []

    def _spread(self, selected: bool, pod: Requirement, node: Requirement, pick: Pick) -> list[str]:
        least = self._least(pod)
        fitting: dict[str, int] = {}
        for domain in self._among(node):
            count = self.domains[domain] + selected
            if node.has(domain) and count - least <= self.rule.max_skew:
                fitting[domain] = count
        if not fitting:
            return []
        best = min(fitting.values())
        return [pick.one(self.rule.key, [domain for domain, count in fitting.items() if count == best])]

    def _least(self, pod: Requirement) -> int:
        """The pods in the emptiest domain that the pod allows."""
        if self.rule.key == labels.HOSTNAME:
            return 0
        counts = [count for domain, count in self.domains.items() if pod.has(domain)]
        if self.rule.min_domains is not None and len(counts) < self.rule.min_domains:
            return 0
        return min(counts, default=UNLIMITED)

    def _near_host(self, selected: bool, pod: Requirement, host: str) -> list[str]:
        if not pod.has(host):
            return []
        return [host] if self.domains.get(host) or self._first(selected, pod) else []

    def _near(self, selected: bool, pod: Requirement, node: Requirement, pick: Pick) -> list[str]:
        found = [one for one in self._among(node) if self.domains[one] and pod.has(one) and node.has(one)]
        if found or not self._first(selected, pod):
            return found
        both = pod.intersection(node)
        here = [domain for domain in self.domains if both.has(domain)]
        anywhere = [domain for domain in self.domains if pod.has(domain)]
        return list(pick.start(self.rule.key, here, anywhere))

    def _first(self, selected: bool, pod: Requirement) -> bool:
        """Whether the pod is the first of those that it wants to be near to, where it may go."""
        if not selected:
            return False
        return not self.used or not any(count and pod.has(domain) for domain, count in self.domains.items())
