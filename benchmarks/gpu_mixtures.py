"""Mixture-of-experts blocks on a real GPU, to hold estimates against.

    python benchmarks/gpu_mixtures.py measure FOLDER    # where a GPU and torch are; needs nothing of this project

``mixtures.csv``: a row is one block: router, top-k, permutation, grouped matrices up, gate and down, combination. The
matrices are those of torch (``bf16``: grouped_mm, ``fp8``: _scaled_grouped_mm with a scale a row) or Triton's
(``mxfp4``: weights unpacked to bf16 inside the kernel). ``skew``: coefficient of variation of how popular experts are,
gamma-distributed; ``touched``: experts that tokens were sent to; ``busiest``: tokens of the busiest expert. Times are
those of CUDA graphs over blocks with weights of their own. ``gemm_us`` is that of the grouped matrices alone.
"""

from __future__ import annotations

import csv
import datetime
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

# name: experts, experts a token is sent to, hidden size, width of an expert (both on one GPU)
SHAPES = {
    "gpt-oss-120b": (128, 4, 2880, 2880),
    "gpt-oss-20b-tp2": (32, 4, 2880, 1440),
    "qwen3-30b": (128, 8, 2048, 768),
    "qwen3-235b-tp2": (128, 8, 4096, 768),
    "mixtral-8x7b-tp2": (8, 2, 4096, 7168),
    "deepseek-tp8": (256, 8, 7168, 256),
    "deepseek-ep8": (32, 1, 7168, 2048),
    "minimax-tp4": (256, 8, 3072, 384),
}
TOKENS = (1, 4, 16, 64, 128, 512, 2048, 8192)
SKEWED = ("gpt-oss-120b", "qwen3-30b", "qwen3-235b-tp2", "deepseek-ep8")
SKEW = 0.7
MXFP4 = ("gpt-oss-120b", "gpt-oss-20b-tp2", "qwen3-30b", "minimax-tp4")
BLOCKS = 4
FIELDS = (
    *("card", "date", "torch", "shape", "format", "skew", "tokens", "touched", "busiest"),
    *("us", "us_low", "us_high", "gemm_us"),
)


def cells() -> list[tuple[str, str, float, int]]:
    """(shape, format, skew, tokens) of every block."""
    kinds = [("bf16", 0.0, tuple(SHAPES)), ("fp8", 0.0, tuple(SHAPES)), ("bf16", SKEW, SKEWED), ("mxfp4", 0.0, MXFP4)]
    return [(shape, form, skew, t) for form, skew, names in kinds for shape in names for t in TOKENS]


