"""The step time of the estimator as a timing of the simulator's engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.inference.estimate import constants as tables
from tonnage.inference.estimate.case import Replica, check_room, figures
from tonnage.inference.estimate.step import Work, framework_seconds, gpu_seconds

if TYPE_CHECKING:
    from tonnage.inference.estimate.constants import Constants

_PS_PER_S = 1_000_000_000_000


class EstimatedTiming:
    """A :class:`~tonnage.inference.timing.StepTiming` of ``replica`` from the formula and constants of
    :func:`~tonnage.inference.estimate.one_step.step_seconds`.

    The formula is linear in cached tokens and pairs once the tokens are fixed, save that decoding attends in latent
    space (MLA) and that windows are bounded: a cached token carries what decoding costs more than a prompt's pair, and
    window layers are left out as :class:`~tonnage.inference.timing.RooflineTiming` does. The framework's time for each
    sequence is left out too, since an engine does not tell sequences from tokens; its time for each step is not. Of a
    replica of several data-parallel ranks or pipeline stages, steps are those of one rank through all stages.

    Raises InputError if the replica cannot run as described, or its weights do not fit.
    """

    __slots__ = ("_base", "_cached_ps", "_constants", "_figures", "_pair_ps", "_replica")

    def __init__(self, replica: Replica, *, constants: Constants | None = None) -> None:
        check_room(replica)
        self._replica = replica
        self._figures = figures(replica)
        self._constants = constants or tables.constants()
        alone = self._seconds(1.0)
        self._pair_ps = _ps(self._seconds(1.0, pairs=1.0) - alone)
        self._cached_ps = max(0, _ps(self._seconds(1.0, cached=1.0) - alone) - self._pair_ps)
        self._base: dict[int, int] = {}

    @property
    def decode_token_ps(self) -> int:
        """What each cached token of a decoding sequence adds to a step, in ps."""
        return self._cached_ps + self._pair_ps

    def step_ps(self, tokens: int, cached: int, pairs: int) -> int:
        """Duration in ps of a step; see :class:`~tonnage.inference.timing.StepTiming`."""
        base = self._base.get(tokens)
        if base is None:
            base = self._base[tokens] = _ps(self._seconds(float(tokens)))
        return base + self._cached_ps * cached + self._pair_ps * pairs

    def _seconds(self, tokens: float, cached: float = 0.0, pairs: float = 0.0) -> float:
        work = Work(tokens, 0.0, cached, 0.0, pairs)
        known, fitted = self._figures, self._constants
        return float(gpu_seconds(fitted, known, work) + framework_seconds(fitted, known, 0.0))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, EstimatedTiming)
            and self._replica == other._replica
            and self._constants == other._constants
        )

    def __hash__(self) -> int:
        return hash((self._replica, self._constants))


def _ps(seconds: float) -> int:
    return round(seconds * _PS_PER_S)
