"""CDI specifications: names, lowest versions, nodes of MIG devices, what lies on the machine of the driver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import InputError
from tonnage.node import cdi
from tonnage.node.driver_files import RealFiles, SimulatedFiles
from tonnage.node.simulated import SimulatedMachine

VERSION = "580.159.04"


def partitioned() -> SimulatedMachine:
    machine = SimulatedMachine("l4,h100")
    machine.set_mode(1, True)
    machine.create(1, "3g.40gb", 4)
    machine.create(1, "1g.10gb", 0)
    return machine


def test_devices_have_their_names_and_nodes() -> None:
    names = cdi.NameStrategies(("index", "uuid", "type-index"))
    spec = cdi.spec_of(partitioned(), RealFiles(VERSION, Path("/nowhere")), names=names)
    found = {one["name"]: [n["path"] for n in one["containerEdits"]["deviceNodes"]] for one in spec["devices"]}
    assert found["0"] == found["gpu0"] == ["/dev/nvidia0"]
    assert found["1:0"] == ["/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap156", "/dev/nvidia-caps/nvidia-cap157"]
    assert found["mig1:1"] == ["/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap147", "/dev/nvidia-caps/nvidia-cap148"]
    assert len(found["all"]) == 6
    assert len([name for name in found if name.startswith(("GPU-", "MIG-"))]) == 3
    assert (spec["kind"], spec["cdiVersion"]) == ("nvidia.com/gpu", "0.5.0")


def edits(**more: Any) -> dict[str, Any]:
    return {"kind": "nvidia.com/gpu", "devices": [{"name": "gpu0", "containerEdits": more}]}


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        (edits(deviceNodes=[{"path": "/dev/nvidia0"}]), "0.3.0"),
        (edits(mounts=[{"hostPath": "/a", "containerPath": "/a", "type": "bind"}]), "0.4.0"),
        (edits(deviceNodes=[{"path": "/dev/nvidia0", "hostPath": "/dev/null"}]), "0.5.0"),
        ({"kind": "nvidia.com/gpu", "devices": [{"name": "0", "containerEdits": {}}]}, "0.5.0"),
        ({"kind": "nvidia.com/gpu.x", "devices": []}, "0.6.0"),
        ({"kind": "nvidia.com/gpu", "devices": [], "annotations": {"a": "b"}}, "0.6.0"),
        (edits(additionalGids=[1]), "0.7.0"),
        (edits(intelRdt={"schemata": []}), "1.1.0"),
        (edits(netDevices=[{"name": "eth0"}]), "1.1.0"),
    ],
)
def test_the_version_is_the_lowest_that_has_what_is_in_it(spec: dict[str, Any], version: str) -> None:
    assert cdi.lowest_version(spec) == version


@pytest.mark.parametrize("kind", ["nvidia.com", "/gpu", "1nvidia.com/gpu", "nvidia.com/gpu-", ""])
def test_what_is_not_a_kind_is_refused(kind: str) -> None:
    with pytest.raises(InputError, match="is not a kind"):
        cdi.spec_of(SimulatedMachine("l4"), SimulatedFiles(), kind)


def test_a_specification_is_written_whole_and_only_when_it_changes(tmp_path: Path) -> None:
    machine = SimulatedMachine("2xh100")
    path = cdi.path_of("nvidia.com/gpu", tmp_path / "cdi")
    assert cdi.read(path) is None
    assert cdi.write(cdi.spec_of(machine, SimulatedFiles()), path)
    assert not cdi.write(cdi.spec_of(machine, SimulatedFiles()), path)
    machine.set_mode(0, True)
    machine.create(0, "7g.80gb", 0)
    assert cdi.write(cdi.spec_of(machine, SimulatedFiles()), path)
    found = json.loads(path.read_text())
    assert "0:0" in {one["name"] for one in found["devices"]}
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    assert path.stat().st_mode & 0o777 == 0o644


def driver_on(root: Path) -> RealFiles:
    for name in (
        *("dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia0", "dev/nvidia-nvswitch0", "dev/nvidia-caps/nvidia-cap3"),
        *(f"usr/lib/x86_64-linux-gnu/libcuda.so.{VERSION}", f"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{VERSION}"),
        *("usr/lib/x86_64-linux-gnu/libcuda.so.1", "usr/bin/nvidia-smi", "run/nvidia-persistenced/socket"),
        *(f"lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin", "usr/bin/nvidia-cdi-hook"),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    return RealFiles(VERSION, root)


def test_what_lies_on_the_machine_is_mounted_and_hooked(tmp_path: Path) -> None:
    common = driver_on(tmp_path).common()
    assert [one["hostPath"] for one in common["mounts"]] == [
        f"/usr/lib/x86_64-linux-gnu/libcuda.so.{VERSION}",
        f"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{VERSION}",
        "/usr/bin/nvidia-smi",
        f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin",
        "/run/nvidia-persistenced/socket",
    ]
    assert [one["args"][1] for one in common["hooks"]] == [
        *("create-symlinks", "enable-cuda-compat", "update-ldcache", "disable-device-node-modification"),
    ]
    assert common["env"] == ["NVIDIA_VISIBLE_DEVICES=void"]
    assert [one["path"] for one in common["deviceNodes"]] == ["/dev/nvidia-uvm", "/dev/nvidiactl"]


def test_management_has_every_node_but_those_of_switches(tmp_path: Path) -> None:
    spec = cdi.management(driver_on(tmp_path))
    (device,) = spec["devices"]
    assert [one["path"] for one in device["containerEdits"]["deviceNodes"]] == [
        *("/dev/nvidia-caps/nvidia-cap3", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"),
    ]
    assert (spec["kind"], device["name"], spec["cdiVersion"]) == ("management.nvidia.com/gpu", "all", "0.3.0")
