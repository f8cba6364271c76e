"""What goes wrong with an expression: when it is compiled, or when it is evaluated."""

from __future__ import annotations

from enum import Enum

from tonnage.errors import InputError, Problem, Where


class CelError(InputError):
    """An expression that gives no answer. ``kind`` says why, in one of a few words."""

    def __init__(self, kind: str, message: str, hint: str = "") -> None:
        self.kind = kind
        super().__init__(Problem(Where(), message, hint))


class CompileError(CelError):
    """The text is no expression, or none that Kubernetes would store. ``line`` and ``column`` count from 1."""

    def __init__(self, kind: str, message: str, line: int = 1, column: int = 1, hint: str = "") -> None:
        self.line, self.column = line, column
        super().__init__(kind, f"{line}:{column}: {message}", hint)


class EvaluationError(CelError):
    """The expression has no value for this device. Kubernetes then allocates nothing: it is not "no match"."""


class CostExceeded(EvaluationError):
    """The evaluation would cost more than Kubernetes allows."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            ErrorKind.COST.value,
            f"the evaluation costs more than {limit} units",
            "test less, or shorter strings",
        )


class ErrorKind(Enum):
    """Why a value is an error."""

    NO_KEY = "no such key"
    BOUNDS = "index out of bounds"
    INDEX = "unsupported index"
    OVERLOAD = "no such overload"
    OVERFLOW = "overflow"
    ZERO = "division by zero"
    CONVERSION = "conversion"
    RANGE = "out of range"
    ARGUMENT = "invalid argument"
    REGEX = "invalid regular expression"
    RESULT = "result is no bool"
    COST = "cost limit exceeded"
    INTERNAL = "internal error"


class Err:
    """An error as a value: ``false && error`` is false. Every function that is handed one hands it on."""

    __slots__ = ("kind", "text")

    def __init__(self, kind: ErrorKind, text: str = "") -> None:
        self.kind, self.text = kind, text

    def __repr__(self) -> str:
        return f"Err({self.kind.value}: {self.text})"


class Abort(Exception):
    """Ends an evaluation at once, where no operator can absorb it."""

    def __init__(self, kind: ErrorKind) -> None:
        self.kind = kind
        super().__init__(kind.value)
