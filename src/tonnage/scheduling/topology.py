"""Where other pods stand: topology spread, pod affinity and anti-affinity, as masks over nodes.

Semantics follow kubernetes/kubernetes pkg/scheduler/framework/plugins/{podtopologyspread,interpodaffinity}: pods that
are being deleted count for pod affinity until they are gone, and count for spread no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TypeAlias

import msgspec
import numpy as np

from tonnage.fleet.classes import PodClass
from tonnage.fleet.columns import Latest
from tonnage.fleet.disks import in_each_others_way
from tonnage.fleet.filters import Mask
from tonnage.fleet.ports import NO_PORTS, clash
from tonnage.fleet.state import Fleet
from tonnage.objects import core, selectors
from tonnage.scheduling.claim_masks import ClaimMasks
from tonnage.scheduling.domains import TopologyDomains, domains_of
from tonnage.scheduling.terms import Tallies, Term, narrowed, resolve
from tonnage.scheduling.view import Ints, ShapeView

SPREAD = "node(s) didn't match pod topology spread constraints"
SPREAD_LABEL = f"{SPREAD} (missing required label)"
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"
NO_DISK = "node(s) had no available disk"
IN_USE_ALONE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
TOO_MANY_VOLUMES = "node(s) exceed max volume count"
"""Texts of kube-scheduler's plugins PodTopologySpread, InterPodAffinity, NodePorts, VolumeRestrictions and
NodeVolumeLimits."""

Masks = list[tuple[str, Mask]]
SILENT = (False, False)
"""No hard rules, and no preferences."""
Spread: TypeAlias = tuple[core.TopologySpreadConstraint, Term]
"""A topology spread constraint of a class, and whom it counts."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What one class says about other pods."""

    spread: tuple[Spread, ...]
    affinity: tuple[Term, ...]
    anti_affinity: tuple[Term, ...]
    soft_spread: tuple[Spread, ...]
    soft_affinity: tuple[tuple[int, Term], ...]  # (weight, negative for anti-affinity; term)
    kept_apart: tuple[tuple[Term, Term], ...]  # each of anti_affinity, and as it is widened

    @staticmethod
    def of(pod_class: PodClass) -> Rules:
        """Read from the class's spec."""
        near, far, wishes = [], [], []
        affinity = pod_class.spec.affinity
        if affinity and affinity.pod_affinity:
            group = affinity.pod_affinity
            near = [resolve(t, pod_class) for t in group.required_during_scheduling_ignored_during_execution]
            for wish in group.preferred_during_scheduling_ignored_during_execution:
                wishes.append((wish.weight, resolve(wish.pod_affinity_term, pod_class)))
        if affinity and affinity.pod_anti_affinity:
            against = affinity.pod_anti_affinity
            far = [resolve(t, pod_class) for t in against.required_during_scheduling_ignored_during_execution]
            for wish in against.preferred_during_scheduling_ignored_during_execution:
                wishes.append((-wish.weight, resolve(wish.pod_affinity_term, pod_class)))
        spread = [(c, _counted(pod_class, c)) for c in pod_class.spec.topology_spread_constraints]
        hard = tuple(one for one in spread if one[0].when_unsatisfiable == "DoNotSchedule")
        soft = tuple(one for one in spread if one[0].when_unsatisfiable == "ScheduleAnyway")
        apart = tuple([(term, term.widened()) for term in far])
        return Rules(hard, tuple(near), tuple(far), soft, tuple(wishes), apart)


