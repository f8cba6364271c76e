"""The 90 % band of an estimate.

How far an estimate is off depends on where it stands, and so does the band. With r the natural logarithm of truth over
estimate, its ends are sums over regimes of a weight times how much of the regime there is:

- ``base``: always;
- ``rack``: the GPUs are those of an NVL72 system. Most points published of them are of whole systems, whose split into
  prefill and decode is not known;
- ``overloaded``: the KV cache does not hold all requests. How many it holds decides, and is known least;
- ``unseen``: no measured point of this GPU, or MIG profile, is behind the constants;
- ``unlike``: the distance to the nearest measured points in format, card, framework, parallelism and shape
  (:mod:`tonnage.inference.estimate.measured`).

The weights are fitted to residuals of models that the constants were not fitted to (benchmarks/estimator_fit.py), so
that the band holds for a model that is new.
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnage.inference.estimate.step import least, most

if TYPE_CHECKING:
    from tonnage.inference.estimate.case import Figures, Number
    from tonnage.inference.estimate.constants import Band
    from tonnage.inference.estimate.serve import ServedLoad

_LEAST = 0.03
"""No band is narrower than 3 % to either side."""


def regimes(figures: Figures, served: ServedLoad) -> tuple[Number, ...]:
    """How much of each of :data:`~tonnage.inference.estimate.constants.REGIMES` there is, in that order."""
    return 1.0, figures.rack, above(served.wanted, served.running), figures.unseen, figures.unlike


def limits(band: Band, estimate: Number, amounts: tuple[Number, ...]) -> tuple[Number, Number]:
    """(lower, upper) end of the band around ``estimate``."""
    low = sum(weight * amount for weight, amount in zip(band.low, amounts, strict=True))
    high = sum(weight * amount for weight, amount in zip(band.high, amounts, strict=True))
    return estimate * _exp(least(low, -_LEAST)), estimate * _exp(most(high, _LEAST))


def above(a: Any, b: Any) -> Number:
    """1 where ``a`` exceeds ``b``, else 0."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.greater(a, b).astype(np.float64)
    return float(a > b)


def _exp(a: Any) -> Number:
    return np.exp(a) if isinstance(a, np.ndarray) else exp(a)
