"""Clusters whose pods share GPUs, and a slow reading of the published fragment measure to compare with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from random import Random

from builders import fleet, node, pod
from tonnage.fleet.asks import FULL
from tonnage.fleet.state import Conflict, Fleet, FleetPod

MODEL = "nvidia.com/gpu.product"
MODELS = ("A", "B")


def share(name: str, milli: int, cpu: float = 1, **fields: object) -> FleetPod:
    """A pod that takes thousandths of one GPU."""
    return pod(name, cpu=cpu, annotations={"gpu-fraction": f"{milli / FULL:g}"}, **fields)  # type: ignore[arg-type]


def random_pod(rng: Random, name: str) -> FleetPod:
    """A pod without, with one, with some, or with a part of a GPU; maybe it names a model."""
    fields = {"nodeSelector": {MODEL: rng.choice(MODELS)}} if rng.random() < 0.3 else {}
    cpu = rng.choice((1, 2, 4))
    kind = rng.random()
    if kind < 0.6:
        return share(name, rng.choice((100, 250, 330, 500, 810)), cpu, **fields)
    return pod(name, cpu=cpu, gpus=rng.choice((0, 1, 1, 2)), created_ns=rng.randrange(4), **fields)


def random_fleet(rng: Random, pending: int = 4) -> Fleet:
    """A few nodes of two models, some pods bound wherever there was room, some waiting."""
    made = fleet(
        *(
            node(f"n{i}", cpu=rng.choice((4, 8, 16)), gpus=rng.choice((1, 2, 4)), labels={MODEL: rng.choice(MODELS)})
            for i in range(rng.randint(1, 5))
        )
    )
    for i in range(rng.randint(0, 12)):
        row = made.add_pod(random_pod(rng, f"bound-{i}"))
        try:
            made.bind(row, rng.randrange(len(made.node_by_name)))
        except Conflict:
            made.remove_pod(row)
    for i in range(rng.randint(1, pending)):
        made.add_pod(random_pod(rng, f"p{i}"))
    return made


Typical = list[tuple[float, int, int, int, str]]
"""(frequency, cores in milli, GPUs, thousandths of each, model or empty)."""


def wanted(spec: FleetPod) -> tuple[int, int, int, str]:
    """Cores, GPUs, thousandths and model that a pod of these cases asks for, read from its manifest."""
    requests = spec.spec.containers[0].resources.requests
    gpus, part = int(str(requests.get("nvidia.com/gpu", 0))), spec.annotations.get("gpu-fraction")
    cpu = round(float(str(requests["cpu"]).removesuffix("m")))
    model = spec.spec.node_selector.get(MODEL, "")
    return (cpu, 1, round(float(part) * FULL), model) if part else (cpu, gpus, FULL if gpus else 0, model)


def typical(specs: Sequence[FleetPod]) -> Typical:
    """The most frequent asks that cover 95 % of the pods."""
    counts = Counter(wanted(spec) for spec in specs)
    chosen: list[tuple[tuple[int, int, int, str], int]] = []
    for what, n in sorted(counts.items(), key=lambda item: (-item[1], item[0][:3], item[0][3])):
        if sum(n for _, n in chosen) >= 0.95 * counts.total():
            break
        chosen.append((what, n))
    covered = sum(n for _, n in chosen)
    return [(n / covered, *what) for what, n in chosen]


def fragment(mix: Typical, cpu: int, free: Sequence[int], model: str) -> float:
    """The thousandths that a typical pod cannot use, expected."""
    total = 0.0
    for frequency, cores, gpus, milli, needs in mix:
        fits = gpus and cpu >= cores and needs in ("", model) and sum(f >= milli for f in free) >= gpus
        total += frequency * sum(f for f in free if not fits or f < milli)
    return total


def points(mix: Typical, made: Fleet, node_row: int, spec: FleetPod) -> int:
    """FGD's score of the node, the best over its devices."""
    cores, gpus, milli, _ = wanted(spec)
    held = [int(f) for f, h in zip(made.cards.milli[node_row], made.cards.holder[node_row], strict=True) if h != -2]
    cpu, model = int(made.free[node_row, 0]), made.node(node_row).labels[MODEL]
    before = fragment(mix, cpu, held, model)
    options = []
    if milli == FULL or not gpus:
        after, left = list(held), gpus
        for i, f in enumerate(after):
            if left and f == FULL:
                after[i], left = 0, left - 1
        options.append(after)
    else:
        options = [[f - milli * (i == j) for j, f in enumerate(held)] for i, f in enumerate(held) if f >= milli]
    gains = [(before - fragment(mix, cpu - cores, after, model)) / FULL for after in options]
    return max(math.floor(100 / (1 + math.exp(-gain)) + 1e-9) for gain in gains)