class TopologyFilter:
    """Answers, for a class, which nodes the places of other pods leave it."""

    def __init__(self, fleet: Fleet, beside: TopologyFilter | None = None) -> None:
        """``beside``: other answers about the fleet, with which the domains are shared."""
        self._fleet = fleet
        self._tallies = Tallies(fleet)
        self._rules: list[Rules] = []
        self._carried: dict[tuple[int, int], Term] = {}  # (class, index): required anti-affinity term
        self._domains: Latest[dict[str, TopologyDomains]] = beside._domains if beside is not None else Latest(dict)
        self._counting: Latest[dict[tuple[int, int, int], tuple[object, TopologyDomains, Ints]]] = Latest(dict)
        """By identity of a class's constraint (whom it counts) and of a view's masks, which are kept with it."""
        self._against: dict[int, tuple[int, list[Term]]] = {}
        self._wanted: dict[bytes, Term] = {}  # who is asked for, or spread among, each once
        self._company: dict[int, tuple[int, bool]] = {}
        self._ruled: dict[PodClass, tuple[bool, bool]] = {}  # by class, as of so many classes and that revision:
        self._ruled_classes, self._ruled_revision = 0, 0
        self._namespaces_revision = fleet.namespaces.revision
        self._claims: ClaimMasks = beside._claims if beside is not None else ClaimMasks(fleet)

    def _follow_namespaces(self) -> None:
        """Whom terms select may be others where labels of namespaces have changed."""
        if self._namespaces_revision != self._fleet.namespaces.revision:
            self._namespaces_revision = self._fleet.namespaces.revision
            self._tallies = Tallies(self._fleet)
            self._against.clear()
            self._company.clear()

    def _selects(self, term: Term, pod_class: PodClass) -> bool:
        return term.matches(pod_class, self._fleet.namespaces)

    def rules(self, pod_class: PodClass) -> Rules:
        """What the class says about other pods."""
        for one in self._fleet.classes.rows[len(self._rules) :]:
            rules = Rules.of(one)
            self._rules.append(rules)
            for index, term in enumerate(rules.anti_affinity):
                self._carried[one.id, index] = term
            for term in (*rules.affinity, *(counted for _, counted in rules.spread)):
                self._wanted.setdefault(msgspec.json.encode(term), term)
        return self._rules[pod_class.id]

    def asks_for_others(self, pod_class: PodClass) -> bool:
        """Whether pods that come later can open nodes to the class: those with pod affinity or topology spread."""
        rules = self.rules(pod_class)
        return bool(rules.spread or rules.affinity)

    def asks_for_any(self, pod_class: PodClass, classes: Iterable[int]) -> bool:
        """Whether the pod affinity of the class requires pods of one of these classes."""
        terms, rows = self.rules(pod_class).affinity, self._fleet.classes.rows
        return bool(terms) and any(self._selects(term, rows[one]) for term in terms for one in classes)

    def counts_any(self, pod_class: PodClass, classes: Iterable[int]) -> bool:
        """Whether where pods of these classes stand matters to a class with pod affinity or topology spread."""
        self._follow_namespaces()
        rules, rows = self.rules(pod_class), self._fleet.classes.rows
        terms = [*rules.affinity, *(counted for _, counted in rules.spread)]
        return any(self._selects(term, rows[one]) for term in terms for one in classes)

    def has_rules(self, pod_class: PodClass) -> bool:
        """Whether hard rules about other pods, its own or theirs, can forbid the class a node."""
        return self._ruling(pod_class)[0]

    def is_silent(self, pod_class: PodClass) -> bool:
        """Whether where other pods stand neither forbids the class a node nor makes it prefer one."""
        return self._ruling(pod_class) == SILENT

    def _ruling(self, pod_class: PodClass) -> tuple[bool, bool]:
        """Whether there are hard rules, and preferences of the class."""
        fleet = self._fleet
        classes, revision = len(fleet.classes.rows), fleet.namespaces.revision
        if classes != self._ruled_classes or revision != self._ruled_revision:
            self._ruled.clear()
            self._ruled_classes, self._ruled_revision = classes, revision
        known = self._ruled.get(pod_class)
        if known is None:
            known = self._ruled[pod_class] = self._rules_on(pod_class)
        return known

    def _rules_on(self, pod_class: PodClass) -> tuple[bool, bool]:
        rules = self.rules(pod_class)
        return self._has_rules(pod_class), bool(rules.soft_spread or rules.soft_affinity)

    def _has_rules(self, pod_class: PodClass) -> bool:
        rules = self.rules(pod_class)
        own = bool(rules.spread or rules.affinity or rules.anti_affinity)
        own = own or bool(pod_class.ports or pod_class.disks or pod_class.alone or pod_class.attaches)
        own = own or bool(pod_class.claims)
        return bool(own or self._terms_against(pod_class))

    def keys(self, pod_class: PodClass) -> set[str]:
        """The topology keys of all hard rules about other pods, its own and theirs."""
        rules = self.rules(pod_class)
        terms = [*rules.affinity, *rules.anti_affinity, *self._terms_against(pod_class)]
        return {one.topology_key for one, _ in rules.spread} | {term.topology_key for term in terms}

    def is_company(self, pod_class: PodClass) -> bool:
        """Whether pods of the class are counted where those of any class that the fleet has known ask for others, or
        to be spread: where it stands matters to them."""
        self._follow_namespaces()
        self.rules(pod_class)
        read, found = self._company.get(pod_class.identity, (0, False))
        if read < len(self._wanted):
            found = found or any(self._selects(term, pod_class) for term in list(self._wanted.values())[read:])
            self._company[pod_class.identity] = (len(self._wanted), found)
        return found

    def masks(self, pod_class: PodClass, view: ShapeView) -> Masks:
        """(why not, nodes that it allows) for every hard rule, in kube-scheduler's order; empty without any."""
        self._follow_namespaces()
        if not self.has_rules(pod_class):
            return []
        rules, against = self.rules(pod_class), self._terms_against(pod_class)
        self._tallies.refresh()
        found = [*self._exclusive(pod_class), *self._spread(pod_class, rules.spread, view)]
        if rules.affinity:
            found.append((AFFINITY, self._affinity(pod_class, rules.affinity)))
        if rules.anti_affinity:
            allowed = [self._empty(term, self._selected_by(wide)) for term, wide in rules.kept_apart]
            found.append((ANTI_AFFINITY, _all(allowed)))
        if against:
            found.append((EXISTING_ANTI_AFFINITY, _all([self._empty(t, self._carriers(t)) for t in against])))
        if pod_class.claims:
            found += self._claims.masks(pod_class.claims, view)
        return found

    def preference(self, pod_class: PodClass, fits: Mask) -> Ints | None:
        """Points per node for ScheduleAnyway and preferred pod affinity, up to 100 for each; None without either.

        Each is scaled over the nodes that fit so that the best has 100 and the worst 0."""
        rules = self.rules(pod_class)
        if not (rules.soft_spread or rules.soft_affinity):
            return None
        self._follow_namespaces()
        self._tallies.refresh()
        points = np.zeros(len(fits), np.int64)
        if rules.soft_spread:
            crowd = [self._crowd(counted) for _, counted in rules.soft_spread]
            points += _scaled(-reduce(np.add, crowd), fits)
        if rules.soft_affinity:
            wished = [weight * self._around(term) for weight, term in rules.soft_affinity]
            points += _scaled(reduce(np.add, wished), fits)
        return points

    # ---- what only one pod can have ----

    def _exclusive(self, pod_class: PodClass) -> Masks:
        """Ports of the node, disks that one pod on it mounts, and claims that one pod uses at a time."""
        found: Masks = []
        if pod_class.ports:
            ports = pod_class.ports
            takers = self._tallies.get(("ports", ports), lambda other: clash(ports, other.ports) is not None)
            found.append((NO_PORTS, takers == 0))
        if pod_class.disks:
            disks = pod_class.disks
            users = self._tallies.get(("disks", disks), lambda other: in_each_others_way(disks, other.disks))
            found.append((NO_DISK, users == 0))
        if pod_class.alone:
            claims = frozenset(pod_class.alone)
            users = self._tallies.get(("alone", pod_class.alone), lambda other: not claims.isdisjoint(other.alone))
            found.append((IN_USE_ALONE, np.full(len(users), not users.any())))
        if pod_class.attaches:
            found.append((TOO_MANY_VOLUMES, self._attachable(pod_class)))
        return found

    def _attachable(self, pod_class: PodClass) -> Mask:
        """Nodes that can attach the pod's volumes beside those of their pods, each volume once.

        Source: kubernetes/kubernetes v1.36 pkg/scheduler/framework/plugins/nodevolumelimits/csi.go."""
        fleet = self._fleet
        allowed = np.ones(len(fleet.alive), np.bool_)
        drivers = {driver for driver, _ in pod_class.attaches}
        for name, limits in fleet.attach_limits.items():
            row = fleet.node_by_name.get(name)
            if row is None or drivers.isdisjoint(limits):
                continue
            there = {one for pod in fleet.node(row).pods for one in fleet.pod_class(pod).attaches}
            both = there | set(pod_class.attaches)
            allowed[row] = all(
                sum(of == driver for of, _ in both) <= limits[driver] for driver in drivers if driver in limits
            )
        return allowed

    # ---- topology spread ----

    def _spread(self, pod_class: PodClass, constraints: Sequence[Spread], view: ShapeView) -> Masks:
        found: Masks = []
        for constraint, counted in constraints:
            domains = self._of(constraint.topology_key)
            included, present = self._included(constraint, counted, constraints, view)
            counts = included.sums(self._spread_tally(counted))
            lowest = int(counts[present].min()) if len(present) >= (constraint.min_domains or 1) else 0
            own = int(selectors.matches(counted.selector, pod_class.labels))
            has_label = domains.of_node >= 0
            found.append((SPREAD_LABEL, has_label))
            found.append((SPREAD, has_label & (domains.spread_out(counts) + own - lowest <= constraint.max_skew)))
        return found

    def _included(
        self, constraint: core.TopologySpreadConstraint, counted: Term, constraints: Sequence[Spread], view: ShapeView
    ) -> tuple[TopologyDomains, Ints]:
        """The domains of the constraint with the nodes that count: those with every key that pass the inclusion
        policies; and which domains have such nodes."""
        known = self._counting.at(self._fleet.topology_revision)
        what = id(counted), id(view.opened.selected), id(view.opened.untainted)
        found = known.get(what)
        if found is None:
            included = _all([self._of(c.topology_key).of_node >= 0 for c, _ in constraints])
            if constraint.node_affinity_policy == "Honor":
                included = included & view.opened.selected
            if constraint.node_taints_policy == "Honor":
                included = included & view.opened.untainted
            domains = self._of(constraint.topology_key).among(included)
            present = np.flatnonzero(np.bincount(domains.numbers, minlength=1))
            found = known[what] = (counted, view.opened.selected, view.opened.untainted), domains, present
        return found[1:]

    def _crowd(self, counted: Term) -> Ints:
        """Matching pods in each node's domain; a node without the label counts as the fullest."""
        domains = self._of(counted.topology_key)
        counts = domains.sums(self._spread_tally(counted))
        return np.append(counts, counts.max(initial=0))[domains.of_node]

    def _spread_tally(self, term: Term) -> Ints:
        selector = term.selector
        if selector is not None and not (selector.match_labels or selector.match_expressions):
            return np.zeros(len(self._fleet.alive), np.int64)  # kube-scheduler counts no pod for an empty selector
        per_node = self._selected_by(term)
        leaving = [(number, nodes) for number, nodes in self._fleet.leaving.items() if nodes]
        gone = [nodes for number, nodes in leaving if self._selects(term, self._fleet.classes.rows[number])]
        if gone:
            per_node = per_node.copy()
            for nodes in gone:
                per_node[list(nodes)] -= list(nodes.values())
        return per_node

    # ---- pod affinity ----

    def _affinity(self, pod_class: PodClass, terms: tuple[Term, ...]) -> Mask:
        """A pod counts only if all terms select it; the first pod of a group that selects itself may go anywhere."""

        def all_match(other: PodClass) -> bool:
            return all(self._selects(term, other) for term in terms)

        per_node = self._tallies.get(("affinity", terms), all_match, terms, terms[0].labels)
        domains = [self._of(term.topology_key) for term in terms]
        labelled = _all([d.of_node >= 0 for d in domains])
        if not any(per_node[d.of_node >= 0].any() for d in domains) and all_match(pod_class):
            return labelled
        return _all([labelled, *(d.spread_out(d.sums(per_node)) > 0 for d in domains)])

    def _around(self, term: Term) -> Ints:
        """Pods that the term selects in each node's domain."""
        domains = self._of(term.topology_key)
        return domains.spread_out(domains.sums(self._selected_by(term)))

    def _empty(self, term: Term, per_node: Ints) -> Mask:
        """Nodes whose domain holds none of the pods counted; nodes without the label are in no domain."""
        domains = self._of(term.topology_key)
        empty: Mask = domains.spread_out(domains.sums(per_node)) == 0
        return empty

    def _selected_by(self, term: Term) -> Ints:
        key = "selected", term.selector, term.namespaces, term.namespace_selector
        return self._tallies.get(key, partial(self._selects, term), term, term.labels)

    def _carriers(self, term: Term) -> Ints:
        def carries(other: PodClass) -> bool:
            return term in self.rules(other).anti_affinity

        return self._tallies.get(("carriers", term), carries)

    def _terms_against(self, pod_class: PodClass) -> list[Term]:
        """Every required anti-affinity term, of any class, that selects pods of this class."""
        self._follow_namespaces()
        self.rules(pod_class)
        read, found = self._against.get(pod_class.identity, (0, []))
        if read < len(self._carried):
            for term in list(self._carried.values())[read:]:
                if self._selects(term, pod_class) and term not in found:
                    found.append(term)
            self._against[pod_class.identity] = (len(self._carried), found)
        return found

    # ---- domains ----

    def _of(self, key: str) -> TopologyDomains:
        fleet = self._fleet
        domains = self._domains.at(fleet.topology_revision)
        known = domains.get(key)
        if known is None:
            known = domains[key] = domains_of(fleet, key)
        return known


def _counted(pod_class: PodClass, constraint: core.TopologySpreadConstraint) -> Term:
    """Whom the constraint counts."""
    selector = narrowed(constraint.label_selector, pod_class.labels, constraint.match_label_keys, "In")
    return Term(constraint.topology_key, selector, (pod_class.namespace,), None)


def _all(masks: Sequence[Mask]) -> Mask:
    result = masks[0]
    for mask in masks[1:]:
        result = result & mask
    return result


def _scaled(raw: Ints, fits: Mask) -> Ints:
    """``raw`` on a scale from 0 to 100 over the nodes that fit."""
    among = raw[fits]
    if not len(among):
        return raw
    low, high = int(among.min()), int(among.max())
    return (raw - low) * 100 // max(high - low, 1)
