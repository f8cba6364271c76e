"""The step time of the estimator as a timing of engines: of simulated ones, and of those that a router sends to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.inference.estimate import constants as tables
from tonnage.inference.estimate.case import check_room, figures
from tonnage.inference.estimate.replica import Replica
from tonnage.inference.estimate.step import Work, framework_seconds, gpu_seconds, launch_seconds
from tonnage.inference.timing import TICKS_PER_S, StepWork

if TYPE_CHECKING:
    from tonnage.inference.estimate.constants import Constants

_MANY = 1 << 24
"""Tokens or pairs over which the time of one is averaged, so that rounding does not show in it."""


class EstimatedTiming:
    """A :class:`~tonnage.inference.timing.StepTiming` of ``replica``: the formula and constants of
    :func:`~tonnage.inference.estimate.one_step.step_seconds`, to a fraction of a nanosecond.

    Once the sequences and tokens of a step are fixed the formula is linear in what it reads from the KV cache and in
    its pairs of queries and keys. So the matrices, the head and the framework are computed once for each number of
    tokens and sequences, and what a cached token or a pair adds is counted in whole ticks. Of a replica of several
    data-parallel ranks or pipeline stages, steps are those of one rank through all stages.

    Raises InputError if the replica cannot run as described, or its weights do not fit.
    """

    __slots__ = (
        "_constants",
        "_every",
        "_figures",
        "_heads",
        "_launch",
        "_matrices",
        "_pair",
        "_prompt_token",
        "_replica",
        "_sequence",
        "_window_pair",
        "decode_token",
        "window",
        "window_token",
    )

    def __init__(self, replica: Replica, *, constants: Constants | None = None) -> None:
        check_room(replica)
        self._replica = replica
        self._figures = figures(replica)
        self._constants = constants or tables.constants()
        self.window = replica.shape.window if replica.shape.window_layers else 0
        self.decode_token = self._each(cached=_MANY)
        self.window_token = self._each(window_cached=_MANY) if self.window else 0
        self._prompt_token = self._each(prompt_cached=_MANY)
        self._pair = self._each(pairs=_MANY)
        self._window_pair = self._each(window_pairs=_MANY) if self.window else 0
        self._launch = round(float(launch_seconds(self._constants, self._figures)) * TICKS_PER_S)
        self._every = self._framework(0)
        self._sequence = self._framework(_MANY) // _MANY
        self._matrices: dict[int, int] = {}
        self._heads: dict[int, int] = {}

    def step(self, work: StepWork) -> int:
        """Duration of a step in ticks; see :class:`~tonnage.inference.timing.StepTiming`."""
        decoders, cached, window_cached, prompts, tokens, prompt_cached, pairs, window_pairs = work
        computed = decoders + tokens
        matrices = self._matrices.get(computed)
        if matrices is None:
            matrices = self._matrices[computed] = self._gpu(Work(computed, 0.0, 0.0, 0.0)) + self._every
        total = matrices + self._sequence * (decoders + prompts) + self.decode_token * cached
        if decoders:
            head = self._heads.get(decoders)
            if head is None:
                alone = Work(decoders, 0.0, 0.0, 0.0)
                head = self._gpu(alone._replace(decoders=decoders)) - self._gpu(alone)
                self._heads[decoders] = head
            total += head
        if prompts:
            total += self._launch + self._prompt_token * prompt_cached + self._pair * pairs
        if self.window:
            total += self.window_token * window_cached + self._window_pair * window_pairs
        return total

    def host(self, work: StepWork) -> int:
        """Ticks of a step that the framework takes; see :class:`~tonnage.inference.timing.StepTiming`."""
        launch = self._launch if work.prompts else 0
        return self._every + launch + self._sequence * (work.decoders + work.prompts)

    def _gpu(self, work: Work) -> int:
        return round(float(gpu_seconds(self._constants, self._figures, work)) * TICKS_PER_S)

    def _framework(self, sequences: int) -> int:
        """What the framework adds for sequences, less what it adds to every step; that alone for none."""
        every = float(framework_seconds(self._constants, self._figures, 0.0))
        seconds = float(framework_seconds(self._constants, self._figures, float(sequences))) - every
        return round((seconds if sequences else every) * TICKS_PER_S)

    def _each(self, **many: int) -> int:
        """Ticks that one more of it adds."""
        some = Work(1.0, 0.0, 0.0, 0.0)
        more = some._replace(**{name: float(number) for name, number in many.items()})
        seconds = float(gpu_seconds(self._constants, self._figures, more)) - float(
            gpu_seconds(self._constants, self._figures, some)
        )
        return round(seconds / _MANY * TICKS_PER_S)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, EstimatedTiming)
            and self._replica == other._replica
            and self._constants == other._constants
        )

    def __hash__(self) -> int:
        return hash((self._replica, self._constants))
