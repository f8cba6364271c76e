"""Time to first token and time per output token of a replica under a steady load, in closed form.

``concurrency`` clients send one request after another. Of the C requests n run, all that the KV cache holds; the others
wait. In steady state n sequences decode in every step, and a new prompt joins a step each time that one finishes::

    base  = step with n sequences that decode, at the mean context (input + output / 2)
    P     = what one prompt adds to the steps that compute it
    TPOT  = base + (n - 1) / output · P · (1 - q / 2)
    TTFT  = first token overhead + input · prompt token
          + (1 - q) · [TPOT + (k + w) · base + P · (1 + (1 + 2 w) · (n - 1) / output)] + q · burst + overflow

A request that follows another arrives while a step runs and waits for its end, and w steps more where the engine
looks for requests only so often, or waits for a fuller batch (``wait_steps`` of the replica); then it shares the k
steps of its own prompt with those who came since the engine last looked. ``q`` is the share of requests that come in
a burst of all C at once, as the first of every client does: they queue for chunks of the batch budget, half of the
burst on average, and see only the part of it behind them while they decode. ``overflow`` is the wait for room in the
KV cache: (C - n) / n times a whole request.

Clients whose requests are all exactly as long (``same_length``) stay in step: those that end in one step come back in
one step, and each time. An engine that computes prompts first and decodes only when none waits (SGLang) keeps all of
them in step, so that every round is a burst, q = 1. In the others a prompt has ``prompts_together`` more in its step,
which delay it, P · (1 + prompts_together), and not its decoding.

With pipeline parallelism each of the stages' micro-batches has its share of the requests; with ``separate_prefill``
prompts do not delay decoding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tonnage.inference.estimate.case import Figures, Number
from tonnage.inference.estimate.step import (
    Work,
    add_prompt,
    any_framework,
    decode_work,
    framework_seconds,
    gpu_seconds,
    launch_seconds,
    least,
    most,
)

if TYPE_CHECKING:
    from tonnage.inference.estimate.constants import Constants

_LEAST_ROOM = 1e6
"""Bytes of a KV cache that is never smaller, so that a replica whose weights do not fit has a time all the same."""


class ServedLoad(NamedTuple):
    """Floats, or arrays of shape (cases,). ``running``: requests that decode at a time on one data-parallel rank and
    stage; ``room``: how many of them its KV cache holds; ``prompt_s``: P; ``burst_s``: the wait in a burst."""

    ttft_s: Number
    tpot_s: Number
    running: Number
    wanted: Number
    room: Number
    base_s: Number
    prompt_s: Number
    burst_s: Number
    overflow_s: Number


def serve(
    c: Constants,
    f: Figures,
    concurrency: Number,
    inputs: Number,
    outputs: Number,
    batched_tokens: Number,
    same_length: Number = 0.0,
) -> ServedLoad:
    """Times of requests of ``inputs`` and ``outputs`` tokens, ``concurrency`` of them in flight; steps compute up to
    ``batched_tokens`` tokens. ``same_length``: 1 if no request is longer than another."""
    wanted = concurrency / (f.data * f.pipeline)
    room = most(kv_room(c, f) / sequence_bytes(c, f, inputs, outputs), 1.0)
    running = least(wanted, room)
    context = inputs + outputs / 2
    decoding = decode_work(f, running, context)
    base = gpu_seconds(c, f, decoding) + framework_seconds(c, f, running)
    chunk = least(inputs, most(batched_tokens - running, 1.0))
    chunks = inputs / chunk
    mixed = gpu_seconds(c, f, add_prompt(f, decoding, chunk, (inputs - chunk) / 2)) + framework_seconds(c, f, running)
    framework = any_framework(f)
    prompt = (mixed - base + launch_seconds(c, f)) * chunks + c.request_s * framework
    in_step = same_length * f.sglang * c.clients_in_step
    company = least(c.prompts_together * same_length * (1 - in_step), most(running - 1, 0.0))
    others = most(running - 1 - company, 0.0) / outputs
    burst, stalled = _burst(c, f, running, inputs, batched_tokens)
    burst = burst + running * c.request_s * framework
    delayed = others * prompt * (1 - c.burst_share / 2) * (1 - in_step) + stalled / outputs * in_step
    tpot = base + delayed * (1 - f.separate)
    steps = c.first_steps_vllm * f.vllm + c.first_steps_sglang * f.sglang + c.first_steps_tensorrt_llm * f.trtllm
    busy = least(most(running - 1, 0.0), 1.0)
    waited = busy * (tpot + (steps + f.wait_steps) * base)
    following = waited + chunks * base + prompt * (1 + company + others * (1 + 2 * f.wait_steps))
    first = c.first_token_s_vllm * f.vllm + c.first_token_s_sglang * f.sglang + c.first_token_s_tensorrt_llm * f.trtllm
    overflow = most(wanted - running, 0.0) / running * (outputs * tpot + chunks * base + prompt)
    first = first + c.prompt_token_s * inputs * framework
    share = c.burst_share + (1 - c.burst_share) * in_step
    ttft = first + (1 - share) * following + share * burst + overflow
    return ServedLoad(ttft, tpot, running, wanted, room, base, prompt, burst, overflow)


def _burst(c: Constants, f: Figures, running: Number, inputs: Number, batched_tokens: Number) -> tuple[Number, Number]:
    """(mean seconds to the first token of ``running`` prompts that arrive at once: half of the steps that they fill;
    mean seconds of these steps that come after a prompt's own, in which it does not decode if prompts come first)."""
    together = most(least(running * inputs, batched_tokens), inputs)
    steps = most(running * inputs / together, 1.0)
    prompts = together / inputs
    one = add_prompt(f, _nothing(running), inputs)
    packed = one._replace(
        tokens=together, pairs=one.pairs * prompts, window_pairs=one.window_pairs * prompts, prompt_cached=0.0
    )
    seconds = gpu_seconds(c, f, packed) + framework_seconds(c, f, prompts) + launch_seconds(c, f)
    return (steps + 1) / 2 * seconds, (steps - 1) / 2 * seconds


def _nothing(like: Number) -> Work:
    return Work(0.0 * like, 0.0, 0.0, 0.0)


def kv_room(c: Constants, f: Figures) -> Number:
    """Bytes for the KV cache on one GPU: ``kv_tokens`` where given, else the share of memory that engines take less
    weights and what they reserve; where that leaves little, half of what a larger share leaves, as one would set it."""
    usual = f.memory_bytes * c.memory_share - f.weight_bytes - c.reserved_bytes
    tight = (f.memory_bytes * c.tight_memory_share - f.weight_bytes) / 2
    left = most(most(usual, tight), _LEAST_ROOM)
    given = f.kv_tokens * (f.kv_bytes + f.window_kv_bytes) / f.pipeline
    known = least(f.kv_tokens, 1.0)
    return given * known + left * (1 - known)


def sequence_bytes(c: Constants, f: Figures, inputs: Number, outputs: Number) -> Number:
    """Bytes that a running request holds on the GPUs of all stages, on average: the part of its output that the engine
    reserves, half of it where it reserves none. A stage holds its share of every micro-batch, which is as much as all
    of one."""
    held = (
        c.held_output_vllm * f.vllm + c.held_output_sglang * f.sglang + c.held_output_tensorrt_llm * f.trtllm
    ) + 0.5 * (1 - any_framework(f))
    tokens = inputs + held * outputs
    beyond = f.beyond_kv_bytes * most(tokens - f.window, 0.0)
    return f.kv_bytes * tokens + f.window_kv_bytes * least(tokens, f.window) + beyond + f.state_bytes + 1.0
