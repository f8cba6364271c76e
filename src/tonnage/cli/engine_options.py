"""The options that say which engines a log is played on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.inference.engine import EngineConfig
    from tonnage.inference.replay import Log
    from tonnage.inference.timing import BatchTiming, StepTiming
    from tonnage.simulation.traffic.traces import Trace

_F = TypeVar("_F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--workers", type=click.IntRange(1, 4096), default=4, show_default=True, help="Engines."),
    click.option(
        "--model", metavar="NAME", help="Engines that serve this model.  [default: Dynamo's replay engine, see below]"
    ),
    click.option("--gpu", metavar="NAME", help="On this GPU."),
    click.option("--tensor-parallel", type=click.IntRange(1), default=1, show_default=True, metavar="N"),
    click.option("--block-size", type=click.IntRange(1, 1024), metavar="TOKENS", help="KV block.  [default: 64 or 16]"),
    click.option("--gpu-blocks", type=click.IntRange(1), metavar="N", help="KV blocks of an engine."),
    click.option("--max-num-batched-tokens", type=click.IntRange(1), metavar="N", help="Token budget of a step."),
    click.option("--max-num-seqs", type=click.IntRange(1), metavar="N", help="Most sequences in a step."),
)


def engine_options(command: _F) -> _F:
    """Add the options. The command gets them as keyword arguments, to hand to ``EngineChoice(**...)``."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


class EngineChoice(msgspec.Struct, frozen=True):
    """The engines asked for."""

    workers: int
    model: str | None
    gpu: str | None
    tensor_parallel: int
    block_size: int | None
    gpu_blocks: int | None
    max_num_batched_tokens: int | None
    max_num_seqs: int | None

    def build(self) -> tuple[EngineConfig, StepTiming | BatchTiming]:
        """The engine's limits and its step times. Raises InputError for a model that does not fit its GPUs.

        Without a model it is the engine of Dynamo's offline replay: 16,384 blocks of 64 tokens, 8,192 tokens and 256
        sequences a step, and the polynomial step time.
        """
        from tonnage.inference.engine import EngineConfig
        from tonnage.inference.timing import PolynomialTiming

        if self.model is None:
            if self.gpu is not None:
                raise InputError.at("--gpu without --model", field="--gpu", hint="name the model that it serves")
            size, blocks = self.block_size or 64, self.gpu_blocks or 16_384
            config = EngineConfig(
                self.max_num_batched_tokens or 8_192,
                self.max_num_seqs or 256,
                size * blocks,
                blocks,
                size,
                reserve_full_prompt=True,
            )
            return config, PolynomialTiming(size * blocks)
        return self._real()

    def _real(self) -> tuple[EngineConfig, StepTiming]:
        from tonnage.facts import gpus, models
        from tonnage.inference.config import engine_config
        from tonnage.inference.timing import RooflineTiming

        assert self.model is not None
        if self.gpu is None:
            raise InputError.at("--model without --gpu", field="--model", hint="name the GPU that serves it")
        model, gpu = models.get(self.model), gpus.get(self.gpu)
        config = engine_config(
            model,
            gpu,
            tensor_parallel=self.tensor_parallel,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_num_seqs=self.max_num_seqs,
            block_size=self.block_size,
            max_model_len=-1,
        )
        if self.gpu_blocks is not None:
            config = msgspec.structs.replace(config, kv_blocks=self.gpu_blocks)
        return config, RooflineTiming(model, gpu, tensor_parallel=self.tensor_parallel)


def log_of_trace(trace: Trace, block_size: int) -> Log:
    """A trace as the engines see it. Raises InputError where its hashes do not stand for whole blocks."""
    from tonnage.inference.replay import log_of

    if trace.hashes is not None and trace.hash_block % block_size:
        raise InputError.at(
            f"--block-size is {block_size}, but a hash of {trace.source} stands for {trace.hash_block} tokens",
            field="--block-size",
            hint=f"use a divisor of {trace.hash_block}",
        )
    return log_of(
        trace.arrivals_ns.tolist(),
        trace.prompt.tolist(),
        trace.output.tolist(),
        trace.hashes,
        block_size=block_size,
        hash_block=trace.hash_block,
    )


def load_log(file: Path, block_size: int) -> Log:
    """Read a trace file and number its blocks. Raises InputError as ``load_trace`` and ``log_of_trace`` do."""
    from tonnage.simulation.traffic.traces import load_trace

    return log_of_trace(load_trace(file), block_size)
