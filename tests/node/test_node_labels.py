"""Labels of a node with cards of its own: formats of GPU feature discovery, stable where models are mixed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tonnage.cli import main
from tonnage.node.devices import Fabric
from tonnage.node.features import as_features, as_node_feature, node_labels, seen_cards
from tonnage.node.simulated import SimulatedMachine
from tonnage.partitioning.device_plugin import Replicas, Replicated, Sharing
from tonnage.partitioning.labels import NodeGpu, predict

FORMATS = {
    r"nvidia\.com/gfd\.timestamp": r"\d{10}",
    r"nvidia\.com/cuda\.driver(-version)?\.(major|minor|rev|revision)": r"\d+",
    r"nvidia\.com/cuda\.driver-version\.full": r"\d+\.\d+(\.\d+)?",
    r"nvidia\.com/cuda\.runtime(-version)?\.(major|minor)": r"\d+",
    r"nvidia\.com/cuda\.runtime-version\.full": r"\d+\.\d+",
    r"nvidia\.com/gpu\.machine": r"[A-Za-z0-9._-]+",
    r"nvidia\.com/(gpu|mig-[\w.]+)\.product": r"[A-Za-z0-9._-]+",
    r"nvidia\.com/(gpu|mig-[\w.]+)\.(count|replicas|memory)": r"\d+",
    r"nvidia\.com/(gpu|mig-[\w.]+)\.sharing-strategy": r"none|time-slicing|mps",
    r"nvidia\.com/gpu\.family": r"ampere|hopper|ada-lovelace|blackwell",
    r"nvidia\.com/gpu\.compute\.(major|minor)": r"\d+",
    r"nvidia\.com/gpu\.mode": r"compute|graphics|unknown",
    r"nvidia\.com/(gpu|mig-[\w.]+)\.(multiprocessors|slices\.[gc]i|engines\.\w+)": r"\d+",
    r"nvidia\.com/(mig|mps)\.capable": r"true|false",
    r"nvidia\.com/mig\.strategy": r"single|mixed",
    r"nvidia\.com/vgpu\.present": r"false",
    r"tonnage\.dev/gpu-[a-z0-9-]+\.(count|memory|product)": r"[A-Za-z0-9._-]+",
}


def well_formed(labels: dict[str, str]) -> None:
    for key, value in labels.items():
        pattern = next((value for name, value in FORMATS.items() if re.fullmatch(name, key)), None)
        assert pattern is not None, key
        assert re.fullmatch(pattern, value), f"{key}={value}"
        assert len(value) <= 63


@pytest.mark.parametrize("cards", ["p5.48xlarge", "g6.12xlarge", "2xa100-40,2xh100", "b200,l4,a30"])
@pytest.mark.parametrize("strategy", ["none", "mixed"])
def test_every_label_has_the_format_of_gpu_feature_discovery(cards: str, strategy: str) -> None:
    machine = SimulatedMachine(cards)
    if strategy == "mixed" and machine.mig(0) is not None:
        machine.set_mode(0, True)
        machine.reset(0)
        machine.create(0, machine.profiles(0)[0].name, 0)
    found = node_labels(machine, strategy, machine="HPE ProLiant (Gen11)", timestamp_s=1_790_000_000)
    well_formed(found.labels)
    assert found.labels["nvidia.com/gpu.machine"] == "HPE-ProLiant-Gen11"
    assert found.unknown == []


def test_single_replaces_and_mixed_adds_and_shared_says_so() -> None:
    machine = SimulatedMachine("h100")
    machine.set_mode(0, True)
    for start in range(7):
        machine.create(0, "1g.10gb", start)
    single = node_labels(machine, "single").labels
    assert single["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"
    assert (single["nvidia.com/gpu.count"], single["nvidia.com/gpu.multiprocessors"]) == ("7", "16")
    mixed = node_labels(machine, "mixed").labels
    assert (mixed["nvidia.com/gpu.count"], mixed["nvidia.com/gpu.replicas"]) == ("1", "0")
    assert mixed["nvidia.com/mig-1g.10gb.count"] == "7"
    shared = Sharing(time_slicing=Replicas([Replicated("gpu", 4)]))
    plain = node_labels(SimulatedMachine("l4"), "none", shared).labels
    assert plain["nvidia.com/gpu.product"] == "NVIDIA-L4-SHARED"
    assert (plain["nvidia.com/gpu.replicas"], plain["nvidia.com/gpu.sharing-strategy"]) == ("4", "time-slicing")


def test_a_mixed_node_has_the_same_labels_in_any_order_of_cards_and_some_for_each_model() -> None:
    one = node_labels(SimulatedMachine("l4,2xh100,a30")).labels
    other = node_labels(SimulatedMachine("2xh100,a30,l4")).labels
    assert one == other
    assert {key: value for key, value in one.items() if key.endswith(".count")} == {
        "nvidia.com/gpu.count": "1",
        "tonnage.dev/gpu-a30.count": "1",
        "tonnage.dev/gpu-h100.count": "2",
        "tonnage.dev/gpu-l4.count": "1",
    }


def test_it_is_what_is_predicted_for_such_a_node() -> None:
    machine = SimulatedMachine("p5.48xlarge")
    cards = [NodeGpu("h100") for _ in range(8)]
    predicted = predict(cards, "none", driver=machine.driver().version)
    found = node_labels(machine)
    assert predicted.labels.items() <= found.labels.items()
    assert predicted.resources == found.resources == {"nvidia.com/gpu": 8}
    assert [card.model for card in seen_cards(machine)] == ["h100"] * 8


def test_a_model_that_no_table_has_is_labelled_by_what_it_says() -> None:
    card = NodeGpu("", None, "NVIDIA X1000 (Test)", 12_345, (9, 0), mig=False)
    labels = predict([card], driver="580.1.2", runs=(13, 0)).labels
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-X1000-Test"
    assert (labels["nvidia.com/gpu.memory"], labels["nvidia.com/gpu.family"]) == ("12345", "hopper")
    assert labels["nvidia.com/mig.capable"] == "false"


def test_the_clique_is_said_where_all_cards_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = SimulatedMachine("2xh100")
    uuid = "8b1f2c3d-0000-4000-8000-000000000001"
    monkeypatch.setattr(machine, "fabric", lambda _: Fabric(uuid, 7, 3))
    assert node_labels(machine).labels["nvidia.com/gpu.clique"] == f"{uuid}.7"
    monkeypatch.setattr(machine, "fabric", lambda card: Fabric(uuid, card, 3))
    assert "nvidia.com/gpu.clique" not in node_labels(machine).labels


def run(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["agent", *arguments])
    out, err = capfd.readouterr()
    return int(ended.value.code or 0), out, err


def test_they_are_printed_written_for_nfd_or_as_a_node_feature(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    common = ("labels", "--simulated", "2xh100", "--no-timestamp", "--node", "n1")
    code, out, _ = run(capfd, *common, "--print")
    assert code == 0
    labels = dict(line.split("=", 1) for line in out.splitlines())
    file = tmp_path / "features.d" / "tonnage"
    file.parent.mkdir()
    code, nothing, _ = run(capfd, *common, "--features-file", str(file))
    assert (code, nothing) == (0, "")
    assert file.read_text() == out == as_features(labels)
    made: dict[str, Any] = json.loads(run(capfd, *common, "-o", "nodefeature")[1])
    assert made == as_node_feature("n1", "gpu-operator", labels)
    assert made["metadata"]["labels"] == {"nfd.node.kubernetes.io/node-name": "n1"}
    answer = json.loads(run(capfd, *common, "-o", "json")[1])
    assert answer["labels"] == labels


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("version: v2\n", "plugin.yaml:1:version"),
        ("version: v1\nflags:\n  migStrategy: some\n", "plugin.yaml:3:flags.migStrategy"),
        ("version: v1\nsharing:\n  timeSlicing:\n    resources: []\n", "sharing.timeSlicing.resources"),
    ],
)
def test_a_wrong_configuration_is_refused_with_its_place(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], config: str, said: str
) -> None:
    path = tmp_path / "plugin.yaml"
    path.write_text(config)
    code, _, err = run(capfd, "labels", "--simulated", "l4", "--config", str(path))
    assert code == 2
    assert said in err


def test_a_state_without_simulated_cards_and_cards_that_are_not_there_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    state = str(tmp_path / "state.json")
    assert run(capfd, "labels", "--state", state)[0] == 2
    code, _, err = run(capfd, "inject", "--simulated", "2xl4", "--state", state, "--card", "2", "--xid", "79")
    assert (code, "2xl4 has 2 cards" in err) == (2, True)
    code, _, err = run(capfd, "inject", "--simulated", "l4", "--state", state + "1", "--card", "0", "--mig", "off")
    assert (code, "has no MIG" in err) == (2, True)


def test_what_is_injected_is_seen_by_others(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    state = tmp_path / "state.json"
    machine = SimulatedMachine("l4", state=state)
    common = ("inject", "--simulated", "l4", "--state", str(state), "--card", "0")
    assert run(capfd, *common, "--load", "0.5", "--throttle", "sw_power_cap", "--pcie-width", "8")[0] == 0
    assert (machine.measure(0).gpu_utilization, machine.condition(0).throttle) == (50, ("sw_power_cap",))
    assert machine.pcie(0).width == 8
    assert run(capfd, *common, "--lost", "--xid", "79")[0] == 0
    assert machine.condition(0).lost
    assert run(capfd, *common, "--reset")[0] == 2
    assert run(capfd, *common, "--reboot")[0] == 0
    assert not machine.condition(0).lost


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "nothing to inject"),
        (("--load", "nan"), "nan is not a usable number"),
        (("--throttle", "swpowercap"), "did you mean sw_power_cap?"),
        (("--pcie-width", "3"), "expected one of 1, 2, 4, 8, 12, 16"),
        (("--gpu-instance", "1", "--lost"), "only an Xid is of a GPU instance"),
        (("--gpu-instance", "2", "--xid", "94"), "card 0 has no GPU instance 2 (it has 1)"),
    ],
)
def test_what_no_card_can_have_is_not_injected(
    given: tuple[str, ...], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state.json"
    common = ("--simulated", "h100", "--state", str(state))
    assert run(capfd, "inject", *common, "--card", "0", "--mig", "1g.10gb")[0] == 0
    before = state.read_bytes()
    code, _, err = run(capfd, "inject", *common, "--card", "0", *given)
    assert (code, said in err) == (2, True), err
    assert state.read_bytes() == before
    assert run(capfd, "labels", *common)[0] == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("labels", "--simulated", "0xh100"), "--simulated: '0xh100' is no card"),
        (("labels", "--simulated", "h100", "--state", "/proc/none/x"), "/proc/none/x: the state cannot be kept in it"),
        (("labels", "--simulated", "h100", "-o", "nodefeature", "--node", "A b"), "--node: 'A b'"),
        (("labels", "--simulated", "h100", "-o", "nodefeature", "--namespace", "A b"), "--namespace: 'A b'"),
        (("health", "--simulated", "h100", "--settle", "inf"), "'--settle': inf is not a usable number"),
        (("doctor", "--simulated", "h100", "--window", "nan"), "'--window': nan is not a usable number"),
        (("health", "--simulated", "h100", "--file", "/proc/none/x"), "/proc/none/x: faults cannot be kept in it"),
        (("mig", "--simulated", "h100", "--folder", "/proc/none", "--apply", "all-disabled"), "/proc/none: no journal"),
    ],
)
def test_what_cannot_be_is_refused_by_its_option(
    given: tuple[str, ...], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capfd, *given)
    assert (code, said in err) == (2, True), err


def test_a_label_file_that_is_written_again_warns_once_of_what_stays_wrong(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = SimulatedMachine("2xh100", state=tmp_path / "state.json")
    machine.set_mode(0, True)
    turns = iter([None, None])

    def later(_: float) -> None:
        if next(turns, "end") == "end":
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", later)
    given = ("--state", str(tmp_path / "state.json"), "--features-file", str(tmp_path / "gfd"), "--every", "60")
    _, _, err = run(capfd, "labels", "--simulated", "2xh100", "--mig-strategy", "single", *given)
    assert err.count("warning: strategy single") == 1
    assert "nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3-MIG-INVALID" in (tmp_path / "gfd").read_text()
