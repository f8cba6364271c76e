"""What labels and named configurations make of a node's GPUs, before the node exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import fleet, pod
from tonnage.errors import InputError
from tonnage.facts import gpus, instances, mig
from tonnage.facts.labels import GPU, MIG_CONFIG
from tonnage.fleet.asks import SHARED_GPU
from tonnage.fleet.devices import OPEN, How, replica
from tonnage.fleet.invariants import violations
from tonnage.fleet.outfit import REPLICAS_LABEL, STRATEGY_LABEL, offered
from tonnage.fleet.state import Conflict, FleetNode
from tonnage.objects import core, load
from tonnage.partitioning.configurations import read
from tonnage.partitioning.labels import NodeGpu, predict
from tonnage.partitioning.mig_cards import known_configs
from tonnage.partitioning.node_cuts import (
    MIG_STATE,
    MIG_STRATEGY,
    OWN,
    PLUGIN_CONFIG,
    Configurations,
    NodeCuts,
    cut_node,
)

MIXED = {MIG_STRATEGY: "mixed"}

MAPS = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: custom-mig-config}
data:
  config.yaml: |
    version: v1
    mig-configs:
      two-cut:
        - devices: [0, 1]
          mig-enabled: true
          mig-devices: {3g.40gb: 2}
      eighths:
        - devices: all
          mig-enabled: true
          mig-devices: {1g.10gb: 8}
      big-cards:
        - device-filter: "0x233510DE"
          devices: all
          mig-enabled: true
          mig-devices: {1g.18gb: 7}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: device-plugin-config}
data:
  default: |
    version: v1
    flags: {migStrategy: mixed}
  shared: |
    version: v1
    sharing:
      timeSlicing:
        renameByDefault: true
        resources: [{name: nvidia.com/gpu, replicas: 4}]
  sliced: |
    version: v1
    sharing:
      timeSlicing:
        resources: [{name: nvidia.com/gpu, replicas: 3}]
  mps: |
    version: v1
    sharing:
      mps:
        resources: [{name: nvidia.com/gpu, replicas: 5}]
  small: |
    version: v1
    sharing:
      timeSlicing:
        resources: [{name: nvidia.com/mig-1g.10gb, replicas: 2}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: of-another-program}
data:
  script.sh: |
    echo {{ not: [yaml
  settings: "version: v1"
"""


def config_maps(folder: Path, text: str) -> tuple[core.ConfigMap, ...]:
    file = folder / "maps.yaml"
    file.write_text(text, encoding="utf-8")
    return load.read([file]).of(core.ConfigMap)


def line_of(text: str) -> int:
    """The first line of the maps with this text."""
    return next(number for number, line in enumerate(MAPS.splitlines(), 1) if text in line)


@pytest.fixture
def maps(tmp_path: Path) -> Configurations:
    return read(config_maps(tmp_path, MAPS))


def why(made: NodeCuts) -> str:
    """The only problem, as a user reads it."""
    (problem,) = made.problems
    assert not made.cuts and not made.offers
    return str(problem)


def test_a_node_without_such_labels_has_whole_gpus() -> None:
    assert cut_node(OWN, {}, "h100", 8) == NodeCuts(offers={GPU: 8})
    assert cut_node(OWN, {MIG_CONFIG: "all-disabled"}, "h100", 8) == NodeCuts(offers={GPU: 8})


@pytest.mark.parametrize(
    ("name", "offers"),
    [
        ("all-1g.10gb", {"nvidia.com/mig-1g.10gb": 56}),
        ("all-1g.10gb.me", {"nvidia.com/mig-1g.10gb.me": 8}),
        ("all-1g.20gb", {"nvidia.com/mig-1g.20gb": 32}),
        ("all-3g.40gb", {"nvidia.com/mig-3g.40gb": 16}),
        ("all-7g.80gb", {"nvidia.com/mig-7g.80gb": 8}),
        ("all-balanced", {"nvidia.com/mig-1g.10gb": 16, "nvidia.com/mig-2g.20gb": 8, "nvidia.com/mig-3g.40gb": 8}),
        ("all-enabled", {}),
    ],
)
def test_with_strategy_mixed_each_profile_is_a_resource(name: str, offers: dict[str, int]) -> None:
    made = cut_node(OWN, {MIG_CONFIG: name, **MIXED}, "h100", 8)
    assert made.offers == offers == offered(made.cuts, GPU)
    assert {cut.how for cut in made.cuts} == {How.MIG} and len(made.cuts) == 8
    assert made.instances == sum(offers.values())
    assert made.labels[MIG_STATE] == "success"


