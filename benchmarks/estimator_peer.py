"""aiconfigurator's estimates of measured rows, within a time limit: its API takes seconds an estimate.

Needs ``pip install --no-deps aiconfigurator==0.12.0 aiconfigurator-core==0.12.0`` and what they import (numpy, pandas,
pyarrow, scipy, matplotlib, prettytable, plotext, tqdm, jinja2). Rows are asked in a fixed order that takes models,
systems and frameworks in turn, those of a group in the order of a digest of their ids, so that any number of them is a
fair sample.

``python -m benchmarks.estimator_peer record DATA SECONDS`` asks for the first :data:`LISTED` rows in that order and
writes what it answers to benchmarks/data/estimator_peer.csv: the fixed list of rows on which both are compared. Rows
that it refuses are in the list without times. If the seconds do not last, ask again: what is in the list is kept.
Delete systems/silicon_sample.csv of its package first: those points are to test with, and nothing here reads them.

It is given the parallelism that was run, as the estimator is (estimator_rows.py), the batch of one attention rank, and
the newest database of the backend: that of the version measured is not always in the package. A row that it refuses or
that raises is counted, not scored.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import subprocess
import sys
import time
from collections import defaultdict
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import ROOT
from benchmarks.estimator_rows import Row, fitted

RECORDED = ROOT / "benchmarks" / "data" / "estimator_peer.csv"
"""A fixed list of rows with its answers: id of the row, TTFT and TPOT in seconds, empty where it has none."""

LISTED = 900
"""Rows that it is asked for; it refuses a part of them."""

BACKENDS = {"vllm": "vllm", "sglang": "sglang", "tensorrt-llm": "trtllm"}
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
    listed = _listed()
    asked = {index: listed[row.cells["id"]] for index, row in enumerate(rows) if row.cells.get("id") in listed}
    found = {index: answer for index, answer in asked.items() if answer is not None}
    return PeerResult(found, len(asked), len(asked) - len(found))


def _listed() -> dict[str, tuple[float, float] | None]:
    """The list as it is: the answer by id of the row, None where it refused."""
    if not RECORDED.exists():
        return {}
    with RECORDED.open(encoding="utf-8", newline="") as lines:
        table = csv.DictReader(line for line in lines if not line.startswith("#"))
        return {row["id"]: (float(row["ttft_s"]), float(row["tpot_s"])) if row["ttft_s"] else None for row in table}


def available() -> bool:
    """Whether the package is installed."""
    return importlib.util.find_spec("aiconfigurator") is not None


def order(rows: list[Row]) -> list[int]:
    """The rows in turn over (model, system, framework), each group by a digest of the ids."""
    groups: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        groups[row.family, row.system, row.replica.framework].append(index)
    for indices in groups.values():
        indices.sort(key=lambda index: sha256(rows[index].cells.get("id", "").encode()).hexdigest())
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
        expert_parallel = dp > 1 or replica.expert_parallel
        asked["moe_tp_size"], asked["moe_ep_size"] = (1, tp * dp) if expert_parallel else (tp * dp, 1)
        if cells.get("moe_quant_mode"):
            asked["moe_quant_mode"] = cells["moe_quant_mode"]
    return asked


def estimates(rows: list[Row], seconds: float) -> PeerResult:
    """Its estimates of as many ``rows`` as ``seconds`` allow. Several rows may ask the same; it is asked once."""
    found, refused = _ask(rows, order(rows), seconds)
    return PeerResult(found, len(found) + len(refused), len(refused))


def _ask(rows: list[Row], indices: list[int], seconds: float) -> tuple[dict[int, tuple[float, float]], list[int]]:
    """Its answers to the rows of ``indices``, in their order, and those that it refused."""
    questions: dict[str, list[int]] = {}
    for index in indices:
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
    refused: list[int] = []
    for line in child.stdout.splitlines():
        if not line.startswith("{"):
            continue
        answer = json.loads(line)
        same = questions[answer["question"]]
        if answer["ttft"] is None:
            refused += same
        else:
            found.update((index, (answer["ttft"], answer["tpot"])) for index in same)
    return found, refused


def record(folder: Path, seconds: float) -> None:
    """Ask it for the rows of the list that are not answered yet, as many as ``seconds`` allow, and write
    :data:`RECORDED`. Questions of one system and framework follow each other: it loads their tables once."""
    rows = fitted(folder).rows
    listed = order(rows)[:LISTED]
    known = _listed()
    missing = [index for index in listed if rows[index].cells["id"] not in known]
    missing.sort(key=lambda index: (rows[index].system, rows[index].replica.framework))
    found, refused = _ask(rows, missing, seconds)
    known |= {rows[index].cells["id"]: found.get(index) for index in (*found, *refused)}
    lines = {
        rows[index].cells["id"]: known[rows[index].cells["id"]] for index in listed if rows[index].cells["id"] in known
    }
    with RECORDED.open("w", encoding="utf-8", newline="") as out:
        out.write("# aiconfigurator 0.12.0, asked as benchmarks/estimator_peer.py does; seconds\n")
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("id", "ttft_s", "tpot_s"))
        for name, answer in sorted(lines.items()):
            writer.writerow((name, *(f"{seconds:.6g}" for seconds in answer or ())) if answer else (name, "", ""))
    answered = sum(answer is not None for answer in lines.values())
    print(f"{answered} rows answered of {len(lines)} asked, {len(listed) - len(lines)} of {LISTED} to ask")


def _remember_databases() -> None:
    """It lists its databases anew for every estimate, from some 500 YAML files: most of its time. Listed once and read
    by the quicker reader the answers are the same."""
    import yaml
    from aiconfigurator_core.sdk import perf_database

    yaml.SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    plain, known = perf_database.get_supported_databases, {}

    def remembered(systems_paths: Any = None) -> Any:
        key = str(systems_paths)
        if key not in known:
            known[key] = plain(systems_paths)
        return known[key]

    perf_database.get_supported_databases = remembered


def main(seconds: float) -> None:
    """Answer questions of standard input, one JSON object a line, until the time is over."""
    import logging

    logging.disable(logging.CRITICAL)
    _remember_databases()
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
