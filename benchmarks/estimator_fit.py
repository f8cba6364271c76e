"""Fits the constants of the estimator to measured points. Needs scipy; the package does not.

    python -m benchmarks.estimator_fit --data DIR           fit on all rows, print constants and bands
    python -m benchmarks.estimator_fit --data DIR --write   and write src/tonnage/inference/data/estimator*.csv

Residuals are log ratios with a loss that grows slowly for outliers (Cauchy); TTFT weighs half as much as TPOT. Every
constant has a prior: what is known of it before, and how firmly. Efficiencies that a left-out part of the data alone
would tell (16-bit matrices are on one system) have firm ones, so that a split does not invent them.

The ends of the band are quantiles of the residuals of models that were left out, linear in the regimes of
tonnage.inference.estimate.band, with priors too.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from benchmarks.common import ROOT, data_folder
from benchmarks.estimator_rows import SILICON, Row, read, truth
from tonnage.inference import tables
from tonnage.inference.estimate.band import regimes
from tonnage.inference.estimate.batch import Columns, columns
from tonnage.inference.estimate.constants import REGIMES, Band, Constants, constants
from tonnage.inference.estimate.serve import Served, serve


class Prior(NamedTuple):
    """``value``, and how firm it is: the larger, the less the rows move it."""

    value: float
    firmness: float


PRIORS = {
    "weight_bandwidth": Prior(0.9, 5),
    "expert_bandwidth": Prior(0.8, 5),
    "kv_bandwidth": Prior(0.8, 10),
    "compute": Prior(0.7, 30),
    "fp8_compute": Prior(0.9, 60),
    "fp4_compute": Prior(0.8, 10),
    "expert_compute": Prior(0.4, 3),
    "attention_compute": Prior(0.5, 3),
    "layer_s": Prior(5e-5, 3),
    "expert_layer_s": Prior(3e-5, 3),
    "all_reduce_s": Prior(2e-6, 3),
    "link_share": Prior(0.6, 5),
    "all_to_all_share": Prior(0.3, 3),
    "sequence_s": Prior(1e-5, 3),
    "request_s": Prior(1e-3, 3),
    "step_s_vllm": Prior(1e-3, 3),
    "step_s_sglang": Prior(1e-3, 3),
    "step_s_tensorrt_llm": Prior(1e-3, 3),
    "first_token_s_vllm": Prior(0.04, 1),
    "first_token_s_sglang": Prior(0.1, 10),
    "first_token_s_tensorrt_llm": Prior(0.06, 10),
}
"""What is fitted. The other constants of estimator.csv are from elsewhere."""

BAND_PRIORS = {
    "tpot": {"base": (-0.3, 0.3), "rack": (-0.3, 0.9), "overloaded": (-1.2, 0.3)},
    "ttft": {"base": (-1.0, 1.0), "rack": (-0.5, 1.0), "overloaded": (-3.0, 1.2)},
}
UNSEEN = {"tpot": (-0.05, 0.05), "ttft": (-0.1, 0.1)}
"""What a GPU without a measured point adds: with it bands contain 94 % of the points of a system left out."""

QUANTILE = 0.04
"""Less than 5 %: a model that is new is a little farther off than those left out one by one."""

TPOT_SCALE, TTFT_SCALE = 0.15, 0.3
TTFT_WEIGHT = 0.5
BAND_PULL = 5e-4
_PULL = 0.05
_NAMES = tuple(PRIORS)
_DATA = ROOT / "src" / "tonnage" / "inference" / "data"


def available() -> bool:
    """Whether scipy is installed."""
    return importlib.util.find_spec("scipy") is not None


def fit(given: list[Row]) -> Constants:
    """The constants that fit these rows."""
    from scipy.optimize import least_squares

    cases = cases_of(given)
    ttft, tpot = truth(given)
    has_ttft = ttft > 0
    safe = np.where(has_ttft, ttft, 1.0)
    start = np.log([prior.value for prior in PRIORS.values()])
    pull = _PULL / TPOT_SCALE * np.array([prior.firmness for prior in PRIORS.values()]) * np.sqrt(len(given) / 300)

    def residuals(x: np.ndarray) -> np.ndarray:
        found = served(with_values(x), cases)
        times = np.log(found.tpot_s / tpot) / TPOT_SCALE
        first = np.where(has_ttft, TTFT_WEIGHT * np.log(found.ttft_s / safe) / TTFT_SCALE, 0.0)
        return np.concatenate([_slow(times), _slow(first), pull * (x - start)])

    return with_values(least_squares(residuals, start, max_nfev=60).x)


def fit_band(of: str, logs: np.ndarray, amounts: np.ndarray, quantile: float = QUANTILE) -> Band:
    """The band whose ends are the ``quantile`` and its complement of ``logs``, logarithms of truth over estimate of
    shape (rows,), in ``amounts`` of each regime, shape (rows, regimes)."""
    use = np.isfinite(logs)
    seen = [index for index, name in enumerate(REGIMES) if name != "unseen"]
    ends = []
    for side, level in enumerate((quantile, 1 - quantile)):
        prior = np.array([BAND_PRIORS[of][REGIMES[index]][side] for index in seen])
        weights = np.zeros(len(REGIMES))
        weights[seen] = _quantile(amounts[use][:, seen], logs[use], level, prior)
        weights[REGIMES.index("unseen")] = UNSEEN[of][side]
        ends.append(tuple(weights.tolist()))
    return Band(*ends)


def _quantile(x: np.ndarray, y: np.ndarray, level: float, prior: np.ndarray) -> np.ndarray:
    """Linear quantile regression, the weights pulled to ``prior``, the first not; a linear programme."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix, eye, hstack, vstack

    n, k = x.shape
    pull = np.full(k, BAND_PULL * n)
    pull[0] = 0.0
    cost = np.concatenate([np.zeros(k), np.full(n, level), np.full(n, 1 - level), pull, pull])
    fits = hstack([csr_matrix(x), eye(n), -eye(n), csr_matrix((n, 2 * k))])
    pulled = hstack([eye(k), csr_matrix((k, 2 * n)), -eye(k), eye(k)])
    bounds = [(None, None)] * k + [(0, None)] * (2 * n + 2 * k)
    found = linprog(
        cost, A_eq=vstack([fits, pulled]).tocsc(), b_eq=np.concatenate([y, prior]), bounds=bounds, method="highs"
    )
    return np.asarray(found.x[:k])


