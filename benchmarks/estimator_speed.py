"""How many distinct estimates a second: no two ask for the same replica and load, nothing is remembered between."""

from __future__ import annotations

import itertools
import time

from tonnage.errors import InputError
from tonnage.facts import gpus, models
from tonnage.inference.estimate import FRAMEWORKS, Load, Replica, estimate_many
from tonnage.inference.estimate.case import check_room, figures

CARDS = ("a100-80", "h100", "h200", "b200", "l40s", "gb200")
_CONCURRENCIES, _INPUTS, _OUTPUTS = (1, 4, 16, 64, 128, 256), (512, 1024, 2048, 4096), (128, 1024)
LOADS = tuple(Load(*numbers) for numbers in itertools.product(_CONCURRENCIES, _INPUTS, _OUTPUTS))


def cases(count: int) -> list[tuple[Replica, Load]]:
    """``count`` of them, all different: every model on cards and TP where it fits, at many loads."""
    found: list[tuple[Replica, Load]] = []
    kinds = itertools.product((1, 2, 4, 8), ("fp8", "bf16"), FRAMEWORKS, CARDS, models.all())
    for tp, precision, framework, card, shape in kinds:
        replica = Replica(shape, gpus.get(card), precision, tensor_parallel=tp, framework=framework)
        try:
            check_room(replica)
        except InputError:
            continue
        longest = shape.context_tokens or 1 << 20
        found += [(replica, load) for load in LOADS if load.input_tokens + load.output_tokens <= longest]
        if len(found) >= count:
            return found[:count]
    return found


def rate(count: int) -> float:
    """Estimates a second of CPU time, best of three runs."""
    given, best = cases(count), float("inf")
    for _ in range(3):
        figures.cache_clear()
        start = time.process_time()
        estimate_many(given)
        best = min(best, time.process_time() - start)
    return len(given) / best
