"""The policy ``thresholds``: two thresholds on GPU utilisation, as published guides recommend them.

An HPA has one target and a tolerance and cannot express two thresholds; this policy can. The tables are
``data/thresholds.csv`` (thresholds by kind of workload) and ``data/decision_table.csv`` (several models
that share an elastic pool). Percentages are 0..100.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files

from msgspec import Struct

from tonnage.decisions import Alternative, Reason, Ref, Scale
from tonnage.errors import InputError
from tonnage.scaling.words import replicas_text
from tonnage.units import NS_PER_S

DECISION_TABLE = "decision-table"
"""The name under which a scenario asks for :func:`decide`; :func:`profiles` are asked for by their own."""


class Profile(Struct, frozen=True):
    """Scale out above ``up``, in below ``down`` (percent); at least ``cooldown_ns`` between two changes."""

    name: str
    workload: str
    up: float
    down: float
    cooldown_ns: int
    source: str


class WorkloadUse(Struct, frozen=True):
    """One workload: its GPU utilisation in percent (None: no data), its replicas and their bounds."""

    target: Ref
    utilization: float | None
    replicas: int
    min_replicas: int = 1
    max_replicas: int = 1_000_000
    gpus_per_replica: int = 1


def presets() -> tuple[str, ...]:
    """What a scenario's ``scaling`` may name of these tables."""
    return (*profiles(), DECISION_TABLE)


@lru_cache(maxsize=1)
def profiles() -> dict[str, Profile]:
    """The recommended thresholds by name."""
    return {
        row["profile"]: Profile(
            row["profile"],
            row["workload"],
            float(row["scale_up_percent"]),
            float(row["scale_down_percent"]),
            int(row["cooldown_s"]) * NS_PER_S,
            row["source"],
        )
        for row in _rows("thresholds.csv")
    }


def profile(name: str) -> Profile:
    """The profile of this name. Raises InputError for an unknown one."""
    found = profiles().get(name)
    if found is None:
        raise InputError.at(f"unknown thresholds {name!r}", hint=f"one of {', '.join(profiles())}")
    return found


def two_sided(
    rule: Profile, load: WorkloadUse, *, last_change_ns: int | None, now_ns: int, step: int = 1
) -> tuple[Scale | None, Reason]:
    """One step up or down, or none, and why. ``last_change_ns`` is when the count last changed."""
    used = load.utilization
    evidence = (
        ("utilization %", used),
        ("scale up above %", rule.up),
        ("scale down below %", rule.down),
        ("replicas", load.replicas),
    )
    if used is None:
        return None, Reason("no data: the replicas stay", evidence)
    if used > rule.up:
        wanted, verdict = min(load.replicas + step, load.max_replicas), "above the upper threshold"
    elif used < rule.down:
        wanted, verdict = max(load.replicas - step, load.min_replicas), "below the lower threshold"
    else:
        return None, Reason("between the thresholds", evidence)
    if wanted == load.replicas:
        return None, Reason(f"{verdict}, but at the bound of the replicas", evidence)
    if last_change_ns is not None and now_ns - last_change_ns < rule.cooldown_ns:
        left = (last_change_ns + rule.cooldown_ns - now_ns) / NS_PER_S
        beaten = (Alternative(replicas_text(wanted), f"cooling down for another {left:g} s", float(wanted)),)
        return None, Reason(f"{verdict}, cooling down", evidence, beaten)
    reason = Reason(verdict, evidence)
    return Scale(load.target, load.replicas, wanted, reason), reason


def decide(loads: Sequence[WorkloadUse], *, pool_free_gpus: int) -> tuple[Scale, ...]:
    """The decision table over models that share an elastic pool, ordered by workload.

    ``pool_free_gpus``: whole GPUs of the pool that no pod holds.

    A model above the upper threshold gets one more replica while the pool has room for it, most loaded
    first; a model below the lower threshold releases one. GPUs released are free at the next
    decision, not at this one.
    """
    table = {row["rule"]: float(row["limit"]) for row in _rows("decision_table.csv")}
    decisions: list[Scale] = []
    free = pool_free_gpus
    for load in sorted(loads, key=lambda load: (-(load.utilization or 0.0), load.target)):
        if load.utilization is None:
            continue
        if load.utilization > table["scale-out"] and load.replicas < load.max_replicas:
            if free - load.gpus_per_replica < 0:
                continue
            evidence = (("utilization %", load.utilization), ("free GPUs in the pool", free))
            free -= load.gpus_per_replica
            reason = Reason("scale out: above the upper threshold, allocated from the elastic pool", evidence)
            decisions.append(Scale(load.target, load.replicas, load.replicas + 1, reason))
        elif load.utilization < table["scale-in"] and load.replicas > load.min_replicas:
            evidence = (("utilization %", load.utilization), ("replicas", load.replicas))
            reason = Reason("scale in: below the lower threshold", evidence)
            decisions.append(Scale(load.target, load.replicas, load.replicas - 1, reason))
    return tuple(sorted(decisions, key=lambda decision: decision.target))


def _rows(name: str) -> list[dict[str, str]]:
    text = files("tonnage.scaling").joinpath("data", name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
