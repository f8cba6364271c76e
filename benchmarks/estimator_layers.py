"""Layers of real GPUs beside the estimator: dense ones as it ships, mixtures of experts calibrated by one constant.

Files of benchmarks/data: ``gpu_layers_*.csv`` (gpu_layers.py), ``gpu_mixtures_h200.csv`` (gpu_mixtures.py), and
``gpu_mixtures_predicted.csv``, written before that was measured. Serving engines have faster kernels for experts than
torch; how much slower torch's are is one factor for each format, the median of measured over estimated of *one* shape,
and the error is that of the other shapes.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import cache
from statistics import median

from msgspec.structs import replace

from benchmarks.common import ROOT, Report
from benchmarks.gpu_layers import SHAPES as DENSE
from benchmarks.gpu_mixtures import SHAPES as MIXTURES
from tonnage.inference.estimate import mixture_seconds, plain_shape, step_seconds
from tonnage.inference.estimate.constants import Constants, constants

_DATA = ROOT / "benchmarks" / "data"
_EVEN = 0.01
"""Coefficient of variation of experts that are equally popular, near enough."""
DENSE_AIM, PREFILL_AIM, MIXTURE_AIM = 0.06, 0.10, 0.15


@cache
def rows(name: str) -> list[dict[str, str]]:
    """The rows of a file of benchmarks/data."""
    with (_DATA / name).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def dense(c: Constants | None = None) -> Iterator[tuple[str, dict[str, str], float]]:
    """(card, row, estimate over measured) of every dense layer that was measured; ``c``: constants other than those
    that ship."""
    for card in ("h100", "h200"):
        for row in rows(f"gpu_layers_{card}.csv"):
            hidden, heads, kv, size, ffn = DENSE[row["shape"]]
            layer = plain_shape(layers=1, hidden=hidden, heads=heads, kv_heads=kv, head_dim=size, ffn=ffn)
            tokens = int(row["context"])
            if row["kind"] == "decode":
                seconds = step_seconds(layer, card, batch=int(row["batch"]), context=tokens, constants=c)
            else:
                seconds = step_seconds(layer, card, prompt_tokens=tokens, constants=c)
            yield card, row, seconds * 1e6 / float(row["us"])


def mixtures(c: Constants | None = None) -> Iterator[tuple[dict[str, str], float]]:
    """(row, estimate over measured) of every mixture block that was measured on an H200; not calibrated."""
    for row in rows("gpu_mixtures_h200.csv"):
        experts, each, hidden, width = MIXTURES[row["shape"]]
        block = plain_shape(
            layers=1,
            hidden=hidden,
            heads=hidden // 64,
            head_dim=64,
            experts=experts,
            experts_per_token=each,
            expert_ffn=width,
        )
        skewed = replace(c or constants(), expert_skew=max(float(row["skew"]), _EVEN))
        seconds = mixture_seconds(block, "h200", int(row["tokens"]), precision=row["format"], constants=skewed)
        yield row, seconds * 1e6 / float(row["us"])


def calibrated(c: Constants | None = None) -> dict[str, list[float]]:
    """By format, |estimate / measured - 1| of blocks, each with the factor that another shape tells; the factors of all
    other shapes are tried."""
    found: dict[str, list[float]] = {}
    ratios: dict[str, dict[str, list[float]]] = {}
    for row, ratio in mixtures(c):
        ratios.setdefault(row["format"], {}).setdefault(row["shape"], []).append(ratio)
    for form, shapes in ratios.items():
        factors = {name: 1 / median(each) for name, each in shapes.items()}
        found[form] = [
            abs(factors[told] * ratio - 1)
            for name, each in shapes.items()
            for told in shapes
            if told != name
            for ratio in each
        ]
    return found


def medians(c: Constants | None = None) -> dict[str, tuple[float, float]]:
    """The medians of |estimate / measured - 1| and what they may be: of dense layers by card, of prefill of the
    smallest and of mixture blocks in 16 bits, each on an H200."""
    off = [(card, row, abs(ratio - 1)) for card, row, ratio in dense(c)]
    found = {
        f"dense-layers-{card}": (median(each for name, _, each in off if name == card), DENSE_AIM)
        for card in ("h100", "h200")
    }
    small = [each for _, row, each in off if row["shape"] == "llama-1b" and row["kind"] == "prefill"]
    found["prefill-of-1b"] = median(small), PREFILL_AIM
    found["mixtures-bf16"] = median(calibrated(c)["bf16"]), MIXTURE_AIM
    return found


def right(c: Constants, without: str = "") -> bool:
    """Whether all :func:`medians` but those of the card ``without`` are what they may be."""
    cards = {"dense-layers-h100": "h100"}
    return all(off <= aim for name, (off, aim) in medians(c).items() if cards.get(name, "h200") != without)


def add(report: Report) -> None:
    """Rows of it, and bars, in ``report``."""
    for name, (off, aim) in medians().items():
        report.bar(f"{name}-median", off, "<=", aim, "relative error", "result")
    errors = {form: median(each) for form, each in calibrated().items() if form != "bf16"}
    said = ", ".join(f"{form} {error:.3f}" for form, error in errors.items())
    report.notes.append(
        f"mixtures in other formats, off in the median: {said}; their activations are quantized, or their weights "
        "unpacked, by kernels of torch and Triton that no engine uses"
    )
