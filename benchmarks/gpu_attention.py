"""Attention kinds and collectives on real GPUs, to hold estimates against.

    python benchmarks/gpu_attention.py measure FOLDER   # where a GPU and torch are; needs gpu_mixtures.py beside it
    python benchmarks/gpu_attention.py links FOLDER     # where there are two GPUs or more

``attention.csv``: one layer's attention without its projections, in bfloat16, as a CUDA graph. ``mla-absorbed``: 128
heads on a latent of 512 + 64; ``sparse-index`` and ``sparse-attend-2048``: the indexer of DeepSeek's sparse attention
(64 heads of 128, the best 2,048 tokens) and attention to those; ``gqa-8x64``: 64 heads on 8 KV heads; ``window-128``:
the same on 128 tokens; ``linear-64x128``: a gated delta rule, 64 states of 128 x 128 in 32 bits. ``links.csv``:
collectives of NCCL, started one by one, so that small ones show what starting them takes.
"""

from __future__ import annotations

import csv
import sys
import traceback
from pathlib import Path
from typing import Any

from gpu_mixtures import graph, head, timed  # type: ignore[import-not-found,unused-ignore]


def attention_cells(torch: Any) -> Any:
    """(kind, batch, context, a function of one layer's attention) of every measurement."""
    attend = torch.nn.functional.scaled_dot_product_attention

    def random(*sizes: int, dtype: Any = torch.bfloat16) -> Any:
        return torch.randn(*sizes, device="cuda", dtype=dtype) * 0.1

    for batch, context in ((1, 8192), (8, 8192), (32, 8192), (64, 4096), (32, 32768)):

        def absorbed(b: int = batch, c: int = context) -> Any:
            cache, q = random(b, c, 576), random(b, 128, 576)

            def run() -> Any:
                scores = torch.bmm(q, cache.transpose(1, 2)).softmax(dim=-1)
                return torch.bmm(scores, cache[:, :, :512])

            return run

        yield "mla-absorbed", batch, context, absorbed

        def indexed(b: int = batch, c: int = context) -> Any:
            keys, q, w = random(b, c, 128), random(b, 64, 128), random(b, 1, 64)

            def run() -> Any:
                return torch.bmm(w, torch.bmm(q, keys.transpose(1, 2)).relu()).squeeze(1).topk(min(2048, c), dim=-1)[1]

            return run

        yield "sparse-index", batch, context, indexed

        def chosen(b: int = batch, c: int = context) -> Any:
            cache, q = random(b, c, 576), random(b, 128, 576)
            at = torch.stack([torch.randperm(c, device="cuda")[:2048] for _ in range(b)])

            def run() -> Any:
                some = torch.gather(cache, 1, at[:, :, None].expand(-1, -1, 576))
                scores = torch.bmm(q, some.transpose(1, 2)).softmax(dim=-1)
                return torch.bmm(scores, some[:, :, :512])

            return run

        yield "sparse-attend-2048", batch, context, chosen

        def grouped(b: int = batch, c: int = context) -> Any:
            keys, values, q = random(b, 8, c, 64), random(b, 8, c, 64), random(b, 8, 8, 64)
            return lambda: attend(q, keys, values)

        yield "gqa-8x64", batch, context, grouped

        def window(b: int = batch) -> Any:
            keys, values, q = random(b, 8, 128, 64), random(b, 8, 128, 64), random(b, 8, 8, 64)
            return lambda: attend(q, keys, values)

        yield "window-128", batch, context, window

        def state(b: int = batch) -> Any:
            s, k, q, v = random(b, 64, 128, 128, dtype=torch.float32), *(random(b, 64, 128) for _ in range(3))
            decay, beta = (torch.rand(b, 64, 1, 1, device="cuda") for _ in range(2))

            def run() -> Any:
                kept = s * decay
                change = beta * (v.float().unsqueeze(2) - torch.matmul(k.float().unsqueeze(2), kept))
                s.copy_(kept + k.float().unsqueeze(3) * change)
                return torch.matmul(q.float().unsqueeze(2), s)

            return run

        yield "linear-64x128", batch, context, state
    for tokens in (2048, 8192, 16384):

        def expanded(t: int = tokens) -> Any:
            q, k, v = random(1, 128, t, 192), random(1, 128, t, 192), random(1, 128, t, 128)
            return lambda: attend(q, k, v, is_causal=True)

        yield "mla-prefill", 1, tokens, expanded

        def index_prompt(t: int = tokens) -> Any:
            q, k, w = random(64, t, 128), random(t, 128), random(64, 1, 1)

            def run() -> Any:
                total = None
                for part in q.split(2048, dim=1):
                    total = (torch.matmul(part, k.T).relu() * w).sum(0).topk(min(2048, t), dim=-1)[1]
                return total

            return run

        yield "sparse-index-prefill", 1, tokens, index_prompt
        for size, heads in ((128, 32), (64, 32)):

            def causal(t: int = tokens, d: int = size, h: int = heads) -> Any:
                q, k, v = random(1, h, t, d), random(1, 8, t, d), random(1, 8, t, d)
                return lambda: attend(q, k, v, is_causal=True, enable_gqa=True)

            yield f"gqa-prefill-{heads}x{size}", 1, tokens, causal


