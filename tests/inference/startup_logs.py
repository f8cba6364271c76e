"""The memory figures of vLLM start-up logs that public issues quote.

``sampler``: how that vLLM samples while it starts, by a sort of the logits (before 0.16) or by a kernel; the batch and
sequence limits are those of the log, or vLLM's defaults of its time on that card."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

_FILE = Path(__file__).parent.parent / "data" / "vllm_startup_logs.csv"


@dataclass(frozen=True)
class Log:
    """One log; what it does not say is None."""

    name: str
    model: str
    gpu: str
    tensor_parallel: int
    stored: str
    kv: str
    utilization: float | None
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int | None
    sampler: str
    visible_gib: float | None
    requested_gib: float | None
    weights_gib: float | None
    activations_gib: float | None
    non_torch_gib: float | None
    available_gib: float | None
    blocks: int | None
    kv_tokens: int | None
    concurrency: float | None
    needed_gib: float | None
    longest: int | None
    source: str


def logs() -> list[Log]:
    """Every row of the file."""
    with _FILE.open(encoding="utf-8", newline="") as file:
        return [_log(row) for row in csv.DictReader(file)]


def _log(row: dict[str, str]) -> Log:
    def real(name: str) -> float | None:
        return float(row[name]) if row[name] else None

    def whole(name: str) -> int | None:
        return int(row[name]) if row[name] else None

    return Log(
        name=row["name"],
        model=row["model"],
        gpu=row["gpu"],
        tensor_parallel=whole("tensor_parallel") or 1,
        stored=row["stored"],
        kv=row["kv"],
        utilization=real("utilization"),
        max_model_len=whole("max_model_len") or 0,
        max_num_batched_tokens=whole("max_num_batched_tokens") or 2048,
        max_num_seqs=whole("max_num_seqs"),
        sampler=row["sampler"],
        visible_gib=real("visible_gib"),
        requested_gib=real("requested_gib"),
        weights_gib=real("weights_gib"),
        activations_gib=real("activations_gib"),
        non_torch_gib=real("non_torch_gib"),
        available_gib=real("available_gib"),
        blocks=whole("blocks"),
        kv_tokens=whole("kv_tokens"),
        concurrency=real("concurrency"),
        needed_gib=real("needed_gib"),
        longest=whole("longest"),
        source=row["source"],
    )
