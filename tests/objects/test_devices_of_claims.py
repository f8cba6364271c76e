"""resource.k8s.io in files: which versions are read, and what kube-apiserver refuses of it, each with its place."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tonnage.errors import InputError
from tonnage.objects import dra, load
from tonnage.objects.dra_versions import from_dict

CLASS: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu.example.com"},
    "spec": {"selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": "example.com/gpu"},
}
WAY: dict[str, Any] = {"deviceClassName": "gpu.example.com", "count": 2}
CLAIM: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "two", "namespace": "team"},
    "spec": {
        "devices": {
            "requests": [{"name": "r", "exactly": WAY}],
            "constraints": [{"matchAttribute": "gpu.example.com/numa", "requests": ["r"]}],
            "config": [{"opaque": {"driver": "gpu.example.com", "parameters": {"kind": "GpuConfig"}}}],
        }
    },
}
SLICE: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "s"},
    "spec": {
        "driver": "gpu.example.com",
        "nodeName": "node-1",
        "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
        "devices": [
            {
                "name": "gpu-0",
                "attributes": {"model": {"string": "A100"}, "driverVersion": {"version": "580.1.0"}},
                "capacity": {
                    "memory": {
                        "value": "80Gi",
                        "requestPolicy": {"default": "4Gi", "validRange": {"min": "2Gi", "step": "2Gi"}},
                    }
                },
                "allowMultipleAllocations": True,
            }
        ],
    },
}
RULE: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1beta2",
    "kind": "DeviceTaintRule",
    "metadata": {"name": "rule"},
    "spec": {"deviceSelector": {"driver": "gpu.example.com"}, "taint": {"key": "xid", "effect": "NoExecute"}},
}
DEVICE = "spec.devices[0]"
REQUEST = "spec.devices.requests[0]"


def changed(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The document with another value at a path of names and numbers; None takes the field away."""
    made: Any = copy.deepcopy(document)
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(" ")]
    at = made
    for step in steps:
        at = at[step]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return made  # type: ignore[no-any-return]


def problems(tmp_path: Path, *documents: dict[str, Any]) -> list[str]:
    file = tmp_path / "m.yaml"
    file.write_text(yaml.safe_dump_all(documents, sort_keys=False), encoding="utf-8")
    try:
        found = load.read([file])
    except InputError as error:
        return [str(one).removeprefix(f"{file}:") for one in error.problems]
    return [str(one) for one in found.problems]


def test_what_is_right_is_read_without_a_word(tmp_path: Path) -> None:
    assert problems(tmp_path, CLASS, CLAIM, SLICE, RULE) == []
    (claim,) = load.read([tmp_path / "m.yaml"]).of(dra.ResourceClaim)
    assert claim.spec.devices.requests[0].exactly is not None
    assert claim.spec.devices.requests[0].exactly.count == 2


