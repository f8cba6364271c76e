"""aiconfigurator's estimates of measured rows, within a time limit: its API takes seconds an estimate.

Needs ``pip install --no-deps aiconfigurator==0.12.0 aiconfigurator-core==0.12.0`` and what they import (numpy, pandas,
pyarrow, scipy, matplotlib, prettytable, plotext, tqdm, jinja2). Rows are asked in a fixed order that takes models,
systems and frameworks in turn, so that any number of them is a fair sample.

``python -m benchmarks.estimator_peer record DATA SECONDS`` writes what it answers to
benchmarks/data/estimator_peer.csv: the fixed list of rows on which both are compared. Delete
systems/silicon_sample.csv of its package first: those points are to test with, and nothing here reads them.

It is given the parallelism that was run, as the estimator is (estimator_rows.py), the batch of one attention rank, and
the newest database of the backend: that of the version measured is not always in the package. A row that it refuses or
that raises is counted, not scored.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import ROOT
from benchmarks.estimator_rows import Row, fitted

RECORDED = ROOT / "benchmarks" / "data" / "estimator_peer.csv"
"""A fixed list of rows that it answers, with its answers: id of the row, TTFT and TPOT in seconds."""

BACKENDS = {"vllm": "vllm", "sglang": "sglang", "tensorrt-llm": "trtllm"}
SEED = 20_260_701
_MODELS = {
    "meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Meta-Llama-3.1-8B",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Meta-Llama-3.1-8B",
    "nvidia/DeepSeek-R1-NVFP4": "deepseek-ai/DeepSeek-R1",
    "nvidia/Qwen3-32B-NVFP4": "Qwen/Qwen3-32B",
}
"""Names that its package has no configuration of, and one of the same shape."""


class PeerResult(NamedTuple):
    """Estimates (TTFT, TPOT) in seconds by index of the row; how many rows were asked and how many gave none."""

    estimates: dict[int, tuple[float, float]]
    asked: int
    failed: int


def recorded(rows: list[Row]) -> PeerResult:
    """Its answers of :data:`RECORDED` to those of ``rows`` that are in the list. Nothing if there is no such file."""
    if not RECORDED.exists():
        return PeerResult({}, 0, 0)
    with RECORDED.open(encoding="utf-8", newline="") as lines:
        table = csv.DictReader(line for line in lines if not line.startswith("#"))
        answers = {row["id"]: (float(row["ttft_s"]), float(row["tpot_s"])) for row in table}
    found = {index: answers[row.cells["id"]] for index, row in enumerate(rows) if row.cells.get("id") in answers}
    return PeerResult(found, len(found), 0)


def available() -> bool:
    """Whether the package is installed."""
    return importlib.util.find_spec("aiconfigurator") is not None


def order(rows: list[Row]) -> list[int]:
    """The rows in turn over (model, system, framework), each group shuffled with a fixed seed."""
    groups: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        groups[row.family, row.system, row.replica.framework].append(index)
    for _, indices in sorted(groups.items()):
        random.Random(SEED).shuffle(indices)
    turns = sorted((turn, key) for key, indices in groups.items() for turn in range(len(indices)))
    return [groups[key][turn] for turn, key in turns]


def arguments(row: Row) -> dict[str, Any]:
    """What its ``cli_estimate`` is asked for a row."""
    replica, cells = row.replica, row.cells
    tp, dp = replica.tensor_parallel, replica.data_parallel
    asked: dict[str, Any] = {
        "model_path": _MODELS.get(cells["model_path"], cells["model_path"]),
        "system_name": row.system,
        "backend_name": BACKENDS[replica.framework],
        "isl": int(row.load.input_tokens),
        "osl": int(row.load.output_tokens),
        "batch_size": max(1, round(row.load.concurrency / dp)),
        "tp_size": tp,
        "attention_dp_size": dp,
    }
    if cells.get("gemm_quant_mode"):
        asked["gemm_quant_mode"] = cells["gemm_quant_mode"]
    if replica.shape.experts:
        expert_parallel = dp > 1 or cells.get("moe_ep_size", "") not in ("", "0", "1")
        asked["moe_tp_size"], asked["moe_ep_size"] = (1, tp * dp) if expert_parallel else (tp * dp, 1)
        if cells.get("moe_quant_mode"):
            asked["moe_quant_mode"] = cells["moe_quant_mode"]
    return asked


def estimates(rows: list[Row], seconds: float) -> PeerResult:
    """Its estimates of as many ``rows`` as ``seconds`` allow. Several rows may ask the same; it is asked once."""
    questions: dict[str, list[int]] = {}
    for index in order(rows):
        questions.setdefault(json.dumps(arguments(rows[index])), []).append(index)
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.estimator_peer", str(seconds)],
        cwd=ROOT,
        input="\n".join(questions),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    found: dict[int, tuple[float, float]] = {}
    asked = failed = 0
    for line in child.stdout.splitlines():
        if not line.startswith("{"):
            continue
        answer = json.loads(line)
        indices = questions[answer["question"]]
        asked += len(indices)
        if answer["ttft"] is None:
            failed += len(indices)
        else:
            found.update((index, (answer["ttft"], answer["tpot"])) for index in indices)
    return PeerResult(found, asked, failed)


def record(folder: Path, seconds: float) -> None:
    """Ask it for as many of the rows of ``folder`` as ``seconds`` allow, and write :data:`RECORDED`."""
    rows = fitted(folder).rows
    found = estimates(rows, seconds)
    with RECORDED.open("w", encoding="utf-8", newline="") as out:
        out.write("# aiconfigurator 0.12.0, asked as benchmarks/estimator_peer.py does; seconds\n")
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("id", "ttft_s", "tpot_s"))
        for index, (ttft, tpot) in sorted(found.estimates.items(), key=lambda item: rows[item[0]].cells["id"]):
            writer.writerow((rows[index].cells["id"], f"{ttft:.6g}", f"{tpot:.6g}"))
    print(f"{len(found.estimates)} rows answered of {found.asked} asked, {found.failed} refused")


def main(seconds: float) -> None:
    """Answer questions of standard input, one JSON object a line, until the time is over."""
    import logging

    logging.disable(logging.CRITICAL)
    from aiconfigurator.cli.api import cli_estimate

    end = time.monotonic() + seconds
    for question in sys.stdin.read().splitlines():
        if time.monotonic() > end:
            return
        ttft = tpot = None
        try:
            answer = cli_estimate(**json.loads(question))
            if answer.ttft > 0 and answer.tpot > 0:
                ttft, tpot = answer.ttft / 1e3, answer.tpot / 1e3
        except (Exception, SystemExit) as error:
            print(f"refused: {error}", file=sys.stderr)
        print(json.dumps({"question": question, "ttft": ttft, "tpot": tpot}), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["record"]:
        record(Path(sys.argv[2]), float(sys.argv[3]))
    else:
        main(float(sys.argv[1]))
