"""Processes side by side on a real GPU under MPS: steps a second of each, predicted first, then measured.

    PYTHONPATH=src python benchmarks/gpu_mps.py OUT.csv     # where a GPU, torch and nvidia-cuda-mps-control are

Three runs say what a workload takes of the GPU: alone; beside itself, half of the threads each, which shows the part of
the SMs that it fills; and beside a stream of weights, which shows the memory bandwidth that it uses. That stream's own
bandwidth is the bytes that it reads. From these the model predicts every other case, and only then the case is run. The
daemon is started with folders of its own and stopped at the end; the GPU's compute mode stays as it is. Last, a client
ends in several ways while another runs: what becomes of that one is printed.
"""

from __future__ import annotations

import csv
import datetime
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Load(NamedTuple):
    """One process: a workload, and its percentage of the threads."""

    workload: str
    percent: int = 100


CASES = (
    (Load("matmul", 25),) * 4,
    (Load("matmul"),) * 2,
    (Load("decode", 50),) * 2,
    (Load("decode", 25),) * 4,
    (Load("narrow", 25),) * 4,
    (Load("narrow"),) * 4,
    (Load("matmul", 75), Load("decode", 25)),
    (Load("matmul", 75), Load("narrow", 25)),
    (Load("matmul"), Load("decode")),
    (Load("matmul", 50), Load("narrow", 25), Load("decode", 25)),
)
STREAM = "decode"
"""The workload that reads memory as fast as it can."""
WORKLOADS = ("matmul", STREAM, "narrow")
PROBE = 25
"""Percentage of the threads with which the stream is run alone to see how many SMs it fills."""
SECONDS = 2.0
THREADS = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MEMORY = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
FIELDS = (
    "card",
    "date",
    "torch",
    "case",
    "process",
    "workload",
    "percent",
    "alone_ms",
    "sms",
    "bandwidth",
    "predicted_speed",
    "speed",
    "ms",
)


def step_of(torch: Any, workload: str) -> tuple[Callable[[], None], int]:
    """A function that enqueues one step, and the bytes of its operands."""
    if workload == "matmul":
        a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)

        def run() -> None:
            for _ in range(10):
                a @ a

        return run, 10 * 3 * a.numel() * 2
    if workload == "narrow":
        b = torch.randn(1024, 4096, device="cuda", dtype=torch.bfloat16)
        c = torch.randn(4096, 512, device="cuda", dtype=torch.bfloat16)

        def narrow() -> None:
            for _ in range(400):
                b @ c

        return narrow, 0  # its operands stay in the cache
    weights = [torch.randn(4096, 14336, device="cuda", dtype=torch.bfloat16) for _ in range(32)]
    x = torch.randn(16, 4096, device="cuda", dtype=torch.bfloat16)

    def decode() -> None:
        for w in weights:
            x @ w

    return decode, sum(w.numel() for w in weights) * 2


def work(workload: str, barrier: Any, out: Any) -> None:
    """Repeat the step for :data:`SECONDS`; puts (steps a second, bytes of a step)."""
    import torch

    step, size = step_of(torch, workload)
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    barrier.wait()
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < SECONDS:
        step()
        torch.cuda.synchronize()
        count += 1
    out.put((count / (time.perf_counter() - started), size))


def run(case: tuple[Load, ...]) -> list[tuple[float, int]]:
    """All processes of the case at once."""
    context = multiprocessing.get_context("spawn")
    barrier, queues, workers = context.Barrier(len(case)), [], []
    for load in case:
        os.environ[THREADS] = str(load.percent)
        queues.append(context.Queue())
        workers.append(context.Process(target=work, args=(load.workload, barrier, queues[-1])))
        workers[-1].start()
    found = [queue.get(timeout=120) for queue in queues]
    for one in workers:
        one.join()
    return found


WRONG = 'extern "C" __global__ void wrong(int* at) { at[0] = 1; }'


LIMIT, BEYOND = "0=4G", 6 << 30
ENDS = ("assert", "address", "memory", "kill")


def fault(kind: str, barrier: Any, out: Any) -> None:
    """Fail on the GPU: by an ``assert`` in a kernel, a write to an ``address`` that nobody has, more ``memory`` than
    the limit, or a ``kill`` with kernels running."""
    import cupy
    import torch

    values = torch.zeros(8, device="cuda")
    index = torch.tensor([1 << 40], device="cuda")
    wrong = cupy.RawKernel(WRONG, "wrong")
    barrier.wait()
    time.sleep(0.5)
    try:
        if kind == "assert":
            values[index].sum().item()
        elif kind == "memory":
            torch.empty(BEYOND, dtype=torch.uint8, device="cuda")
        elif kind == "kill":
            out.put("killed")
            out.close()
            out.join_thread()
            step, _ = step_of(torch, "matmul")
            for _ in range(200):
                step()
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            wrong((1,), (1,), (16,))
            cupy.cuda.runtime.deviceSynchronize()
        out.put("nothing")
    except (RuntimeError, cupy.cuda.runtime.CUDARuntimeError) as error:
        out.put(str(error).splitlines()[0])