def measure_attention(torch: Any, file: Path) -> None:
    said = head(torch)
    with file.open("w", newline="") as out, torch.inference_mode():
        writer = csv.writer(out)
        writer.writerow(("card", "date", "torch", "kind", "batch", "context", "us", "us_low", "us_high"))
        for kind, batch, context, made in attention_cells(torch):
            try:
                run = made()
                us = timed(torch, graph(torch, run), 1)
                writer.writerow([*said, kind, batch, context, *(f"{v:.2f}" for v in (us[len(us) // 2], us[0], us[-1]))])
                out.flush()
                print(kind, batch, context, f"{us[len(us) // 2]:.1f}", flush=True)
                del run
            except Exception:
                print("FAILED", kind, batch, context, traceback.format_exc()[-500:], flush=True)
            torch.cuda.empty_cache()


def _rank(rank: int, ranks: int, folder: str) -> None:
    import os

    import torch
    import torch.distributed as dist

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=ranks)
    rows = []
    for kind in ("all-reduce", "all-to-all", "all-gather", "reduce-scatter"):
        for power in range(12, 29, 2):
            count = 2**power // 2
            x = torch.ones(count, device="cuda", dtype=torch.bfloat16)
            y = torch.empty(count * (ranks if kind == "all-gather" else 1), device="cuda", dtype=torch.bfloat16)
            part = torch.empty(count // ranks, device="cuda", dtype=torch.bfloat16)
            calls = {
                "all-reduce": lambda x=x: dist.all_reduce(x),
                "all-to-all": lambda x=x, y=y: dist.all_to_all_single(y, x),
                "all-gather": lambda x=x, y=y: dist.all_gather_into_tensor(y, x),
                "reduce-scatter": lambda x=x, p=part: dist.reduce_scatter_tensor(p, x),
            }
            us = []
            for _ in range(9):
                torch.cuda.synchronize()
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                for _ in range(20):
                    calls[kind]()
                end.record()
                torch.cuda.synchronize()
                us.append(start.elapsed_time(end) * 50)
            us.sort()
            rows.append((*head(torch), kind, ranks, 2**power, f"{us[4]:.2f}", f"{us[0]:.2f}", f"{us[-1]:.2f}"))
    if rank == 0:
        with (Path(folder) / "links.csv").open("w", newline="") as out:
            writer = csv.writer(out)
            writer.writerow(("card", "date", "torch", "kind", "ranks", "bytes", "us", "us_low", "us_high"))
            writer.writerows(rows)
        for row in rows:
            print(*row[3:])
    dist.destroy_process_group()


def main(what: str, folder: Path) -> None:
    """Measure, and write the files in ``folder``."""
    import torch

    if what == "links":
        import torch.multiprocessing as processes

        processes.spawn(_rank, args=(torch.cuda.device_count(), str(folder)), nprocs=torch.cuda.device_count())
        return
    torch.manual_seed(0)
    measure_attention(torch, folder / "attention.csv")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("measure", "links"):
        sys.exit(__doc__)
    main(sys.argv[1], Path(sys.argv[2]))
