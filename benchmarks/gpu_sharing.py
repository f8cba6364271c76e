"""Processes side by side on a real GPU: steps a second of each, predicted first, then measured.

    PYTHONPATH=src python benchmarks/gpu_sharing.py measure OUT.csv     # where a GPU and torch are

A case is a list of workloads, one process each. Every workload is first run alone: back to back, which gives the GPU
time of a step at the clock that the card holds under load, and as it is, which gives the time that a step spends
elsewhere. From these the model predicts every case, and only then the case is run.
"""

from __future__ import annotations

import csv
import datetime
import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any

CASES = (
    ("matmul",) * 2,
    ("matmul",) * 4,
    ("decode",) * 2,
    ("decode",) * 4,
    ("half",) * 2,
    ("half",) * 4,
    ("short",) * 2,
    ("short",) * 4,
    ("matmul", "half"),
    ("matmul", "decode"),
    ("decode", "short", "half", "half"),
)
SECONDS = 4.0
FIELDS = (
    "card",
    "date",
    "torch",
    "case",
    "process",
    "workload",
    "gpu_ms",
    "host_ms",
    "predicted_steps_per_s",
    "predicted_ms",
    "steps_per_s",
    "ms",
    "p50_ms",
    "p99_ms",
)


def _step(torch: Any, workload: str) -> tuple[Any, float]:
    """A function that enqueues one step, and the seconds that the host sleeps between steps."""
    if workload in ("matmul", "half"):
        a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)

        def run() -> None:
            for _ in range(10 if workload == "matmul" else 20):
                a @ a

        return run, 0.0 if workload == "matmul" else 0.030
    if workload == "short":
        b = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)

        def small() -> None:
            for _ in range(10):
                b @ b

        return small, 0.001
    weights = [torch.randn(4096, 14336, device="cuda", dtype=torch.bfloat16) for _ in range(32)]
    x = torch.randn(16, 4096, device="cuda", dtype=torch.bfloat16)
    for w in weights:
        x @ w
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for w in weights:
            x @ w
    return graph.replay, 0.0


def _worker(workload: str, barrier: Any, out: Any, seconds: float, rest: bool) -> None:
    import torch

    step, sleep_s = _step(torch, workload)
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    barrier.wait()
    started = time.perf_counter()
    times, gpu = [], 0.0
    while (now := time.perf_counter()) - started < seconds:
        if sleep_s and rest:
            time.sleep(sleep_s)
        begin.record()
        step()
        end.record()
        torch.cuda.synchronize()
        gpu += begin.elapsed_time(end)
        times.append(time.perf_counter() - now)
    out.put((len(times), time.perf_counter() - started, gpu / len(times), times))


def _run(case: tuple[str, ...], seconds: float, *, rest: bool = True) -> list[tuple[int, float, float, list[float]]]:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(case))
    queues = [context.Queue() for _ in case]
    workers = [
        context.Process(target=_worker, args=(w, barrier, q, seconds, rest)) for w, q in zip(case, queues, strict=True)
    ]
    for one in workers:
        one.start()
    found = [q.get(timeout=120) for q in queues]
    for one in workers:
        one.join()
    return found


def measure(path: str) -> None:
    import torch

    from tonnage.partitioning.turns import INTERVALS_S, SWITCH_S, Process, take_turns

    card, today = torch.cuda.get_device_name(0), datetime.date.today().isoformat()
    alone = {}
    for workload in ("matmul", "decode", "half", "short"):
        busy_ms = _run((workload,), SECONDS, rest=False)[0][2]
        count, wall, gpu_ms, _ = _run((workload,), SECONDS)[0]
        alone[workload] = Process(busy_ms / 1e3, max(0.0, wall / count - gpu_ms / 1e3))
        print(workload, alone[workload], flush=True)
    settings = {"interval_s": INTERVALS_S["default"], "switch_s": SWITCH_S}
    predicted = {case: take_turns([alone[w] for w in case], **settings) for case in CASES}
    with Path(path).open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        for case in CASES:
            for i, (count, wall, _, times) in enumerate(_run(case, SECONDS)):
                times.sort()
                p, a = predicted[case][i], alone[case[i]]
                row = [
                    card,
                    today,
                    torch.__version__,
                    "+".join(case),
                    i,
                    case[i],
                    round(a.gpu_s * 1e3, 4),
                    round(a.host_s * 1e3, 4),
                    round(p.steps_per_s, 3),
                    round(p.step_s * 1e3, 4),
                    round(count / wall, 3),
                    round(wall / count * 1e3, 4),
                    round(times[len(times) // 2] * 1e3, 4),
                    round(times[int(len(times) * 0.99)] * 1e3, 4),
                ]
                writer.writerow(row)
                print(row[3:], round(row[11] / row[9] - 1, 3), flush=True)


if __name__ == "__main__":
    measure(sys.argv[2])
