"""Fits the constants of the estimator to measured points. Needs scipy; the package does not.

    python -m benchmarks.estimator_fit --data DIR           fit on all rows, print constants and bands
    python -m benchmarks.estimator_fit --data DIR --write   and write src/tonnage/inference/data/estimator*.csv

Beside served points, constants are fitted to the layers of real GPUs that were measured (estimator_layers.py): those of
cards, and of models, that the points have. So a split that leaves a card or a model out leaves its layers out too.

Residuals are log ratios with a loss that grows slowly for outliers (Cauchy). Every constant has a prior: what is known
of it before, and how firmly. Efficiencies that a left-out part of the data alone would tell (16-bit matrices are on one
system) have firm ones, so that a split does not invent them.

The ends of the band are quantiles of the residuals of models that were left out, linear in the regimes of
tonnage.inference.estimate.band, with priors too.
"""

from __future__ import annotations

import argparse
import importlib.util
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from benchmarks import estimator_layers
from benchmarks.common import data_folder
from benchmarks.estimator_priors import FORMS, PRIORS, Form
from benchmarks.estimator_rows import Row, fitted, group_points, truth
from tonnage.inference.estimate.band import regimes
from tonnage.inference.estimate.batch import Columns, columns
from tonnage.inference.estimate.constants import FRAMEWORKS, REGIMES, Band, Constants, constants
from tonnage.inference.estimate.measured import MeasuredGroups
from tonnage.inference.estimate.serve import ServedLoad, serve

BAND_PRIORS = {
    "tpot": {"base": (-0.3, 0.3), "rack": (-0.3, 0.9), "overloaded": (-1.2, 0.3), "unlike": (-0.1, 0.1)},
    "ttft": {"base": (-1.0, 1.0), "rack": (-0.5, 1.0), "overloaded": (-3.0, 1.2), "unlike": (-0.2, 0.2)},
}
UNSEEN = {"tpot": (-0.02, 0.02), "ttft": (-0.1, 0.1)}
"""What a GPU without a measured point adds: with it bands contain 95 % of the points of a system left out."""

WIDER = {"tpot": 0.1, "ttft": 0.1}
"""What a unit of distance adds to either side at least: points say little of it, since all families are about one unit
from each other."""

QUANTILE = 0.04
"""Less than 5 %: a model that is new is a little farther off than those left out one by one."""

TPOT_SCALE, TTFT_SCALE = 0.15, 0.3
AIMS = {"tpot": 0.14, "ttft": 0.25}
"""How far off models left out may be in the median: the bars of benchmarks/estimator.py."""
BAND_PULL = 5e-4
_PULL = 0.05
_STEP = 1e-6
"""How far constants are moved to see what they do; natural logarithms."""
_PRECISE = 4e-3
"""A fit ends when its sum of squares changes by less than this share."""


def available() -> bool:
    """Whether scipy is installed."""
    return importlib.util.find_spec("scipy") is not None


def fit(given: list[Row], form: Form) -> Constants:
    """The constants that fit these rows, and the layers of their cards and models, in ``form``."""
    from scipy.optimize import least_squares

    cases = cases_of(given)
    ttft, tpot = truth(given)
    has_ttft = ttft > 0
    safe = np.where(has_ttft, ttft, 1.0)
    priors = {name: prior for name, prior in PRIORS.items() if name not in form.kept}
    start = np.log([form.values.get(name, prior.value) for name, prior in priors.items()])
    firmness = np.array([prior.firmness for prior in priors.values()])
    pull = _PULL / TPOT_SCALE * form.firmness * firmness * np.sqrt(len(given) / 300)

    def values(x: np.ndarray) -> Constants:
        return replace(constants(), **form.kept, **dict(zip(priors, np.exp(x).tolist(), strict=True)))

    def misses(x: np.ndarray) -> np.ndarray:
        found = served(values(x), cases)
        times = np.log(found.tpot_s / tpot) / TPOT_SCALE
        first = np.where(has_ttft, form.ttft_weight * np.log(found.ttft_s / safe) / TTFT_SCALE, 0.0)
        return np.concatenate([_slow(times), _slow(first)])

    cards, families = {row.system.partition("_")[0] for row in given}, {row.family for row in given}

    def layers(x: np.ndarray) -> np.ndarray:
        return _slow(estimator_layers.misses(values(x), cards, families))

    def residuals(x: np.ndarray) -> np.ndarray:
        return np.concatenate([misses(x), layers(x), pull * (x - start)])

    together = _apart(list(priors))
    frameworks = np.array([row.replica.framework for row in given] * 2)

    def slopes(x: np.ndarray) -> np.ndarray:
        here, alone = misses(x), layers(x)
        found, of_layers = np.zeros((len(here), len(x))), np.zeros((len(alone), len(x)))
        for columns_moved in together:
            moved = x.copy()
            moved[list(columns_moved)] += _STEP
            change = (misses(moved) - here) / _STEP
            for column, framework in columns_moved.items():
                found[:, column] = np.where(frameworks == framework, change, 0.0) if framework else change
                if not framework:
                    of_layers[:, column] = (layers(moved) - alone) / _STEP
        return np.concatenate([found, of_layers, np.diag(pull)])

    return values(least_squares(residuals, start, slopes, ftol=_PRECISE, max_nfev=60).x)


