"""Random tiny clusters with a gang, for the oracle."""

from __future__ import annotations

from random import Random
from typing import Any

from builders import ZONE, affinity_term, away, near, node, pod, spread
from gang_builders import RACK, gang, member
from tonnage.fleet.gangs import Gang, SubGroup, TopologyRule
from tonnage.fleet.state import Conflict, Fleet

LEVELS = (ZONE, RACK, "kubernetes.io/hostname")
RULES: tuple[dict[str, Any], ...] = (
    {},
    {"required": RACK},
    {"required": ZONE},
    {"preferred": RACK},
    {"preferred": "kubernetes.io/hostname"},
    {"required": ZONE, "preferred": RACK},
    {"unconstrained": True},
    {"slice_size": 2, "slice_required": RACK},
    {"required": ZONE, "slice_size": 2, "slice_required": RACK},
    {"required": ZONE, "slice_size": 3, "slice_required": "kubernetes.io/hostname"},
)


def tiny(rng: Random, *, ruled: bool = False, nodes: int = 6, pods: int = 6) -> tuple[Fleet, Gang]:
    """At most this many nodes and pending pods of the gang ``default/g``; some of the gang may be bound already."""
    made = Fleet()
    for i in range(rng.randint(1, nodes)):
        labels = {RACK: f"r{rng.randrange(3)}"} if rng.random() < 0.9 else {}
        zone = f"z{rng.randrange(2)}" if rng.random() < 0.9 else ""
        spec = node(f"n{i}", cpu=rng.choice((3, 4, 6)), gpus=rng.choice((0, 1, 2, 3, 4)), zone=zone, labels=labels)
        made.add_node(spec, schedulable=rng.random() < 0.95)
    for i in range(rng.randrange(2 if ruled else 4)):
        _bind_somewhere(rng, made, made.add_pod(pod(f"other-{i}", gpus=rng.randrange(3), labels={"app": "other"})))
    known = _gang(rng, 2 if ruled else pods)
    names = ["", *(one.name for one in known.subgroups)]
    for i in range(rng.randint(2 if ruled else 1, pods)):
        made.add_pod(_member(rng, f"g-{i}", rng.choice(names), ruled=ruled))
    if rng.random() < 0.4:
        for i in range(rng.randint(1, 3)):
            _bind_somewhere(rng, made, made.add_pod(_member(rng, f"here-{i}", rng.choice(names))))
    return made, known


def _bind_somewhere(rng: Random, made: Fleet, row: int) -> None:
    try:
        made.bind(row, rng.randrange(len(made.nodes)))
    except Conflict:
        made.remove_pod(row)


def _gang(rng: Random, pods: int) -> Gang:
    parts: list[SubGroup] = []
    if rng.random() < 0.6:
        for i in range(rng.randint(1, 3)):
            parent = rng.choice(["", "", *(one.name for one in parts)])
            parts.append(SubGroup(f"s{i}", rng.randrange(3), TopologyRule(**rng.choice(RULES)), parent))
    return gang(rng.randint(1, pods), *parts, **rng.choice(RULES))


def _member(rng: Random, name: str, subgroup: str, *, ruled: bool = False) -> Any:
    fields: dict[str, Any] = {}
    if ruled:
        fields = rng.choice(
            (
                {},
                {"affinity": away(affinity_term("kubernetes.io/hostname", app="a"))},
                {"affinity": near(affinity_term(ZONE, app="a"))},
                {"affinity": near(affinity_term(RACK, app="b"))},
                {"topologySpreadConstraints": [spread(ZONE, selector={"app": "a"})]},
            )
        )
    labels = {"app": rng.choice("ab")} if ruled else {}
    return member(
        name, subgroup=subgroup, gpus=rng.choice((0, 1, 1, 2)), cpu=rng.choice((1, 2)), labels=labels, **fields
    )
