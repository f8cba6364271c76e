"""Expressions without what Kubernetes adds, beside Google's own evaluator (cel-expr-python)."""

from __future__ import annotations

import random

import pytest

from benchmarks import dra_peer
from cel_expressions import Expressions, device, seen
from tonnage.cel.device import compile_selector
from tonnage.cel.failures import CelError

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(not dra_peer.installed(), reason="cel-expr-python is not installed: make peers"),
]
ADDED = (
    *(
        "quantity",
        "isQuantity",
        "capacity",
        "semver",
        "isSemver",
        "includes",
        "nowhere",
        "sign(",
        "lists.range",
        "sets.",
    ),
    *("slice(", "sort", "distinct", "reverse", "isSorted", "max()", "min()", "sum()", "find", "first()", "last()"),
    *("version", "[?", "{?", "indexOf", "string(", "double(", ".?", "optional.", "missing", "has("),
)
"""What Google's evaluator has not, has in another version, or writes in another way."""


def test_the_common_part_means_the_same_to_google() -> None:
    draw = random.Random("cel beside google")
    made = [one for one in (device(draw) for _ in range(40)) if "version" not in str(one)]
    devices = [(seen(one), dra_peer.data(seen(one))) for one in made]
    drawn = Expressions(draw, wild=0.0)
    compared = selected = 0
    while compared < 400:
        text = drawn.one()
        if any(word in text for word in ADDED):
            continue
        try:
            selector, peer = compile_selector(text), dra_peer.compiled(text)
        except (CelError, RuntimeError):
            continue
        for ours, data in devices:
            try:
                expected: bool | str = selector.selects(ours)
            except CelError as error:
                expected = error.kind
            found = peer(data)
            both_fail = isinstance(expected, str) and not isinstance(found, bool)
            assert found is expected or both_fail, (text, found, expected)
            compared += 1
            selected += found is True
    assert selected > compared // 10
