"""Claims on their node: devices prepared and given back, whatever crashes in between."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest
from dra_worlds import NODE, Crashed, Kubelet, Node, wrong

from deep_seeds import part
from tonnage.errors import InputError
from tonnage.node.devices import GpuProcess, RecoveryAction
from tonnage.node.dra_claims import NotPrepared
from tonnage.node.dra_driver import DraDriver
from tonnage.node.dra_journal import ClaimJournal
from tonnage.node.dra_offer import offered, pcie_root
from tonnage.node.driver_files import SimulatedFiles
from tonnage.objects.dra import ResourceClaim


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def some(claim: ResourceClaim | None) -> ResourceClaim:
    assert claim is not None
    return claim


def device_of(claim: ResourceClaim) -> str:
    assert claim.status.allocation is not None
    return claim.status.allocation.devices.results[0].device


def taints(node: Node) -> dict[str, list[str]]:
    """Keys and values of taints by device, of those that have any."""
    devices = [one for card in node.driver.offer.cards for one in card.devices]
    return {one.name: [f"{each.key}={each.value}" for each in one.taints] for one in devices if one.taints}


def test_a_mig_device_is_made_at_the_place_that_was_allocated_and_goes_with_the_claim(node: Node) -> None:
    claim = some(node.profile("3g.40gb"))
    assert device_of(claim) == "gpu-0-mig-3g40gb-9-4"
    [prepared] = node.prepare(claim)
    assert (prepared.requests, prepared.pool, prepared.device) == (["gpu"], NODE, "gpu-0-mig-3g40gb-9-4")
    assert prepared.cdi == ["k8s.gpu.nvidia.com/claim=uid-1-gpu-0-mig-3g40gb-9-4"]
    assert node.instances() == [(0, "3g.40gb", 4)]
    paths = [one["path"] for one in node.edits(claim)["gpu-0-mig-3g40gb-9-4"]["deviceNodes"]]
    assert paths == ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13"]
    node.unprepare(claim)
    assert (node.instances(), node.specs(), node.driver.journal.records()) == ([], [], ())


def test_a_whole_gpu_is_prepared_with_mig_off(node: Node) -> None:
    small = some(node.profile("1g.10gb"))
    node.prepare(small)
    node.unprepare(small)
    node.remove(small)
    assert node.machine.mig(0).enabled  # type: ignore[union-attr]
    for card in (0, 1):
        claim = some(node.allocate("gpu.nvidia.com"))
        assert device_of(claim) == f"gpu-{card}"
        node.prepare(claim)
        assert not node.machine.mig(card).enabled  # type: ignore[union-attr]
        assert [one["path"] for one in node.edits(claim)[f"gpu-{card}"]["deviceNodes"]] == [f"/dev/nvidia{card}"]


def test_preparing_and_giving_back_twice_is_as_once(node: Node) -> None:
    claim = some(node.profile("2g.20gb", count=2))
    first = node.prepare(claim)
    assert node.prepare(claim) == first
    assert len(node.instances()) == 2
    node.unprepare(claim)
    node.unprepare(claim)
    assert node.instances() == []


def test_a_kubelet_and_a_driver_that_start_again_find_what_is_prepared_without_the_api(node: Node) -> None:
    claim = some(node.profile("1g.10gb"))
    first = node.prepare(claim)
    node.start()
    node.cluster.answers = False
    assert node.prepare(claim) == first
    other = some(node.profile("1g.10gb"))
    with pytest.raises(NotPrepared, match="cannot be read"):
        node.prepare(other)


def test_after_a_reboot_the_same_devices_are_made_again(node: Node) -> None:
    claim = some(node.profile("1g.10gb", count=3))
    first = node.prepare(claim)
    before = node.instances()
    node.machine.reboot()
    assert node.instances() == []
    node.start()
    assert node.prepare(claim) == first
    assert node.instances() == before


def test_what_another_claim_holds_is_not_prepared_twice(node: Node) -> None:
    whole, part_ = some(node.allocate("gpu.nvidia.com")), None
    node.prepare(whole)
    node.remove(whole)  # the claim is gone by force, and its pod may still run
    while part_ is None or not device_of(part_).startswith(device_of(whole)):
        part_ = some(node.profile("1g.10gb"))
    with pytest.raises(NotPrepared, match=r"is held by claim team/claim-1 \(gpu-0\)"):
        node.prepare(part_)
    node.unprepare(whole)
    assert node.prepare(part_)


def test_a_claim_of_another_uid_or_without_devices_is_refused(node: Node) -> None:
    claim = some(node.profile("1g.10gb"))
    node.cluster.claims[claim.name] = ResourceClaim(
        api_version=claim.api_version, kind=claim.kind, metadata=claim.metadata, spec=claim.spec
    )
    with pytest.raises(NotPrepared, match="has no devices allocated"):
        node.prepare(claim)
    node.remove(claim)
    with pytest.raises(NotPrepared, match="there is no claim team/claim-1"):
        node.prepare(claim)


def test_a_gpu_in_use_keeps_its_mig_mode_and_the_kubelet_asks_again(node: Node) -> None:
    claim = some(node.profile("1g.10gb"))
    node.machine.occupy(0, [GpuProcess(7, "compute")])
    with pytest.raises(NotPrepared, match="the GPU is in use, and its MIG mode is to change"):
        node.prepare(claim)
    node.machine.occupy(0, [])
    assert node.prepare(claim)


def test_an_instance_in_use_is_not_removed_and_the_claim_stays_until_it_is(node: Node) -> None:
    claim = some(node.profile("1g.10gb"))
    node.prepare(claim)
    node.machine.occupy(0, [GpuProcess(7, "compute", gpu_instance=1)])
    with pytest.raises(NotPrepared, match="in use by another client"):
        node.unprepare(claim)
    assert [one.stage for one in node.driver.journal.records()] == ["ending"]
    node.machine.occupy(0, [])
    node.unprepare(claim)
    assert node.instances() == []


def test_where_a_reset_is_refused_mig_mode_does_not_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path, monkeypatch, "a100-40")
    node.machine.disturb(0, resets=False)
    claim = some(node.profile("1g.5gb"))
    with pytest.raises(NotPrepared, match="needs a reset, which this machine refuses"):
        node.prepare(claim)
    assert not node.machine.mig(0).pending  # type: ignore[union-attr]


def test_an_instance_made_by_hand_is_used_where_it_is_and_left_there(node: Node) -> None:
    node.machine.set_mode(0, True)
    node.machine.create(0, "3g.40gb", 4)
    node.look()
    assert "GPU 0 has 3g.40gb at memory slice 4, which no claim has made" in node.said
    tainted = taints(node)
    assert tainted["gpu-0"] == ["tonnage.dev/mig-instance=3g.40gb-4"]
    assert "gpu-0-mig-1g10gb-19-4" in tainted
    assert "gpu-0-mig-3g40gb-9-4" not in tainted
    assert "gpu-0-mig-1g10gb-19-0" not in tainted
    claim = some(node.profile("3g.40gb"))
    assert device_of(claim) == "gpu-0-mig-3g40gb-9-4"
    node.prepare(claim)
    node.unprepare(claim)
    assert node.instances() == [(0, "3g.40gb", 4)]
    node.machine.destroy(0, 1)
    node.look()
    assert taints(node) == {}


def test_an_instance_made_by_hand_that_goes_under_a_claim_is_made_and_then_removed_with_it(node: Node) -> None:
    node.machine.set_mode(0, True)
    node.machine.create(0, "3g.40gb", 4)
    node.look()
    claim = some(node.profile("3g.40gb"))
    node.prepare(claim)
    node.machine.destroy(0, 1)
    node.prepare(claim)
    node.unprepare(claim)
    assert node.instances() == []


def test_a_fault_taints_every_device_of_its_gpu_by_cause_until_there_is_evidence(node: Node) -> None:
    node.machine.fault(0, xid=95, recovery=RecoveryAction.GPU_RESET)
    node.look()
    tainted = taints(node)
    assert len(tainted) == 26
    assert all(name.startswith("gpu-0") for name in tainted)
    assert tainted["gpu-0"] == ["tonnage.dev/recovery-action=RESET_GPU", "tonnage.dev/xid-95=RESET_GPU"]
    entries = {one.device.device: (one.health, one.message) for one in node.running.health(NODE) if one.device}
    assert entries["gpu-1"] == (1, "")
    assert entries["gpu-0-mig-1g10gb-19-0"][0] == 2
    assert "Xid 95" in entries["gpu-0-mig-1g10gb-19-0"][1]
    node.machine.reset(0)
    for _ in range(4):
        node.look()
    assert taints(node) == {}


def config(kind: str, **sharing: Any) -> dict[str, Any]:
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind, "sharing": sharing}
    return {"opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}


def test_the_interval_of_time_slicing_is_set_and_put_back(node: Node) -> None:
    long = config("GpuConfig", strategy="TimeSlicing", timeSlicingConfig={"interval": "Long"})
    claim = some(node.allocate("gpu.nvidia.com", config=[long]))
    node.prepare(claim)
    assert node.machine.timeslice(0) == "Long"
    node.unprepare(claim)
    assert node.machine.timeslice(0) == "Default"


def test_limits_of_mps_are_what_containers_see(node: Node) -> None:
    limits = {"defaultActiveThreadPercentage": 25, "defaultPinnedDeviceMemoryLimit": "10Gi"}
    claim = some(node.profile("3g.40gb", config=[config("MigDeviceConfig", strategy="MPS", mpsConfig=limits)]))
    node.prepare(claim)
    assert node.edits(claim)[device_of(claim)]["env"] == [
        "CUDA_MPS_PIPE_DIRECTORY=/run/nvidia/mps",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=10240M",
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (config("GpuConfig", strategy="Fair"), "Invalid enum value 'Fair'"),
        (config("GpuConfig", strategy="MPS", timeSlicingConfig={}), "is given with the strategy MPS"),
        (
            {**config("MigDeviceConfig", strategy="MPS"), "requests": ["gpu"]},
            "is a MigDeviceConfig, and gpu-0 is a GPU",
        ),
    ],
)
def test_a_configuration_that_the_driver_does_not_understand_is_said(node: Node, given: Any, said: str) -> None:
    claim = some(node.allocate("gpu.nvidia.com", config=[given]))
    with pytest.raises(NotPrepared, match=said):
        node.prepare(claim)
    assert node.driver.journal.records() == ()


def test_real_cards_are_offered_as_they_are_and_not_changed(node: Node, tmp_path: Path) -> None:
    node.machine.set_mode(0, True)
    node.machine.create(0, "3g.40gb", 4)
    found = offered(node.machine, (), node.watch.health, "NoSchedule", on_demand=False)
    names = [one.name for card in found.cards for one in card.devices]
    assert names == ["gpu-0-mig-3g40gb-9-4", "gpu-1"]
    driver = DraDriver(
        node.machine, None, SimulatedFiles(), node.cdi, ClaimJournal(tmp_path / "c"), node.cluster, NODE, print
    )
    driver.offer = found
    claim = some(node.profile("3g.40gb"))
    node.driver, node.machine.create = driver, None  # type: ignore[method-assign, assignment]
    assert node.prepare(claim)[0].device == "gpu-0-mig-3g40gb-9-4"
    node.unprepare(claim)
    assert node.instances() == [(0, "3g.40gb", 4)]
    node.machine.destroy(0, 1)
    with pytest.raises(NotPrepared, match="real cards are read and not changed"):
        node.prepare(claim)


def test_the_root_complex_is_read_from_sysfs(tmp_path: Path) -> None:
    device = tmp_path / "devices/pci0000:16/0000:16:01.0/0000:18:00.0"
    device.mkdir(parents=True)
    (tmp_path / "bus/pci/devices").mkdir(parents=True)
    (tmp_path / "bus/pci/devices/0000:18:00.0").symlink_to(device)
    assert pcie_root("00000000:18:00.0", tmp_path) == "pci0000:16"
    assert pcie_root("00000000:19:00.0", tmp_path) == ""


def test_a_journal_of_something_else_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "claims.json"
    for text in ("{}", "nothing", '{"claims": [], "version": 2}', '{"claims": [{"uid": "u"}]}'):
        path.write_text(text)
        with pytest.raises(InputError, match=r"claims\.json: not the claims of this driver"):
            ClaimJournal(path)


def test_a_claim_that_is_gone_before_it_was_prepared_is_given_back(node: Node) -> None:
    claim = some(node.profile("1g.10gb"))
    node.fuse.left = 7  # its instance is there, the specification is not
    with pytest.raises(Crashed):
        node.prepare(claim)
    assert node.instances() == [(0, "1g.10gb", 6)]
    node.remove(claim)
    node.cluster.answers = False
    node.start()
    assert len(node.instances()) == 1  # nobody says that it is gone
    node.cluster.answers = True
    node.look(60)
    assert (node.instances(), node.driver.journal.records()) == ([], ())


@pytest.mark.parametrize("seed", part(range(24)))
def test_no_device_is_prepared_twice_and_none_is_left_whatever_crashes_when(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(seed)
    cards = rng.choice(["2xh100", "h100,l4", "2xh100"])
    node = Node(tmp_path, monkeypatch, cards)
    standing: list[tuple[int, str, int]] = []
    if rng.random() < 0.4:
        node.machine.set_mode(0, True)
        node.machine.create(0, "1g.10gb", 2)
        standing = [(0, "1g.10gb", 2)]
        node.look()
    kubelet = Kubelet(node, rng)
    for _ in range(120):
        kubelet.step()
        assert wrong(node, standing) == []
    assert kubelet.prepared > 5
    assert kubelet.crashes > 3
    kubelet.end()
    assert node.instances() == standing
    assert node.specs() == []
    assert node.driver.journal.records() == ()


def test_a_claim_waits_for_devices_that_are_being_given_back(node: Node) -> None:
    before = some(node.profile("7g.80gb"))
    node.prepare(before)
    node.remove(before)  # its pod has ended, and the kubelet has not let the driver know yet
    after = some(node.profile("7g.80gb"))
    while device_of(after) != device_of(before):
        after = some(node.profile("7g.80gb"))
    node.driver = DraDriver(
        node.machine, node.machine, SimulatedFiles(), node.cdi, node.driver.journal, node.cluster, NODE, print, 30
    )
    node.look()
    node.driver.offer = offered(node.machine, (), node.watch.health, "NoSchedule", on_demand=True)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(node.prepare, after)
        while not asked.running():
            time.sleep(0.01)
        node.unprepare(before)
        assert asked.result(10)[0].device == device_of(before)
