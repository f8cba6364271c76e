"""Kubernetes quantities: `500m`, `32Gi`, `1e3`. Exact, as fractions.

Source: kubernetes/kubernetes staging/src/k8s.io/apimachinery/pkg/api/resource/quantity.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import TypeAlias

Written: TypeAlias = str | int | float

_FORM = re.compile(r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?[0-9]+)?")
_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_FACTORS = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{unit: Fraction(1000 ** (i + 1)) for i, unit in enumerate("kMGTPE")},
    **{unit: Fraction(1024 ** (i + 1)) for i, unit in enumerate(_BINARY)},
}
_MAX_EXPONENT = 1000
"""Far beyond any capacity; keeps a mistyped exponent from filling the memory."""


@lru_cache(maxsize=4096, typed=True)
def parse(written: Written) -> Fraction:
    """The value, rounded away from zero to whole nano-units as the API server does.

    Raises ValueError for anything that the API server would not take.
    """
    match = None if isinstance(written, bool) else _FORM.fullmatch(str(written))
    if match is None:
        raise ValueError(f"{written!r} is not a quantity, expected e.g. 500m, 8, 32Gi or 1e3")
    sign, number, suffix = match.groups(default="")
    value = Fraction(number.removesuffix("."))
    if suffix in _FACTORS:
        value *= _FACTORS[suffix]
    else:
        exponent = int(suffix[1:])
        value *= Fraction(10) ** max(-_MAX_EXPONENT, min(exponent, _MAX_EXPONENT))
    if (10**9) % value.denominator:
        value = Fraction(ceil(value * 10**9), 10**9)
    return -value if sign == "-" else value


def cpu_milli(written: Written) -> int:
    """CPU in millicores, rounded up as Kubernetes does."""
    return ceil(parse(written) * 1000)


def bytes_(written: Written) -> int:
    """Bytes, rounded up."""
    return ceil(parse(written))


LARGEST = 2**52
"""More than any machine has of anything (4 PiB of memory), and so little that 2,000 of it add up in 64 bits."""


def amount(resource: str, written: Written) -> int:
    """An integer in the resource's unit: cpu in millicores, everything else in bytes or units; at most LARGEST.

    The API server takes requests up to 2⁶³ − 1 cores: whoever asks for so much fits nowhere all the same."""
    return min(LARGEST, cpu_milli(written) if resource == "cpu" else ceil(parse(written)))


def format_cpu(milli: int) -> str:
    """Millicores as a quantity: 500 is `500m`, 8000 is `8`."""
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def format_bytes(number: int) -> str:
    """Bytes as a quantity, in the largest binary unit that divides them: 34359738368 is `32Gi`."""
    for i in reversed(range(len(_BINARY))):
        if number and number % 1024 ** (i + 1) == 0:
            return f"{number // 1024 ** (i + 1)}{_BINARY[i]}"
    return str(number)


BYTES = ("memory", "ephemeral-storage")
"""Resources that are counted in bytes."""


def quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    """Amounts as quantities, by resource: cpu from millicores, memory and storage from bytes."""
    return {name: _written(name, amount) for name, amount in sorted(amounts.items())}


def _written(name: str, amount: int) -> str:
    if name == "cpu":
        return format_cpu(amount)
    return format_bytes(amount) if name in BYTES else str(amount)
