"""Random nodes, pods and changes of a fleet. Small vocabularies, so that rules meet each other often."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np

from builders import GPU, HOSTNAME, ZONE, affinity_term, away, expression, near, node, pod, spread, taint
from tonnage.fleet.state import Conflict, Fleet, FleetNode, FleetPod
from tonnage.units import GIB

ZONES = ("", "a", "a", "b", "b", "c")
APPS = ("web", "db", "llm")
NAMESPACES = ("default", "other")
DISK = "disk"
TAINTS = ("dedicated=gpu:NoSchedule", "dedicated=ml:NoExecute", "slow:PreferNoSchedule")


def random_node(rng: Random, name: str) -> FleetNode:
    """A node of one of a few sizes, maybe in a zone, maybe labelled, maybe tainted."""
    labels = {DISK: rng.choice(("ssd", "hdd"))} if rng.random() < 0.7 else {}
    return node(
        name,
        cpu=rng.choice((1, 4, 8)),
        memory_gib=rng.choice((2, 4, 8)),
        gpus=rng.choice((0, 0, 1, 4)),
        pods=rng.choice((3, 110, 110)),
        zone=rng.choice(ZONES),
        labels=labels,
        taints=[one for one in TAINTS if rng.random() < 0.08],
        device_resource=GPU,
    )


def random_pod(rng: Random, name: str) -> FleetPod:
    """A pod that asks for some of everything that placement looks at."""
    fields: dict[str, Any] = {}
    if rng.random() < 0.1:
        fields["nodeSelector"] = {DISK: rng.choice(("ssd", "hdd"))}
    if rng.random() < 0.3:
        fields["tolerations"] = [rng.choice(_TOLERATIONS)]
    if rng.random() < 0.05:
        fields["nodeName"] = f"n{rng.randrange(6)}"
    affinity: dict[str, Any] = {}
    if rng.random() < 0.2:
        terms = [_node_term(rng) for _ in range(rng.choice((1, 1, 2)))]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        wish = {"weight": rng.choice((1, 50, 100)), "preference": _node_term(rng)}
        affinity["nodeAffinity"] = required | {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}
    if rng.random() < 0.25:
        affinity |= near(*(_pod_term(rng) for _ in range(rng.choice((1, 1, 2)))))
    if rng.random() < 0.25:
        affinity |= away(*(_pod_term(rng) for _ in range(rng.choice((1, 1, 2)))))
    if rng.random() < 0.1:
        wish = {"weight": rng.choice((1, 100)), "podAffinityTerm": _pod_term(rng)}
        group = affinity.setdefault(rng.choice(("podAffinity", "podAntiAffinity")), {})
        group["preferredDuringSchedulingIgnoredDuringExecution"] = [wish]
    if affinity:
        fields["affinity"] = affinity
    if rng.random() < 0.4:
        fields["topologySpreadConstraints"] = [_spread(rng) for _ in range(rng.choice((1, 1, 2)))]
    labels = {"app": rng.choice(("web", "web", "db", "llm"))}
    if rng.random() < 0.5:
        labels["version"] = rng.choice(("1", "2"))
    return pod(
        name,
        cpu=rng.choice((0, 0.25, 0.5, 1)),
        memory_gib=rng.choice((0.5, 1)),
        gpus=rng.choice((0, 0, 0, 0, 0, 1, 2)),
        namespace=rng.choice(NAMESPACES),
        labels=labels,
        priority=rng.choice((0, 0, 100)),
        created_ns=rng.randrange(3),
        **fields,
    )


def random_spread_pod(rng: Random, name: str) -> FleetPod:
    """A small pod of one group that spreads, so that little else decides."""
    fields: dict[str, Any] = {}
    if rng.random() < 0.2:
        fields["nodeSelector"] = {DISK: rng.choice(("ssd", "hdd"))}
    if rng.random() < 0.3:
        fields["tolerations"] = [rng.choice(_TOLERATIONS)]
    if rng.random() < 0.7:
        fields["topologySpreadConstraints"] = [_spread(rng) for _ in range(rng.choice((1, 1, 2)))]
    return pod(name, cpu=0, memory_gib=0, labels={"app": "web", "version": rng.choice(("1", "2"))}, **fields)


_TOLERATIONS = (
    {"operator": "Exists"},
    {"key": "dedicated", "operator": "Exists"},
    {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"},
    {"key": "dedicated", "value": "ml"},
    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
)


def _node_term(rng: Random) -> dict[str, Any]:
    kind = rng.randrange(6)
    if kind == 0:
        return {"matchFields": [expression("metadata.name", "In", f"n{rng.randrange(6)}")]}
    if kind == 1:
        return {"matchExpressions": [expression(HOSTNAME, "NotIn", f"n{rng.randrange(6)}")]}
    if kind == 2:
        return {"matchExpressions": [expression(ZONE, "Exists"), expression(DISK, "NotIn", "hdd")]}
    return {"matchExpressions": [expression(ZONE, rng.choice(("In", "NotIn")), *rng.sample(("a", "b", "c"), 2))]}


def _pod_term(rng: Random) -> dict[str, Any]:
    term = affinity_term(rng.choice((ZONE, HOSTNAME, DISK)), app=rng.choice(APPS))
    choice = rng.random()
    if choice < 0.15:
        term["namespaces"] = [rng.choice(NAMESPACES)]
    elif choice < 0.3:
        term["namespaceSelector"] = {}
    elif choice < 0.4:
        term["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": "other"}}
    if rng.random() < 0.2:
        term[rng.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["version"]
    return term


def _spread(rng: Random) -> dict[str, Any]:
    fields: dict[str, Any] = {"whenUnsatisfiable": rng.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"))}
    if rng.random() < 0.4 and fields["whenUnsatisfiable"] == "DoNotSchedule":
        fields["minDomains"] = rng.choice((1, 2, 3))
    if rng.random() < 0.2:
        fields["nodeAffinityPolicy"] = "Ignore"
    if rng.random() < 0.3:
        fields["nodeTaintsPolicy"] = "Honor"
    if rng.random() < 0.2:
        fields["matchLabelKeys"] = ["version"]
    selector = {"app": rng.choice(("web", "web", "db"))}
    return spread(rng.choice((ZONE, HOSTNAME, DISK)), rng.choice((1, 1, 2)), selector=selector, **fields)


class Interrupted(Exception):
    """What a decision might raise inside a what-if."""


class Changes:
    """Random changes of one fleet. A change that is refused must leave no trace; a what-if must leave none either."""

    def __init__(self, rng: Random, fleet: Fleet, check: Callable[[], None]) -> None:
        self.rng = rng
        self.fleet = fleet
        self.check = check
        self.made = 0

    def step(self, depth: int = 0) -> None:
        """One change, then the check."""
        if depth < 3 and self.rng.random() < 0.12:
            self._what_if(depth)
        else:
            before = columns(self.fleet)
            try:
                self.rng.choice(self.changes())(self)
            except Conflict:
                assert columns(self.fleet) == before
        self.check()

    def _what_if(self, depth: int) -> None:
        before = columns(self.fleet)
        try:
            with self.fleet.what_if():
                for _ in range(self.rng.randrange(6)):
                    self.step(depth + 1)
                if self.rng.random() < 0.3:
                    raise Interrupted
        except Interrupted:
            pass
        assert columns(self.fleet) == before

    def changes(self) -> Sequence[Callable[[Any], None]]:
        """The changes that are made."""
        return _CHANGES

    def _name(self, prefix: str) -> str:
        return f"{prefix}{self.rng.randrange(12)}"

    def _node_row(self) -> int:
        return self.rng.randrange(len(self.fleet.nodes) + 1)

    def _pod_row(self) -> int:
        return self.rng.randrange(len(self.fleet.pods) + 1)

    def _add_node(self) -> None:
        self.fleet.add_node(random_node(self.rng, self._name("n")), schedulable=self.rng.random() < 0.9)

    def _add_pod(self) -> None:
        self.fleet.add_pod(random_pod(self.rng, self._name("p")))

    def _remove_node(self) -> None:
        self.fleet.remove_node(self._node_row())

    def _remove_pod(self) -> None:
        self.fleet.remove_pod(self._pod_row())

    def _bind(self) -> None:
        devices = None
        if self.rng.random() < 0.3:
            devices = tuple(self.rng.randrange(5) for _ in range(self.rng.randrange(3)))
        self.fleet.bind(self._pod_row(), self._node_row(), devices)

    def _unbind(self) -> None:
        self.fleet.unbind(self._pod_row())

    def _set_allocatable(self) -> None:
        row = self._node_row()
        self.fleet.node(row)
        amounts = {
            "cpu": 1000 * self.rng.randrange(6),
            "memory": self.rng.randrange(9) * GIB,
            "pods": self.rng.randrange(9),
        }
        self.fleet.set_allocatable(row, amounts | {GPU: self.rng.choice((0, 2, 4, 11)), "example.com/nic": 1})

    def _cordon(self) -> None:
        row = self._node_row()
        self.fleet.node(row)
        self.fleet.set_schedulable(row, self.rng.random() < 0.5)

    def _taint(self) -> None:
        self.fleet.set_taints(self._node_row(), tuple(taint(one) for one in TAINTS if self.rng.random() < 0.3))


_CHANGES: tuple[Callable[[Changes], None], ...] = (
    Changes._add_node,
    Changes._add_pod,
    Changes._add_pod,
    Changes._bind,
    Changes._bind,
    Changes._bind,
    Changes._remove_node,
    Changes._remove_pod,
    Changes._unbind,
    Changes._set_allocatable,
    Changes._cordon,
    Changes._taint,
)


def _cards(fleet: Fleet) -> list[Any]:
    cards = fleet.cards
    return [cards.milli, cards.mib, cards.mask, cards.sharers, cards.cut]


def columns(fleet: Fleet) -> dict[str, Any]:
    """Everything that a fleet holds, in a form to compare: what is undone must be equal again."""
    nodes = {
        node.spec.name: (
            row,
            node.spec,
            dict(node.labels),
            node.taints,
            frozenset(node.pods),
            bool(fleet.schedulable[row]),
            fleet.allocatable_of(row),
            {name: int(fleet.free[row, c]) for c, name in enumerate(fleet.resources) if fleet.free[row, c]},
            np.trim_zeros(fleet.devices[row] + 2, "b").tolist(),
            [of[row].tobytes().rstrip(b"\0") for of in _cards(fleet)],
            (int(fleet.cards.memory[row]), int(fleet.cards.unit[row]), bool(fleet.cards.special[row]), node.cuts),
            fleet.label_sets.rows[fleet.label_set[row]],
            fleet.taint_sets.rows[fleet.taint_set[row]],
        )
        for row, node in enumerate(fleet.nodes)
        if node is not None
    }
    pods = {
        pod.key: (row, pod.spec, pod.class_id, pod.node, pod.devices, pod.pieces)
        for row, pod in enumerate(fleet.pods)
        if pod is not None
    }
    dead = ~fleet.alive
    return {
        "nodes": nodes,
        "pods": pods,
        "node_by_name": dict(fleet.node_by_name),
        "pod_by_key": dict(fleet.pod_by_key),
        "pending": set(fleet.pending),
        "bound": {class_id: dict(on_nodes) for class_id, on_nodes in fleet.bound.items() if on_nodes},
        "alive": np.flatnonzero(fleet.alive).tolist(),
        "dead rows hold": [int(fleet.free[dead].sum()), int((fleet.devices[dead] + 2).sum())]
        + [int(of[dead].sum()) for of in _cards(fleet)],
        "next node rows": [*reversed(fleet._nodes._vacant), *range(len(fleet.nodes), 40)][:30],
        "next pod rows": [*reversed(fleet._pods._vacant), *range(len(fleet.pods), 40)][:30],
    }
