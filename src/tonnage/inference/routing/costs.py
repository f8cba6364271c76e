"""What the router takes from the engine's timing model."""

from __future__ import annotations

from tonnage.inference.timing import (
    TICKS_PER_PS,
    TICKS_PER_S,
    BatchTiming,
    StepTiming,
    decode_work,
    prompt_work,
)

_REMEMBERED = 65_536  # prompts are asked for once per worker, mostly alike


class EngineCosts:
    """The times of one engine as the router asks for them (``StepCosts``). ``chunk`` is max_num_batched_tokens."""

    __slots__ = ("_by_batch", "_by_step", "_chunk", "_known")

    def __init__(self, timing: StepTiming | BatchTiming, chunk: int = 8_192) -> None:
        if chunk < 1:
            raise ValueError(f"chunks of {chunk} tokens compute nothing")
        self._by_step = timing if isinstance(timing, StepTiming) else None
        self._by_batch = None if isinstance(timing, StepTiming) else timing
        self._chunk = chunk
        self._known: dict[tuple[int, int], float] = {}

    def prefill_s(self, tokens: int, context: int) -> float:
        """Seconds to compute ``tokens`` prompt tokens after ``context`` cached ones, alone, chunk by chunk."""
        key = (tokens, context)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[key] = self._prefill(tokens, context) / TICKS_PER_S
        return known

    def _prefill(self, tokens: int, context: int) -> int:
        total = 0
        while tokens > 0:
            chunk = min(tokens, self._chunk)
            if self._by_step is not None:
                total += self._by_step.step(prompt_work(chunk, context, self._by_step.window))
            else:
                assert self._by_batch is not None
                total += self._by_batch.prefill_ps(1, context + chunk, context) * TICKS_PER_PS
            tokens -= chunk
            context += chunk
        return total

    def decode_s(self, sequences: int, context: int) -> float:
        """Seconds of a step that decodes ``sequences`` sequences which hold ``context`` tokens together."""
        if sequences < 1:
            return 0.0
        if self._by_step is not None:
            return self._by_step.step(decode_work(sequences, context, self._by_step.window)) / TICKS_PER_S
        assert self._by_batch is not None
        return self._by_batch.decode_ps(sequences, context) * TICKS_PER_PS / TICKS_PER_S
