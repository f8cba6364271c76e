"""Options of commands that read what Prometheus has of a service: the server, the series, the time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from tonnage.errors import InputError
from tonnage.units import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from tonnage.live.prometheus import Prometheus

_TIMEOUT_S = 30.0
_UNIX = re.compile(r"\d{1,10}(\.\d+)?")

SERVER = (
    click.option("--prometheus", metavar="URL", help="The Prometheus that scrapes the engines."),
    click.option("--prometheus-token-file", metavar="FILE", default="", help="A bearer token for it."),
    click.option("--prometheus-ca-file", metavar="FILE", default="", help="Certificates to trust for it."),
    click.option("--start", metavar="TIME", help="RFC 3339 or Unix seconds. [default: --last before --end]"),
    click.option("--end", metavar="TIME", help="RFC 3339 or Unix seconds. [default: now]"),
    click.option("--last", metavar="DURATION", default="1h", show_default=True, help="Without --start."),
    click.option("--selector", metavar="MATCHERS", default="", help="Label matchers of the engines' series, such as "
                 "'namespace=\"llm\",model_name=\"chat\"'. [default: namespace and service, as of a ServiceMonitor]"),
    click.option("--gateway", metavar="MATCHERS", default="", help="Those of series that count what arrives: "
                 "Envoy's, or an Endpoint Picker's. "
                 "[default: envoy_cluster_name=\"NAMESPACE/NAME\", where there is one]"),
    click.option("--context", type=click.IntRange(2), metavar="TOKENS", default=None,
                 help="The longest request that the engines take. [default: guessed by their histograms]"),
)  # fmt: skip
"""What :class:`PrometheusRange` is made of."""


@dataclass(frozen=True, slots=True)
class PrometheusRange:
    """Which server, and what of it; times in Unix ns of whole milliseconds."""

    url: str
    token_file: str
    ca_file: str
    start_ns: int
    end_ns: int
    selector: str
    gateway: str
    context: int

    @contextmanager
    def open(self) -> Iterator[Prometheus]:
        """The server. Raises InputError for an address or a file that cannot be used."""
        from tonnage.live.prometheus import Prometheus

        with Prometheus(self.url, token_file=self.token_file, ca_file=self.ca_file, timeout_s=_TIMEOUT_S) as server:
            yield server


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options, in the order of the help text."""
    for option in reversed(SERVER):
        command = option(command)
    return command


def asked(given: dict[str, Any]) -> PrometheusRange:
    """What the options say. Takes them out of ``given``. Raises InputError for a time that cannot be read."""
    end_ns = _time("--end", given.pop("end")) or time.time_ns() // NS_PER_MS * NS_PER_MS
    start_ns = _time("--start", given.pop("start"))
    last = given.pop("last")
    if start_ns is None:
        from tonnage.documents import duration_ns

        try:
            start_ns = end_ns - duration_ns(last)
        except ValueError:
            raise InputError.at(f'"{last}" is not a duration', field="--last", hint="expected e.g. 6h") from None
    if start_ns >= end_ns:
        raise InputError.at("this is not earlier than --end", field="--start", hint="give an earlier one")
    return PrometheusRange(
        url=given.pop("prometheus"),
        token_file=given.pop("prometheus_token_file"),
        ca_file=given.pop("prometheus_ca_file"),
        start_ns=start_ns,
        end_ns=end_ns,
        selector=given.pop("selector").strip().removeprefix("{").removesuffix("}"),
        gateway=given.pop("gateway").strip().removeprefix("{").removesuffix("}"),
        context=given.pop("context") or 0,
    )


def target_s(option: str, text: str | None) -> float:
    """A latency in seconds; 0 where none is given. Raises InputError for one that cannot be read."""
    from tonnage.documents import duration_ns

    if not text:
        return 0.0
    try:
        found = duration_ns(text) / NS_PER_S
    except ValueError:
        found = 0.0
    if found <= 0:
        raise InputError.at(f'"{text}" is not a duration above 0', field=option, hint="expected e.g. 2s or 50ms")
    return found


def check_service(service: str) -> None:
    """Raises InputError for what is not namespace/name."""
    if service.count("/") != 1 or not all(service.split("/")):
        raise InputError.at(f'"{service}"', field="--service", hint="expected namespace/name of a Service")


def _time(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        at_s = float(text) if _UNIX.fullmatch(text) else datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        hint = "expected Unix seconds or RFC 3339, such as 2026-03-02T09:00:00Z"
        raise InputError.at(f'"{text}" is not a time', field=option, hint=hint) from None
    return round(at_s * 1000) * NS_PER_MS
