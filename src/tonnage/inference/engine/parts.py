"""Steps that compute a part of one prompt, which goes on after them, beside the decoding requests: played in a row.

Long prompts make most steps of an engine such steps. A part takes all that the decoding requests leave of the token
budget, so that nobody is admitted, and where all find their blocks nobody is preempted. Until a request ends, nobody
asks for content either, hence blocks are taken and made findable once for all of these steps.
"""

from __future__ import annotations

from tonnage.inference.engine.scheduler import EngineScheduler
from tonnage.inference.engine.step_times import StepTimes


def run(scheduler: EngineScheduler, times: StepTimes, now: int, until: int) -> int:
    """Play such steps from ``now`` on, as long as they end by ``until``; when the last of them ends, ``now`` if there
    are none, and with a scheduler that does more in such a step. In ticks."""
    request, blocks, decoding = scheduler.prefilling, scheduler.blocks, scheduler.decoding
    if request is None or not scheduler.takes_parts_alike:
        return now
    total, target = blocks.total, request.target
    while True:
        decoders, cached, used = blocks.decoders, decoding.cached, blocks.used
        room, passed, computed = scheduler.budget - decoders, request.passed, request.computed
        first = step = decoding.steps
        finish = decoding.next_finish()
        while step != finish and now < until and computed < computed + room < target:
            end = now + times.chunk(decoders, cached, computed, computed + room)
            taken = blocks.extra(computed, room) + (blocks.due(step) if decoders else 0)
            if end > until or taken > total - used:
                break
            now, used = end, used + taken
            step, cached = step + 1, cached + decoders
            passed, computed = computed, computed + room
        if step == first:
            return now
        blocks.used, request.passed, request.computed = used, passed, computed
        blocks.settle()
        blocks.commit(request)
        scheduler.complete_decodes(step - first, now)
        if step != finish:
            return now
