"""Types of options that click lacks, and errors that name the options of the command at hand."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from tonnage.errors import InputError, Problem, Where

_Command = TypeVar("_Command", bound=Callable[..., Any])


def output_option(parameter: str = "output", *, table: str = "table") -> Callable[[_Command], _Command]:
    """Where an answer is a table, or JSON or YAML for programs; ``table`` is what it is called for people."""
    return click.option(
        "-o",
        "--output",
        parameter,
        type=click.Choice([table, "json", "yaml"]),
        default=table,
        show_default=True,
        help="What to print.",
    )


OUTPUT = output_option()
"""The usual one."""


class Finite(click.FloatRange):
    """A number within a range that is neither infinite nor NaN, and no larger than a thousand million million."""

    name = "number"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Fails as other types do, which names the option."""
        number = float(super().convert(value, param, ctx))  # type: ignore[arg-type]
        if not math.isfinite(number) or abs(number) > 1e15:
            self.fail(f"{value} is not a usable number; expected up to 1e15", param, ctx)
        return number


def is_typed(parameter: str) -> bool:
    """Whether the person typed this option of the command at hand: its value is no default, nor of the config file."""
    return click.get_current_context().get_parameter_source(parameter) is ParameterSource.COMMANDLINE


@contextmanager
def at_option(option: str) -> Iterator[None]:
    """Errors of the input that name no place name ``option``. Raises InputError where the body does."""
    try:
        yield
    except InputError as error:
        raise InputError(
            *(
                problem if str(problem.where) else replace(problem, where=Where(field=option))
                for problem in error.problems
            )
        ) from None


@contextmanager
def said_as(words: Mapping[str, str]) -> Iterator[None]:
    """Errors of the input speak of this command's own options: what is a key of ``words`` is said as its value.

    A key that is a whole field is replaced there. In the message and the hint only keys that start with an option or
    hold several words are looked for, as whole words and in the order given. Raises InputError where the body does.
    """
    try:
        yield
    except InputError as error:
        raise InputError(
            *(
                Problem(
                    replace(problem.where, field=words.get(problem.where.field, problem.where.field)),
                    _said(problem.message, words),
                    _said(problem.hint, words),
                )
                for problem in error.problems
            )
        ) from None


def _said(text: str, words: Mapping[str, str]) -> str:
    for word, own in words.items():
        if word.startswith("-") or " " in word:
            text = own.join(re.split(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text))
    return text


ENGINE_WORDS = {
    "policy": "--policy",
    "--tensor-parallel-size, use a larger GPU, or --quantization fp8": "--tensor-parallel or use a larger GPU",
    "--tensor-parallel-size": "--tensor-parallel",
}
"""What vLLM's options and fields are called by commands that play a log on engines."""
