"""How fast a model is served: an estimate of TTFT, TPOT and throughput with an error band, and of a single step.

:func:`estimate` and :func:`estimate_many` answer for a :class:`Replica` under a :class:`Load`; :func:`step_seconds` for
one step of a shape on a card. All three, and :class:`EstimatedTiming` for the simulator's engine, are one formula
(:mod:`tonnage.inference.estimate.step`) with one set of constants (data/estimator.csv): bandwidth and compute
efficiencies, overheads of layers, steps and requests, communication. None of them is of a model.
"""

from tonnage.inference.estimate.case import Load
from tonnage.inference.estimate.constants import FRAMEWORKS, Constants
from tonnage.inference.estimate.one_step import mixture_seconds, step_seconds
from tonnage.inference.estimate.points import Estimate, Estimates, estimate, estimate_many
from tonnage.inference.estimate.replica import Replica
from tonnage.inference.estimate.shapes import plain_shape
from tonnage.inference.estimate.timing import EstimatedTiming

__all__ = [
    "FRAMEWORKS",
    "Constants",
    "Estimate",
    "EstimatedTiming",
    "Estimates",
    "Load",
    "Replica",
    "estimate",
    "estimate_many",
    "mixture_seconds",
    "plain_shape",
    "step_seconds",
]
