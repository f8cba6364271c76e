"""Extended resources that classes serve: which class, and the claim that is made for a pod."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from device_allocations import device_class
from tonnage.dra.extended import IMPLICIT, asked, in_order, served
from tonnage.objects import core, dra

GPU, NIC = "nvidia.com/gpu", "example.com/nic"
CLASSES = {GPU: "gpu", NIC: "nic"}


def container(name: str, *, sidecar: bool = False, **amounts: str) -> dict[str, Any]:
    """``gpu`` and ``nic`` stand for the resources."""
    names = {"gpu": GPU, "nic": NIC}
    made: dict[str, Any] = {
        "name": name,
        "resources": {"requests": {names.get(of, of): n for of, n in amounts.items()}},
    }
    return made | ({"restartPolicy": "Always"} if sidecar else {})


def claimed(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = ()) -> tuple[dict[str, int], list[Any]]:
    """(request → devices, [(container, resource, request)]) of the pod's claim."""
    spec = msgspec.convert({"containers": list(containers), "initContainers": list(init)}, core.PodSpec)
    found = in_order(asked(spec, CLASSES).values())
    requests = {one.name: one.exactly.count for one in found.requests if one.exactly is not None}
    return requests, [(one.container_name, one.resource_name, one.request_name) for one in found.mappings]


def of_time(name: str, created: str, resource: str = GPU) -> dra.DeviceClass:
    made = device_class(name, extendedResourceName=resource)
    return msgspec.structs.replace(
        made, metadata=msgspec.structs.replace(made.metadata, creation_timestamp=created or None)
    )


@pytest.mark.parametrize(
    ("classes", "serves"),
    [
        ([("a", ""), ("b", "")], "a"),
        ([("a", "2026-01-01T00:00:00Z"), ("b", "2026-01-02T00:00:00Z")], "b"),
        ([("a", "2026-01-02T00:00:00Z"), ("b", "2026-01-01T00:00:00Z")], "a"),
        ([("b", "2026-01-01T00:00:00Z"), ("a", "2026-01-01T00:00:00Z")], "a"),
    ],
)
def test_of_classes_that_name_one_resource_the_newest_serves_it_then_the_first_by_name(
    classes: list[tuple[str, str]], serves: str
) -> None:
    found = served(of_time(name, created) for name, created in classes)
    assert found == {GPU: serves, f"{IMPLICIT}a": "a", f"{IMPLICIT}b": "b"}


def test_a_class_that_names_no_resource_serves_that_of_its_own_name() -> None:
    assert served([device_class("mig")]) == {f"{IMPLICIT}mig": "mig"}


def test_each_container_has_a_request_of_its_own_named_by_its_place_and_the_resources() -> None:
    requests, mappings = claimed(container("a", cpu="1", gpu="2"), container("b", gpu="1", nic="3", memory="1Gi"))
    assert requests == {"container-0-request-1": 2, "container-1-request-2": 1, "container-1-request-0": 3}
    assert mappings == [
        ("b", NIC, "container-1-request-0"),
        ("a", GPU, "container-0-request-1"),
        ("b", GPU, "container-1-request-2"),
    ]


def test_a_limit_without_a_request_counts_and_nothing_and_what_no_class_serves_do_not() -> None:
    limited = {"name": "a", "resources": {"limits": {GPU: "1", "other.com/fpga": "1"}, "requests": {NIC: "0"}}}
    assert claimed(limited) == ({"container-0-request-1": 1}, [("a", GPU, "container-0-request-1")])


def test_an_init_container_uses_the_devices_of_those_that_start_after_it() -> None:
    requests, mappings = claimed(
        container("main", gpu="2"), container("side", gpu="1"), init=(container("i", gpu="3"),)
    )
    assert requests == {"container-1-request-0": 2, "container-2-request-0": 1}
    assert [one for one in mappings if one[0] == "i"] == [
        ("i", GPU, "container-1-request-0"),
        ("i", GPU, "container-2-request-0"),
    ]


def test_what_init_containers_need_beyond_is_one_request_as_large_as_the_largest() -> None:
    init = (container("small", gpu="3"), container("large", gpu="4"), container("fits", gpu="1"))
    requests, mappings = claimed(container("main", gpu="1"), init=init)
    assert requests == {"container-1-request-0": 3, "container-3-request-0": 1}
    assert [one[2] for one in mappings if one[0] == "small"] == ["container-3-request-0", "container-1-request-0"]
    assert [one[2] for one in mappings if one[0] == "fits"] == ["container-3-request-0"]


def test_a_sidecar_keeps_its_devices_and_lends_them_only_to_those_that_start_before_it() -> None:
    init = (container("before", gpu="1"), container("side", sidecar=True, gpu="1"), container("after", gpu="1"))
    requests, mappings = claimed(container("main"), init=init)
    assert requests == {"container-1-request-0": 1, "container-2-request-0": 1}
    assert [(one[0], one[2]) for one in mappings] == [
        ("side", "container-1-request-0"),
        ("before", "container-1-request-0"),
        ("after", "container-2-request-0"),
    ]
