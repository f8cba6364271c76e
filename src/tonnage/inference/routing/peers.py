"""The policies of other routers, as published, so that they can be compared on the same engines."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from random import Random

import msgspec

from tonnage.errors import InputError
from tonnage.inference.routing.book import Book
from tonnage.inference.routing.policies import RouteChoice, RoutingPolicy, draw_least, tokens_left
from tonnage.inference.routing.types import Overlap, Reason, RouteRequest, Worker


class DynamoSettings(msgspec.Struct, frozen=True):
    """Weights of Dynamo's KV router. Source of names and defaults: KvRouterConfig of ai-dynamo-runtime 1.6.1."""

    overlap_score_credit: float = 1.0
    overlap_score_credit_decay: float = 0.0
    prefill_load_scale: float = 1.0
    host_cache_hit_weight: float = 0.75
    disk_cache_hit_weight: float = 0.25
    decode_active_request_weight: float = 0.0

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if not value >= 0 or (field == "overlap_score_credit" and value > 1):
                allowed = "from 0 to 1" if field == "overlap_score_credit" else "of 0 or more"
                raise InputError.at(f"{value} is no {field}", field=field, hint=f"give a number {allowed}")


class Dynamo(RoutingPolicy):
    """Dynamo's default selector at temperature 0: the least cost in blocks, ties at random.

    cost = prefill_load_scale · max(0, raw - credit) + decode blocks + weight · requests in flight, where raw is the
    prompt tokens booked and not computed plus those of this prompt, over the block size; credit counts the cached
    blocks, weighted by tier; decode blocks are the distinct prompt blocks in flight with this request's added. What is
    booked is the prompt less the cached blocks, until the first token.
    Source: ai-dynamo/dynamo lib/kv-router/src/scheduling/selector (mod.rs, default.rs), sequences/prompt_registry.rs.
    """

    name = "dynamo"
    unit = "blocks"
    needs_overlap = True

    def __init__(self, settings: DynamoSettings | None = None) -> None:
        self.settings = settings or DynamoSettings()

    def choose(
        self, request: RouteRequest, overlap: Overlap, workers: Sequence[Worker], book: Book, now_ns: int, rng: Random
    ) -> RouteChoice:
        settings = self.settings
        shared = book.shared_blocks(request.path)
        least_prefill = 0
        if settings.overlap_score_credit_decay:
            least_prefill = min(book.load(worker.index).prefill_tokens for worker in workers)
        costs = []
        for worker in workers:
            index, size = worker.index, worker.block_size
            load = book.load(index)
            credit = settings.overlap_score_credit * overlap.device.get(index, 0)
            if settings.overlap_score_credit_decay:
                excess = (load.prefill_tokens - least_prefill) / size / max(1, -(-request.prompt_tokens // size))
                credit /= 1 + settings.overlap_score_credit_decay * excess
            credit += settings.host_cache_hit_weight * overlap.host.get(index, 0)
            credit += settings.disk_cache_hit_weight * overlap.disk.get(index, 0)
            # The cached tokens are taken off what is booked and put back, which shows when they exceed the prompt.
            cached = self._cached_tokens(overlap, worker)
            raw = (load.prefill_tokens + max(request.prompt_tokens, cached)) / size
            decode = load.blocks + request.blocks - shared.get(index, 0)
            cost = settings.prefill_load_scale * max(0.0, raw - credit) + decode
            costs.append((index, cost + settings.decode_active_request_weight * load.requests))
        chosen = draw_least(costs, rng)
        worker = next(worker for worker in workers if worker.index == chosen)
        booked = max(0, request.prompt_tokens - self._cached_tokens(overlap, worker))
        reason: Reason = "prefix" if overlap.held(chosen) else "load"
        return RouteChoice(chosen, reason, booked, costs=tuple(costs))

    def _cached_tokens(self, overlap: Overlap, worker: Worker) -> int:
        index = worker.index
        blocks = overlap.device.get(index, 0) + self.settings.host_cache_hit_weight * overlap.host.get(index, 0)
        blocks += self.settings.disk_cache_hit_weight * overlap.disk.get(index, 0)
        return int(blocks * worker.block_size)


class LlmDSettings(msgspec.Struct, frozen=True):
    """Scorer weights of llm-d's default profile. Source: llm-d/llm-d-router, default scheduling profile."""

    queue: float = 2.0
    kv_utilization: float = 2.0
    prefix: float = 3.0
    lora: float = 0.0  # the lora-affinity scorer is not part of the default profile


class LlmD(RoutingPolicy):
    """llm-d's scorers, summed by weight; the highest sum wins, ties at random. The cost shown is the sum, negated.

    queue: (max - q) / (max - min) over the workers, 1 where all are equal, q being the requests that wait for their
    first token; KV utilization: 1 - share of blocks in use; prefix: share of the prompt's blocks held; LoRA: 1 with
    the adapter in use, 0.8 with room for it, 0.6 where it waits to be loaded, else 0.
    Source: llm-d/llm-d-router pkg/epp/framework/plugins, READMEs of the scorers.
    """

    name = "llm-d"
    unit = "score, negated"
    needs_overlap = True

    def __init__(self, settings: LlmDSettings | None = None) -> None:
        self.settings = settings or LlmDSettings()

    def choose(
        self, request: RouteRequest, overlap: Overlap, workers: Sequence[Worker], book: Book, now_ns: int, rng: Random
    ) -> RouteChoice:
        settings = self.settings
        queues = [book.load(worker.index).prefilling for worker in workers]
        longest, shortest = max(queues), min(queues)
        costs = []
        for worker, queue in zip(workers, queues, strict=True):
            load = book.load(worker.index)
            score = settings.queue * ((longest - queue) / (longest - shortest) if longest > shortest else 1.0)
            score += settings.kv_utilization * (1 - min(1.0, load.blocks / max(1, worker.total_blocks)))
            score += settings.prefix * (overlap.held(worker.index) / request.blocks if request.blocks else 0.0)
            if settings.lora and request.lora is not None:
                score += settings.lora * _lora_score(request.lora, worker, load.loras)
            costs.append((worker.index, -score))
        chosen = draw_least(costs, rng)
        worker = next(worker for worker in workers if worker.index == chosen)
        reason: Reason = "prefix" if overlap.held(chosen) else "load"
        return RouteChoice(chosen, reason, tokens_left(request, overlap, worker), costs=tuple(costs))


def _lora_score(adapter: str, worker: Worker, in_use: dict[str, int]) -> float:
    if adapter in in_use or adapter in worker.loras:
        return 1.0
    if len(in_use) < worker.max_loras:
        return 0.8
    return 0.6 if worker.max_loras else 0.0


class SgLangSettings(msgspec.Struct, frozen=True):
    """Thresholds of SGLang's router. Source of the defaults: sglang-router 0.3.2, cache_aware policy.

    ``max_tree_size`` is in characters, of which a token has about four.
    """

    balance_abs_threshold: int = 64
    balance_rel_threshold: float = 1.5
    cache_threshold: float = 0.3
    max_tree_size: int = 1 << 26


_CHARACTERS = 4  # of a token, about


class _Tree:
    """The blocks of the prompts that one worker was given, each once; the least recently given are forgotten."""

    def __init__(self) -> None:
        self.blocks = 0
        self._ends: OrderedDict[int, int] = OrderedDict()  # start of a range -> its furthest end
        self._unknown = -1

    def add(self, request: RouteRequest, most: int) -> None:
        path = request.path
        if not path and request.blocks:  # content that is not known is like no other
            path = ((self._unknown - request.blocks, self._unknown),)
            self._unknown -= request.blocks
        for low, high in path:
            before = self._ends.pop(low, low)
            self._ends[low] = max(before, high)
            self.blocks += max(0, high - before)
        while self.blocks > most and len(self._ends) > 1:
            low, high = self._ends.popitem(last=False)
            self.blocks -= high - low


class SgLang(RoutingPolicy):
    """SGLang's cache_aware policy, as published.

    With requests in flight apart by more than both thresholds, the shortest queue, whatever is cached where; else the
    worker that holds most of the prompt if that is more than ``cache_threshold`` of it; else the smallest tree, however
    many requests are in flight there. A worker's tree are the prompts that it was given, each block once, at most
    ``max_tree_size``. What a worker holds is taken from the overlap, where theirs matches the text of the trees.
    Source: sgl-project/sglang sgl-model-gateway, cache_aware policy.
    """

    name = "sglang"
    unit = "requests"
    needs_overlap = True

    def __init__(self, settings: SgLangSettings | None = None) -> None:
        self.settings = settings or SgLangSettings()
        self._trees: dict[int, _Tree] = {}

    def choose(
        self, request: RouteRequest, overlap: Overlap, workers: Sequence[Worker], book: Book, now_ns: int, rng: Random
    ) -> RouteChoice:
        settings = self.settings
        queues = [(worker.index, float(book.load(worker.index).requests)) for worker in workers]
        longest = max(queue for _, queue in queues)
        shortest = min(queue for _, queue in queues)
        held = [(worker.index, -float(overlap.held(worker.index))) for worker in workers]
        most = -min(cost for _, cost in held)
        reason: Reason = "load"
        if longest - shortest > settings.balance_abs_threshold and longest > settings.balance_rel_threshold * shortest:
            chosen = draw_least(queues, rng)
        elif request.blocks and most > settings.cache_threshold * request.blocks:
            chosen, reason = draw_least(held, rng), "prefix"
        else:
            chosen = draw_least([(worker.index, float(self._tree(worker.index).blocks)) for worker in workers], rng)
        worker = next(worker for worker in workers if worker.index == chosen)
        return RouteChoice(chosen, reason, tokens_left(request, overlap, worker), costs=tuple(queues))

    def dispatched(self, request: RouteRequest, choice: RouteChoice, now_ns: int) -> None:
        size = request.prompt_tokens // request.blocks if request.blocks else 1
        self._tree(choice.worker).add(request, self.settings.max_tree_size // (_CHARACTERS * size))

    def worker_removed(self, worker: int) -> None:
        self._trees.pop(worker, None)

    def _tree(self, worker: int) -> _Tree:
        return self._trees.setdefault(worker, _Tree())
