"""How often EC2 takes spot capacity back. Table: ``data/spot_risk.csv``."""

from __future__ import annotations

import math
from functools import lru_cache

from tonnage.facts import tables

HOURS_A_MONTH = 730
_ANY = "*"


def interrupted_a_month(instance_type: str) -> float:
    """Share of spot instances of the type that are interrupted within a month, 0 to below 1."""
    shares = _shares()
    return shares.get(instance_type, shares[_ANY])


def per_hour(interrupted_a_month: float) -> float:
    """Interruptions of an instance an hour, where this share of them is interrupted within a month:
    −ln(1 − share) / 730. Raises ValueError unless 0 ≤ share < 1."""
    if not 0 <= interrupted_a_month < 1:
        raise ValueError(f"{interrupted_a_month} is not a share from 0 to below 1")
    return -math.log1p(-interrupted_a_month) / HOURS_A_MONTH


def lost_share(per_hour: float, checkpoint_s: float, restart_s: float, write_s: float = 0.0) -> float:
    """Time that an interrupted worker spends beyond its work, as a share of the work: half of the time between
    checkpoints and a restart for each interruption, and the checkpoints themselves.

    ``checkpoint_s``: work between two checkpoints, 0 where nothing is lost but the restart."""
    writing = write_s / checkpoint_s if checkpoint_s else 0.0
    return per_hour * (checkpoint_s / 2 + restart_s) / 3600 + writing


def best_interval_s(per_hour: float, write_s: float) -> float:
    """Seconds of work between checkpoints at which writing them and losing work cost least: sqrt(2 × write / rate)
    (J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17(9), 1974)."""
    return math.sqrt(2 * write_s * 3600 / per_hour) if per_hour > 0 else math.inf


@lru_cache(maxsize=1)
def _shares() -> dict[str, float]:
    return {row["instance_type"]: float(row["interrupted_a_month"]) for row in tables.rows("spot_risk.csv")}
