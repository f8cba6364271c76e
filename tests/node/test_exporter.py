"""What a node's exporter serves: names, labels and values of dcgm-exporter, whose pods' they are, and what is absent."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pytest

from tonnage.errors import InputError
from tonnage.facts import dcgm_fields
from tonnage.node.attribution import (
    ClaimDevice,
    ContainerDevices,
    DeviceNames,
    PluginDevices,
    PodHolder,
    by_pod,
    holders,
    names_of,
    unattributed,
)
from tonnage.node.counters import default_counters, read_counters
from tonnage.node.device_health import DeviceHealth, XidSeen
from tonnage.node.devices import GpuProcess
from tonnage.node.exporter import Exposed, NodeExporter
from tonnage.node.simulated import SimulatedMachine
from tonnage.units import NS_PER_S as S

NOW = 1_800_000_000 * S
A, B = PodHolder("team", "a", "main"), PodHolder("team", "b", "main")


def _machine(kind: str = "p5.48xlarge") -> SimulatedMachine:
    return SimulatedMachine(kind, node="n")


def _exporter(machine: SimulatedMachine, health: DeviceHealth | None = None) -> NodeExporter:
    return NodeExporter(machine, health or DeviceHealth(), "n", default_counters())


def _read(
    machine: SimulatedMachine,
    given: Mapping[str, Sequence[PodHolder]] = {},
    health: DeviceHealth | None = None,
    owners: Mapping[int, PodHolder] | None = None,
) -> list[Exposed]:
    return _exporter(machine, health).read(NOW, given, owners)


def _of(samples: list[Exposed], name: str, gpu: int = 0) -> list[Exposed]:
    return [one for one in samples if one.name == name and one.labels["gpu"] == str(gpu)]


def test_every_default_counter_is_served_or_missing_with_its_reason() -> None:
    machine = _machine()
    exporter = _exporter(machine)
    served = {one.name for one in exporter.read(NOW, {})}
    missing = {one.field: one.reason for one in exporter.missing}
    labels = {one.field for one in default_counters() if one.type == "label"}
    assert {one.field for one in default_counters()} == (served | set(missing) | labels) & set(dcgm_fields.all())
    assert not served & set(missing)
    assert missing == {"DCGM_FI_DEV_VGPU_LICENSE_STATUS": "the driver does not say"}


def test_labels_are_dcgm_exporters_in_its_order() -> None:
    machine = _machine()
    (sample,) = _of(_read(machine, {machine.cards()[0].uuid: [A]}), "DCGM_FI_DEV_POWER_USAGE")
    card = machine.cards()[0]
    assert list(sample.labels.items()) == [
        ("gpu", "0"),
        ("UUID", card.uuid),
        ("pci_bus_id", card.pci),
        ("device", "nvidia0"),
        ("modelName", card.product),
        ("Hostname", "n"),
        ("DCGM_FI_DRIVER_VERSION", machine.driver().version),
        ("container", "main"),
        ("namespace", "team"),
        ("pod", "a"),
    ]


def test_activity_follows_the_load_and_power_and_memory_with_it() -> None:
    machine = _machine()
    machine.occupy(1, [GpuProcess(7, "compute", 4096)], load=0.9)
    samples = _read(machine)
    activity = {gpu: _of(samples, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", gpu)[0].value for gpu in (0, 1)}
    assert activity == {0: 0.0, 1: 0.9}
    power = {gpu: _of(samples, "DCGM_FI_DEV_POWER_USAGE", gpu)[0].value for gpu in (0, 1)}
    assert power[1] > 5 * power[0]
    assert _of(samples, "DCGM_FI_DEV_FB_USED", 1)[0].value == 4096


def test_a_mig_instance_has_its_own_memory_and_activity_and_the_card_what_is_the_cards() -> None:
    """NVIDIA/dcgm-exporter 380, 430, 512: on MIG values were missing, or 0."""
    machine = _machine()
    machine.set_mode(0, True)
    small, large = machine.create(0, "1g.10gb", 6), machine.create(0, "3g.40gb", 0)
    machine.occupy(0, [GpuProcess(7, "compute", 1000, large.id, 0)], load=0.5)
    exporter = _exporter(machine)
    samples = exporter.read(NOW, {large.compute[0].uuid: [A]})
    used = {one.labels["GPU_I_PROFILE"]: one for one in _of(samples, "DCGM_FI_DEV_FB_USED")}
    assert {name: one.value for name, one in used.items()} == {"1g.10gb": 0, "3g.40gb": 1000}
    assert used["3g.40gb"].labels["pod"] == "a"
    assert "pod" not in used["1g.10gb"].labels
    assert {one.labels["GPU_I_ID"] for one in used.values()} == {str(small.id), str(large.id)}
    (power,) = _of(samples, "DCGM_FI_DEV_POWER_USAGE")
    assert "GPU_I_ID" not in power.labels, "watts of the card are not those of an instance"
    assert not _of(samples, "DCGM_FI_DEV_GPU_UTIL")
    assert ("GPU 0", "DCGM_FI_DEV_GPU_UTIL", "not of a GPU in MIG mode") in exporter.missing
    share = {one.labels["GPU_I_PROFILE"]: one.value for one in _of(samples, "tonnage_gpu_mig_sm_share")}
    assert share == {"1g.10gb": 16 / 132, "3g.40gb": 60 / 132}, "H100: not sevenths"


def test_a_shared_device_has_a_series_for_each_pod_and_says_that_it_is_shared() -> None:
    machine = _machine()
    uuid = machine.cards()[0].uuid
    machine.occupy(0, [GpuProcess(1, "compute", 100, sm_utilization=20), GpuProcess(2, "compute", 300)], load=0.5)
    samples = _read(machine, {uuid: [A, B]}, owners={1: A, 2: B})
    memory = {one.labels["pod"]: (one.value, one.labels.get("shared")) for one in _of(samples, "DCGM_FI_DEV_FB_USED")}
    assert memory == {"a": (100, None), "b": (300, None)}, "of its own processes: nothing is shared"
    use = {one.labels["pod"]: (one.value, one.labels.get("shared")) for one in _of(samples, "DCGM_FI_DEV_GPU_UTIL")}
    assert use == {"a": (20, None), "b": (50, "true")}
    assert {one.labels.get("shared") for one in _of(samples, "DCGM_FI_DEV_GPU_TEMP")} == {"true"}
    alone = _read(machine, {uuid: [A]})
    assert not [one for one in alone if "shared" in one.labels]


def test_xid_counters_stay_and_the_gauge_clears() -> None:
    """NVIDIA/dcgm-exporter 500: the gauge showed the last Xid for ever."""
    machine, health = _machine(), DeviceHealth()
    gpu = machine.cards()[2].uuid
    health.observe_all([XidSeen(NOW - 400 * S, gpu, 31), XidSeen(NOW - 10 * S, gpu, 119, 3)])
    samples = _read(machine, health=health)
    (last,) = _of(samples, "DCGM_FI_DEV_XID_ERRORS", 2)
    assert (last.value, last.labels["err_code"], last.labels["err_msg"]) == (119, "119", "GSP RPC timeout")
    counts = {one.labels["xid"]: one for one in _of(samples, "tonnage_gpu_xid_errors_total", 2)}
    assert {xid: one.value for xid, one in counts.items()} == {"31": 1, "119": 1}
    assert counts["119"].labels["GPU_I_ID"] == "3"
    seen = {one.labels["xid"]: one.value for one in _of(samples, "tonnage_gpu_xid_last_seen_timestamp_seconds", 2)}
    assert seen == {"31": 1_800_000_000 - 400, "119": 1_800_000_000 - 10}
    assert [one.value for one in _of(samples, "tonnage_gpu_healthy", 2)] == [0]
    assert [one.labels["action"] for one in _of(samples, "tonnage_gpu_fault_cause", 2)] == ["RESET_GPU"]
    later = NodeExporter(machine, health, "n", default_counters()).read(NOW + 600 * S, {})
    assert [one.value for one in _of(later, "DCGM_FI_DEV_XID_ERRORS", 2)] == [0]
    assert len(_of(later, "tonnage_gpu_xid_errors_total", 2)) == 2


def test_a_lost_card_has_no_values_and_says_why() -> None:
    machine = _machine()
    machine.fault(5, lost=True)
    exporter = _exporter(machine)
    samples = exporter.read(NOW, {})
    assert not _of(samples, "DCGM_FI_DEV_POWER_USAGE", 5)
    assert ("GPU 5", "DCGM_FI_DEV_POWER_USAGE", "the GPU is lost") in exporter.missing
    assert _of(samples, "DCGM_FI_DEV_POWER_USAGE", 4)


def test_a_scrape_of_eight_gpus_takes_at_most_20_ms_and_reads_back() -> None:
    machine = _machine()
    exporter = _exporter(machine)
    given = {card.uuid: [A] for card in machine.cards()}
    exporter.text(NOW, given)
    begun = time.process_time()
    for _ in range(5):
        text = exporter.text(NOW, given)
    assert (time.process_time() - begun) / 5 <= 0.02
    parser = pytest.importorskip("prometheus_client.parser")
    families = {one.name: one for one in parser.text_string_to_metric_families(text)}
    assert len(families["DCGM_FI_DEV_GPU_TEMP"].samples) == 8
    assert families["DCGM_FI_DEV_GPU_TEMP"].type == "gauge"
    assert families["DCGM_FI_DEV_GPU_TEMP"].documentation == dcgm_fields.all()["DCGM_FI_DEV_GPU_TEMP"].help
    assert families["DCGM_FI_DEV_GPU_TEMP"].samples[0].labels["pod"] == "a"


# ---- the file of counters ----


def test_a_file_of_counters_is_served_with_its_own_help() -> None:
    text = "# head\n\nDCGM_FI_DEV_GPU_TEMP, gauge, Temperature of it.\nDCGM_EXP_P2P_STATUS, gauge, Peers.\n"
    counters = read_counters(text, "c.csv")
    assert [(one.field, one.type, one.help) for one in counters] == [
        ("DCGM_FI_DEV_GPU_TEMP", "gauge", "Temperature of it."),
        ("DCGM_EXP_P2P_STATUS", "gauge", "Peers."),
    ]
    exporter = NodeExporter(_machine("l4"), DeviceHealth(), "n", counters)
    said = exporter.text(NOW, {})
    assert "# HELP DCGM_FI_DEV_GPU_TEMP Temperature of it.\n# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n" in said
    assert "DCGM_FI_DEV_POWER_USAGE" not in said
    assert [(one.field, one.device) for one in exporter.missing] == [("DCGM_EXP_P2P_STATUS", "")]


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("DCGM_FI_DEV_GPU_TEMP, gauge", "2 fields, expected 3", "double quotes"),
        ("DCGM_FI_DEV_GPU_TEMP, gauge, a, b", "4 fields, expected 3", "double quotes"),
        ("DCGM_FI_DEV_GPU_TEMP, gauges, x", '"gauges", expected one of gauge, counter', "second field"),
        ("DCGM_FI_DEV_GPU_TEMPS, gauge, x", "unknown field DCGM_FI_DEV_GPU_TEMPS", "did you mean DCGM_FI_DEV_GPU_TEMP"),
        ("DCGM_FI_DEV_FB_USED, gauge, x", "DCGM_FI_DEV_FB_USED is there twice", "remove"),
    ],
)
def test_a_wrong_line_is_told_with_file_and_line(line: str, message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        read_counters(f"# x\nDCGM_FI_DEV_FB_USED, gauge, ok\n{line}\n", "c.csv")
    (problem,) = caught.value.problems
    assert message in problem.message
    assert hint in problem.hint
    assert (problem.where.file, problem.where.line) == ("c.csv", 3)


# ---- whose devices ----


def test_containers_are_found_for_gpus_mig_devices_replicas_and_renamed_resources() -> None:
    """NVIDIA/dcgm-exporter 138, 151, 342, 577: pods were missing with replicas and renamed resources."""
    machine = _machine()
    machine.set_mode(7, True)
    made = machine.create(7, "1g.10gb", 0)
    cards, mig = machine.cards(), made.compute[0].uuid

    def one(pod: str, resource: str, *ids: str) -> ContainerDevices:
        return ContainerDevices("team", pod, "c", (PluginDevices(resource, ids),))

    listed = [
        one("whole", "nvidia.com/gpu", cards[0].uuid),
        one("two", "nvidia.com/gpu", cards[1].uuid, cards[2].uuid),
        one("replica-0", "nvidia.com/gpu.shared", f"{cards[3].uuid}::0"),
        one("replica-1", "nvidia.com/gpu.shared", f"{cards[3].uuid}::1"),
        one("renamed", "example.com/fast-gpu", cards[4].uuid),
        one("by-index", "nvidia.com/gpu", "5"),
        one("mig", "nvidia.com/mig-1g.10gb", mig),
        one("nic", "vpc.amazonaws.com/efa", "0"),
    ]
    found = holders(listed, names_of(machine))
    assert {uuid: [user.pod for user in users] for uuid, users in found.items()} == {
        cards[0].uuid: ["whole"],
        cards[1].uuid: ["two"],
        cards[2].uuid: ["two"],
        cards[3].uuid: ["replica-0", "replica-1"],
        cards[4].uuid: ["renamed"],
        cards[5].uuid: ["by-index"],
        mig: ["mig"],
    }
    assert unattributed(listed, names_of(machine)) == []
    assert by_pod(found)["team/two"] == sorted([cards[1].uuid, cards[2].uuid])


def test_claims_are_found_by_the_names_of_the_dra_driver() -> None:
    machine = _machine()
    machine.set_mode(7, True)
    made = machine.create(7, "1g.10gb", 2)

    def one(pod: str, device: str, driver: str = "gpu.nvidia.com") -> ContainerDevices:
        return ContainerDevices("team", pod, "c", claims=(ClaimDevice(f"team/{pod}", driver, "n", device),))

    profile = f"gpu-7-mig-1g10gb-{made.profile_id}-2"
    listed = [one("gpu", "gpu-0"), one("mig", profile), one("other", "gpu-1", "x.example"), one("gone", "gpu-9")]
    found = holders(listed, names_of(machine))
    assert found == {
        machine.cards()[0].uuid: (PodHolder("team", "gpu", "c", "team/gpu"),),
        made.compute[0].uuid: (PodHolder("team", "mig", "c", "team/mig"),),
    }
    (said,) = unattributed(listed, names_of(machine))
    assert "team/gone, container c: claim team/gone has a device that is not here: gpu-9" in said
    (sample,) = _of(_read(machine, found), "DCGM_FI_DEV_GPU_TEMP")
    assert (sample.labels["dra_claim_name"], sample.labels["dra_claim_namespace"]) == ("gpu", "team")


def test_ids_that_name_no_device_are_said_with_the_pod() -> None:
    listed = [ContainerDevices("team", "p", "c", (PluginDevices("nvidia.com/gpu", ("GPU-gone",)),))]
    (said,) = unattributed(listed, [DeviceNames("GPU-here")])
    assert said == "team/p, container c: nvidia.com/gpu has ids that name no device here: GPU-gone"
