"""Selectors in CEL where devices are allocated."""

from __future__ import annotations

from typing import Any

from device_allocations import NODE, claim, device, device_class, given, request, resource_slice
from tonnage.dra.allocated import AllocatedState
from tonnage.dra.allocator import Allocator, Feasibility
from tonnage.dra.compiled import cel_compiler
from tonnage.dra.features import Features

DEVICES = resource_slice(
    "s",
    device("small", attributes={"model": "A100", "ver": {"version": "1.2.3"}}, capacity={"memory": "40Gi"}),
    device("large", attributes={"model": "A100", "ver": {"version": "2.0.0"}}, capacity={"memory": "80Gi"}),
)
A = 'device.attributes["gpu.example.com"]'


def allocated(text: str, features: Features | None = None) -> Any:
    found = Allocator(
        [DEVICES],
        [device_class("gpu", 'device.driver == "gpu.example.com"')],
        compiler=cel_compiler(features),
        features=features,
    ).allocate([claim(request("r", "gpu", text))], NODE, AllocatedState())
    return given(found) if found.feasibility is Feasibility.ALLOCATED else (found.feasibility, found.error)


def test_the_device_that_a_selector_means_is_allocated() -> None:
    memory = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("64Gi")) >= 0'
    assert allocated(memory) == [[("r", "large")]]
    assert allocated(f'{A}.ver.isLessThan(semver("2.0.0"))') == [[("r", "small")]]
    assert allocated(f'{A}.model == "H100"') == (Feasibility.DOES_NOT_FIT, "")


def test_an_error_of_a_selector_says_why() -> None:
    feasibility, error = allocated(f'{A}.missing == "x"')
    assert feasibility is Feasibility.ERROR and "no such key: 'missing'" in error
    feasibility, error = allocated("device.foo == 1")
    assert feasibility is Feasibility.ERROR and "has no field foo" in error
