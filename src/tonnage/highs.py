"""HiGHS, the solver of linear and integer programs, without a word on standard output."""

from __future__ import annotations

import highspy


class Solver(highspy.Highs):
    """HiGHS on one thread that prints nothing, from its first step on. ``options``: HiGHS's own, by name."""

    def __init__(self, **options: bool | int | float | str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.setOptionValue("threads", 1)
        for name, value in options.items():
            self.setOptionValue(name, value)

    def enableCallbacks(self) -> None:
        """Called while HiGHS is made: registering callbacks prints a banner, and none are used."""
        self.setOptionValue("output_flag", False)