@pytest.mark.parametrize(
    ("document", "path", "value", "said"),
    [
        (CLAIM, "spec devices requests 0 exactly count", -1, f"{REQUEST}.exactly.count: -1: must be greater than zero"),
        (CLAIM, "spec devices requests 0 exactly", None, f"{REQUEST}: exactly one of `exactly`"),
        (CLAIM, "spec devices requests 0 exactly allocationMode", "Some", f'{REQUEST}.exactly.allocationMode: "Some"'),
        (CLAIM, "spec devices requests 0 name", "R", f'{REQUEST}.name: "R": a lowercase RFC 1123 label'),
        (CLAIM, "spec devices requests 0 exactly deviceClassName", "", f"{REQUEST}.exactly.deviceClassName"),
        (CLAIM, "spec devices constraints 0 requests", ["q"], 'constraints[0].requests[0]: "q": must be the name of'),
        (CLAIM, "spec devices constraints 0 matchAttribute", "numa", "a fully qualified name must be a domain and"),
        (CLAIM, "spec devices config 0 opaque parameters", [1], "config[0].opaque.parameters"),
        (CLAIM, "spec devices requests", [{"name": f"r{at}", "exactly": WAY} for at in range(33)], "at most 32 items"),
        (CLASS, "spec extendedResourceName", "gpu", '"gpu": must be a valid extended resource name'),
        (CLASS, "spec selectors 0", {}, "spec.selectors[0].cel: the field is missing"),
        (CLASS, "spec selectors 0 cel expression", "device.name", "compilation failed: 1:7"),
        (CLASS, "spec selectors 0 cel expression", "1 + 1", "must evaluate to bool"),
        (SLICE, "spec allNodes", True, "is required, but multiple fields are set"),
        (SLICE, "spec nodeName", None, "exactly one of `nodeName`, `nodeSelector`, `allNodes`"),
        (SLICE, "spec pool resourceSliceCount", 0, "spec.pool.resourceSliceCount: 0: must be greater than zero"),
        (SLICE, "spec devices 0 attributes model", {"int": 1, "string": "a"}, "exactly one value must be specified"),
        (
            SLICE,
            "spec devices 0 attributes model",
            {"version": "1.2"},
            '"1.2": must be a string compatible with semver',
        ),
        (SLICE, "spec devices 0 allowMultipleAllocations", None, "allowMultipleAllocations must be true"),
        (SLICE, "spec devices 0 capacity memory value", "4X", 'memory.value: "4X": expected a quantity'),
        (
            SLICE,
            "spec devices 0 capacity memory requestPolicy default",
            "3Gi",
            "is not a multiple of a given step (2Gi)",
        ),
        (SLICE, "spec devices 0 bindingConditions", ["a"], "bindingFailureConditions are required to use"),
        (SLICE, "spec devices 0 nodeName", "x", "can only be set if `perDeviceNodeSelection` is set to true"),
        (SLICE, "spec sharedCounters", [{"name": "c"}], "only one of `sharedCounters` or `devices` is allowed"),
        (SLICE, "spec devices 0 consumesCounters", [{"counterSet": "c"}], "consumesCounters[0].counters: the field is"),
        (RULE, "spec taint effect", "Never", 'spec.taint.effect: "Never"'),
        (SLICE, "spec devices 0 memory", "4Gi", "unknown field 'memory'"),
    ],
)
def test_what_the_api_server_refuses_has_its_place(
    tmp_path: Path, document: dict[str, Any], path: str, value: Any, said: str
) -> None:
    found = problems(tmp_path, changed(document, path, value))
    assert any(said in one for one in found), found
    assert found[0].split(":")[0].isdigit() or "unknown field" in found[0]


def test_v1beta1_is_read_as_v1_and_problems_are_named_as_it_is_written(tmp_path: Path) -> None:
    device = {
        "name": "gpu-0",
        "basic": {key: value for key, value in SLICE["spec"]["devices"][0].items() if key != "name"},
    }
    slices = changed(changed(SLICE, "apiVersion", "resource.k8s.io/v1beta1"), "spec devices", [device])
    claim = changed(
        changed(CLAIM, "apiVersion", "resource.k8s.io/v1beta1"), "spec devices requests", [{"name": "r", **WAY}]
    )
    assert problems(tmp_path, slices, claim) == []
    read_slice, read_claim = from_dict(slices), from_dict(claim)
    assert isinstance(read_slice, dra.ResourceSlice)
    assert read_slice.spec == from_dict(SLICE).spec
    assert isinstance(read_claim, dra.ResourceClaim)
    assert read_claim.spec == from_dict(CLAIM).spec
    wrong = changed(claim, "spec devices requests 0 count", -2)
    assert problems(tmp_path, wrong) == ["11:spec.devices.requests[0].count: -2: must be greater than zero"]
    wrong = changed(slices, "spec devices 0 basic attributes model", {"version": "x"})
    assert "spec.devices[0].basic.attributes.model.version" in problems(tmp_path, wrong)[0]


@pytest.mark.parametrize(
    ("kind", "version", "instead"),
    [
        ("ResourceClass", "v1alpha2", "write a DeviceClass of resource.k8s.io/v1"),
        ("ResourceClaim", "v1alpha2", "write spec.devices.requests with a deviceClassName"),
        ("PodSchedulingContext", "v1alpha3", "remove it"),
        ("DeviceTaintRule", "v1beta1", "resource.k8s.io/v1beta2"),
    ],
)
def test_versions_that_are_served_no_more_are_refused_with_what_to_write(
    tmp_path: Path, kind: str, version: str, instead: str
) -> None:
    document = {"apiVersion": f"resource.k8s.io/{version}", "kind": kind, "metadata": {"name": "x"}}
    (said,) = problems(tmp_path, document)
    assert said.startswith(f"1:apiVersion: {kind} of resource.k8s.io/{version} is served no more (")
    assert instead in said
    with pytest.raises(InputError, match="served no more"):
        from_dict(document)


def test_an_object_of_another_kind_and_a_field_of_another_type_are_said() -> None:
    with pytest.raises(InputError, match="kind: Pod of v1: expected a kind of resource"):
        from_dict({"apiVersion": "v1", "kind": "Pod"})
    with pytest.raises(InputError, match=r"requests\[0\]\.exactly\.count: \"2\": expected an integer"):
        from_dict(changed(CLAIM, "spec devices requests 0 exactly count", "2"))
