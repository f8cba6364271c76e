"""Workloads that ask for their replicas to be set, by annotations of their Deployment."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from msgspec import Struct

from tonnage.control.replicas import Planned
from tonnage.fleet.snapshot import Snapshot, WorkloadView
from tonnage.objects import duration
from tonnage.scaling.policies import POLICIES
from tonnage.scaling.target import Target
from tonnage.units import NS_PER_S

PREFIX = "tonnage.dev"
AUTOSCALE = f"{PREFIX}/autoscale"
"""The policy that sets the replicas, one of :data:`tonnage.scaling.policies.POLICIES`."""
MIN_REPLICAS = f"{PREFIX}/min-replicas"
MAX_REPLICAS = f"{PREFIX}/max-replicas"
CAPACITY = f"{PREFIX}/requests-per-second-per-replica"
"""What one replica serves within its SLO."""
CONCURRENCY = f"{PREFIX}/requests-in-flight-per-replica"
"""What it then has in flight."""
RECEIVED = f"{PREFIX}/received-query"
"""PromQL: counter of all requests received, one number."""
IN_FLIGHT = f"{PREFIX}/in-flight-query"
"""PromQL: requests in flight, one number."""
COLD_START = f"{PREFIX}/cold-start"
"""How long a replica takes until it serves, while none was measured: 90s, 4m. Optional."""
GPUS = f"{PREFIX}/gpus-per-replica"
"""Optional, 1."""

DEFAULT_COLD_START = "5m"
_NUMBER = re.compile(r"[0-9]{1,9}")
LEAST_RATE = 1e-6


class OptInRefusal(Struct, frozen=True):
    """A workload that asked and is left alone, and why."""

    workload: WorkloadView
    reason: str
    message: str


def opted_in(snapshot: Snapshot) -> tuple[list[Planned], list[OptInRefusal]]:
    """Who asked for which policy, and who asked in vain: for something unknown, or though another sets its replicas.

    Two hands on one replica count undo each other, so a workload with an HPA or a ScaledObject is never touched."""
    planned: list[Planned] = []
    refused: list[OptInRefusal] = []
    for view in snapshot.workloads.values():
        wanted = view.annotations.get(AUTOSCALE)
        if wanted is None:
            continue
        if wanted not in POLICIES:
            message = f'{AUTOSCALE}: "{wanted}", expected {" or ".join(POLICIES)}'
            refused.append(OptInRefusal(view, "UnknownPolicy", message))
        elif view.owner:
            message = f"{view.owner} sets the replicas; delete it, or the annotation {AUTOSCALE}"
            refused.append(OptInRefusal(view, "AutoscalerConflict", message))
        else:
            try:
                planned.append(_planned(wanted, view.key, view.annotations))
            except ValueError as error:
                refused.append(OptInRefusal(view, "InvalidAnnotation", str(error)))
    return planned, refused


def as_annotations(one: Planned) -> dict[str, str]:
    """The annotations that ask for this."""
    target = one.target
    return {
        AUTOSCALE: one.policy,
        MIN_REPLICAS: str(target.minimum),
        MAX_REPLICAS: str(target.maximum),
        CAPACITY: repr(target.capacity),
        CONCURRENCY: repr(target.concurrency),
        RECEIVED: one.received,
        IN_FLIGHT: one.in_flight,
        COLD_START: f"{target.prior_cold_start_ns / NS_PER_S!r}s",
        GPUS: str(target.gpus),
    }


def _planned(policy: str, workload: str, written: Mapping[str, str]) -> Planned:
    minimum, maximum = _count(written, MIN_REPLICAS, "1"), _count(written, MAX_REPLICAS)
    if maximum < max(1, minimum):
        raise ValueError(f"{MAX_REPLICAS}: {maximum} is below {MIN_REPLICAS} ({minimum}), or not above 0")
    target = Target(
        workload,
        capacity=_rate(written, CAPACITY),
        concurrency=_rate(written, CONCURRENCY),
        minimum=minimum,
        maximum=maximum,
        prior_cold_start_ns=_duration(written, COLD_START),
        gpus=_count(written, GPUS, "1"),
    )
    return Planned(policy, target, _text(written, RECEIVED), _text(written, IN_FLIGHT))


def _text(written: Mapping[str, str], name: str, default: str | None = None) -> str:
    value = written.get(name, default)
    if not value:
        raise ValueError(f"{name} is missing")
    return value


def _count(written: Mapping[str, str], name: str, default: str | None = None) -> int:
    value = _text(written, name, default)
    if not _NUMBER.fullmatch(value):
        raise ValueError(f'{name}: "{value}", expected a whole number')
    return int(value)


def _rate(written: Mapping[str, str], name: str) -> float:
    value = _text(written, name)
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not LEAST_RATE <= number < math.inf:
        raise ValueError(f'{name}: "{value}", expected a number of at least {LEAST_RATE:f}')
    return number


def _duration(written: Mapping[str, str], name: str) -> int:
    value = _text(written, name, DEFAULT_COLD_START)
    try:
        found = duration.parse(value)
    except ValueError:
        found = -1
    if found < 0:
        raise ValueError(f'{name}: "{value}", expected a duration such as 90s or 4m')
    return found
