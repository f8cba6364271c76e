"""The KV cache of one engine: how many blocks are used (KvBlocks) and what they hold (PrefixCache)."""

from __future__ import annotations

from tonnage.inference.engine.kv_blocks import KvBlocks
from tonnage.inference.engine.prefix_cache import PrefixCache
from tonnage.inference.engine.requests import Request
from tonnage.inference.prompts import between


class KvCache(KvBlocks):
    """Blocks with content, shared by requests that begin alike. Without a ``cache`` nothing is shared or kept.

    ``used`` counts blocks that some request holds, each once however many hold it. Content that nobody uses is evicted
    when ``used`` grows into it; ``settle`` must follow whatever adds to ``used``.

    ``promised`` counts those that admitted requests hold or are yet to take; it is kept where ``to_the_end`` says that
    a request is admitted only when all that run can be served to their end.
    """

    __slots__ = ("cache", "promised", "to_the_end")

    def __init__(self, total: int, block_size: int, cache: PrefixCache | None, *, to_the_end: bool = False) -> None:
        super().__init__(total, block_size)
        self.cache = cache
        self.to_the_end = to_the_end
        self.promised = 0

    def find(self, request: Request) -> tuple[int, int]:
        """(leading blocks of a request that are here, how many of them nobody uses).

        At least its last token is computed again, as vLLM needs its logits.
        """
        if self.cache is None or not request.path:
            return 0, 0
        return self.cache.match(request.path, (request.target - 1) // self.block_size)

    def fits(self, request: Request, computed: int, tokens: int, hit: int, idle: int, reserved: int = 0) -> bool:
        """Whether a request can be admitted that found ``hit`` blocks here, ``idle`` of them unused.

        It then has ``computed`` tokens computed and room for ``tokens``. ``reserved`` blocks were taken for it before,
        and are released when it is admitted.
        """
        if self.to_the_end:
            return self.promised + self.blocks(request.last) - hit + idle <= self.total + reserved
        return -(-tokens // self.block_size) - hit + idle <= self.total - self.used + reserved

    def admit(self, request: Request, computed: int, tokens: int, hit: int, idle: int) -> None:
        """Give a request the blocks that it found and new ones up to ``tokens`` tokens; the caller knows they fit."""
        self.used += -(-tokens // self.block_size) - hit + idle
        if self.to_the_end:
            self.promised += self.blocks(request.last) - hit + idle
        self._share(request, hit)

    def _share(self, request: Request, hit: int) -> None:
        if hit:
            assert self.cache is not None
            request.lease = self.cache.acquire(request.path, hit)
            request.committed = hit
        self.settle()

    def reserve(self, tokens: int) -> int | None:
        """Take the blocks of ``tokens`` tokens for a request that is yet to come; None if too few are free."""
        blocks = self.blocks(tokens)
        if blocks > self.total - (self.promised if self.to_the_end else self.used):
            return None
        self.used += blocks
        self.promised += blocks
        self.settle()
        return blocks

    def unreserve(self, blocks: int) -> None:
        """Give such blocks back."""
        self.used -= blocks
        self.promised -= blocks

    def commit(self, request: Request) -> None:
        """Make the full blocks that a request has computed findable, as far as their content has numbers."""
        cache = self.cache
        if cache is None:
            return
        done = request.committed
        full = request.computed // self.block_size
        if full <= done or done == request.named:
            return
        start, added, lease = done, 0, request.lease
        for low, high in request.path:
            size = high - low
            if start < size:
                end = low + full if full < size else high
                low += start
                cache.commit(lease, low, end)
                added += end - low
                start = size
            if full <= size:
                break
            start -= size
            full -= size
        request.committed = done + added

    def give_back(self, request: Request, tokens: int, *, comes_back: bool = False) -> None:
        """Free the blocks of a request that holds ``tokens`` tokens, that of the step in flight included.

        Its path may name what was generated too. Full blocks beyond the path keep their content as well: nobody but the
        request itself can ask for it, if it ``comes_back``, but it stands in the queue for eviction like all else.
        """
        held = -(-tokens // self.block_size)
        freed = self._unshare(request, held, tokens, comes_back)
        self.used -= freed
        if self.to_the_end:
            self.promised -= freed + self.blocks(request.last) - held
        if self.used < 0:
            raise RuntimeError("KV blocks were freed twice")

    def _unshare(self, request: Request, held: int, tokens: int, comes_back: bool) -> int:
        """Let go of the content of a request with ``held`` blocks; how many of them nobody holds any more."""
        cache = self.cache
        if cache is None:
            return held
        done = request.committed
        unknown = tokens // self.block_size - done
        if unknown > 0 and done < request.named:
            request.computed = tokens
            self.commit(request)
            unknown -= request.committed - done
            done = request.committed
        if unknown > 0 and comes_back:
            own = cache.own(unknown)
            cache.commit(request.lease, *own)
            request.path = (*between(request.path, 0, done), own)
            request.named = done = done + unknown
            unknown = 0
        request.committed = 0
        return held - done + cache.release(request.lease, unknown)

    def evicts(self, blocks: int) -> bool:
        """Whether taking this many blocks more evicts content."""
        return self.cache is not None and self.used + blocks + self.cache.idle > self.total

    def settle(self) -> None:
        """Evict what no longer fits beside the blocks in use."""
        cache = self.cache
        if cache is not None:
            excess = self.used + cache.idle - self.total
            if excess > 0:
                cache.evict(excess)
