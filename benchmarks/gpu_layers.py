"""Transformer layers on a real GPU: times of decode and prefill steps with random weights, to hold estimates against.

    python benchmarks/gpu_layers.py measure OUT.csv     # where a GPU and torch are; needs nothing of this project

A row is one layer: RMSNorm, grouped-query attention over a KV cache, output projection, gated MLP, in bfloat16. Decode
steps are captured in a CUDA graph, as engines do. ``us`` is the median over rounds of the time of one layer.
"""

from __future__ import annotations

import csv
import datetime
import sys
from collections.abc import Callable, Iterator
from typing import Any

# name: hidden, attention heads, KV heads, head size, FFN width; layers of Llama-3.1-8B, Llama-3.1-70B, Qwen2.5-7B and
# Llama-3.2-1B.
SHAPES = {
    "llama-8b": (4096, 32, 8, 128, 14336),
    "llama-70b": (8192, 64, 8, 128, 28672),
    "qwen-7b": (3584, 28, 4, 128, 18944),
    "llama-1b": (2048, 32, 8, 64, 8192),
}
BATCHES = (1, 8, 32, 128)
CONTEXTS = (512, 2048, 8192)
PREFILLS = (512, 2048, 8192)
LAYERS = 4
FIELDS = ("card", "date", "torch", "shape", "kind", "batch", "context", "us", "us_low", "us_high")


def cells() -> Iterator[tuple[str, str, int, int]]:
    """(shape, kind, batch, context) of every measurement; a prefill has its tokens in ``context`` and batch 1."""
    for shape in SHAPES:
        for batch in BATCHES:
            for context in CONTEXTS:
                yield shape, "decode", batch, context
        for tokens in PREFILLS:
            yield shape, "prefill", 1, tokens


class Layers:
    """Some layers of one shape with random weights."""

    def __init__(self, torch: Any, shape: str) -> None:
        self.torch = torch
        self.hidden, self.heads, self.kv, self.size, self.ffn = SHAPES[shape]

        def weight(rows: int, columns: int) -> Any:
            return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) * rows**-0.5

        width = (self.heads + 2 * self.kv) * self.size
        self.weights = [
            (
                weight(self.hidden, width),
                weight(self.heads * self.size, self.hidden),
                weight(self.hidden, 2 * self.ffn),
                weight(self.ffn, self.hidden),
                torch.ones(self.hidden, device="cuda", dtype=torch.bfloat16),
            )
            for _ in range(LAYERS)
        ]

    def split(self, x: Any, qkv: Any, norm: Any) -> tuple[Any, Any, Any]:
        functional = self.torch.nn.functional
        mixed = functional.rms_norm(x, (self.hidden,), norm) @ qkv
        return mixed.split((self.heads * self.size, self.kv * self.size, self.kv * self.size), dim=-1)

    def rest(self, x: Any, attended: Any, out: Any, up: Any, down: Any, norm: Any) -> Any:
        functional = self.torch.nn.functional
        x = x + attended @ out
        gate, value = (functional.rms_norm(x, (self.hidden,), norm) @ up).chunk(2, dim=-1)
        return x + (functional.silu(gate) * value) @ down

    def decode(self, batch: int, context: int) -> Callable[[], None]:
        """One token for each of ``batch`` sequences of ``context`` tokens, as a CUDA graph."""
        torch, attend = self.torch, self.torch.nn.functional.scaled_dot_product_attention
        shape = (LAYERS, 2, batch, self.kv, context, self.size)
        cache = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        x = torch.randn(batch, self.hidden, device="cuda", dtype=torch.bfloat16)

        def step() -> Any:
            y = x
            for (qkv, out, up, down, norm), (keys, values) in zip(self.weights, cache, strict=True):
                q, k, v = self.split(y, qkv, norm)
                keys[:, :, -1] = k.view(batch, self.kv, self.size)
                values[:, :, -1] = v.view(batch, self.kv, self.size)
                grouped = q.view(batch, self.kv, self.heads // self.kv, self.size)  # heads of a group share their keys
                y = self.rest(y, attend(grouped, keys, values).reshape(batch, -1), out, up, down, norm)
            return y

        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay  # type: ignore[no-any-return]

    def prefill(self, tokens: int) -> Callable[[], None]:
        """A prompt of ``tokens`` tokens."""
        torch, attend = self.torch, self.torch.nn.functional.scaled_dot_product_attention
        x = torch.randn(tokens, self.hidden, device="cuda", dtype=torch.bfloat16)

        def step() -> None:
            y = x
            for qkv, out, up, down, norm in self.weights:
                q, k, v = self.split(y, qkv, norm)
                q = q.view(tokens, self.heads, self.size).transpose(0, 1)[None]
                k, v = (one.view(tokens, self.kv, self.size).transpose(0, 1)[None] for one in (k, v))
                attended = attend(q, k, v, is_causal=True, enable_gqa=True)[0].transpose(0, 1).reshape(tokens, -1)
                y = self.rest(y, attended, out, up, down, norm)

        return step


def timed(torch: Any, run: Callable[[], None], rounds: int = 9) -> list[float]:
    """Microseconds a layer, one value a round, sorted."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    run()
    end.record()
    torch.cuda.synchronize()
    repeats = max(3, min(200, int(20.0 / max(start.elapsed_time(end), 0.01))))
    found = []
    for _ in range(rounds):
        start.record()
        for _ in range(repeats):
            run()
        end.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(end) * 1_000 / repeats / LAYERS)
    return sorted(found)


def measure(file: str) -> None:
    """Measure every cell and write ``file``."""
    import torch

    torch.manual_seed(0)
    card = torch.cuda.get_device_name(0)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    layers: tuple[str, Layers] | None = None
    with open(file, "w", newline="") as out, torch.inference_mode():  # noqa: PTH123 - runs where only torch is
        writer = csv.writer(out)
        writer.writerow(FIELDS)
        for shape, kind, batch, context in cells():
            if layers is None or layers[0] != shape:
                layers = None
                torch.cuda.empty_cache()
                layers = (shape, Layers(torch, shape))
            run = layers[1].decode(batch, context) if kind == "decode" else layers[1].prefill(context)
            us = timed(torch, run)
            row = (card, date, torch.__version__, shape, kind, batch, context, us[len(us) // 2], us[0], us[-1])
            writer.writerow([*row[:7], *(f"{value:.2f}" for value in row[7:])])
            print(*row[3:], flush=True)
            del run
            torch.cuda.empty_cache()


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "measure":
        sys.exit(__doc__)
    measure(sys.argv[2])
