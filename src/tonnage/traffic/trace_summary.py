"""What a request log is like at first sight: how many requests, how fast, how long."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tonnage.traffic.traces import Trace
from tonnage.units import NS_PER_S


class LengthSummary(Struct, frozen=True):
    """Tokens of the prompts or outputs of a trace."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: int

    @classmethod
    def of(cls, tokens: NDArray[np.signedinteger]) -> LengthSummary:
        """Of one trace's."""
        p50, p90, p99 = np.percentile(tokens, (50, 90, 99)).tolist()
        return cls(float(tokens.mean()), p50, p90, p99, int(tokens.max()))

    def text(self) -> str:
        """In a line."""
        quantiles = f"p50 {self.p50:,.0f}, p90 {self.p90:,.0f}, p99 {self.p99:,.0f}"
        return f"mean {self.mean:,.0f}, {quantiles}, max {self.max:,}"


class TraceSummary(Struct, frozen=True):
    """What one wants to know of a trace first; rates in requests per second. ``mean_rate``: None where all requests
    come at once."""

    source: str
    requests: int
    span_s: float
    mean_rate: float | None
    busiest_10s_rate: float
    prompt_tokens: LengthSummary
    output_tokens: LengthSummary

    def rows(self) -> list[tuple[str, str]]:
        """As (name, value) rows for people."""
        rows = [("source", self.source), ("requests", f"{self.requests:,}"), ("span", f"{self.span_s:,.1f} s")]
        if self.mean_rate is not None:
            rows.append(("mean rate", f"{self.mean_rate:.2f} requests/s"))
        rows.append(("busiest 10 s", f"{self.busiest_10s_rate:.2f} requests/s"))
        return [*rows, ("prompt tokens", self.prompt_tokens.text()), ("output tokens", self.output_tokens.text())]


def describe(trace: Trace) -> TraceSummary:
    """The first look at a trace."""
    seconds = trace.span_ns / NS_PER_S
    per_interval = np.bincount(trace.arrivals_ns // (10 * NS_PER_S))
    return TraceSummary(
        source=trace.source,
        requests=len(trace),
        span_s=seconds,
        mean_rate=(len(trace) - 1) / seconds if seconds > 0 else None,
        busiest_10s_rate=float(per_interval.max() / 10),
        prompt_tokens=LengthSummary.of(trace.prompt),
        output_tokens=LengthSummary.of(trace.output),
    )
