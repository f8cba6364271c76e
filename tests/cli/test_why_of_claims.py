"""`tonnage why resourceclaim/NAME`: what has become of a claim, and which selector threw out which devices where."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_builders import tonnage

from device_allocations import DRIVER

V1 = "resource.k8s.io/v1"


def described(kind: str, name: str, spec: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": V1,
        "kind": kind,
        "metadata": {"name": name, **more.pop("metadata", {})},
        "spec": spec,
        **more,
    }


def claim(name: str, *selectors: str, status: dict[str, Any] | None = None, count: int = 1) -> dict[str, Any]:
    exactly = {
        "deviceClassName": "gpu",
        "count": count,
        "selectors": [{"cel": {"expression": text}} for text in selectors],
    }
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    return described("ResourceClaim", name, spec, metadata={"namespace": "team"}, status=status or {})


def cluster(*claims: dict[str, Any]) -> list[dict[str, Any]]:
    objects = [
        described("DeviceClass", "gpu", {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]})
    ]
    for node, models in (("node-1", ("L40S", "L40S")), ("node-2", ("H100",))):
        objects.append({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
        devices = [{"name": f"gpu-{at}", "attributes": {"model": {"string": one}}} for at, one in enumerate(models)]
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
        objects.append(described("ResourceSlice", node, spec))
    return [*objects, *claims]


def model(name: str) -> str:
    return f'device.attributes["{DRIVER}"].model == "{name}"'


def allocated(node: str, device: str) -> dict[str, Any]:
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": device}
    return {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
        },
        "reservedFor": [{"resource": "pods", "name": "train-0", "uid": "1"}],
    }


Asked = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Asked:
    """What is told of a claim's name among these claims, with the exit code."""

    def ask(name: str, *claims: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        file = tmp_path / "cluster.json"
        whole = {"apiVersion": "v1", "kind": "List", "items": cluster(*claims)}
        file.write_text(json.dumps(whole), encoding="utf-8")
        done = tonnage(capfd, "why", f"resourceclaim/{name}", file, "-o", "json")
        return done.code, json.loads(done.out)["told"]

    return ask


def test_a_claim_that_is_allocated_names_its_devices_and_who_it_is_reserved_for(told: Asked) -> None:
    code, said = told("mine", claim("mine", status=allocated("node-2", "gpu-0")))
    assert (code, said["state"]) == (0, "runs")
    assert said["line"] == f"is allocated on node-2: {DRIVER}/node-2/gpu-0 for gpu; reserved for train-0"


def test_a_claim_that_fits_names_the_nodes_and_why_not_the_others(told: Asked) -> None:
    code, said = told("mine", claim("mine", model("H100")))
    assert (code, said["state"]) == (0, "starts")
    assert said["line"].startswith("is pending, and can be allocated on node-2: on node-2 it would get ")
    assert said["details"] == [
        "node-1: claim team/mine, request gpu: needs 1 of 2 devices, 0 can be allocated: 2 do not match the selector of the "
        f"request: {model('H100')}"
    ]


@pytest.mark.parametrize("count", [1, 3])
def test_what_others_hold_is_counted(told: Asked, count: int) -> None:
    others = claim("other", status=allocated("node-2", "gpu-0"))
    code, said = told("mine", claim("mine", model("H100"), count=count), others)
    assert (code, said["state"], said["line"]) == (1, "waits", "is pending: it can be allocated on none of 2 nodes")
    assert (
        f"node-2: claim team/mine, request gpu: needs {count} of 1 devices, 0 can be allocated: 1 are allocated"
        in said["details"]
    )


def test_a_selector_without_a_value_is_an_error_of_the_claim(told: Asked) -> None:
    code, said = told("mine", claim("mine", f'device.attributes["{DRIVER}"].memory > 3'))
    assert (code, said["state"]) == (1, "never")
    assert "request gpu, selector 0, device " in said["line"]
    assert "no such key" in said["line"]