class Residuals(NamedTuple):
    """Of each row the logarithm of truth over estimate, shape (rows,), and the regimes, shape (rows, regimes); NaN
    where a time was not measured, and for rows that are hidden."""

    tpot: np.ndarray
    ttft: np.ndarray
    amounts: np.ndarray


class LeftOut:
    """What is said of rows by constants that were fitted without their group. Each fit is made once, and starts from
    the priors."""

    def __init__(self, given: list[Row], groups: list[str]) -> None:
        self._rows = given
        self.names = np.array(groups)
        self._fits: dict[frozenset[str], Constants] = {}

    def without(self, groups: frozenset[str]) -> Constants:
        """The constants fitted without any row of ``groups``."""
        if groups not in self._fits:
            kept = [row for row, name in zip(self._rows, self.names, strict=True) if name not in groups]
            self._fits[groups] = fit(kept)
        return self._fits[groups]

    def residuals(self, hidden: str | None = None) -> Residuals:
        """Those of every row from constants fitted without its group and without ``hidden``, a group that is to be as
        if it were not there."""
        ttft, tpot = truth(self._rows)
        found = Residuals(*(np.full(len(tpot), np.nan) for _ in range(2)), np.full((len(tpot), len(REGIMES)), np.nan))
        for group in sorted(set(self.names) - {hidden}):
            test = self.names == group
            cases = cases_of([row for row, out in zip(self._rows, test, strict=True) if out])
            times = served(self.without(frozenset({group, hidden} - {None})), cases)
            found.tpot[test] = np.log(tpot[test] / times.tpot_s)
            found.ttft[test] = np.log(ttft[test] / times.ttft_s)
            found.amounts[test] = amounts_of(cases, times)
        return found


