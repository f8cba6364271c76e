"""What a mixture of experts does with T tokens in a step: how many experts are touched, how full their matrices are,
how unevenly ranks are loaded.

With E experts, k of them a token, each gets λ = -T · ln(1 - k / E) tokens on average (T · k / E for small k / E). How
popular experts are varies: gamma-distributed with coefficient of variation ``skew``, so that the counts of tokens are
negative binomial, and

    touched = 1 - (1 + λ · skew²) ^ (-1 / skew²)              share of experts that at least one token is sent to

Kernels multiply in tiles of rows: the last tile of each expert is half empty on average. Tiles are about as tall as an
expert has rows, from 16 up to :data:`TILE`::

    padded  = 1 + (8 + TILE / 2 · μ / (μ + TILE)) / μ         rows multiplied over rows sent, μ = λ / touched

With experts on R ranks (expert parallelism) the busiest rank decides: the load of a rank varies by
√((skew² + 1 / λ) · R / E) of its mean, and of R such ranks the busiest is √(2 · ln R) of that above it.

Nothing here knows whether its arguments are floats or arrays of shape (cases,).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from tonnage.inference.estimate.case import Figures, Number
    from tonnage.inference.estimate.constants import Constants

TILE = 128
"""Rows of a full tile: BLOCK_M of vLLM's and Triton's fused kernels, DeepGEMM's and CUTLASS's grouped ones."""

_LEAST_TILE = 16


class Spread(NamedTuple):
    """How tokens lie on the experts of a layer. ``touched``: share of a rank's experts with a token; ``padded``: rows
    multiplied over rows sent; ``busiest``: load of the busiest rank over the mean."""

    touched: Number
    padded: Number
    busiest: Number


def spread(c: Constants, f: Figures, tokens: Number) -> Spread:
    """How ``tokens`` tokens, those of all ranks that share the experts, lie on them."""
    each = tokens * f.expert_rate
    uneven = c.expert_skew * c.expert_skew
    touched = 1 - (1 + each * uneven) ** (-1 / uneven)
    rows = (each + _TINY) / (touched + _TINY)
    padded = 1 + (_LEAST_TILE / 2 + TILE / 2 * rows / (rows + TILE)) / rows
    varied = (uneven + 1 / (each + _TINY)) * f.expert_varied
    return Spread(touched, padded, 1 + _root(varied))


_TINY = 1e-9
"""Keeps models without experts, which have no tokens on them, from dividing by zero."""


def _root(a: Any) -> Number:
    return np.sqrt(a) if isinstance(a, np.ndarray) else a**0.5
