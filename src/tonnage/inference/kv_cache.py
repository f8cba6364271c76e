"""The KV cache of one engine: how many blocks are used (KvBlocks) and what they hold (PrefixCache)."""

from __future__ import annotations

from tonnage.inference.kv_blocks import KvBlocks
from tonnage.inference.prefix_cache import PrefixCache
from tonnage.inference.prompts import between
from tonnage.inference.requests import Request


class KvCache(KvBlocks):
    """Blocks with content, shared by requests that begin alike. Without a ``cache`` nothing is shared or kept.

    ``used`` counts blocks that some request holds, each once however many hold it. Content that nobody uses is evicted
    when ``used`` grows into it; ``settle`` must follow whatever adds to ``used``.
    """

    __slots__ = ("cache",)

    def __init__(self, total: int, block_size: int, cache: PrefixCache | None) -> None:
        super().__init__(total, block_size)
        self.cache = cache

    def find(self, request: Request) -> tuple[int, int]:
        """(leading blocks of a request that are here, how many of them nobody uses).

        At least its last token is computed again, as vLLM needs its logits.
        """
        if self.cache is None or not request.path:
            return 0, 0
        return self.cache.match(request.path, (request.target - 1) // self.block_size)

    def fits(self, tokens: int, hit: int, idle: int, reserved: int = 0) -> bool:
        """Whether a request that found ``hit`` blocks, ``idle`` of them unused, can hold ``tokens`` tokens.

        ``reserved`` blocks were taken for it before, and are given back when it is admitted.
        """
        return -(-tokens // self.block_size) - hit + idle <= self.total - self.used + reserved

    def admit(self, request: Request, hit: int, idle: int, tokens: int) -> None:
        """Give a request the blocks that it found and new ones up to ``tokens`` tokens; the caller knows they fit."""
        self.used += -(-tokens // self.block_size) - hit + idle
        request.computed = hit * self.block_size
        if hit:
            assert self.cache is not None
            request.lease = self.cache.acquire(request.path, hit)
            request.committed = hit
        self.settle()

    def commit(self, request: Request) -> None:
        """Make the full blocks that a request has computed findable, as far as their content has numbers."""
        full = request.computed // self.block_size
        done = request.committed
        if self.cache is None or full <= done or not request.path:
            return
        for low, high in between(request.path, done, full):
            self.cache.commit(request.lease, low, high)
            done += high - low
        request.committed = done

    def give_back(self, request: Request, tokens: int, computed: int) -> None:
        """Free the blocks of a request that holds ``tokens`` tokens, of which ``computed`` are computed.

        Full blocks of generated tokens, and of a prompt whose content is not known, keep their content too: nobody else
        can ask for it, but it stands in the queue for eviction like all else.
        """
        cache = self.cache
        if cache is None:
            self.release(tokens)
            return
        generated = computed // self.block_size - request.committed
        if generated > 0:
            own = cache.own(generated)
            cache.commit(request.lease, *own)
            request.committed += generated
            request.path = (*between(request.path, 0, request.committed - generated), own)
        self.used -= -(-tokens // self.block_size) - request.committed + cache.release(request.lease)
        request.committed = 0
        if self.used < 0:
            raise RuntimeError("KV blocks were freed twice")

    def settle(self) -> None:
        """Evict what no longer fits beside the blocks in use."""
        cache = self.cache
        if cache is not None:
            excess = self.used + cache.idle - self.total
            if excess > 0:
                cache.evict(excess)
