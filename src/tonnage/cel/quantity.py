"""Quantities as the API server's own arithmetic has them.

A quantity is kept in one of two forms, and ``asInteger`` only knows the first: 64 bits with a power of ten, or a
decimal of any size. Source: k8s.io/apimachinery pkg/api/resource/quantity.go and amount.go.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
_FORM = re.compile(r"([+-]?)(0*)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[+-]?[0-9]*)", re.ASCII)
_DECIMAL = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_LARGEST_EXPONENT = 4096
"""Keeps a mistyped exponent from filling the memory; whatever is beyond it compares as it does."""


@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """``nano``: the value in billionths. ``scale``: the power of ten of the first form, None in the second.

    ``derived``: a sum or a difference. Kubernetes compares nothing for equality with one: ``a == b.add(c)`` is an
    error, ``b.add(c) == a`` is not."""

    nano: int
    scale: int | None = 0
    derived: bool = False

    @classmethod
    def parse(cls, text: str) -> Quantity:
        """Raises ValueError for what the API server takes for no quantity."""
        return _parse(text)

    @classmethod
    def of(cls, number: int) -> Quantity:
        """A whole number."""
        return cls(number * 10**9, 0)

    def integer(self) -> int | None:
        """The value as 64 bits, or None where Kubernetes says that it is none."""
        if self.scale is None or self.scale < 0:
            return None
        whole = self.nano // 10**9
        return whole if INT_MIN <= whole <= INT_MAX else None

    def approximate(self) -> float:
        """The nearest float, as far as the two factors of the form allow."""
        scale = -9 if self.scale is None else self.scale
        base = self.nano // 10 ** (scale + 9)
        try:
            return float(base) * math.pow(10.0, scale) if scale else float(base)
        except OverflowError:
            return math.copysign(math.inf, base)

    def add(self, other: Quantity) -> Quantity:
        """The sum, in 64 bits if that is how both are kept and it fits."""
        total = self.nano + other.nano
        if self.scale is None or other.scale is None:
            return Quantity(total, None, derived=True)
        if other.nano == 0 or self.nano == 0:
            return Quantity(total, self.scale if other.nano == 0 else other.scale, derived=True)
        scale = min(self.scale, other.scale)
        unit = 10 ** (scale + 9)
        fits = all(INT_MIN <= value // unit <= INT_MAX for value in (self.nano, other.nano, total))
        return Quantity(total, scale if fits else None, derived=True)

    def subtract(self, other: Quantity) -> Quantity:
        """The difference, likewise. The least of 64 bits keeps its sign where the sum has 64 bits."""
        if other.scale is not None and other.nano == INT_MIN * 10 ** (other.scale + 9):
            turned = self.add(other)
            return turned if turned.scale is not None else Quantity(self.nano - other.nano, None, derived=True)
        return self.add(Quantity(-other.nano, other.scale))


@lru_cache(maxsize=4096)
def _parse(text: str) -> Quantity:
    match = _FORM.fullmatch(text)
    if match is None or not text:
        raise ValueError(f"{text!r} is not a quantity, expected e.g. 500m, 8, 32Gi or 1e3")
    sign = -1 if match[1] == "-" else 1
    num, denom, suffix = match[3] or "0", match[4] or "", match[5]
    if suffix in _BINARY:
        return _binary(sign, num, denom, _BINARY[suffix])
    exponent = _DECIMAL.get(suffix)
    if exponent is None:
        if not re.fullmatch(r"[eE][+-]?[0-9]+", suffix):
            raise ValueError(f"{text!r} has the unit {suffix!r}, expected n, u, m, k, M, G, T, P, E or Ki to Ei")
        exponent = int(suffix[1:])
    exponent = max(-_LARGEST_EXPONENT, min(exponent, _LARGEST_EXPONENT))
    scale = exponent - len(denom)
    digits = int(num + denom)
    if len(num) + len(denom) <= 18 and scale >= -9:
        return Quantity(sign * digits * 10 ** (scale + 9), scale)
    return Quantity(sign * _up(digits, scale + 9), None)


def _binary(sign: int, num: str, denom: str, exponent: int) -> Quantity:
    whole = int(num + denom)
    if not denom and 15 - len(num) - exponent * 3 // 10 - 1 >= 0 and whole << exponent <= INT_MAX:
        return Quantity(sign * (whole << exponent) * 10**9, 0)
    nano = _up(whole << exponent, 9 - len(denom))
    return Quantity(sign * min(nano, INT_MAX * 10**9), None)


def _up(value: int, power: int) -> int:
    """value · 10^power, rounded up."""
    return int(value * 10**power) if power >= 0 else -(-value // int(10**-power))