class Blocks:
    """Some blocks of one shape with random weights."""

    def __init__(self, torch: Any, shape: str, form: str) -> None:
        self.torch, self.form = torch, form
        self.experts, self.each, self.hidden, self.width = SHAPES[shape]
        self.weights = [self._weights() for _ in range(BLOCKS)]
        self.routers = [self._random(self.hidden, self.experts) for _ in range(BLOCKS)]

    def _random(self, *sizes: int) -> Any:
        return self.torch.randn(*sizes, device="cuda", dtype=self.torch.bfloat16) * sizes[-2] ** -0.5

    def _weights(self) -> Any:
        e, h, w, torch = self.experts, self.hidden, self.width, self.torch
        if self.form == "mxfp4":

            def packed(rows: int, columns: int) -> Any:  # columns are summed over: two a byte
                pad = -columns % 128
                codes = torch.randint(0, 256, (e, rows, (columns + pad) // 2), device="cuda", dtype=torch.uint8)
                return codes, torch.full((e, rows, (columns + pad) // 32), 124, device="cuda", dtype=torch.uint8)

            return packed(2 * w, h), packed(h, w)
        up, down = self._random(e, h, 2 * w), self._random(e, w, h)
        if self.form == "bf16":
            return up, down

        def narrow(matrix: Any) -> Any:  # columns contiguous, as the kernel wants them
            kept = matrix.transpose(1, 2).contiguous().to(torch.float8_e4m3fn)
            return kept.transpose(1, 2), torch.ones(e, matrix.shape[2], device="cuda")

        return narrow(up), narrow(down)

    def product(self, x: Any, matrix: Any, ends: Any, tiles: Any) -> Any:
        torch = self.torch
        if self.form == "bf16":
            return torch._grouped_mm(x, matrix, offs=ends)
        if self.form == "fp8":
            values, scales = matrix
            top = x.abs().amax(dim=1, keepdim=True).float().clamp(min=1e-6) / 448.0
            rows = (x / top).to(torch.float8_e4m3fn)
            return torch._scaled_grouped_mm(
                rows, values, top.reshape(-1), scales, offs=ends, out_dtype=torch.bfloat16, use_fast_accum=True
            )
        return mxfp4_product(torch, x, *matrix, *tiles)

    def gated(self, up: Any) -> Any:
        gate, value = up.chunk(2, dim=-1)
        return self.torch.nn.functional.silu(gate) * value

    def routed(self, tokens: int, skew: float) -> list[Any]:
        """Of each block, what is added to the router's scores so that experts are as popular as they are to be."""
        torch = self.torch
        found = []
        for _ in range(BLOCKS):
            uniform = torch.rand(tokens, self.experts, device="cuda").clamp(1e-7, 1 - 1e-7)
            scores = -(-uniform.log()).log()
            if skew:
                shape = torch.full((self.experts,), skew**-2, device="cuda")
                scores = scores + (torch._standard_gamma(shape) * skew**2).clamp(min=1e-6).log()
            found.append(scores)
        return found

    def route(self, x: Any, router: Any, scores: Any) -> Any:
        torch = self.torch
        logits = (x @ router).float() * 1e-3 + scores
        weights, chosen = logits.topk(self.each, dim=-1)
        order = chosen.reshape(-1).argsort()
        ones = torch.ones(chosen.numel(), device="cuda", dtype=torch.int32)
        counts = torch.zeros(self.experts, device="cuda", dtype=torch.int32).scatter_add_(0, chosen.reshape(-1), ones)
        return weights.softmax(dim=-1).to(torch.bfloat16), order, counts

    def run(self, tokens: int, skew: float) -> tuple[Callable[[], Any], Callable[[], Any], Any]:
        """(all blocks, their grouped matrices alone, tokens of each expert and block)."""
        torch = self.torch
        x = self._random(tokens, self.hidden)
        scores = self.routed(tokens, skew)
        fixed = [self.route(x, router, each) for router, each in zip(self.routers, scores, strict=True)]
        counts = torch.stack([count for _, _, count in fixed])
        plans = [plan(torch, count) if self.form == "mxfp4" else None for _, _, count in fixed]

        def blocks() -> Any:
            y = x
            for index, (up, down) in enumerate(self.weights):
                share, order, count = self.route(y, self.routers[index], scores[index])
                ends = count.cumsum(0, dtype=torch.int32)
                sent = y[order // self.each]
                done = self.product(self.gated(self.product(sent, up, ends, plans[index])), down, ends, plans[index])
                back = torch.empty_like(done)
                back[order] = done
                y = y + (back.view(tokens, self.each, -1) * share[:, :, None]).sum(dim=1)
            return y

        ends = [count.cumsum(0, dtype=torch.int32) for _, _, count in fixed]
        sent = [x[order // self.each] for _, order, _ in fixed]

        def matrices() -> Any:
            for index, (up, down) in enumerate(self.weights):
                inner = self.product(sent[index], up, ends[index], plans[index])
                self.product(inner[:, : self.width].contiguous(), down, ends[index], plans[index])

        return blocks, matrices, counts


def plan(torch: Any, counts: Any) -> Any:
    """(expert, first row, end of the expert's rows) of each tile, and the rows of a tile."""
    mean = int(counts.sum()) / max(1, int((counts > 0).sum()))
    size = 16 if mean <= 16 else 32 if mean <= 32 else 64 if mean <= 96 else 128
    found, start = [], 0
    for expert, count in enumerate(counts.tolist()):
        found += [(expert, row, start + count) for row in range(start, start + count, size)]
        start += count
    return torch.tensor(found, device="cuda", dtype=torch.int32), size


_KERNEL: Any = None


def mxfp4_product(torch: Any, x: Any, codes: Any, scales: Any, tiles: Any, size: int) -> Any:
    """``x`` of shape (rows, k) times each tile's expert, ``codes`` of shape (experts, n, k / 2)."""
    pad = codes.shape[2] * 2 - x.shape[1]
    if pad:
        x = torch.nn.functional.pad(x, (0, pad))
    out = torch.empty(x.shape[0], codes.shape[1], device="cuda", dtype=torch.bfloat16)
    wide = 128 if size >= 64 else 64
    grid = (tiles.shape[0], -(-codes.shape[1] // wide))
    _KERNEL[grid](
        x, codes, scales, tiles, out, codes.shape[1], x.shape[1],
        M=size, N=wide, K=128, num_warps=8 if size >= 128 else 4, num_stages=3,
    )  # fmt: skip
    return out


def compile_kernel() -> None:
    """Define the Triton kernel, which only a machine with Triton can."""
    global _KERNEL  # noqa: PLW0603 - there is one, and torch's calls have no place for it
    import triton
    import triton.language as tl

    globals()["tl"] = tl

    @triton.jit
    def kernel(x, codes, scales, tiles, out, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):  # type: ignore
        tile = tl.program_id(0)
        expert = tl.load(tiles + tile * 3).to(tl.int64)
        rows = tl.load(tiles + tile * 3 + 1) + tl.arange(0, M)
        inside = rows < tl.load(tiles + tile * 3 + 2)
        columns = tl.program_id(1) * N + tl.arange(0, N)
        there = columns < n
        total = tl.zeros((M, N), dtype=tl.float32)
        for step in range(0, k, K):
            along = step + tl.arange(0, K)
            a = tl.load(x + rows[:, None] * k + along[None, :], mask=inside[:, None], other=0.0)
            half = step // 2 + tl.arange(0, K // 2)
            b = tl.load(
                codes + expert * n * (k // 2) + columns[None, :] * (k // 2) + half[:, None],
                mask=there[None, :],
                other=0,
            )
            of = step // 32 + tl.arange(0, K // 32)
            s = tl.load(
                scales + expert * n * (k // 32) + columns[:, None] * (k // 32) + of[None, :],
                mask=there[:, None],
                other=127,
            )
            total = tl.dot_scaled(a, None, "bf16", b, s, "e2m1", total)
        kept = inside[:, None] & there[None, :]
        tl.store(out + rows[:, None] * n + columns[None, :], total.to(tl.bfloat16), mask=kept)

    _KERNEL = kernel


def graph(torch: Any, run: Callable[[], Any]) -> Callable[[], None]:
    """``run`` as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            run()
    torch.cuda.synchronize()
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        run()
    return made.replay  # type: ignore[no-any-return]


def timed(torch: Any, run: Callable[[], Any], parts: int = BLOCKS, rounds: int = 7) -> list[float]:
    """Microseconds a part, one value a round, sorted."""
    for _ in range(3):
        run()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    run()
    end.record()
    torch.cuda.synchronize()
    repeats = max(3, min(100, int(12.0 / max(start.elapsed_time(end), 0.01))))
    found = []
    for _ in range(rounds):
        start.record()
        for _ in range(repeats):
            run()
        end.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(end) * 1_000 / repeats / parts)
    return sorted(found)


def head(torch: Any) -> tuple[str, str, str]:
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return torch.cuda.get_device_name(0), date, torch.__version__


def measure_mixtures(torch: Any, file: Path) -> None:
    said, held = head(torch), None
    with file.open("w", newline="") as out, torch.inference_mode():
        writer = csv.writer(out)
        writer.writerow(FIELDS)
        for shape, form, skew, tokens in cells():
            try:
                if held is None or held[0] != (shape, form):
                    held = None
                    torch.cuda.empty_cache()
                    held = ((shape, form), Blocks(torch, shape, form))
                blocks, matrices, counts = held[1].run(tokens, skew)
                us = timed(torch, graph(torch, blocks))
                alone = timed(torch, graph(torch, matrices))
                touched, busiest = (counts > 0).sum(1).float().mean().item(), counts.max(1)[0].float().mean().item()
                writer.writerow([
                    *said, shape, form, skew, tokens, f"{touched:.2f}", f"{busiest:.2f}",
                    *(f"{value:.2f}" for value in (us[len(us) // 2], us[0], us[-1], alone[len(alone) // 2])),
                ])  # fmt: skip
                out.flush()
                print(shape, form, skew, tokens, f"{us[len(us) // 2]:.1f} {alone[len(alone) // 2]:.1f}", flush=True)
                del blocks, matrices
            except Exception:
                print("FAILED", shape, form, skew, tokens, traceback.format_exc()[-700:], flush=True)
                held = None


def check_kernel(torch: Any) -> None:
    """The Triton kernel beside plain torch on a small case."""
    levels = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], device="cuda")
    counts = torch.tensor([5, 0, 40, 19], device="cuda", dtype=torch.int32)
    x = torch.randn(64, 256, device="cuda", dtype=torch.bfloat16)
    codes = torch.randint(0, 256, (4, 192, 128), device="cuda", dtype=torch.uint8)
    scales = torch.randint(120, 130, (4, 192, 8), device="cuda", dtype=torch.uint8)
    got = mxfp4_product(torch, x, codes, scales, *plan(torch, counts))
    full = torch.stack([levels[(codes & 15).long()], levels[(codes >> 4).long()]], dim=-1).reshape(4, 192, 256)
    full = full * torch.exp2(scales.float() - 127).repeat_interleave(32, dim=2)
    owner = torch.repeat_interleave(torch.arange(4, device="cuda"), counts.long())
    want = torch.einsum("mk,mnk->mn", x.float(), full[owner])
    off = ((got.float() - want).abs().max() / want.abs().max()).item()
    print("mxfp4 kernel off by", off, flush=True)
    assert off < 0.02, off


def main(folder: Path) -> None:
    """Measure, and write the file in ``folder``."""
    import torch

    torch.manual_seed(0)
    try:
        compile_kernel()
        check_kernel(torch)
    except Exception:
        print("FAILED kernel", traceback.format_exc()[-1500:], flush=True)
    measure_mixtures(torch, folder / "mixtures.csv")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "measure":
        sys.exit(__doc__)
    main(Path(sys.argv[2]))
