"""Measured points of serving, as the estimator sees them. A row is a model on a system at a fixed concurrency.

What is in the file and what was run are not always the same, hence:

- ``silicon_concurrency`` in the source column is the number of requests in flight; without it batch · attention DP.
- TP that equals moe_tp · moe_ep with both the same counts the same GPUs twice (64 GPUs for TP 8, EP 8): one of them is
  meant. So does TP = attention DP with moe_ep = TP · DP: the same points stand elsewhere in the file with TP alone.
- More than 8 GPUs are an NVL72 system. Its rows called aggregated have GPU counts that no tensor parallelism allows
  (28, 36, 52): they are whole systems with prefill on other GPUs; the model runs attention data-parallel on all of
  them and the experts across.
- The KV cache is FP8 if the weights are 8 bits or less, save on SGLang, whose default it is not.
- The same measurement stands in up to three sources: one of each is kept.
"""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import json
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tonnage.errors import InputError
from tonnage.facts import gpus, hf_config, models
from tonnage.facts.models import ModelShape
from tonnage.inference.estimate import Load, Replica

SILICON = Path("silicon") / "silicon_sample.csv.gz"
FRAMEWORKS = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"}
PRECISIONS = {"fp8": "fp8", "fp8_block": "fp8", "nvfp4": "fp4", "fp4": "fp4", "bf16": "bf16", "": "bf16"}
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
    """What could be read of a file, and how many rows could not, by reason."""

    rows: list[Row]
    left_out: Counter[str]


def read(file: Path) -> Rows:
    """The aggregated rows of ``file`` (.csv or .csv.gz). Raises InputError if it is not such a file."""
    try:
        raw = file.read_bytes()
        text = (gzip.decompress(raw) if file.suffix == ".gz" else raw).decode()
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise InputError.at(f"cannot read {file}: {error}", file=str(file), hint="give a CSV file") from None
    table = list(csv.DictReader(io.StringIO(text)))
    needed = {"model_path", "system", "backend", "isl", "osl", "tp_size", "silicon_ttft_ms", "silicon_tpot_ms"}
    missing = needed - set(table[0] if table else ())
    if missing:
        raise InputError.at(
            f"{file} has no column {', '.join(sorted(missing))}",
            file=str(file),
            hint="expected the columns of aiconfigurator's silicon_sample.csv",
        )
    found: dict[tuple[object, ...], Row] = {}
    left_out: Counter[str] = Counter()
    for cells in table:
        row = one(cells)
        if isinstance(row, str):
            left_out[row] += 1
            continue
        key = (
            cells["model_path"], row.system, cells["backend"], row.load, row.replica.gpus,
            round(row.ttft, 9), round(row.tpot, 9),
        )  # fmt: skip
        if key in found:
            left_out["same measurement from another source"] += 1
        else:
            found[key] = row
    return Rows(list(found.values()), left_out)


def one(cells: dict[str, str]) -> Row | str:
    """The row, or why there is none."""
    if cells.get("mode", "agg") != "agg":
        return "prefill and decode apart (mode disagg)"
    tpot = number(cells, "silicon_tpot_ms") / 1e3
    if not tpot > 0:
        return "no TPOT"
    shape = shape_of(cells["model_path"])
    if shape is None:
        return f"unknown model {cells['model_path']}"
    try:
        gpu = gpus.get(cells["system"].replace("_", "-"))
    except InputError:
        return f"unknown system {cells['system']}"
    framework = FRAMEWORKS.get(cells["backend"])
    if framework is None:
        return f"unknown backend {cells['backend']}"
    quantized = cells.get("gemm_quant_mode") or cells.get("precision", "")
    precision = PRECISIONS.get(quantized)
    if precision is None:
        return f"unknown precision {quantized}"
    tp, dp, gpus_used = parallel(cells)
    wide = gpus_used > _NODE or shape.heads % tp != 0
    batch = number(cells, "batch_size", 1.0) * max(number(cells, "attention_dp_size", 1.0), 1.0)
    match = re.search(r"silicon_concurrency=(\d+)", cells.get("silicon_data_source", ""))
    concurrency = float(match[1]) if match else batch
    replica = Replica(
        shape=shape,
        gpu=gpu,
        precision=precision,
        kv_precision="fp8" if precision != "bf16" and framework != "sglang" else "bf16",
        tensor_parallel=1 if wide else tp,
        data_parallel=gpus_used if wide else dp,
        pipeline_parallel=max(int(number(cells, "pp_size", 1.0)), 1),
        framework=framework,
        separate_prefill=wide,
    )
    load = Load(max(concurrency, 1.0), number(cells, "isl"), number(cells, "osl"))
    if not (load.input_tokens >= 1 and load.output_tokens >= 1):
        return "no lengths"
    ttft = number(cells, "silicon_ttft_ms") / 1e3
    return Row(cells, replica, load, family(cells["model_path"]), cells["system"], ttft, tpot)


def parallel(cells: dict[str, str]) -> tuple[int, int, int]:
    """(tensor parallel, attention data parallel, GPUs), counted once; see above."""
    tp, dp = (max(int(number(cells, name, 1.0)), 1) for name in ("tp_size", "attention_dp_size"))
    moe_tp, moe_ep = (max(int(number(cells, name, 1.0)), 1) for name in ("moe_tp_size", "moe_ep_size"))
    if moe_tp == moe_ep > 1 and moe_tp * moe_ep == tp * dp:
        return (1, moe_tp, moe_tp) if dp > 1 else (moe_tp, 1, moe_tp)
    if tp == dp > 1 and moe_tp == 1 and moe_ep == tp * dp:
        return tp, 1, tp
    return tp, dp, tp * dp


def number(cells: dict[str, str], name: str, default: float = float("nan")) -> float:
    """A cell as a number; ``default`` where it is empty."""
    text = cells.get(name, "")
    return float(text) if text else default


def family(model: str) -> str:
    """The group of models of one shape; the name itself for others."""
    return next((group for part, group in FAMILIES if part in model.lower()), model.rpartition("/")[2])


def shape_of(model: str) -> ModelShape | None:
    """The shape of ``model`` whatever its quantisation: from the facts, else from the configurations of an installed
    aiconfigurator-core; None if neither knows it."""
    if model not in _SHAPES:
        _SHAPES[model] = _find_shape(model)
    return _SHAPES[model]


_SHAPES: dict[str, ModelShape | None] = {}


def _find_shape(model: str) -> ModelShape | None:
    plain = re.sub(r"-(NVFP4|FP8|FP4|MXFP4|BF16|Instruct)(-KV)?$", "", re.sub(r"-(NVFP4|FP8|FP4|BF16)$", "", model))
    for name in (model, plain):
        try:
            return models.get(name)
        except InputError:
            continue
    package = importlib.util.find_spec("aiconfigurator_core")
    if package is None or package.origin is None:
        return None
    for name in (model, plain):
        file = Path(package.origin).parent / "model_configs" / f"{name.replace('/', '--')}_config.json"
        if file.exists():
            try:
                return hf_config.parse(json.loads(file.read_text()), name=model, file=str(file)).shape
            except InputError:
                return None
    return None


def truth(rows: list[Row]) -> tuple[np.ndarray, np.ndarray]:
    """(TTFT, TPOT) in seconds, shape (rows,)."""
    return np.array([row.ttft for row in rows]), np.array([row.tpot for row in rows])
