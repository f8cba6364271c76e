"""Types of options that click lacks."""

from __future__ import annotations

import math

import click


class Finite(click.FloatRange):
    """A number within a range that is neither infinite nor NaN, and no larger than a thousand million million."""

    name = "number"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Fails as other types do, which names the option."""
        number = float(super().convert(value, param, ctx))  # type: ignore[arg-type]
        if not math.isfinite(number) or abs(number) > 1e15:
            self.fail(f"{value} is no number to reckon with; expected up to 1e15", param, ctx)
        return number