def _apart(names: list[str]) -> list[dict[int, str]]:
    """Columns that can be moved at once, those of constants that hold for one framework each, by what their names
    share: the framework of each column, empty for a constant that holds for all."""
    groups: dict[str, dict[int, str]] = {}
    for column, name in enumerate(names):
        of = next((one for one in FRAMEWORKS if name.endswith(one.replace("-", "_"))), "")
        groups.setdefault(name.removesuffix(of.replace("-", "_")) if of else name, {})[column] = of
    return list(groups.values())


def fit_band(of: str, left_out: LeftOut, hidden: str | None = None, form: Form | None = None) -> Band:
    """The band whose ends are a quantile and its complement of the logarithms of truth over estimate of ``of``: of rows
    whose group was left out, at their distance to the points of the others, and of the same rows where their group was
    fitted too, at none; ``hidden`` is as if it were not there. Each group weighs the same however many rows it has: a
    band is for a model that is new, not for one more row of a model that has many."""
    apart, fitted_too = left_out.residuals(hidden, form), left_out.seen(hidden, form)
    logs = np.concatenate([getattr(apart, of), getattr(fitted_too, of)])
    amounts = np.concatenate([apart.amounts, fitted_too.amounts])
    groups = np.array([*left_out.names, *(f"{name}, seen" for name in left_out.names)])
    use = np.isfinite(logs)
    seen = [index for index, name in enumerate(REGIMES) if name != "unseen"]
    _, index, counts = np.unique(groups[use], return_inverse=True, return_counts=True)
    shares = use.sum() / (len(counts) * counts[index])
    ends = []
    for side, level in enumerate((QUANTILE, 1 - QUANTILE)):
        prior = np.array([BAND_PRIORS[of][REGIMES[index]][side] for index in seen])
        weights = np.zeros(len(REGIMES))
        weights[seen] = _quantile(amounts[use][:, seen], logs[use], level, prior, shares, WIDER[of])
        weights[REGIMES.index("unseen")] = UNSEEN[of][side]
        ends.append(tuple(weights.tolist()))
    return Band(*ends)


