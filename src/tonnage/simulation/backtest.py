"""What was measured beside what is simulated: the same PromQL on a Prometheus server and on the run's own scrapes.

A backtest plays a scenario with the traffic that was measured, and reads replicas, TTFT and TPOT of both worlds at the
same times by the same queries. So a run that is compared with itself shows no difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from tonnage.errors import InputError
from tonnage.metrics.functions import PROMETHEUS_3, Dialect
from tonnage.simulation import run
from tonnage.simulation.scenario import Scenario
from tonnage.traffic.profile import TrafficProfile
from tonnage.traffic.readings import Readings, ScrapedService, StoredReadings, span_text, value
from tonnage.units import NS_PER_S, seconds

SCHEMA = "tonnage.dev/backtest/v1"
_POINTS = 60
_LEAST_STEP_NS = 60 * NS_PER_S
_QUANTILES = (0.5, 0.99)
_ALIVE = "2m"
"""An engine that was scraped in this time is a replica, whether the server keeps markers of staleness or not."""


class Curve(msgspec.Struct, frozen=True):
    """One figure of a service over time; ``None`` is "no data". ``unit``: pods, requests/s or ms."""

    name: str
    unit: str
    measured: tuple[float | None, ...]
    simulated: tuple[float | None, ...]

    @property
    def means(self) -> tuple[float | None, float | None]:
        """The means where both have a value."""
        both = [(m, s) for m, s in zip(self.measured, self.simulated, strict=True) if m is not None and s is not None]
        if not both:
            return None, None
        return sum(m for m, _ in both) / len(both), sum(s for _, s in both) / len(both)

    @property
    def difference(self) -> float | None:
        """The mean of what the simulation is off at each time, as a share of the measured mean."""
        both = [(m, s) for m, s in zip(self.measured, self.simulated, strict=True) if m is not None and s is not None]
        total = sum(m for m, _ in both)
        return sum(abs(s - m) for m, s in both) / total if total else None


class ServiceBacktest(msgspec.Struct, frozen=True):
    """One service: its figures at each of ``Backtest.t_s``."""

    name: str
    engine: str
    curves: tuple[Curve, ...]


class Backtest(msgspec.Struct, frozen=True):
    """A scenario's run beside what was measured; ``t_s``: seconds from the start of what was measured."""

    schema: str
    scenario: str
    policy: str
    seed: int
    start: str
    duration_s: float
    step_s: float
    traffic: str
    t_s: tuple[float, ...]
    services: tuple[ServiceBacktest, ...]


class MeasuredSide(msgspec.Struct, frozen=True):
    """What a run is compared with: ``readings`` from ``start_ns`` to ``end_ns`` of ``served``, a service each.

    ``profiles``: traffic that replaces the scenario's, by service, which starts ``lead_ns`` before the start so that
    pods run by then. ``dialect``: the PromQL that the readings are made with. ``start``: the start as people write it.
    """

    readings: Readings
    served: Sequence[ScrapedService]
    start_ns: int
    end_ns: int
    start: str = ""
    profiles: Mapping[str, TrafficProfile] = msgspec.field(default_factory=dict)
    lead_ns: int = 0
    dialect: Dialect = PROMETHEUS_3


def traffic_of(scenario: Scenario, services: Sequence[str]) -> tuple[str, ...]:
    """The services to compare: those named, else all with traffic. Raises InputError for one without."""
    known = [name for traffic in scenario.spec.traffic for name in traffic.services]
    for name in services:
        if name not in known:
            hint = f"it has {', '.join(known)}" if known else "it has none: tonnage init writes it"
            raise InputError(scenario.document.problem("traffic", f"no traffic to {name}", hint))
    if not known:
        raise InputError(scenario.document.problem("traffic", "no traffic", "tonnage init writes it"))
    return tuple(services or known)


def led(profile: TrafficProfile, lead_ns: int) -> TrafficProfile:
    """The profile with its first interval repeated before it for at least ``lead_ns``."""
    more = math.ceil(lead_ns / (profile.interval_s * NS_PER_S))
    return msgspec.structs.replace(profile, arrivals=(profile.arrivals[0],) * more + profile.arrivals)


def measured_traffic(scenario: Scenario, profiles: Mapping[str, TrafficProfile], duration_ns: int) -> Scenario:
    """The scenario with these profiles as they are, without its rates and surges, and as long as asked."""
    replaced, read = [], []
    for one in scenario.traffic:
        if "+".join(dict.fromkeys(one.spec.services)) in profiles:
            spec = msgspec.structs.replace(one.spec, rate=1.0, speed=1.0, surges=())
            one = replace(one, spec=spec, surges=())
        replaced.append(one.spec)
        read.append(one)
    spec_of_all = msgspec.structs.replace(scenario.spec, traffic=tuple(replaced))
    return replace(scenario, spec=spec_of_all, traffic=tuple(read), duration_ns=duration_ns)


def backtest(scenario: Scenario, policy: str, held: MeasuredSide, options: run.RunOptions | None = None) -> Backtest:
    """Run the policy and read both worlds. Raises InputError as :func:`tonnage.simulation.run.set_up` does, and where
    the readings give no answer."""
    options = options or run.RunOptions()
    span_ns = held.end_ns - held.start_ns
    longest = max((led(p, held.lead_ns).span_ns - p.span_ns for p in held.profiles.values()), default=0)
    profiles = {name: led(profile, longest) for name, profile in held.profiles.items()}
    wanted = measured_traffic(scenario, profiles, span_ns + longest)
    made = run.set_up(wanted, policy, replace(options, profiles=profiles))
    run.play(made, engines=True)
    simulated = StoredReadings(made.cluster.records.store, held.dialect, run.EPOCH_NS)
    step_ns = max(_LEAST_STEP_NS, -(-span_ns // _POINTS) // NS_PER_S * NS_PER_S)
    times = range(step_ns, span_ns + 1, step_ns)
    services = []
    for served in held.served:
        curves = []
        for name, unit, query in _queries(served, span_text(0, step_ns)):
            curves.append(
                Curve(
                    name,
                    unit,
                    tuple(value(held.readings, query, held.start_ns + t) for t in times),
                    tuple(value(simulated, query, longest + t) for t in times),
                )
            )
        services.append(ServiceBacktest(served.name, served.engine.engine, tuple(curves)))
    return Backtest(
        schema=SCHEMA,
        scenario=scenario.spec.name,
        policy=policy,
        seed=options.seed,
        start=held.start,
        duration_s=seconds(span_ns),
        step_s=seconds(step_ns),
        traffic="measured" if held.profiles else "the scenario's",
        t_s=tuple(seconds(t) for t in times),
        services=tuple(services),
    )


def _queries(served: ScrapedService, span: str) -> list[tuple[str, str, str]]:
    """(name, unit, PromQL) of every figure that the engines have metrics for."""
    engine = served.engine
    found = [
        ("replicas", "pods", f"count(last_over_time({served.of(engine.running)}[{_ALIVE}]))"),
        ("requests finished", "requests/s", f"sum(rate({served.of(engine.finished)}[{span}]))"),
    ]
    for what, metric in (("TTFT", engine.ttft), ("TPOT", engine.tpot)):
        for level in _QUANTILES if metric else ():
            rates = f"sum by (le) (rate({served.of(metric + '_bucket')}[{span}]))"
            found.append((f"{what} p{100 * level:g}", "ms", f"1000 * histogram_quantile({level}, {rates})"))
    return found
