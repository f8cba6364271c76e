"""Measured points of serving, as the estimator sees them. A row is a model on a system at a fixed concurrency.

What is in the file and what was run are not always the same, hence:

- ``silicon_concurrency`` in the source column is the number of requests in flight; without it, and where several
  replicas stand behind one frontend (benchmarks/estimator_runs.py), batch · attention DP.
- TP that equals moe_tp · moe_ep with both the same counts the same GPUs twice (64 GPUs for TP 8, EP 8): one of them is
  meant. So does TP = attention DP with moe_ep = TP · DP: the same points stand elsewhere in the file with TP alone.
- More than 8 GPUs of an NVL72 system: rows called aggregated have GPU counts that no tensor parallelism allows (28, 36,
  52). They are whole systems with prefill on other GPUs; the model runs attention data-parallel on all of them and the
  experts across.
- The KV cache is FP8 if the weights are 8 bits or less, save on SGLang, whose default it is not.
- The same measurement stands in up to three sources, DeepSeek's under the names of both models of its shape: one of
  each is kept.
"""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from math import inf, isnan, nan
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.estimator_runs import Point, decoders_of, drafted, drafted_days, in_flight, run_of
from tonnage.errors import InputError, Problem, Where
from tonnage.facts import gpus, hf_config, models
from tonnage.facts.models import ModelShape
from tonnage.inference import memory
from tonnage.inference.estimate import Load, Replica
from tonnage.inference.estimate.case import check_case
from tonnage.inference.estimate.links import domain_of
from tonnage.inference.estimate.measured import MeasuredGroup

SILICON = Path("silicon") / "silicon_sample.csv.gz"
GPT_OSS = Path("silicon") / "silicon_gptoss_hopper.csv.gz"
FITTED = (SILICON, GPT_OSS)
"""What constants are fitted to, below the folder of data; nothing else is."""
FRAMEWORKS = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"}
BLACKWELL = ("b200_sxm", "b300_sxm", "gb200", "gb300", "rtx_pro_6000_server")
FAMILIES = (
    ("deepseek", "DeepSeek"),
    ("llama-3.1-8b", "Llama-8B"),
    ("llama-3.1-70b", "Llama-70B"),
    ("qwen3-32b", "Qwen3-32B"),
    ("qwen3-235b", "Qwen3-235B"),
    ("qwen3.5-397b", "Qwen3.5-397B"),
    ("minimax-m2", "MiniMax-M2"),
)
"""Models that share a shape are left out together."""

_NODE = 8
_TOLD = 5
_REFUSALS = {"gpu": "the weights do not fit", "input_tokens": "longer than the context of the model"}
_FORMAT = re.compile(r"-(NVFP4|MXFP4|FP8|FP4|BF16)(-KV|-Static-PerTensor|-v\d)*$", re.IGNORECASE)
_SAME_SHAPE = ((re.compile(r"Kimi-K2\.\d(-Code|-Thinking)?$", re.IGNORECASE), "Kimi-K2"),)
"""Versions of a model whose shape is that of one in the table."""


class Row(NamedTuple):
    """One measured point; times in seconds, NaN where not measured."""

    cells: dict[str, str]
    replica: Replica
    load: Load
    family: str
    system: str
    ttft: float
    tpot: float


class Rows(NamedTuple):
    """What could be read of a file, how many rows could not, by reason, and what is wrong with the first few cells that
    are not what they should be."""

    rows: list[Row]
    left_out: Counter[str]
    problems: tuple[Problem, ...] = ()


class WrongCell(ValueError):
    """A cell that is not a number: its ``field`` and ``value``."""

    def __init__(self, field: str, value: str) -> None:
        super().__init__(f"{field} is {value!r}")
        self.field = field


def read(file: Path) -> Rows:
    """The aggregated rows of ``file`` (.csv or .csv.gz). Raises InputError if it is not such a file."""
    try:
        raw = file.read_bytes()
        text = (gzip.decompress(raw) if file.suffix == ".gz" else raw).decode("utf-8-sig")
        lines = csv.DictReader(io.StringIO(text), restval="")
        table = [(lines.line_num, cells) for cells in lines]
    except (OSError, UnicodeDecodeError, EOFError, zlib.error, csv.Error) as error:
        raise InputError.at(f"cannot read {file}: {error}", file=str(file), hint="give a CSV file") from None
    needed = {"model_path", "system", "backend", "isl", "osl", "tp_size", "silicon_ttft_ms", "silicon_tpot_ms"}
    missing = needed - set(lines.fieldnames or ())
    if missing:
        raise InputError.at(
            f"{file} has no column {', '.join(sorted(missing))}",
            file=str(file),
            hint="expected the columns of aiconfigurator's silicon_sample.csv",
        )
    found: dict[tuple[object, ...], Row] = {}
    left_out: Counter[str] = Counter()
    problems: list[Problem] = []
    days = drafted_days(_points(cells for _, cells in table))
    for line, cells in table:
        try:
            row = one(cells, days)
        except WrongCell as error:
            row = "a cell that is not a number"
            problems.append(Problem(Where(str(file), line, error.field), str(error), "expected a number"))
        if isinstance(row, str):
            left_out[row] += 1
            continue
        times = f"{row.ttft:.6g} {row.tpot:.6g}"
        key = row.family, row.system, cells["backend"], row.load, row.replica.gpus, times
        if key in found:
            left_out["same measurement from another source"] += 1
        else:
            found[key] = row
    return Rows(list(found.values()), left_out, tuple(problems[:_TOLD]))


