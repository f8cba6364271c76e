"""Requests, workers and an engine's timing for the tests of this room."""

from __future__ import annotations

from random import Random
from typing import Any

from tonnage.inference.prompts import BlockNames, Path
from tonnage.inference.routing import Overlap, Router, RouteRequest, RoutingPolicy, Tonnage, TonnageSettings, Worker

BLOCK = 64
MS = 1_000_000
S = 1_000_000_000


class PlainCosts:
    """A millisecond for each 64 tokens of prompt, whatever came before; a decode step takes ten."""

    def prefill_s(self, tokens: int, context: int) -> float:
        return tokens / BLOCK * 1e-3

    def decode_s(self, sequences: int, context: int) -> float:
        return 0.01 if sequences else 0.0


def workers(count: int, **fields: Any) -> list[Worker]:
    return [Worker(index, f"worker-{index}", block_size=BLOCK, **fields) for index in range(count)]


def router(policy: RoutingPolicy, count: int = 2, seed: int = 0, **fields: Any) -> Router:
    return Router(policy, workers(count, **fields), rng=Random(seed))


def request(
    number: int, blocks: int = 10, *, path: Path | None = None, arrival_ns: int = 0, **fields: Any
) -> RouteRequest:
    """A prompt of whole blocks; its content is its own unless a path is given."""
    if path is None:
        path = ((number * 100_000, number * 100_000 + blocks),) if blocks else ()
    return RouteRequest(number, arrival_ns, max(1, blocks * BLOCK), blocks, path, **fields)


def holds(**device: int) -> Overlap:
    """Blocks on the GPU, by worker: ``holds(w0=3)``."""
    return Overlap({int(name[1:]): blocks for name, blocks in device.items()})


def tonnage(**settings: Any) -> Tonnage:
    return Tonnage(PlainCosts(), TonnageSettings(**settings))


def random_paths(rng: Random, count: int) -> list[Path]:
    """Prompts that share beginnings, as a trace's do, with block numbers handed out in order of appearance."""
    names = BlockNames(1, 1)
    prompts: list[list[int]] = []
    paths = []
    for _ in range(count):
        head = rng.choice(prompts)[: rng.randrange(12)] if prompts and rng.random() < 0.8 else []
        prompt = head + [rng.randrange(3) for _ in range(rng.randrange(1, 6))]
        prompts.append(prompt)
        paths.append(names.path(prompt, len(prompt)))
    return paths
