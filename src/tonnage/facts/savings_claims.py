"""What published guides promise of strategies that save money. Tables: ``data/savings_claims.csv`` and
``data/savings_sums.csv``."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from msgspec import Struct

from tonnage.facts import tables


class SavingsClaim(Struct, frozen=True):
    """A strategy is said to save between these shares of the bill."""

    strategy: str
    low: float
    high: float
    says: str
    source: str


class ClaimedSum(Struct, frozen=True):
    """Strategies with the share that each is said to save, and what they are said to save together."""

    name: str
    parts: tuple[tuple[str, float], ...]
    claimed: float
    source: str

    @property
    def compounded(self) -> float:
        """What the parts save where each applies to all that the one before has left."""
        return compounded(share for _, share in self.parts)


def compounded(shares: Iterable[float]) -> float:
    """The share that is saved by several in turn on the same hours: 1 − Π(1 − share)."""
    left = 1.0
    for share in shares:
        left *= 1 - share
    return 1 - left


@lru_cache(maxsize=1)
def claims() -> dict[str, SavingsClaim]:
    """By strategy."""
    return {
        row["strategy"]: SavingsClaim(
            row["strategy"], float(row["low"]), float(row["high"]), row["says"], row["source"]
        )
        for row in tables.rows("savings_claims.csv")
    }


@lru_cache(maxsize=1)
def sums() -> tuple[ClaimedSum, ...]:
    """In the order of the table."""
    return tuple(
        ClaimedSum(row["name"], _parts(row["parts"]), float(row["claimed"]), row["source"])
        for row in tables.rows("savings_sums.csv")
    )


def _parts(text: str) -> tuple[tuple[str, float], ...]:
    pairs = (part.split("=") for part in text.split())
    return tuple((name, float(share)) for name, share in pairs)
