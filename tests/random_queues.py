"""Random queues of pods before random clusters: whole GPUs, shares of them, cores; some tied to one model of GPU."""

from __future__ import annotations

from random import Random
from typing import Any

from builders import GPU, HOSTNAME, ZONE, affinity_term, away, near, node, pod, spread
from tonnage.decisions import Bind, Decision
from tonnage.fleet.asks import worth
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet
from tonnage.scheduling import place

PRODUCT = "nvidia.com/gpu.product"
MEMORY = "nvidia.com/gpu.memory"
RIVALS = ("binpack", "bestfit", "fgd")

Seated = tuple[tuple[int, int, int], ...]


def random_queue(seed: int, *, rules: bool = False, priorities: bool = False, memory: bool = False) -> Fleet:
    """A cluster of 3 to 40 nodes, some of them in use, and pods that wait for 80 to 130 per cent of its GPUs.
    ``memory``: GPUs have 16 or 80 GB, and some pods ask for so much of one."""
    rng, fleet = Random(f"queue/{seed}"), Fleet()
    gpus = 0
    for i in range(rng.randint(3, 40)):
        of_node = rng.choice((0, 1, 2, 4, 8, 8, 8))
        gpus += of_node
        sized = {MEMORY: rng.choice(("16384", "81559"))} if memory else {}
        fleet.add_node(
            node(
                f"n{i:02d}", cpu=rng.choice((16, 32, 64, 96)), memory_gib=rng.choice((64, 256, 512)), gpus=of_node,
                zone=rng.choice("ab"), labels={PRODUCT: rng.choice("ABC"), HOSTNAME: f"n{i:02d}"} | sized,
                device_resource=GPU,
            )
        )  # fmt: skip
    asked, number, limit = 0.0, 0, max(4, gpus) * rng.choice((0.8, 1.0, 1.3))
    while asked < limit:
        fields, size = _random_fields(rng, rules=rules, memory=memory)
        asked += size or 0.05
        made = pod(
            f"p{number:03d}", cpu=rng.choice((0.5, 1, 2, 4, 8)), memory_gib=rng.choice((1, 4, 16)), created_ns=number,
            priority=rng.choice((0, 0, 9)) if priorities else 0, **fields,
        )  # fmt: skip
        fleet.add_pod(made)
        number += 1
    return fleet


def _random_fields(rng: Random, *, rules: bool, memory: bool) -> tuple[dict[str, Any], float]:
    """(what the pod says, GPUs that it asks for)."""
    fields: dict[str, Any] = {"nodeSelector": {PRODUCT: rng.choice("ABC")}} if rng.random() < 0.3 else {}
    if rules and rng.random() < 0.3:
        app = rng.choice(("web", "db", "llm"))
        fields["labels"] = {"app": app}
        kind = rng.randrange(4)
        if kind == 1:
            fields["affinity"] = away(affinity_term(HOSTNAME, app=app))
        elif kind == 2:
            fields["affinity"] = near(affinity_term(ZONE, app=app))
        elif kind == 3:
            fields["topologySpreadConstraints"] = [spread(ZONE, 1, selector={"app": app})]
    kind_of_ask = rng.random()
    if memory and kind_of_ask < 0.4:
        return fields | {"annotations": {"gpu-memory": rng.choice(("4000", "12000"))}}, 0.5
    if kind_of_ask < 0.6:
        whole = rng.choice((1, 1, 1, 2, 2, 4, 8))
        return fields | {"gpus": whole}, whole
    if kind_of_ask < 0.75:
        share = rng.choice(("0.1", "0.25", "0.5", "0.7"))
        return fields | {"annotations": {"gpu-fraction": share}}, float(share)
    return fields, 0.0


def seated(fleet: Fleet, settings: place.Settings, cache: place.Cache | None = None) -> Seated:
    """(priority, thousandths of GPUs, pods) that the decision binds, the highest priority first. Every Bind is made as
    it is told, which raises Conflict where there is no room."""
    memory = int(fleet.cards.memory.max(initial=0))
    found: dict[int, list[int]] = {fleet.pod(row).spec.priority: [0, 0] for row in fleet.pending}
    with fleet.what_if():
        for bind in binds(place.decide(Snapshot(0, fleet), settings, cache)):
            row = fleet.pod_by_key[bind.pod.namespace, bind.pod.name]
            fleet.bind(row, fleet.node_by_name[bind.node.name], bind.devices)
            counted = found[fleet.pod(row).spec.priority]
            counted[0] += worth(fleet.classes.shapes[fleet.pod_class(row).shape].ask, memory)
            counted[1] += 1
    return tuple((priority, *found[priority]) for priority in sorted(found, reverse=True))  # type: ignore[misc]


def binds(decisions: list[Decision]) -> list[Bind]:
    """The Binds among them."""
    return [one for one in decisions if isinstance(one, Bind)]


def check_no_policy_seats_more(fleet: Fleet) -> bool:
    """Whether a single look would have placed fewer than the best of the other policies; the decision never does."""
    cache = place.Cache(fleet)
    ours = seated(fleet, place.Settings(), cache)
    theirs = {policy: seated(fleet, place.Settings(policy), cache) for policy in RIVALS}
    assert all(ours >= other for other in theirs.values()), (ours, theirs)
    return seated(fleet, place.Settings(look_again=False), cache) < max(theirs.values())
