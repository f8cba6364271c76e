"""Which attributes and capacities a selector looks at."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cel_expressions import Expressions, device, seen
from tonnage.cel.device import CompiledSelector, Device, compile_selector
from tonnage.cel.failures import CelError

A, C = 'device.attributes["gpu.example.com"]', 'device.capacity["gpu.example.com"]'
DOMAIN = "gpu.example.com"


@pytest.mark.parametrize(
    ("text", "attributes", "capacity"),
    [
        ('device.driver == "gpu.example.com" && device.allowMultipleAllocations', [], []),
        (f'{A}.model == "A100"', ["model"], []),
        (f'{A}["model"] == "A100" || {A}.index > 3', ["index", "model"], []),
        (f'has({A}.model) && {A}.?mode.orValue("") == "x"', ["mode", "model"], []),
        (f'"model" in {A}', ["model"], []),
        (f'{C}.memory.isGreaterThan(quantity("40Gi"))', [], ["memory"]),
        (f'{A}.mode.startsWith({A}.model) ? {C}.memory.isGreaterThan(quantity("1")) : {C}["cores"].isLessThan(quantity("1"))', ["mode", "model"], ["cores", "memory"]),
        (f'["a", "b"].exists(one, {A}.model == one)', ["model"], []),
        (f'cel.bind(m, {A}.model, m == "a" || m == "b")', ["model"], []),
    ],
)  # fmt: skip
def test_a_selector_says_what_it_looks_at(text: str, attributes: list[str], capacity: list[str]) -> None:
    read = compile_selector(text).reads
    assert read is not None
    assert read.attributes == tuple((DOMAIN, name) for name in attributes)
    assert read.capacity == tuple((DOMAIN, name) for name in capacity)


@pytest.mark.parametrize(
    "text",
    [
        f"{A}.all(name, name.size() < 20)",
        f"{A}.size() > 2",
        f"{A} == {A}",
        f'"{DOMAIN}" in device.attributes',
        f"{A}[{A}.model] == 1",
        f'cel.bind(a, {A}, a.model == "x")',
        'device.attributes.all(domain, domain != "")',
        f'["a"].exists(device, device == "a") && {A}.index == 1',
    ],
)
def test_what_goes_through_all_names_looks_at_everything(text: str) -> None:
    assert compile_selector(text).reads is None


def test_devices_that_have_alike_what_is_looked_at_are_answered_alike() -> None:
    draw = random.Random("what selectors read")
    devices = [device(draw) for _ in range(60)]
    drawn = Expressions(draw)
    compared = different = 0
    while compared < 4_000:
        try:
            selector = compile_selector(drawn.one())
        except CelError:
            continue
        if selector.reads is None:
            continue
        for _ in range(10):
            one, other = draw.choice(devices), draw.choice(devices)
            twin = _like(one, other, selector)
            assert _outcome(selector, seen(twin)) == _outcome(selector, seen(one)), (selector.text, one, twin)
            compared += 1
            different += twin != one
    assert different > 2_000, "most twins have other attributes"


def _like(one: dict[str, Any], other: dict[str, Any], selector: CompiledSelector) -> dict[str, Any]:
    """``other`` with all that the selector looks at of ``one``."""
    assert selector.reads is not None
    made = {**one, "attributes": dict(other["attributes"]), "capacity": dict(other["capacity"])}
    for field, names in zip(("attributes", "capacity"), selector.reads, strict=True):
        for written in [name for domain, own in names for name in (f"{domain}/{own}", own)]:
            made[field].pop(written, None)
        read = {name for domain, own in names for name in (f"{domain}/{own}", own)}
        made[field] |= {name: value for name, value in one[field].items() if name in read}
    return made


def _outcome(selector: CompiledSelector, on: Device) -> object:
    try:
        return selector.selects(on)
    except CelError as error:
        return error.kind, str(error)