def _quantile(
    x: np.ndarray, y: np.ndarray, level: float, prior: np.ndarray, shares: np.ndarray, wider: float
) -> np.ndarray:
    """Linear quantile regression with ``shares`` as weights of the rows, the weights of the regimes pulled to
    ``prior``, the first not; none but the first narrows the band, and the last widens it by ``wider`` at least. A
    linear programme."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix, eye, hstack, vstack

    n, k = x.shape
    pull = np.full(k, BAND_PULL * n)
    pull[0] = 0.0
    cost = np.concatenate([np.zeros(k), level * shares, (1 - level) * shares, pull, pull])
    fits = hstack([csr_matrix(x), eye(n), -eye(n), csr_matrix((n, 2 * k))])
    pulled = hstack([eye(k), csr_matrix((k, 2 * n)), -eye(k), eye(k)])
    least = [0.0] * (k - 2) + [wider]
    ends = [(None, -one) if level < 0.5 else (one, None) for one in least]
    bounds: list[Any] = [(None, None), *ends, *[(0, None)] * (2 * n + 2 * k)]
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
    the priors. The form is chosen without the group too: by what it is worth on the other groups, each left out in
    turn (:meth:`form_without`)."""

    def __init__(self, given: list[Row], groups: list[str], forms: tuple[Form, ...] = FORMS) -> None:
        self._rows = given
        self.names = np.array(groups)
        self.forms = forms
        self._fits: dict[tuple[str, frozenset[str]], Constants] = {}
        self._chosen: dict[str | None, Form] = {}
        self._distances: dict[tuple[str, frozenset[str]], np.ndarray] = {}
        self._cases = {name: cases_of([given[i] for i in np.flatnonzero(self.names == name)]) for name in set(groups)}

    def without(self, groups: frozenset[str], form: Form) -> Constants:
        """The constants in ``form`` fitted without any row of ``groups``."""
        key = form.name, groups
        if key not in self._fits:
            kept = [row for row, name in zip(self._rows, self.names, strict=True) if name not in groups]
            self._fits[key] = fit(kept, form)
        return self._fits[key]

    def form_without(self, group: str | None = None) -> Form:
        """The form whose errors are least on the other groups, each left out beside ``group`` in turn."""
        if len(self.forms) == 1 or len(set(self.names) - {group}) < 2:
            return self.forms[0]
        if group not in self._chosen:
            self._chosen[group] = min(self.forms, key=lambda form: _error(self.residuals(group, form)))
        return self._chosen[group]

    def residuals(self, hidden: str | None = None, form: Form | None = None) -> Residuals:
        """Those of every row from constants fitted without its group and without ``hidden``, a group that is to be as
        if it were not there; in ``form``, else in that which is chosen without both."""
        ttft, tpot = truth(self._rows)
        found = Residuals(*(np.full(len(tpot), np.nan) for _ in range(2)), np.full((len(tpot), len(REGIMES)), np.nan))
        for group in sorted(set(self.names) - {hidden}):
            test, cases = self.names == group, self._cases[group]
            chosen = form or self.form_without(group if hidden is None else hidden)
            times = served(self.without(frozenset({group, hidden} - {None}), chosen), cases)
            found.tpot[test] = np.log(tpot[test] / times.tpot_s)
            found.ttft[test] = np.log(ttft[test] / times.ttft_s)
            found.amounts[test] = amounts_of(cases, times)
            found.amounts[test, REGIMES.index("unlike")] = self.distances(group, frozenset({group, hidden} - {None}))
        return found

    def seen(self, hidden: str | None = None, form: Form | None = None) -> Residuals:
        """Those of every row but ``hidden`` from constants fitted to all of these, at no distance."""
        ttft, tpot = truth(self._rows)
        found = Residuals(
            np.full(len(tpot), np.nan), np.full(len(tpot), np.nan), np.full((len(tpot), len(REGIMES)), np.nan)
        )
        constants_found = self.without(frozenset({hidden} - {None}), form or self.form_without(hidden))
        for group in sorted(set(self.names) - {hidden}):
            test, cases = self.names == group, self._cases[group]
            times = served(constants_found, cases)
            found.tpot[test] = np.log(tpot[test] / times.tpot_s)
            found.ttft[test] = np.log(ttft[test] / times.ttft_s)
            found.amounts[test] = amounts_of(cases, times)
            found.amounts[test, REGIMES.index("unlike")] = 0.0
        return found

    def distances(self, group: str, without: frozenset[str]) -> np.ndarray:
        """Of each row of ``group`` the distance to the nearest points outside of ``without``, shape (rows,)."""
        if (group, without) not in self._distances:
            kept = [row for row, name in zip(self._rows, self.names, strict=True) if name not in without]
            rows = [self._rows[index] for index in np.flatnonzero(self.names == group)]
            self._distances[group, without] = distances_of(rows, measured_of(kept))
        return self._distances[group, without]


def _error(found: Residuals) -> float:
    """What a form is chosen by: both medians of |estimate / measured - 1|, in units of :data:`AIMS`."""
    return sum(float(np.nanmedian(np.abs(np.expm1(-getattr(found, of))))) / aim for of, aim in AIMS.items())


def measured_of(given: list[Row]) -> MeasuredGroups:
    """The groups of points that the rows are."""
    found = group_points((row.replica, row.load.concurrency) for row in given)
    return MeasuredGroups(*zip(*found, strict=True))


def distances_of(given: list[Row], behind: MeasuredGroups) -> np.ndarray:
    """The distance of each row to the nearest of the points, shape (rows,)."""
    known = {row.replica: 0.0 for row in given}
    for replica in known:
        known[replica] = behind.distance(replica)
    return np.array([known[row.replica] for row in given])


def amounts_of(cases: Columns, times: ServedLoad) -> np.ndarray:
    """The regimes of each case, shape (cases, regimes)."""
    parts = [np.broadcast_to(part, times.tpot_s.shape) for part in regimes(cases.figures, times)]
    return np.stack(parts, axis=1).astype(float)


def cases_of(given: list[Row]) -> Columns:
    """The cases of the rows, in columns."""
    return columns([(row.replica, row.load) for row in given])


def served(c: Constants, cases: Columns) -> ServedLoad:
    """The times of the cases."""
    return serve(c, *cases)


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
    given = fitted(folder).rows
    families = LeftOut(given, [row.family for row in given])
    form = families.form_without()
    constants_found = fit(given, form)
    bands = {of: fit_band(of, families) for of in ("tpot", "ttft")}
    print(f"form: {form.name}")
    for name in PRIORS:
        print(f"{name},{getattr(constants_found, name):.4g}")
    for of, band in bands.items():
        print(of, dict(zip(REGIMES, zip(band.low, band.high, strict=True), strict=True)))
    if options.write:
        from benchmarks.estimator_tables import write

        write(constants_found, bands, given, form, datetime.now(UTC).date().isoformat())


if __name__ == "__main__":
    main()
