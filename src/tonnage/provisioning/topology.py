"""Topology spread, pod affinity and pod anti-affinity in a plan: which rules a pod has and meets, and where it may go.

Rules that are only preferred bind like the others until planning gives them up (:func:`~.pods.relaxations`). A pod that
others keep away from is kept away from them too, though it says nothing of it itself; of rules that are only preferred
that is not asked. Pods on nodes count as they are labelled now.

Source: kubernetes-sigs/karpenter pkg/controllers/provisioning/scheduling/topology.go, topologydomaingroup.go.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import msgspec
import numpy as np

from tonnage.facts import instances
from tonnage.objects import core, karpenter, selectors
from tonnage.provisioning import labels
from tonnage.provisioning.catalogue import NO_OFFER, Catalogue
from tonnage.provisioning.domains import DomainRule, First, NodeFilter, Pick, RuleKind, TopologyGroup
from tonnage.provisioning.plans import PlanSettings
from tonnage.provisioning.pods import ExistingNode, PodShape, RelaxationStep
from tonnage.provisioning.requirements import Requirement, Requirements
from tonnage.provisioning.template import ALL_EFFECTS, pool_requirements


@dataclass(slots=True, eq=False)
class Peers:
    """Pods of one namespace with the same labels and rules, as the rules see them.

    ``keeps``: groups of the rules by which others keep away from these pods, and of those by which these keep away.
    ``seen``: of the topology's groups, how many have been looked at for ``counted``, those whose counts they are in.
    """

    namespace: str
    labels: Mapping[str, str]
    avoided_by: tuple[TopologyGroup, ...] = ()
    avoids: tuple[TopologyGroup, ...] = ()
    counted: list[TopologyGroup] = field(default_factory=list)
    seen: int = 0


class Verdict(Enum):
    """Whether a node is feasible for a pod, as far as rules about nodes go. NEVER: there will be no fewer pods on
    it."""

    YES = "yes"
    NOT_NOW = "not now"
    NEVER = "never"


class PodRules(msgspec.Struct, frozen=True, eq=False):
    """The groups that have a say in where a pod goes, each with whether its rule is about that pod too. ``areas``:
    over labels that several nodes may share, ``hosts``: over the name of the node. ``strict``: what the pod insists on.
    ``barred``: numbers of planned NodeClaims that will never take such a pod because of ``hosts``, as far as somebody
    found out; one list for all pods with the same of these.
    """

    areas: tuple[tuple[TopologyGroup, bool], ...]
    hosts: tuple[tuple[TopologyGroup, bool], ...]
    strict: Requirements
    barred: list[int] = msgspec.field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.areas or self.hosts)

    def __str__(self) -> str:
        listed = (one.rule for one, _ in (*self.areas, *self.hosts))
        return ", ".join(dict.fromkeys(f"{one.kind.value} over {one.key}" for one in listed))


class PodTopology:
    """All groups of a plan. What the cluster has is counted when a group is first met."""

    def __init__(
        self,
        catalogue: Catalogue,
        node_pools: Sequence[karpenter.NodePool],
        nodes: Sequence[ExistingNode],
        settings: PlanSettings,
        pick: Pick | None = None,
    ) -> None:
        """``nodes``: all of them, also those that are being deleted."""
        self.pick: Pick = pick or First()
        self._settings = settings
        self._universe = _Universe(catalogue, node_pools)
        self._nodes = {one.ref.name: one for one in nodes}
        self._groups: dict[object, TopologyGroup] = {}
        self._listed: list[TopologyGroup] = []
        self._inverse: dict[object, TopologyGroup] = {}
        self._hosts: list[TopologyGroup] = []
        self._keys: list[str] = []
        self._areas: dict[tuple[int, tuple[Requirement | None, ...]], int] = {}
        self._barred: dict[frozenset[tuple[int, bool]], list[int]] = {}
        for pod in settings.bound:
            node = self._nodes.get(pod.node)
            for group in self._avoiding(pod.namespace, pod.pod_anti_affinity, pod.tolerations):
                if node is not None and group.rule.key in node.labels:
                    group.record([node.labels[group.rule.key]], pod.pods)

    def peers(self, namespace: str, pod_labels: Mapping[str, str], shape: PodShape) -> Peers:
        """Pods of this kind are among those to be planned. To be said of all of them before the first is planned."""
        return Peers(
            namespace,
            pod_labels,
            avoids=tuple(self._avoiding(namespace, shape.pod_anti_affinity, shape.tolerations)),
        )

    def met(self, peers: Peers) -> None:
        """All kinds of pods are known: by which rules others keep away from these."""
        peers.avoided_by = tuple(
            one for one in self._inverse.values() if one.rule.selects(peers.namespace, peers.labels)
        )

    def rules(self, peers: Peers, step: RelaxationStep) -> PodRules:
        """The rules that have a say in where such a pod goes: its own at this stage of relaxing, and those by which
        others keep away from it."""
        own = [self._group(rule, step) for rule in self._rules(peers, step)]
        found = {id(one): one for one in (*own, *peers.avoided_by)}.values()
        told = [(one, one.rule.selects(peers.namespace, peers.labels)) for one in found]
        of_hosts = tuple(pair for pair in told if pair[0].rule.key == labels.HOSTNAME)
        barred = self._barred.setdefault(frozenset((id(one), selected) for one, selected in of_hosts), [])
        return PodRules(tuple(pair for pair in told if pair not in of_hosts), of_hosts, step.strict, barred)

    def narrowed(self, rules: PodRules, node: Requirements) -> tuple[Requirement, ...] | None:
        """What the rules leave of a node's labels, its name aside, for such a pod; ``None`` where they leave nothing.
        ``node``: requirements of the node or NodeClaim with the pod's already among them.
        """
        found: dict[str, Requirement] = {}
        for group, selected in rules.areas:
            key = group.rule.key
            allowed = group.next(selected, rules.strict.get(key) or _any(key), node.get(key) or _any(key), self.pick)
            if not allowed.values:
                return None
            found[key] = found[key].intersection(allowed) if key in found else allowed
        return tuple(found[key].intersection(node[key]) if key in node else found[key] for key in sorted(found))

    def on_host(self, rules: PodRules, host: str) -> Verdict:
        """Whether the rules about nodes let such a pod onto the one of this name."""
        pod = rules.strict.get(labels.HOSTNAME) or _any(labels.HOSTNAME)
        for group, selected in rules.hosts:
            if not group.next(selected, pod, _only(labels.HOSTNAME, host), self.pick).values:
                return Verdict.NOT_NOW if group.rule.kind is RuleKind.NEAR else Verdict.NEVER
        return Verdict.YES

    @property
    def keys(self) -> int:
        """How many labels rules are about, names of nodes aside."""
        return len(self._keys)

    @property
    def about(self) -> Sequence[str]:
        """The labels that rules are about, names of nodes aside."""
        return self._keys

    def area(self, requirements: Requirements) -> int:
        """A number for what these say of the labels that rules are about: equal where they say the same."""
        said = tuple(requirements.get(key) for key in self._keys)
        return self._areas.setdefault((len(self._keys), said), len(self._areas))

    def record(self, peers: Peers, taints: Iterable[core.Taint], node: Requirements, host: str) -> None:
        """Such a pod was given to the node or NodeClaim, whose requirements are these now."""
        for group in self._counted(peers):
            key = group.rule.key
            if not group.rule.node_filter.matches(taints, node):
                continue
            values = {host} if key == labels.HOSTNAME else node[key].values if key in node else ()
            settled = key == labels.HOSTNAME or (key in node and not node[key].complement and len(values) == 1)
            if settled or group.rule.kind is RuleKind.AWAY:
                group.record(sorted(values))
        for group in peers.avoids:
            key = group.rule.key
            group.record([host] if key == labels.HOSTNAME else sorted(node[key].values) if key in node else ())

    def register(self, host: str) -> None:
        """There is, or will be, a node of this name."""
        for group in self._hosts:
            group.register(host)

    def join(self, node: ExistingNode) -> None:
        """This node is there from now on, without pods."""
        self._nodes[node.ref.name] = node
        self.register(node.labels.get(labels.HOSTNAME, node.ref.name))
        for group in self._listed:
            rule = group.rule
            if rule.key in node.labels and rule.node_filter.matches(node.taints, _labels_of(node)):
                group.register(node.labels[rule.key])

    def _counted(self, peers: Peers) -> list[TopologyGroup]:
        for group in self._listed[peers.seen :]:
            if group.rule.selects(peers.namespace, peers.labels):
                peers.counted.append(group)
        peers.seen = len(self._listed)
        return peers.counted

    def _rules(self, peers: Peers, step: RelaxationStep) -> Iterator[DomainRule]:
        for one in step.spread:
            node_filter = NodeFilter(
                step.required, step.tolerations, one.node_affinity_policy == "Honor", one.node_taints_policy == "Honor"
            )
            own = frozenset({peers.namespace})
            selector = _with_labels(one.label_selector, one.match_label_keys, peers.labels)
            yield DomainRule(
                RuleKind.SPREAD, one.topology_key, own, selector, one.max_skew, one.min_domains, node_filter
            )
        for kind, terms in ((RuleKind.NEAR, step.near), (RuleKind.AWAY, step.away)):
            for term in terms:
                yield DomainRule(kind, term.topology_key, self._namespaces(peers.namespace, term), term.label_selector)

    def _group(self, rule: DomainRule, step: RelaxationStep) -> TopologyGroup:
        identity = rule.identity()
        known = self._groups.get(identity)
        if known is None:
            known = self._groups[identity] = TopologyGroup(rule, self._universe.domains(rule, step.tolerations))
            self._listed.append(known)
            self._count(known)
            self._know(known)
        return known

    def _know(self, group: TopologyGroup) -> None:
        key = group.rule.key
        if key == labels.HOSTNAME:
            self._hosts.append(group)
        elif key not in self._keys:
            self._keys.append(key)

    def _count(self, group: TopologyGroup) -> None:
        """Count the pods on nodes, and learn the domains of nodes that have none."""
        rule = group.rule
        for node in self._nodes.values():
            if node.deleted or node.ref.kind == "NodeClaim" or rule.key not in node.labels:
                continue
            if rule.node_filter.matches(node.taints, _labels_of(node)):
                group.register(node.labels[rule.key])
        selector = rule.selector if rule.selector is not None else core.LabelSelector()
        for pod in self._settings.bound:
            on = self._nodes.get(pod.node)
            if on is None or pod.namespace not in rule.namespaces or not selectors.matches(selector, pod.labels):
                continue
            domain = on.labels.get(rule.key, on.ref.name if rule.key == labels.HOSTNAME else None)
            if domain is not None and rule.node_filter.matches(on.taints, _labels_of(on)):
                group.record([domain], pod.pods)

    def _avoiding(
        self, namespace: str, affinity: core.PodAntiAffinity | None, tolerations: Sequence[core.Toleration]
    ) -> Iterator[TopologyGroup]:
        """Groups of the required anti-affinity of a pod, with where the pods are that have it."""
        for term in affinity.required_during_scheduling_ignored_during_execution if affinity else ():
            rule = DomainRule(RuleKind.AWAY, term.topology_key, self._namespaces(namespace, term), term.label_selector)
            known = self._inverse.get(identity := rule.identity())
            if known is None:
                known = self._inverse[identity] = TopologyGroup(rule, self._universe.domains(rule, tolerations))
                self._know(known)
            yield known

    def _namespaces(self, own: str, term: core.PodAffinityTerm) -> frozenset[str]:
        if term.namespace_selector is None:
            return frozenset(term.namespaces or (own,))
        known = self._settings.namespaces
        selected = (name for name in known if selectors.matches(term.namespace_selector, known[name]))
        return frozenset((*selected, *term.namespaces))


class _Universe:
    """Every domain that some NodePool could launch a node in, with the taints that such nodes would have."""

    def __init__(self, catalogue: Catalogue, node_pools: Sequence[karpenter.NodePool]) -> None:
        self._catalogue = catalogue
        self._pools = [(pool, pool_requirements(pool)) for pool in node_pools]
        self._known: dict[str, dict[str, list[tuple[core.Taint, ...]]]] = {}

    def domains(self, rule: DomainRule, tolerations: Collection[core.Toleration]) -> dict[str, int]:
        """The domains of a rule's label, without pods: those whose taints are tolerated, but of a spread constraint
        with nodeTaintsPolicy Ignore all."""
        if rule.key not in self._known:
            self._known[rule.key] = self._find(rule.key)
        found = self._known[rule.key]
        if rule.kind is RuleKind.SPREAD and not rule.node_filter.honor_taints:
            return dict.fromkeys(sorted(found), 0)
        return {
            domain: 0
            for domain in sorted(found)
            if any(selectors.untolerated(taints, tolerations, ALL_EFFECTS) is None for taints in found[domain])
        }

    def _find(self, key: str) -> dict[str, list[tuple[core.Taint, ...]]]:
        found: dict[str, list[tuple[core.Taint, ...]]] = {}
        of_types = self._of_types(key)
        for pool, requirements in self._pools:
            own = requirements.get(key) if key != labels.NODE_POOL else None
            taints = tuple(pool.spec.template.spec.taints)
            values: set[str] = set()
            for listed in of_types:
                one = Requirement(key, complement=False, values=listed)
                values |= own.intersection(one).values if own is not None else listed
            if own is not None and (not of_types or not own.complement):
                values |= own.values
            for value in values:
                if value not in found or not taints:
                    found[value] = [taints]
                elif found[value][0]:
                    found[value].append(taints)
        return found

    def _of_types(self, key: str) -> list[frozenset[str]]:
        """The different sets of values that instance types have of a label; none where no type has it."""
        catalogue = self._catalogue
        of_pairs = {
            labels.ZONE: [zone for zone, _ in catalogue.pairs],
            labels.CAPACITY_TYPE: [kind for _, kind in catalogue.pairs],
            labels.REGION: [instances.region_of(zone) for zone, _ in catalogue.pairs],
        }
        if key in of_pairs:
            sold = np.unique((catalogue.prices != NO_OFFER).T, axis=0)
            return [frozenset(itertools.compress(of_pairs[key], column)) for column in sold]
        everything = np.ones(len(catalogue.types), dtype=np.bool_)
        return [frozenset({value}) for value in sorted(catalogue.values(key, everything))]


def _any(key: str) -> Requirement:
    return Requirement(key, complement=True)


def _only(key: str, value: str) -> Requirement:
    return Requirement(key, complement=False, values=frozenset({value}))


def _labels_of(node: ExistingNode) -> Requirements:
    return Requirements.of_labels(node.labels)


def _with_labels(
    selector: core.LabelSelector | None, keys: Iterable[str], pod_labels: Mapping[str, str]
) -> core.LabelSelector | None:
    """The selector of a spread constraint with its matchLabelKeys."""
    added = [
        core.LabelSelectorRequirement(key=key, operator="In", values=[pod_labels[key]])
        for key in keys
        if key in pod_labels
    ]
    if selector is None or not added:
        return selector
    return msgspec.structs.replace(selector, match_expressions=[*selector.match_expressions, *added])
