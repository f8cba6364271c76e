"""What Prometheus' HTTP API answers to a query, read (prometheus.io/docs/prometheus/latest/querying/api)."""

from __future__ import annotations

import msgspec

from tonnage.metrics.promql import Result, Sample, Scalar, Vector
from tonnage.metrics.store import Series
from tonnage.units import NS_PER_MS


class Element(msgspec.Struct, frozen=True):
    """A series with its value at one time, or with those of a range."""

    metric: dict[str, str]
    value: tuple[float, str] | None = None
    values: list[tuple[float, str]] | None = None


class Data(msgspec.Struct, frozen=True, rename="camel"):
    """What a successful answer holds."""

    result_type: str = ""
    result: msgspec.Raw = msgspec.Raw(b"null")


class Body(msgspec.Struct, frozen=True, rename="camel"):
    """A whole answer."""

    status: str
    data: Data = Data()
    error_type: str = ""
    error: str = ""
    warnings: list[str] | None = None
    infos: list[str] | None = None


class _Version(msgspec.Struct, frozen=True):
    version: str = ""


class BuildInfo(msgspec.Struct, frozen=True):
    """The answer of /api/v1/status/buildinfo."""

    data: _Version = _Version()


decode_body = msgspec.json.Decoder(Body).decode
_decode_vector = msgspec.json.Decoder(list[Element]).decode
_decode_scalar = msgspec.json.Decoder(tuple[float, str]).decode


class Unreadable(Exception):
    """A result that is neither a vector nor a scalar of plain numbers."""

    def __init__(self, what: str, hint: str) -> None:
        self.what, self.hint = what, hint
        super().__init__(what)


def read_result(data: Data) -> Result:
    """A vector or a scalar. Raises Unreadable for anything else."""
    try:
        if data.result_type == "vector":
            return Vector(tuple(_sample(element) for element in _decode_vector(data.result)))
        if data.result_type == "scalar":
            return Scalar(_number(_decode_scalar(data.result)[1]))
    except msgspec.DecodeError as error:
        hint = "is that server compatible with Prometheus?"
        raise Unreadable(f"a {data.result_type} that cannot be read: {error}", hint) from None
    if data.result_type == "matrix":
        raise Unreadable("a range of samples for each series", "wrap the range in a function such as rate()")
    if data.result_type == "string":
        raise Unreadable("a string", "ask for a vector")
    raise Unreadable(f"the result type {data.result_type!r}", "expected a vector or a scalar")


def _sample(element: Element) -> Sample:
    if element.value is None:
        raise Unreadable("native histograms", "take a number of them with histogram_quantile() or histogram_count()")
    return Sample(element.metric, _number(element.value[1]))


def _number(text: str) -> float:
    """Prometheus' notation of a float, NaN, +Inf and -Inf included."""
    try:
        return float(text)
    except ValueError:
        raise Unreadable(f"the value {text!r}", "is that server compatible with Prometheus?") from None


def read_window(data: Data) -> list[Series]:
    """The samples of each series that a range selector gave, times in Unix ns. Raises Unreadable for anything else."""
    if data.result_type != "matrix":
        raise Unreadable(f"the result type {data.result_type!r}", "expected the samples of a range")
    found = []
    try:
        for element in _decode_vector(data.result):
            series = Series(element.metric)
            for at_s, text in element.values or ():
                series.append(round(at_s * 1000) * NS_PER_MS, _number(text))
            found.append(series)
    except (msgspec.DecodeError, ValueError) as error:
        raise Unreadable(
            f"samples that cannot be read: {error}", "is that server compatible with Prometheus?"
        ) from None
    return found
