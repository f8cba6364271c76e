"""Objects in Kubernetes' protobuf encoding, to the byte, and back to their JSON form; what has none is refused."""

from __future__ import annotations

import random
from typing import Any

import pytest

from protobuf_wire import envelope, field
from scripts import api_tables
from tonnage.kube.transport import ApiError, Reply
from tonnage.objects.api import protobuf

TEXTS = ("a", "né · 1", "x" * 127, "y" * 128, "z" * 20_000)


def binding(**metadata: Any) -> dict[str, Any]:
    target = {"apiVersion": "v1", "kind": "Node", "name": "n"}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


def pod(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": spec}


def service(**port: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {}, "spec": {"ports": [port]}}


def test_a_binding_has_the_bytes_that_kubernetes_gives_it() -> None:
    target = field(5, b"v1") + field(1, b"Node") + field(3, b"n")
    raw = field(1, field(1, b"p") + field(3, b"d") + field(5, b"u")) + field(2, target)
    assert protobuf.encode(binding(name="p", namespace="d", uid="u")) == envelope(b"v1", b"Binding", raw)


def test_times_numbers_and_long_texts_have_their_bytes() -> None:
    event = {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {"name": "e"},
        "message": "m" * 300,
        "count": -1,
        "lastTimestamp": "2027-01-15T08:00:00Z",
        "eventTime": "2027-01-15T08:00:00.000005Z",
        "series": None,
    }
    raw = field(1, field(1, b"e")) + field(4, b"m" * 300) + field(8, -1)
    raw += field(7, field(1, 1_800_000_000)) + field(10, field(1, 1_800_000_000) + field(2, 5_000))
    assert protobuf.encode(event) == envelope(b"v1", b"Event", raw)


TABLE = {
    kind: [field.rsplit(":", 2)[::2] for field in fields.split()]
    for kind, fields in api_tables.rows_of(api_tables.FILES["protobuf"])
}
"""The fields of each struct, as (name, shape)."""


@pytest.mark.parametrize("kind", sorted(of for of, fields in TABLE.items() if "kind" not in dict(fields)))
def test_an_object_is_read_as_it_was_written(kind: str) -> None:
    for seed in range(5):
        rng = random.Random(f"{kind}/{seed}")
        written = {"kind": kind, "apiVersion": "g/v1", **message(kind, rng, depth=0)}
        assert protobuf.decode(protobuf.encode(written)) == written


def message(of: str, rng: random.Random, depth: int) -> dict[str, Any]:
    """Any fields of a struct, by the table; none is empty, as empty ones are not told from those that are not there."""
    found: dict[str, Any] = {}
    for name, shape in TABLE[of]:
        if rng.random() < (0.3 if depth else 0.8) and depth < 6:
            repeated, mapped, plain = "[]" in shape, "{}" in shape, shape.lstrip("!*[]{}")
            some = [value(plain, rng, depth + 1) for _ in range(rng.choice((1, 3)))]
            if name == "-":
                found |= some[0]
            elif mapped:
                found[name] = {f"k{at}": one for at, one in enumerate(some)}
            elif repeated or some[0] != {}:
                found[name] = some if repeated else some[0]
    return found


def value(shape: str, rng: random.Random, depth: int) -> Any:
    match shape:
        case "string":
            return rng.choice(TEXTS)
        case "int":
            return rng.choice((1, -1, 127, 128, 2**31 - 1, -(2**63)))
        case "bool":
            return True
        case "double":
            return rng.choice((0.5, -1e300))
        case "bytes":
            return "AP8="
        case "quantity":
            return rng.choice(("1", "100m", "2Gi"))
        case "intorstring":
            return rng.choice((8080, "25%", -3))
        case "time":
            return rng.choice(("2027-01-15T08:00:00Z", "1969-12-31T23:59:59Z"))
        case "microtime":
            return rng.choice(("2027-01-15T08:00:00.000005Z", "2027-01-15T08:00:00.000000Z"))
        case "fields" | "raw":
            return {"f:a": {}, "n": [1, "two"]}
        case _:
            return message(shape, rng, depth)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"kind": "Gadget", "apiVersion": "v1"}, "the kind Gadget is not known"),
        ({"kind": "Binding"}, "Binding: 'apiVersion'"),
        (binding(name="p", colour="red"), "Binding: 'colour'"),
        (binding(name=7), "Binding: .*'int'"),
        (binding(creationTimestamp="yesterday"), "Binding: .*yesterday"),
        (binding(generation="7"), "Binding: '7': expected a whole number"),
        (binding(generation=True), "Binding: True: expected a whole number"),
        (binding(generation=1.0), "Binding: 1.0: expected a whole number"),
        (binding(generation=2**63), "Binding: 9223372036854775808: expected a whole number of 64 bits"),
        (pod(hostNetwork=1), "Pod: 1: expected true or false"),
        (pod(hostNetwork="true"), "Pod: 'true': expected true or false"),
        (service(targetPort=True), "Service: True: expected a whole number"),
    ],
)
def test_what_has_no_place_in_it_is_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(protobuf.Malformed, match=why):
        protobuf.encode(wrong)


def test_an_error_in_protobuf_is_read_as_one_in_json() -> None:
    details = field(1, b"p") + field(5, 3)
    status = field(2, b"Failure") + field(3, b"not now") + field(4, b"TooManyRequests") + field(5, details)
    error = ApiError.of(Reply(429, envelope(b"v1", b"Status", status + field(6, 429))))
    assert (error.code, error.reason, error.message) == (429, "TooManyRequests", "not now")
    assert error.retry_after_s == 3.0
    cut = ApiError.of(Reply(500, envelope(b"v1", b"Status", status)[:-1]))
    assert (cut.code, cut.reason) == (500, "")
