"""Layers of real GPUs beside the estimator: dense ones as it ships, mixtures of experts calibrated by one constant.

Files of benchmarks/data: ``gpu_layers_*.csv`` (gpu_layers.py), ``gpu_mixtures_h200.csv`` (gpu_mixtures.py), and
``gpu_mixtures_predicted.csv``, written before that was measured. Serving engines have faster kernels for experts than
torch; how much slower torch's are is one factor for each format, the median of measured over estimated of *one* shape,
and the error is that of the other shapes.

Constants are fitted to them too (:func:`misses`), blocks of mixtures in 16 bits alone: in other formats torch's kernels
are none that an engine uses.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator
from functools import cache
from statistics import median
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from benchmarks.common import ROOT, Report
from benchmarks.gpu_layers import SHAPES as DENSE
from benchmarks.gpu_mixtures import SHAPES as MIXTURES
from tonnage.facts import gpus
from tonnage.inference.estimate import Replica, plain_shape
from tonnage.inference.estimate.case import Figures, figures
from tonnage.inference.estimate.constants import Constants, constants
from tonnage.inference.estimate.step import Work, add_prompt, decode_work, gpu_seconds, mixture_parts

_DATA = ROOT / "benchmarks" / "data"
_EVEN = 0.01
"""Coefficient of variation of experts that are equally popular, near enough."""
DENSE_AIM, PREFILL_AIM, MIXTURE_AIM = 0.06, 0.10, 0.15
FAMILIES = {
    "llama-8b": "Llama-8B",
    "llama-70b": "Llama-70B",
    "gpt-oss-120b": "gpt-oss-120b",
    "gpt-oss-20b-tp2": "gpt-oss-120b",
    "qwen3-235b-tp2": "Qwen3-235B",
    "deepseek-tp8": "DeepSeek",
    "deepseek-ep8": "DeepSeek",
    "minimax-tp4": "MiniMax-M2",
}
"""The group of served models (estimator_rows.py) whose shape, or one much like it, a measured one is. Others are of
none."""


class Layers(NamedTuple):
    """What was measured, in columns: ``rows`` and ``cards`` of the files, ``figures`` and ``work`` as the formulas know
    them, ``skew`` of how popular experts are, and ``seconds`` measured."""

    rows: list[dict[str, str]]
    cards: list[str]
    figures: Figures
    work: Work
    skew: np.ndarray
    seconds: np.ndarray

    def known(self, cards: Collection[str], families: Collection[str]) -> np.ndarray:
        """Which of them one may see who knows these cards and groups of models, and no others."""
        of = [FAMILIES.get(row["shape"]) for row in self.rows]
        return np.array([c in cards and (f is None or f in families) for c, f in zip(self.cards, of, strict=True)])


@cache
def rows(name: str) -> list[dict[str, str]]:
    """The rows of a file of benchmarks/data."""
    with (_DATA / name).open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))


@cache
def _dense() -> Layers:
    measured = [(card, row) for card in ("h100", "h200") for row in rows(f"gpu_layers_{card}.csv")]
    known, work = [], []
    for card, row in measured:
        hidden, heads, kv, size, ffn = DENSE[row["shape"]]
        layer = plain_shape(layers=1, hidden=hidden, heads=heads, kv_heads=kv, head_dim=size, ffn=ffn)
        known.append(figures(Replica(layer, gpus.get(card), "bf16", framework="")))
        tokens = float(row["context"])
        if row["kind"] == "decode":
            work.append(decode_work(known[-1], float(row["batch"]), tokens))
        else:
            work.append(add_prompt(known[-1], decode_work(known[-1], 0.0, 0.0), tokens))
    return _layers(measured, known, work, [1.0] * len(known))


@cache
def _mixtures(form: str) -> Layers:
    """Blocks in that format, all on an H200."""
    measured = [("h200", row) for row in rows("gpu_mixtures_h200.csv") if row["format"] == form]
    known, work = [], []
    for card, row in measured:
        experts, each, hidden, width = MIXTURES[row["shape"]]
        heads = hidden // 64
        numbers = {"experts": experts, "experts_per_token": each, "expert_ffn": width}
        block = plain_shape(layers=1, hidden=hidden, heads=heads, head_dim=64, **numbers)
        known.append(figures(Replica(block, gpus.get(card), form, framework="")))
        work.append(decode_work(known[-1], float(row["tokens"]), 0.0))
    return _layers(measured, known, work, [max(float(row["skew"]), _EVEN) for _, row in measured])


def _layers(
    measured: list[tuple[str, dict[str, str]]], known: list[Figures], work: list[Work], skew: list[float]
) -> Layers:
    seconds = np.array([float(row["us"]) for _, row in measured]) / 1e6
    columns = Figures(*np.array(known, float).T), Work(*np.array(work, float).T)
    return Layers([row for _, row in measured], [card for card, _ in measured], *columns, np.array(skew), seconds)


def _ratios(c: Constants, of: Layers) -> np.ndarray:
    """Estimate over measured of layers."""
    found: np.ndarray = gpu_seconds(c, of.figures, of.work) / of.seconds
    return found


def _block_ratios(c: Constants, of: Layers) -> np.ndarray:
    """The same of the mixtures in them alone."""
    skewed = replace(c, expert_skew=of.skew)
    found: np.ndarray = sum(mixture_parts(skewed, of.figures, of.work.tokens)) / of.seconds
    return found


def misses(c: Constants, cards: Collection[str], families: Collection[str]) -> np.ndarray:
    """How far constants are off layers of these cards and groups of models, shape (layers,): logarithms of estimate
    over measured in units of what :func:`add` allows, those of mixtures beside their mean: what torch's kernels cost
    more is one factor."""
    layers, blocks = _dense(), _mixtures("bf16")
    aims = np.where([_small(row) for row in layers.rows], PREFILL_AIM, DENSE_AIM)
    found = (np.log(_ratios(c, layers)) / aims)[layers.known(cards, families)]
    mixed = np.log(_block_ratios(c, blocks))[blocks.known(cards, families)]
    return np.concatenate([found, (mixed - mixed.mean()) / MIXTURE_AIM]) if len(mixed) else found


def dense(c: Constants | None = None) -> Iterator[tuple[str, dict[str, str], float]]:
    """(card, row, estimate over measured) of every dense layer that was measured; ``c``: constants other than those
    that ship."""
    layers = _dense()
    return zip(layers.cards, layers.rows, _ratios(c or constants(), layers).tolist(), strict=True)


def mixtures(c: Constants | None = None) -> Iterator[tuple[dict[str, str], float]]:
    """(row, estimate over measured) of every mixture block that was measured on an H200; not calibrated."""
    for form in sorted({row["format"] for row in rows("gpu_mixtures_h200.csv")}):
        blocks = _mixtures(form)
        yield from zip(blocks.rows, _block_ratios(c or constants(), blocks).tolist(), strict=True)


def _small(row: dict[str, str]) -> bool:
    """Whether it is the prefill of the smallest shape."""
    return row["shape"] == "llama-1b" and row["kind"] == "prefill"


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
    small = [each for _, row, each in off if _small(row)]
    found["prefill-of-1b"] = median(small), PREFILL_AIM
    found["mixtures-bf16"] = median(calibrated(c)["bf16"]), MIXTURE_AIM
    return found


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
