"""Fits the constants of the closed-form estimate to measured points, and scores it on models and systems left out.

    python -m benchmarks.estimator_fit SILICON.csv[.gz] [--write]

Needs scipy. Constants are fitted in logarithms, from those that ship, to the logarithms of TPOT and, at half the
weight, of TTFT; every (model family, system) weighs by the root of its rows. ``--write`` replaces data/estimator.csv.
"""

from __future__ import annotations

import csv
import datetime
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.estimator_rows import BLACKWELL, Row, read
from tonnage.inference.estimate.case import Figures, figures
from tonnage.inference.estimate.constants import Constants, constants
from tonnage.inference.estimate.serve import serve

TABLE = Path(__file__).parents[1] / "src" / "tonnage" / "inference" / "data" / "estimator.csv"
NAMES = Constants.__struct_fields__
_MOST = 0.98  # of a peak rate
_TOKENS = 8192.0  # of a step
_SHARES = ("bandwidth", "share")


class Points:
    """Measured points as arrays of shape (rows,)."""

    def __init__(self, rows: list[Row]) -> None:
        made = [figures(row.replica) for row in rows]
        self.figures = Figures(*(np.array([float(getattr(one, f)) for one in made]) for f in Figures._fields))
        self.load = tuple(
            np.array([getattr(row.load, name) for row in rows])
            for name in ("concurrency", "input_tokens", "output_tokens")
        )
        self.ttft = np.array([row.ttft for row in rows])
        self.tpot = np.array([row.tpot for row in rows])
        self.family = np.array([row.family for row in rows])
        self.system = np.array([row.system for row in rows])
        count = Counter(zip(self.family, self.system, strict=True))
        weight = np.array([count[key] ** -0.5 for key in zip(self.family, self.system, strict=True)])
        self.weight = weight / weight.mean()

    def estimate(self, x: Any, chosen: Any) -> tuple[Any, Any]:
        """(TTFT, TPOT) in seconds of the ``chosen`` rows with constants exp(x)."""
        made = Constants(**{name: float(value) for name, value in zip(NAMES, np.exp(x), strict=True)})
        load = [column[chosen] for column in self.load]
        with np.errstate(all="ignore"):
            served = serve(made, Figures(*(column[chosen] for column in self.figures)), *load, _TOKENS)
        return served.ttft_s, served.tpot_s


def fit(points: Points, chosen: Any) -> Any:
    """The logarithms of the constants fitted to the ``chosen`` rows."""
    from scipy.optimize import least_squares

    top = np.array([np.log(_MOST) if _bounded(name) else np.inf for name in NAMES])
    start = np.minimum(np.log([getattr(constants(), name) for name in NAMES]), top - 1e-3)
    weight, measured = points.weight[chosen], (points.ttft[chosen], points.tpot[chosen])

    def residuals(x: Any) -> Any:
        ttft, tpot = (
            np.nan_to_num(np.log(np.maximum(one, 1e-6) / real) * weight, nan=0.0, posinf=3.0, neginf=-3.0)
            for one, real in zip(points.estimate(x, chosen), measured, strict=True)
        )
        pull = (x - start) * 0.15 * np.sqrt(len(weight)) / 20
        return np.concatenate([tpot, 0.5 * ttft, pull])

    low = np.full(len(NAMES), -np.inf)
    return least_squares(residuals, start, bounds=(low, top), loss="soft_l1", f_scale=0.15, max_nfev=60).x


def _bounded(name: str) -> bool:
    return name.endswith(_SHARES) or name in ("compute", "attention_compute")


def show(points: Points, x: Any, chosen: Any, what: str) -> None:
    """Print median and mean errors on the ``chosen`` rows."""
    ttft, tpot = points.estimate(x, chosen)
    late = np.abs(ttft / points.ttft[chosen] - 1)
    slow = np.abs(tpot / points.tpot[chosen] - 1)
    print(
        f"{what:<28} {int(chosen.sum()):>5} rows  TPOT median {np.median(slow):.1%} mean {slow.mean():.1%}"
        f"  TTFT median {np.nanmedian(late):.1%}",
        flush=True,
    )


def main(arguments: list[str]) -> None:
    """Fit, score, and write if asked to."""
    if not arguments:
        sys.exit(__doc__)
    points = Points(read(Path(arguments[0])).rows)
    every = np.ones(len(points.tpot), dtype=bool)
    found = fit(points, every)
    show(points, found, every, "all, in sample")
    for column, word in ((points.family, "model"), (points.system, "system")):
        for name in sorted(set(column)):
            show(points, fit(points, column != name), column == name, f"{word} left out: {name}")
    blackwell = np.isin(points.system, BLACKWELL)
    show(points, fit(points, ~blackwell), blackwell, "no Blackwell row seen")
    if "--write" in arguments:
        units = {row["name"]: row["unit"] for row in csv.DictReader(TABLE.open())}
        day = datetime.datetime.now(datetime.UTC).date().isoformat()
        source = (
            f"fitted on {len(every)} aggregated points of aiconfigurator-core 0.12.0 systems/silicon_sample.csv; {day}"
        )
        with TABLE.open("w", newline="") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(("name", "value", "unit", "source"))
            for name, value in zip(NAMES, np.exp(found), strict=True):
                writer.writerow((name, f"{value:.4g}", units.get(name, ""), source))


if __name__ == "__main__":
    main(sys.argv[1:])
