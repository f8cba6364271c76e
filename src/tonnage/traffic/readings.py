"""What a Prometheus server holds of one service, whoever asks it: the names of the series, and the port to ask by."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from typing import Protocol

from msgspec import Struct

from tonnage.errors import InputError
from tonnage.inference.memory import kinds
from tonnage.inference.servers.engine_metrics import EngineMetrics, engine_metrics
from tonnage.metrics.functions import PROMETHEUS_3, Dialect
from tonnage.metrics.promql import Query, Result, Vector, evaluate, parse
from tonnage.metrics.store import Series, SeriesStore
from tonnage.metrics.syntax import Selector
from tonnage.units import NS_PER_MS

GATEWAY = "envoy_cluster_upstream_rq_total"
"""Requests that Envoy has sent to a cluster, by ``envoy_cluster_name``."""
PICKER = "inference_objective_request_total"
"""Requests that an Endpoint Picker of the Gateway API Inference Extension has taken, by ``model_name``: the model that
was asked for. Source: kubernetes-sigs/gateway-api-inference-extension, the metrics that its end-to-end test expects."""


class Readings(Protocol):
    """Who answers PromQL. Times in ns."""

    def measure(self, query: str, at_ns: int) -> Result:
        """The answer to an instant query. Raises InputError where there is none."""
        ...

    def window(self, selector: str, start_ns: int, end_ns: int) -> list[Series]:
        """Raw samples of the series that match. Raises InputError where there is no answer."""
        ...


@dataclass(slots=True)
class StoredReadings:
    """Readings of a store of series. ``dialect``: of which Prometheus release."""

    store: SeriesStore
    dialect: Dialect = PROMETHEUS_3
    epoch_ns: int = 0
    _parsed: dict[str, Query] = field(default_factory=dict)

    def measure(self, query: str, at_ns: int) -> Result:
        """As :class:`Readings` says."""
        read = self._parsed.get(query) or self._parsed.setdefault(query, parse(query))
        return evaluate(read, self.store, at_ns, dialect=self.dialect, epoch_ns=self.epoch_ns)

    def window(self, selector: str, start_ns: int, end_ns: int) -> list[Series]:
        """As :class:`Readings` says; a sample at the start counts."""
        root = parse(selector).root
        if not isinstance(root, Selector):
            raise InputError.at(f"{selector!r} is not a plain selector")
        found = []
        for one in self.store.select(root.matchers):
            times, values = one.window(start_ns, end_ns, left_open=False)
            if times:
                found.append(Series(one.labels, array("q", times), array("d", values)))
        return found


class ScrapedService(Struct, frozen=True):
    """One service on a Prometheus server. ``matchers``: label matchers of its engines' series without braces, such as
    ``namespace="inference",service="chat"``; ``gateway``: those of the series of ``counter``, :data:`GATEWAY` or
    :data:`PICKER`; empty where its requests are counted by the engines alone."""

    name: str
    matchers: str
    gateway: str
    engine: EngineMetrics
    counter: str = GATEWAY

    def of(self, metric: str) -> str:
        """The selector of one of its engines' metrics."""
        return f"{metric}{{{self.matchers}}}"


def span_text(start_ns: int, end_ns: int) -> str:
    """From one time to another as PromQL writes a range."""
    return f"{(end_ns - start_ns) // NS_PER_MS}ms"


def value(readings: Readings, query: str, at_ns: int) -> float | None:
    """The one number that a query gives; None for no data and for NaN."""
    found = readings.measure(query, at_ns)
    number = (found.samples[0].value if found.samples else None) if isinstance(found, Vector) else found.value
    return None if number is None or math.isnan(number) else number


def by_service(service: str) -> str:
    """The label matchers that a ServiceMonitor's targets have: ``namespace/name`` → namespace and service."""
    namespace, _, name = service.partition("/")
    return f'namespace="{namespace}",service="{name}"'


def find_served(
    readings: Readings, service: str, start_ns: int, end_ns: int, *, selector: str = "", gateway: str = ""
) -> ScrapedService:
    """The engines of ``service`` (namespace/name) and the kind that they are: that of which there are the most.

    ``selector`` replaces the matchers of the engines' series, ``gateway`` those of Envoy's; where these match no
    series of Envoy but some of an Endpoint Picker, it is that which counts. Raises InputError, with the services that
    are there, where no engine is.
    """
    matchers, span = selector or by_service(service), span_text(start_ns, end_ns)
    found = {
        kind.name: value(readings, f"count(last_over_time({kind.metric_running}{{{matchers}}}[{span}]))", end_ns) or 0
        for kind in kinds.kinds()
    }
    best = max(found, key=lambda name: found[name])
    if not found[best]:
        raise InputError.at(
            f"no vLLM, SGLang or TensorRT-LLM has series with {{{matchers}}} in this time",
            field="--selector" if selector else "--service",
            hint=_others(readings, span, end_ns),
        )
    matched = gateway or f'envoy_cluster_name="{service}"'
    counters = [
        metric
        for metric in ((GATEWAY, PICKER) if gateway else (GATEWAY,))
        if value(readings, f"count(last_over_time({metric}{{{matched}}}[{span}]))", end_ns)
    ]
    if gateway and not counters:
        message = f"neither {GATEWAY} nor {PICKER} with {{{gateway}}} in this time"
        raise InputError.at(message, field="--gateway", hint="leave it out")
    name, counter = service or f"{{{selector}}}", counters[0] if counters else GATEWAY
    return ScrapedService(name, matchers, matched if counters else "", engine_metrics(best), counter)


def _others(readings: Readings, span: str, end_ns: int) -> str:
    """Which services have engines there."""
    names = "|".join(kind.metric_running for kind in kinds.kinds())
    query = f'count by (namespace, service, model_name) (last_over_time({{__name__=~"{names}"}}[{span}]))'
    found = readings.measure(query, end_ns)
    there = [
        f"{one.labels.get('namespace', '')}/{one.labels['service']}"
        if "service" in one.labels
        else f"--selector 'model_name=\"{one.labels.get('model_name', '')}\"'"
        for one in (found if isinstance(found, Vector) else ())
    ]
    if there:
        return f"there are {', '.join(sorted(set(there))[:5])}; for others give --selector"
    return "no engine is scraped there in this time: check the address, --start and --end"
