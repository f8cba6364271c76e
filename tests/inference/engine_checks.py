"""What must hold of an engine's KV blocks at any time, counted request by request."""

from __future__ import annotations

from tonnage.inference.engine import Engine
from tonnage.inference.engine.requests import Request
from tonnage.inference.hybrid import BlockGroup


def check_blocks(engine: Engine) -> None:
    """Nothing is held by nobody, nothing is counted twice, and all of it fits."""
    config, cache, step = engine.config, engine.cache, engine._scheduler.decoding.steps
    groups = config.layout.groups if config.layout else ()
    full = sum(one.count for one in groups if one.layers.kind == "full") if groups else 1
    flying = engine._step_end is not None
    private = windows = to_come = 0
    extents: dict[int, int] = {}
    for request, tokens in holders(engine):
        passed = request.cached(step) if request.finish_step >= 0 else tokens
        if flying and request in engine._scheduler.chunks:
            passed = request.passed
        private += -(-tokens // config.block_size) - request.committed
        own = sum(window_blocks(one, passed, tokens) for one in groups if one.layers.kind == "window")
        windows += own
        to_come += engine._scheduler.blocks.blocks(request.last) - full * -(-tokens // config.block_size) - own
        assert shared(request, extents) == request.committed
    reserved = sum(engine._scheduler.reserved.values())
    assert engine.blocks_used == full * (sum(extents.values()) + private) + windows + reserved
    if config.reserve_output:
        assert engine._scheduler.blocks.promised == engine.blocks_used + to_come <= engine.blocks_total
    idle = 0
    if cache is not None:
        idle = sum(extent.high - extent.low for extent in cache._idle)
        assert idle == cache.idle
        assert not any(extent.users for extent in cache._idle)
    assert engine.blocks_used + full * idle <= engine.blocks_total


def holders(engine: Engine) -> list[tuple[Request, int]]:
    """Every request that holds blocks, with the tokens that they are for."""
    step = engine._scheduler.decoding.steps
    decoding = engine._step_end is not None and engine._scheduler.decodes
    running = [
        (request, request.cached(step) + (decoding and request.finish_step >= 0))
        for request in engine._scheduler.running.values()
    ]
    return running + list(engine._scheduler.held.values())


def window_blocks(group: BlockGroup, passed: int, tokens: int) -> int:
    """Blocks that the token after the ``passed`` ones, or a later one up to ``tokens``, sees or is written to."""
    ends = range(group.block_size, tokens + group.block_size, group.block_size)
    return group.count * sum(end > passed - group.layers.span + 1 for end in ends)


def shared(request: Request, extents: dict[int, int]) -> int:
    """Blocks of a request whose content can be found; notes the extents that they are part of."""
    total = 0
    for extent, end in request.lease:
        while True:
            extents[id(extent)] = extent.high - extent.low
            total += extent.high - extent.low
            if extent.high == end:
                break
            assert extent.next is not None
            extent = extent.next
    return total
