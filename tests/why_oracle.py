"""Every change of a small cluster, tried out one after another: the oracle for the smallest one.

Shares with the search only the edits and what applying them means; whether the pod fits then is asked of
``place.feasible``, in a cluster with tables rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product

from tonnage.fleet.asks import Kind
from tonnage.fleet.filters import CORDON
from tonnage.fleet.state import Fleet, NodeRow
from tonnage.objects import core, selectors
from tonnage.scheduling import place
from tonnage.scheduling.why import requests as why_requests
from tonnage.scheduling.why.changes import (
    AddNode,
    AskWhole,
    Cost,
    DropAffinity,
    DropNodeName,
    DropRequirement,
    DropSelector,
    Edit,
    Leave,
    Lower,
    PodChange,
    Tolerate,
    Uncordon,
    apply,
    cost_of,
    rules_of,
)


def fits(fleet: Fleet, row: int, change: PodChange) -> bool:
    """Whether the pod fits on the change's node once it is made; the fleet is as before afterwards."""
    with fleet.what_if():
        after = apply(fleet, row, change)
        there = place.feasible(fleet, after, place.Cache(fleet))
        return change.node in {fleet.node(node).spec.name for node in there}


def smaller(fleet: Fleet, row: int, than: Cost, *, most: int = 3) -> Iterator[PodChange]:
    """Every change with a smaller measure and at most ``most`` edits, whether it makes the pod fit or not."""
    pod = fleet.pod(row).spec
    for name, node_row in sorted(fleet.node_by_name.items()):
        node = fleet.node(node_row)
        cordoned = not fleet.schedulable[node_row] and not selectors.tolerates(pod.spec.tolerations, CORDON)
        pods = [fleet.pod(other) for other in sorted(node.pods)]
        leaves: list[Edit] = [Leave(p.spec.namespace, p.spec.name, name, _held(p.devices, p.pieces)) for p in pods]
        whole = list(_in_whole(fleet, row, node_row))
        always: list[Edit] = [Uncordon(name)] if cordoned else []
        yield from _on(fleet, row, name, _fixed(pod.spec, node, name), always, [*leaves, *whole], than, most)
        add = AddNode(name)
        if add.name not in fleet.node_by_name:
            yield from _on(fleet, row, add.name, _fixed(pod.spec, node, add.name), [add], [], than, most)


def _on(
    fleet: Fleet,
    row: int,
    name: str,
    ways: Iterable[Sequence[Edit]],
    always: Sequence[Edit],
    leaves: Sequence[Edit],
    than: Cost,
    most: int,
) -> Iterator[PodChange]:
    pod = fleet.pod(row).spec
    axes = why_requests.axes(pod, fleet.classes.shapes[fleet.pod_class(row).shape])
    rules = rules_of(pod.spec)
    for way in ways:
        free: Sequence[Edit] = (*rules, *leaves)
        fixed = (*always, *way)
        for size in range(max(0, most - len(fixed)) + 1):
            for chosen in combinations(free, size):
                left = most - len(fixed) - size
                for names in (n for k in range(left + 1) for n in combinations(axes, k)):
                    for amounts in product(*(_amounts(axes[n]) for n in names)):
                        lowers = [Lower(n, axes[n] - to, to) for n, to in zip(names, amounts, strict=True)]
                        change = PodChange(name, (*fixed, *chosen, *lowers))
                        if cost_of(change.edits) < than:
                            yield change


def _in_whole(fleet: Fleet, row: int, node_row: int) -> Iterator[Edit]:
    """Whole devices in place of their memory, on a node that does not say how much there is."""
    ask, cards = fleet.classes.shapes[fleet.pod_class(row).shape].ask, fleet.cards
    if ask.kind is Kind.MEMORY and not ask.refused and not cards.memory[node_row] and not cards.numbers[node_row]:
        yield AskWhole(fleet.node(node_row).spec.name, ask.resource, ask.count)


def _amounts(now: int) -> Iterator[int]:
    """Some smaller amounts: all of a small number, else some between."""
    yield from range(1, now) if now <= 8 else sorted({now * k // 20 for k in range(1, 20)} | {now - 1})


def _held(devices: Sequence[int], pieces: Sequence[object]) -> int:
    shared = {piece.device for piece in pieces}  # type: ignore[attr-defined]
    return 1000 * len(set(devices) - shared) + sum(piece.milli for piece in pieces)  # type: ignore[attr-defined]


def _fixed(spec: core.PodSpec, node: NodeRow, name: str) -> list[list[Edit]]:
    """The sets of edits of which a node asks one, in full."""
    labels = {**node.labels, "kubernetes.io/hostname": name}
    always: list[Edit] = [DropNodeName(spec.node_name)] if spec.node_name not in ("", name) else []
    always += [DropSelector(k, v) for k, v in spec.node_selector.items() if labels.get(k) != v]
    hard = {t: None for t in node.taints if t.effect != "PreferNoSchedule"}
    always += [Tolerate(t) for t in hard if not selectors.tolerates(spec.tolerations, t)]
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None:
        return [always]
    ways = []
    for t, term in enumerate(required.node_selector_terms):
        whole = [(False, i) for i in range(len(term.match_expressions))]
        whole += [(True, i) for i in range(len(term.match_fields))]
        for size in range(len(whole) + 1):
            for gone in combinations(whole, size):
                if len(gone) < len(whole) or not whole:
                    ways.append([*always, *(DropRequirement(t, i, field, "") for field, i in gone)])
    if not any(_partly(term, labels, name) for term in required.node_selector_terms):
        about = (tuple("" for _ in (*t.match_expressions, *t.match_fields)) for t in required.node_selector_terms)
        ways.append([*always, DropAffinity(tuple(about))])
    return ways


def _partly(term: core.NodeSelectorTerm, labels: Mapping[str, str], name: str) -> bool:
    """Whether something of the term matches the node."""
    parts = [core.NodeSelectorTerm(match_expressions=[one]) for one in term.match_expressions]
    parts += [core.NodeSelectorTerm(match_fields=[one]) for one in term.match_fields]
    return any(selectors.term_matches(one, labels, name) for one in parts)