def test_strategy_single_is_the_default_and_counts_instances_as_gpus() -> None:
    made = cut_node(OWN, {MIG_CONFIG: "all-1g.10gb"}, "h100", 8)
    assert made.offers == {GPU: 56} == offered(made.cuts, GPU)
    assert made.labels["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"
    assert made.labels["nvidia.com/gpu.count"] == "56"
    profile, card = mig.get("h100", "1g.10gb"), gpus.get("h100")
    piece = replica(made.cuts[0], 0, card.memory_mib)
    assert (piece.what, piece.milli, piece.mib) == (profile.resource, 142, profile.usable_mib(card))


def test_strategy_single_refuses_unequal_instances_and_says_what_to_do() -> None:
    made = cut_node(OWN, {MIG_CONFIG: "all-balanced"}, "h100", 8)
    assert why(made).startswith(f"{MIG_CONFIG}: strategy single: instances of several profiles")
    assert f"label the nodes {MIG_STRATEGY}: mixed" in made.problems[0].hint


def test_strategy_none_offers_gpus_whole_whatever_is_on_them() -> None:
    made = cut_node(OWN, {MIG_CONFIG: "all-1g.10gb", MIG_STRATEGY: "none"}, "h100", 8)
    assert (made.cuts, made.offers) == ((), {GPU: 8})


def test_gpus_that_no_entry_is_for_stay_whole(maps: Configurations) -> None:
    made = cut_node(maps, {MIG_CONFIG: "two-cut"}, "h100", 4)
    assert made.offers == {GPU: 2, "nvidia.com/mig-3g.40gb": 4}
    assert made.cuts[2:] == (OPEN, OPEN)
    other_board = cut_node(maps, {MIG_CONFIG: "big-cards"}, "h100", 4)
    assert other_board.offers == {GPU: 4}
    assert cut_node(maps, {MIG_CONFIG: "big-cards"}, "h200", 4).offers == {"nvidia.com/mig-1g.18gb": 28}


def test_the_device_plugin_takes_its_default_and_a_label_goes_before_its_file(maps: Configurations) -> None:
    balanced = {MIG_CONFIG: "all-balanced"}
    assert cut_node(maps, balanced, "h100", 1).labels[MIG_STRATEGY] == "mixed"
    assert "strategy single" in why(cut_node(maps, {**balanced, MIG_STRATEGY: "single"}, "h100", 1))


def test_replicas_are_renamed_where_the_configuration_says_so(maps: Configurations) -> None:
    made = cut_node(maps, {PLUGIN_CONFIG: "shared"}, "h100", 8)
    assert made.offers == {SHARED_GPU: 32} == offered(made.cuts, GPU)
    assert made.labels["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    kept = cut_node(maps, {PLUGIN_CONFIG: "sliced"}, "h100", 8)
    assert kept.offers == {GPU: 24}
    assert kept.labels["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3-SHARED"
    assert (kept.labels["nvidia.com/gpu.replicas"], kept.labels["nvidia.com/gpu.sharing-strategy"]) == (
        "3",
        "time-slicing",
    )
    assert MIG_STATE not in kept.labels


def test_replicas_of_mps_keep_memory_apart_and_come_one_to_a_container(maps: Configurations) -> None:
    (cut,) = set(cut_node(maps, {PLUGIN_CONFIG: "mps"}, "l40s", 4).cuts)
    assert (cut.how, cut.replicas, cut.isolated, cut.one_each) == (How.REPLICAS, 5, True, True)
    (sliced,) = set(cut_node(maps, {PLUGIN_CONFIG: "sliced"}, "l40s", 4).cuts)
    assert (sliced.isolated, sliced.one_each) == (False, False)


def test_instances_of_strategy_single_are_shared_too(maps: Configurations) -> None:
    made = cut_node(maps, {MIG_CONFIG: "all-1g.10gb", MIG_STRATEGY: "single", PLUGIN_CONFIG: "sliced"}, "h100", 2)
    assert made.offers == {GPU: 42} == offered(made.cuts, GPU)
    piece = replica(made.cuts[0], 0, gpus.get("h100").memory_mib)
    assert (piece.milli, piece.mib) == (142 // 3, 0)  # nobody keeps the memory of an instance apart


@pytest.mark.parametrize("name", ["all-1g.10gb", "all-1g.20gb", "all-2g.20gb", "all-3g.40gb", "all-7g.80gb"])
def test_instances_given_as_gpus_hold_what_they_are_and_never_more_than_the_card(name: str) -> None:
    made = cut_node(OWN, {MIG_CONFIG: name}, "h100", 2)
    there = fleet(
        FleetNode("n", {GPU: made.offers[GPU], "cpu": 99_000, "pods": 99}, {}, device_resource=GPU, cuts=made.cuts)
    )
    waiting = [there.add_pod(pod(f"p{i}", 0.1, 0, 1)) for i in range(made.offers[GPU] + 1)]
    for row in waiting[:-1]:
        there.bind(row, 0)
    with pytest.raises(Conflict):
        there.bind(waiting[-1], 0)
    assert violations(there) == []
    profile, card = mig.get("h100", name.removeprefix("all-")), gpus.get("h100")
    pieces = [there.pod(row).pieces[0] for row in waiting[:-1]]
    assert {(one.what, one.mib) for one in pieces} == {(profile.resource, profile.usable_mib(card))}
    for device in range(2):
        on_it = [one for one in pieces if one.device == device]
        assert len(on_it) == made.instances // 2
        assert sum(one.milli for one in on_it) <= 1000 and sum(one.mib for one in on_it) <= card.memory_mib
    for row in waiting[:-1]:
        there.unbind(row)
    assert int(there.cards.milli[0].sum()) == 2000 and violations(there) == []


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ({MIG_CONFIG: "all-1g.11gb"}, f"{MIG_CONFIG}: unknown MIG configuration 'all-1g.11gb' (did you mean"),
        ({MIG_CONFIG: "two-cuts"}, f"{MIG_CONFIG}: unknown MIG configuration 'two-cuts' (did you mean two-cut?"),
        ({MIG_CONFIG: "nothing-like-it"}, "no ConfigMap of the manifests has it for mig-parted"),
        (
            {PLUGIN_CONFIG: "shard"},
            f"{PLUGIN_CONFIG}: unknown device-plugin configuration 'shard' (did you mean shared?",
        ),
        ({MIG_STRATEGY: "mix"}, f"{MIG_STRATEGY}: unknown MIG strategy 'mix' (did you mean mixed?"),
        ({MIG_CONFIG: "eighths"}, "h100 cannot hold 8 x 1g.10gb of configuration eighths: at most 7 x 1g.10gb fit"),
        (
            {MIG_CONFIG: "all-1g.5gb"},
            f"{MIG_CONFIG}: h100 cannot hold 7 x 1g.5gb of configuration all-1g.5gb: it has no",
        ),
        ({MIG_CONFIG: "all-1g.10gb", PLUGIN_CONFIG: "mps", MIG_STRATEGY: "single"}, "MPS on a node with MIG"),
        ({PLUGIN_CONFIG: "mps", MIG_STRATEGY: "mixed"}, "MPS with MIG strategy mixed"),
        (
            {REPLICAS_LABEL: "60", STRATEGY_LABEL: "mps", MIG_STRATEGY: "single"},
            f"{REPLICAS_LABEL}: 60 replicas on h100",
        ),
        ({MIG_CONFIG: "all-1g.10gb", PLUGIN_CONFIG: "small", **MIXED}, "replicas of nvidia.com/mig-1g.10gb are not"),
    ],
)
def test_what_cannot_be_says_why(maps: Configurations, labels: dict[str, str], text: str) -> None:
    assert text in why(cut_node(maps, labels, "h100", 8))


def test_a_layout_that_a_card_cannot_have_is_said_with_the_line_of_its_configuration(maps: Configurations) -> None:
    (problem,) = cut_node(maps, {MIG_CONFIG: "eighths"}, "h100", 8).problems
    assert (Path(problem.where.file).name, problem.where.line) == ("maps.yaml", line_of("1g.10gb: 8"))
    assert problem.where.field == "mig-configs.eighths[0].mig-devices"


def test_where_the_config_maps_are_not_at_hand_another_name_says_nothing() -> None:
    labels = {MIG_CONFIG: "of-this-cluster", PLUGIN_CONFIG: "likewise"}
    assert cut_node(OWN, labels, "h100", 8) == NodeCuts(offers={GPU: 8})


def test_a_gpu_without_mig_stays_whole(maps: Configurations) -> None:
    assert cut_node(maps, {MIG_CONFIG: "all-1g.10gb"}, "l40s", 4).offers == {GPU: 4}


def test_config_maps_of_other_programs_are_passed_over(maps: Configurations) -> None:
    assert set(maps.mig) == {"two-cut", "eighths", "big-cards"}
    assert set(maps.plugin) == {"default", "shared", "sliced", "mps", "small"}


def test_a_configuration_that_its_program_refuses_has_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(config_maps(tmp_path, MAPS.replace("replicas: 4", "replicas: 1")))
    (problem,) = caught.value.problems
    assert (Path(problem.where.file).name, problem.where.line) == ("maps.yaml", line_of("replicas: 4"))
    assert "1: expected 2 or more" in problem.message


def test_a_name_in_two_config_maps_is_refused_where_a_label_names_it_and_they_differ(tmp_path: Path) -> None:
    again = MAPS.split("---")[0].replace("custom-mig-config", "another")
    twins = read(config_maps(tmp_path, f"{MAPS}---\n{again}"))
    assert cut_node(twins, {MIG_CONFIG: "two-cut"}, "h100", 2).offers == {"nvidia.com/mig-3g.40gb": 4}
    other = read(config_maps(tmp_path, f"{MAPS}---\n{again.replace('3g.40gb: 2', '3g.40gb: 1')}"))
    assert cut_node(other, {}, "h100", 2).offers == {GPU: 2}
    problem = why(cut_node(other, {MIG_CONFIG: "two-cut"}, "h100", 2))
    assert problem.startswith(f"{MIG_CONFIG}: configuration 'two-cut' is one thing in a ConfigMap and another")
    assert "maps.yaml:8 and" in problem


CARDS = sorted({one.gpu for one in instances.all() if one.resource == GPU})


@pytest.mark.parametrize("strategy", ["single", "mixed"])
def test_devices_give_what_the_device_plugin_offers_for_every_card_and_configuration(strategy: str) -> None:
    seen = 0
    for gpu in CARDS:
        for name in known_configs().configs:
            made = cut_node(OWN, {MIG_CONFIG: name, MIG_STRATEGY: strategy}, gpu, 2)
            if made.problems or not made.cuts:
                continue
            seen += 1
            assert offered(made.cuts, GPU) == made.offers, (gpu, name)
            profiles = [
                tuple(resource.removeprefix("nvidia.com/mig-") for resource, _ in cut.instances or ())
                for cut in made.cuts
            ]
            names = {one.resource.removeprefix("nvidia.com/mig-"): one.name for one in mig.profiles(gpu, plain=False)}
            cards = [NodeGpu(gpu, tuple(names[one] for one in held)) for held in profiles]
            assert predict(cards, strategy).resources == made.offers
    assert seen > 30
