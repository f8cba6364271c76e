"""The options that say which engines a log is played on."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from tonnage.cli.piped import FILE
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.inference.engine import EngineConfig
    from tonnage.inference.replay import Log
    from tonnage.inference.table_timing import TableTiming
    from tonnage.inference.timing import BatchTiming, StepTiming

_F = TypeVar("_F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--workers", type=click.IntRange(1, 4096), default=4, show_default=True, help="Engines."),
    click.option(
        "--model", metavar="NAME", help="Engines that serve this model.  [default: Dynamo's replay engine, see below]"
    ),
    click.option("--gpu", metavar="NAME", help="On this GPU."),
    click.option("--tensor-parallel", type=click.IntRange(1), default=1, show_default=True, metavar="N"),
    click.option("--engine", metavar="KIND", help="vllm, sglang or tensorrt-llm; with --model.  [default: vllm]"),
    click.option("--step-times", type=FILE, metavar="FILE.csv", help="Measured step times."),
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
    engine: str | None = None
    step_times: Path | None = None

    def build(self) -> tuple[EngineConfig, StepTiming | BatchTiming]:
        """The engine's limits and its step times. Raises InputError for a model that does not fit its GPUs, and for a
        file of step times that cannot be used.

        Without a model it is the engine of Dynamo's offline replay: 16,384 blocks of 64 tokens, 8,192 tokens and 256
        sequences a step, and the polynomial step time.
        """
        config, timing = self._plain() if self.model is None else self._real()
        return config, timing if self.step_times is None else read_step_times(self.step_times)

    def _plain(self) -> tuple[EngineConfig, BatchTiming]:
        from tonnage.inference.engine import EngineConfig
        from tonnage.inference.timing import PolynomialTiming

        ranks = None if self.tensor_parallel == 1 else self.tensor_parallel
        for option, given in (("--gpu", self.gpu), ("--engine", self.engine), ("--tensor-parallel", ranks)):
            if given is not None:
                raise InputError.at(f"{option} without --model", field=option, hint="name the model that it serves")
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

    def _real(self) -> tuple[EngineConfig, StepTiming]:
        from tonnage.facts import gpus, models
        from tonnage.inference.memory.kinds import VLLM, engine_kind
        from tonnage.inference.other_engines import replica_of
        from tonnage.inference.vllm_args import AUTO_MODEL_LEN, VllmArgs

        assert self.model is not None
        if self.gpu is None:
            raise InputError.at("--model without --gpu", field="--model", hint="name the GPU that serves it")
        model, gpu = models.get(self.model), gpus.get(self.gpu)
        kind = engine_kind(self.engine or VLLM)
        args = VllmArgs(
            tensor_parallel_size=self.tensor_parallel,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_num_seqs=self.max_num_seqs,
            block_size=self.block_size,
            max_model_len=AUTO_MODEL_LEN,
            disable_hybrid_kv_cache_manager=True,  # routers and tiers count the blocks of whole contexts
            engine=kind.name,
        )
        config, timing = replica_of(model, gpu, args)
        if self.gpu_blocks is not None:
            config = msgspec.structs.replace(config, kv_blocks=self.gpu_blocks)
        return config, timing


def read_step_times(file: Path) -> TableTiming:
    """The step times in a CSV file with the columns of ``table_timing.COLUMNS``, beyond its points extrapolated.

    Raises InputError that names file and line of each bad cell.
    """
    from tonnage.inference.table_timing import COLUMNS, from_rows

    hint = f"give a CSV file with the columns {','.join(COLUMNS)}"
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError.at(f"cannot read it: {error.strerror}", file=str(file), hint=hint) from None
    except UnicodeDecodeError:
        raise InputError.at("it is not UTF-8 text", file=str(file), hint=hint) from None
    reader = csv.DictReader(text.splitlines(), restval="")
    if not {"kind", "ms"} <= set(reader.fieldnames or ()):
        found = ",".join(reader.fieldnames or ()) or "nothing"
        raise InputError.at(f"the first line is {found!r}", file=str(file), line=1, hint=hint)
    return from_rows(((reader.line_num, row) for row in reader), file=str(file), outside="flag")


def extrapolated(timing: StepTiming | BatchTiming, file: Path | None) -> str | None:
    """A note on the largest steps that a table of step times had no points for; None if there were none."""
    from tonnage.inference.table_timing import TableTiming

    if file is None or not isinstance(timing, TableTiming):
        return None
    words = {"prefill": "a prefill of {:,} tokens after {:,} cached", "decode": "{:,} sequences of {:,} tokens"}
    # Engines ask for the smallest step there can be, to know how far they can look ahead.
    worst = [words[kind].format(*at) for kind, at in sorted(timing.outside_worst.items()) if at > (1, 1)]
    return f"steps beyond the points of {file} were extrapolated, up to {' and '.join(worst)}" if worst else None


def load_log(file: Path, block_size: int) -> Log:
    """Read a trace file and number its blocks. Raises InputError as ``load_trace`` and ``log_of`` do."""
    from tonnage.inference.replay import log_of
    from tonnage.traffic.traces import load_trace

    return log_of(load_trace(file), block_size)