def fitted(folder: Path) -> Rows:
    """The rows of all files of :data:`FITTED` that are in ``folder``."""
    rows: list[Row] = []
    left_out: Counter[str] = Counter()
    for name in FITTED:
        if (folder / name).exists():
            found = read(folder / name)
            rows += found.rows
            left_out += found.left_out
    return Rows(rows, left_out)


def one(cells: dict[str, str], days: frozenset[tuple[str, str, str, str]] = frozenset()) -> Row | str:
    """The row, or why there is none; on ``days`` all was run with speculative decoding."""
    if (cells.get("mode") or "agg") != "agg":
        return "prefill and decode apart (mode disagg)"
    tpot = number(cells, "silicon_tpot_ms") / 1e3
    if not tpot > 0:
        return "no TPOT"
    shape = shape_of(cells["model_path"])
    if isinstance(shape, str):
        return shape
    try:
        gpu = gpus.get(cells["system"].replace("_", "-"))
    except InputError:
        return f"unknown system {cells['system']}"
    framework = FRAMEWORKS.get(cells["backend"])
    if framework is None:
        return f"unknown backend {cells['backend']}"
    precision = precision_of(cells, shape)
    if precision not in memory.precisions():
        return f"unknown precision {precision}"
    tp, dp, gpus_used = parallel(cells)
    system = gpus_used > _NODE and domain_of(gpu).gpus > _NODE
    point = point_of(cells)
    if drafted(point, days):
        return "speculative decoding"
    concurrency = point.concurrency
    run, decoders = run_of(point), decoders_of(point) if system else None
    if decoders is not None:
        if decoders.drafted:
            return "speculative decoding"
        tp, dp, concurrency = decoders.tensor_parallel, decoders.data_parallel, concurrency / decoders.workers
    wide = decoders is None and (system or shape.heads % tp != 0)
    usual = "fp8" if precision != "bf16" and framework != "sglang" else "bf16"
    replica = Replica(
        shape=shape,
        gpu=gpu,
        precision=precision,
        kv_precision=run.kv_precision or usual,
        tensor_parallel=1 if wide else tp,
        data_parallel=gpus_used if wide else dp,
        pipeline_parallel=max(int(number(cells, "pp_size", 1.0)), 1),
        framework=framework,
        separate_prefill=system,
        expert_parallel=bool(shape.experts)
        and (decoders is not None or (expert_parallel(cells) and not wide and dp == 1)),
        wait_steps=run.wait_steps,
        **({} if run.batched_tokens is None else {"max_num_batched_tokens": run.batched_tokens}),
    )
    lengths = (float(np.rint(run.length_share * number(cells, name))) for name in ("isl", "osl"))
    load = Load(max(concurrency, 1.0), *lengths, same_length=run.same_length)
    if not (load.input_tokens >= 1 and load.output_tokens >= 1):
        return "no lengths"
    try:
        check_case(replica, load)
    except InputError as error:
        return f"refused: {_REFUSALS.get(error.problems[0].where.field, 'not valid')}"
    ttft = number(cells, "silicon_ttft_ms") / 1e3
    ttft = ttft if ttft > 0 else nan
    return Row(cells, replica, load, family(cells["model_path"]), cells["system"], ttft, tpot)


def _points(table: Iterable[dict[str, str]]) -> Iterator[Point]:
    """The points of aggregated rows; of one with a cell that is not a number :func:`read` says so."""
    for cells in table:
        if (cells.get("mode") or "agg") == "agg":
            with suppress(WrongCell):
                yield point_of(cells)


def point_of(cells: dict[str, str]) -> Point:
    """What the columns say of the point. Raises WrongCell if one is not a number."""
    tp, dp, gpus_used = parallel(cells)
    batch = number(cells, "batch_size", 1.0) * max(number(cells, "attention_dp_size", 1.0), 1.0)
    source = cells.get("silicon_data_source", "")
    return Point(
        source=source,
        model=cells["model_path"],
        system=cells["system"],
        backend=cells["backend"],
        precision=cells.get("precision", ""),
        inputs=number(cells, "isl"),
        outputs=number(cells, "osl"),
        concurrency=in_flight(source, batch),
        tensor_parallel=tp,
        data_parallel=dp,
        gpus=gpus_used,
        expert_parallel=int(number(cells, "moe_ep_size", 1.0)),
        version=cells.get("backend_version", ""),
    )