def amounts_of(cases: Columns, times: Served) -> np.ndarray:
    """The regimes of each case, shape (cases, regimes)."""
    parts = [np.broadcast_to(part, times.tpot_s.shape) for part in regimes(cases.figures, times)]
    return np.stack(parts, axis=1).astype(float)


def cases_of(given: list[Row]) -> Columns:
    """The cases of the rows, in columns."""
    return columns([(row.replica, row.load) for row in given])


def served(c: Constants, cases: Columns) -> Served:
    """The times of the cases."""
    return serve(c, cases.figures, cases.concurrency, cases.inputs, cases.outputs, cases.batched)


def with_values(x: np.ndarray) -> Constants:
    """The shipped constants with the exponentials of ``x`` in place of those that are fitted."""
    return replace(constants(), **dict(zip(_NAMES, np.exp(x).tolist(), strict=True)))


def _slow(residual: np.ndarray) -> np.ndarray:
    """Residuals whose squares are the Cauchy loss of ``residual``; the priors keep their squares."""
    slowed: np.ndarray = np.sign(residual) * np.sqrt(np.log1p(residual**2))
    return slowed


def main() -> None:
    """Fit on all rows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.estimator_fit")
    parser.add_argument("--data", help="folder with silicon/")
    parser.add_argument("--write", action="store_true", help="write the tables of the package")
    options = parser.parse_args()
    folder = data_folder(options.data)
    if folder is None:
        raise SystemExit("no data: give --data DIR or TONNAGE_DATA")
    given = read(folder / SILICON).rows
    fitted = fit(given)
    out = LeftOut(given, [row.family for row in given]).residuals()
    bands = {of: fit_band(of, getattr(out, of), out.amounts) for of in ("tpot", "ttft")}
    for name in _NAMES:
        print(f"{name},{getattr(fitted, name):.4g}")
    for of, band in bands.items():
        print(of, dict(zip(REGIMES, zip(band.low, band.high, strict=True), strict=True)))
    if options.write:
        write(fitted, bands, len(given), datetime.now(UTC).date().isoformat())


def write(fitted: Constants, bands: dict[str, Band], count: int, date: str) -> None:
    """Write both tables, the sources of the constants that are not fitted unchanged."""
    source = (
        f"fitted {date} to {count} measured points of aiconfigurator-core 0.12.0 systems/silicon_sample.csv "
        "(H100, H200, B200, GB200; vLLM, SGLang, TensorRT-LLM); benchmarks/estimator_fit.py"
    )
    table: list[dict[str, Any]] = []
    for known in tables.rows("estimator.csv"):
        row: dict[str, Any] = {**known}
        if row["name"] in PRIORS:
            row |= {"value": f"{getattr(fitted, row['name']):.4g}", "source": "same fit" if table else source}
        table.append(row)
    _save(_DATA / "estimator.csv", table)
    lines: list[dict[str, Any]] = []
    for of, band in bands.items():
        for name, low, high in zip(REGIMES, band.low, band.high, strict=True):
            said = f"residuals of models left out, {date}; benchmarks/estimator_fit.py"
            if name == "unseen":
                said = "chosen: contains 94 % of the points of a system left out; docs/explanation/estimator.md"
            lines.append({"of": of, "regime": name, "low": f"{low:.3g}", "high": f"{high:.3g}", "source": said})
    _save(_DATA / "estimator_bands.csv", lines)


def _save(file: Path, lines: list[dict[str, Any]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, fieldnames=list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    main()