def beside(barrier: Any, out: Any) -> None:
    """Work on while a neighbour fails."""
    import torch

    step, _ = step_of(torch, "narrow")
    step()
    torch.cuda.synchronize()
    barrier.wait()
    started = time.perf_counter()
    try:
        while time.perf_counter() - started < 2 * SECONDS:
            step()
            torch.cuda.synchronize()
        out.put("went on")
    except RuntimeError as error:
        out.put(str(error).splitlines()[0])


def errors(kind: str) -> tuple[str, str]:
    """What the client with the fault sees, and what its neighbour sees."""
    context = multiprocessing.get_context("spawn")
    barrier, queues = context.Barrier(2), [context.Queue(), context.Queue()]
    os.environ[THREADS] = "50"
    workers = [
        context.Process(target=fault, args=(kind, barrier, queues[0])),
        context.Process(target=beside, args=(barrier, queues[1])),
    ]
    if kind == "memory":
        os.environ[MEMORY] = LIMIT
    for one in workers:
        one.start()
        os.environ.pop(MEMORY, None)
    first, second = (queue.get(timeout=60) for queue in queues)
    for one in workers:
        one.join()
    return first, second


def demands(peak: float) -> dict[str, tuple[float, Any]]:
    """(steps a second alone, what the model is told) of each workload. ``peak``: bytes a second of the card."""
    from tonnage.partitioning.mps import REACH, MpsClient

    rates = {workload: run((Load(workload),))[0] for workload in WORKLOADS}
    full, size = rates[STREAM]
    slow = run((Load(STREAM, PROBE),))[0][0] / full
    stream = MpsClient(min(1.0, PROBE / 100 / slow), min(1.0, size * full / peak))
    found: dict[str, tuple[float, Any]] = {STREAM: (full, stream)}
    for workload in WORKLOADS:
        if workload == STREAM:
            continue
        alone = rates[workload][0]
        pair = max(rate for rate, _ in run((Load(workload, 50),) * 2)) / alone
        own, other = (rate for rate, _ in run((Load(workload, 50), Load(STREAM, 50))))
        left = REACH - other / full * stream.bandwidth
        found[workload] = alone, MpsClient(min(1.0, 0.5 / pair), min(1.0, max(0.01, left / (own / alone))))
    return found


def measure(path: str) -> None:
    """Measure all cases, and write them."""
    import torch

    from tonnage.facts import gpus
    from tonnage.partitioning.mps import MpsClient, divide

    card, today = torch.cuda.get_device_name(0), datetime.date.today().isoformat()
    alone = demands(gpus.get("h200" if "H200" in card else "h100").bandwidth_bytes_per_s)
    for one in alone.items():
        print(*one, flush=True)
    with Path(path).open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        for case in CASES:
            clients = [alone[load.workload][1] for load in case]
            speeds = divide(
                [MpsClient(c.sms, c.bandwidth, load.percent) for c, load in zip(clients, case, strict=True)]
            )
            for i, (rate, _) in enumerate(run(case)):
                load, (full, client) = case[i], alone[case[i].workload]
                name = "+".join(f"{one.workload}@{one.percent}" for one in case)
                row = [card, today, torch.__version__, name, i, load.workload, load.percent, round(1e3 / full, 4)]
                row += [round(client.sms, 4), round(client.bandwidth, 4), round(speeds[i], 4)]
                row += [round(rate / full, 4), round(1e3 / rate, 4)]
                writer.writerow(row)
                print(row[3:], round(speeds[i] / (rate / full) - 1, 3), flush=True)
    for kind in ENDS:
        print(kind, errors(kind), flush=True)


def main(path: str) -> None:
    """With a daemon of its own."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CUDA_MPS_PIPE_DIRECTORY"] = os.environ["CUDA_MPS_LOG_DIRECTORY"] = folder
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=True)
        try:
            measure(path)
        finally:
            subprocess.run(["nvidia-cuda-mps-control"], input=b"quit -t 10\n", check=False, timeout=60)


if __name__ == "__main__":
    main(sys.argv[1])