def parallel(cells: dict[str, str]) -> tuple[int, int, int]:
    """(tensor parallel, attention data parallel, GPUs), counted once; see above."""
    tp, dp = (max(int(number(cells, name, 1.0)), 1) for name in ("tp_size", "attention_dp_size"))
    moe_tp, moe_ep = (max(int(number(cells, name, 1.0)), 1) for name in ("moe_tp_size", "moe_ep_size"))
    if moe_tp == moe_ep > 1 and moe_tp * moe_ep == tp * dp:
        return (1, moe_tp, moe_tp) if dp > 1 else (moe_tp, 1, moe_tp)
    if tp == dp > 1 and moe_tp == 1 and moe_ep == tp * dp:
        return tp, 1, tp
    return tp, dp, tp * dp


def expert_parallel(cells: dict[str, str]) -> bool:
    """Whether tensor-parallel ranks hold whole experts: as many ways as there are ranks, counted twice or not."""
    tp, moe_tp, moe_ep = (int(number(cells, name, 1.0)) for name in ("tp_size", "moe_tp_size", "moe_ep_size"))
    return (moe_ep == tp > 1 and moe_tp <= 1) or (moe_tp == moe_ep > 1 and moe_tp * moe_ep == tp)


def precision_of(cells: dict[str, str], shape: ModelShape) -> str:
    """The format of most weights: that of the experts where there are some."""
    modes = [cells.get(name, "") for name in ("gemm_quant_mode", "precision")]
    if shape.experts:
        modes.insert(0, cells.get("moe_quant_mode", ""))
    mode = next((mode.lower() for mode in modes if mode), "bf16")
    if "fp4" in mode:
        return "mxfp4" if shape.experts and ("mxfp4" in mode or shape.precision == "mxfp4") else "fp4"
    if mode in ("bfloat16", "float16", "half"):
        return "bf16"
    return next((known for known in ("fp8", "int8", "int4") if known in mode), mode)


def number(cells: dict[str, str], name: str, default: float = float("nan")) -> float:
    """A cell as a number; ``default`` where it is empty. Raises WrongCell where it is neither."""
    text = cells.get(name, "").strip()
    try:
        value = float(text) if text else default
    except ValueError:
        value = inf
    if abs(value) == inf or (text and isnan(value)):
        raise WrongCell(name, text)
    return value


def family(model: str) -> str:
    """The group of models of one shape; the name itself for others."""
    return next((group for part, group in FAMILIES if part in model.lower()), model.rpartition("/")[2])


@cache
def shape_of(model: str) -> ModelShape | str:
    """The shape of ``model`` whatever its quantisation: from the facts, else from the configurations of an installed
    aiconfigurator-core. Why there is none, where neither knows it or the configuration is of a kind that is not known:
    it would be read as what it is not."""
    plain = _FORMAT.sub("", model)
    for pattern, known in _SAME_SHAPE:
        plain = pattern.sub(known, plain)
    for name in (model, plain):
        try:
            return models.get(name)
        except InputError:
            continue
    package = importlib.util.find_spec("aiconfigurator_core")
    if package is None or package.origin is None:
        return f"unknown model {model}"
    for name in (model, plain):
        file = Path(package.origin).parent / "model_configs" / f"{name.replace('/', '--')}_config.json"
        if file.exists():
            config = json.loads(file.read_text())
            try:
                reading = hf_config.parse(config, name=model, file=str(file))
            except InputError as error:
                return f"model {model} that cannot be read ({error.problems[0].message})"
            guessed = any(note.startswith("model_type") for note in reading.notes)
            return f"model {model} of unknown type {config.get('model_type')}" if guessed else reading.shape
    return f"unknown model {model}"


def truth(rows: list[Row]) -> tuple[np.ndarray, np.ndarray]:
    """(TTFT, TPOT) in seconds, shape (rows,)."""
    return np.array([row.ttft for row in rows]), np.array([row.tpot for row in rows])


def group_points(points: Iterable[tuple[Replica, float]]) -> list[tuple[MeasuredGroup, ModelShape]]:
    """The groups of ``points``, replicas and requests in flight, sorted, with the shape of each."""
    found: dict[tuple[str, str, str, str, int, int, int], list[float]] = {}
    shapes = {}
    for replica, concurrency in points:
        shapes[replica.shape.name] = replica.shape
        key = (
            replica.shape.name,
            replica.gpu.name,
            replica.precision,
            replica.framework,
            replica.tensor_parallel,
            replica.data_parallel,
            replica.pipeline_parallel,
        )
        found.setdefault(key, []).append(concurrency)
    return [
        (MeasuredGroup(*key, len(each), (min(each), max(each))), shapes[key[0]]) for key, each in sorted(found.items())
    ]
