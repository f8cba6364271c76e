"""Resources and labels of a node, by MIG strategy, layout and sharing."""

from __future__ import annotations

import re

import pytest

from tonnage.errors import InputError
from tonnage.facts import gpus, mig
from tonnage.partitioning.device_plugin import Replicas, Replicated, Sharing
from tonnage.partitioning.labels import LabelledNode, NodeGpu, predict, sanitised

SEVEN = ("1g.10gb",) * 7


def sliced(resource: str = "gpu", replicas: int = 4, rename: bool = False) -> Sharing:
    return Sharing(time_slicing=Replicas([Replicated(resource, replicas)], rename))


def mps(replicas: int = 4) -> Sharing:
    return Sharing(mps=Replicas([Replicated("gpu", replicas)]))


def told(node: LabelledNode, resource: str) -> dict[str, str]:
    """The labels of one resource, without its name."""
    start = f"nvidia.com/{resource}."
    return {key.removeprefix(start): value for key, value in node.labels.items() if key.startswith(start)}


WHOLE = {
    "product": "NVIDIA-H100-80GB-HBM3",
    "count": "8",
    "replicas": "1",
    "sharing-strategy": "none",
    "memory": "81559",
    "family": "hopper",
    "compute.major": "9",
    "compute.minor": "0",
    "mode": "compute",
}
INSTANCE = {
    "product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb",
    "replicas": "1",
    "sharing-strategy": "none",
    "memory": "9984",
    "multiprocessors": "16",
    "slices.gi": "1",
    "slices.ci": "1",
    "engines.copy": "1",
    "engines.decoder": "1",
    "engines.encoder": "0",
    "engines.jpeg": "1",
    "engines.ofa": "0",
}


@pytest.mark.parametrize("strategy", ["none", "single", "mixed"])
def test_a_node_without_mig_offers_whole_gpus_under_every_strategy(strategy: str) -> None:
    node = predict([NodeGpu("h100")] * 8, strategy)
    assert node.resources == {"nvidia.com/gpu": 8}
    assert told(node, "gpu") == WHOLE
    assert node.labels["nvidia.com/mig.capable"] == "true"
    assert node.labels.get("nvidia.com/mig.strategy") == (None if strategy == "none" else strategy)
    assert not (node.unknown or node.problems or node.notes)


@pytest.mark.parametrize(
    ("sharing", "resources", "product", "strategy", "capable"),
    [
        (sliced(), {"nvidia.com/gpu": 32}, "NVIDIA-H100-80GB-HBM3-SHARED", "time-slicing", "false"),
        (sliced(rename=True), {"nvidia.com/gpu.shared": 32}, "NVIDIA-H100-80GB-HBM3", "time-slicing", "false"),
        (mps(), {"nvidia.com/gpu": 32}, "NVIDIA-H100-80GB-HBM3-SHARED", "mps", "true"),
    ],
)
def test_a_shared_gpu_says_so_unless_its_resource_has_another_name(
    sharing: Sharing, resources: dict[str, int], product: str, strategy: str, capable: str
) -> None:
    node = predict([NodeGpu("h100")] * 8, sharing=sharing)
    assert node.resources == resources
    expected = {**WHOLE, "product": product, "replicas": "4", "sharing-strategy": strategy}
    assert told(node, "gpu") == expected
    assert node.labels["nvidia.com/mps.capable"] == capable
    assert any("more than one replica is refused" in note for note in node.notes) is (strategy == "mps")


def test_without_a_strategy_mig_is_not_seen() -> None:
    node = predict([NodeGpu("h100", SEVEN)] * 8, "none", sliced())
    assert node.resources == {"nvidia.com/gpu": 32}
    assert told(node, "gpu") == {**WHOLE, "replicas": "0"}
    assert "nvidia.com/mig-1g.10gb.count" not in node.labels
    assert "8 GPUs with MIG on are offered as whole GPUs" in node.notes[-1]


def test_strategy_single_counts_instances_as_gpus() -> None:
    node = predict([NodeGpu("h100", SEVEN)] * 8, "single")
    assert node.resources == {"nvidia.com/gpu": 56}
    kept = {key: WHOLE[key] for key in ("family", "compute.major", "compute.minor", "mode")}
    assert told(node, "gpu") == {**INSTANCE, "count": "56", **kept}
    assert told(node, "mig") == {"capable": "true", "strategy": "single"}


def test_strategy_single_shares_instances_under_the_name_of_gpus() -> None:
    node = predict([NodeGpu("h100", SEVEN)], "single", sliced())
    assert node.resources == {"nvidia.com/gpu": 28}
    assert told(node, "gpu")["product"] == "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb-SHARED"
    assert told(node, "gpu")["replicas"] == "4"


@pytest.mark.parametrize(
    ("cards", "why"),
    [
        ([NodeGpu("h100", SEVEN), NodeGpu("h100")], "MIG is on on some GPUs and off on others"),
        ([NodeGpu("h100", SEVEN), NodeGpu("h100", ())], "a GPU has MIG on and no instance"),
        ([NodeGpu("h100", SEVEN), NodeGpu("h100", ("7g.80gb",))], "instances of several profiles (1g.10gb, 7g.80gb)"),
        ([NodeGpu("h100", ("1g.10gb", "2g.20gb"))], "instances of several profiles (1g.10gb, 2g.20gb)"),
    ],
)
def test_strategy_single_with_unequal_gpus_offers_nothing_and_is_labelled_invalid(
    cards: list[NodeGpu], why: str
) -> None:
    node = predict(cards, "single", sliced())
    assert node.resources == {}
    assert why in node.problems[0]
    labels = told(node, "gpu")
    assert labels["product"] == "NVIDIA-H100-80GB-HBM3-MIG-INVALID"
    assert (labels["count"], labels["replicas"], labels["memory"]) == ("0", "0", "0")
    assert labels["family"] == "hopper"


def test_strategy_mixed_offers_each_profile_beside_whole_gpus() -> None:
    cards = [NodeGpu("h100", ("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"))] * 2 + [NodeGpu("h100")] * 6
    node = predict(cards, "mixed")
    assert node.resources == {
        "nvidia.com/gpu": 6,
        "nvidia.com/mig-1g.10gb": 4,
        "nvidia.com/mig-2g.20gb": 2,
        "nvidia.com/mig-3g.40gb": 2,
    }
    assert told(node, "gpu") == WHOLE  # its count is of all GPUs, with MIG or without
    assert told(node, "mig-1g.10gb") == {**INSTANCE, "count": "4"}
    assert told(node, "mig-3g.40gb")["multiprocessors"] == "60"


def test_strategy_mixed_where_all_gpus_are_cut_offers_no_whole_gpu() -> None:
    node = predict([NodeGpu("h100", SEVEN)] * 8, "mixed", sliced("mig-1g.10gb", 3))
    assert node.resources == {"nvidia.com/mig-1g.10gb": 168}
    assert told(node, "gpu") == {**WHOLE, "replicas": "0"}
    assert told(node, "mig-1g.10gb") == {
        **INSTANCE,
        "count": "56",
        "replicas": "3",
        "product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb-SHARED",
        "sharing-strategy": "time-slicing",
    }


def test_an_empty_mig_gpu_is_noted_with_strategy_mixed() -> None:
    node = predict([NodeGpu("h100", ()), NodeGpu("h100")], "mixed")
    assert (node.resources, node.problems) == ({"nvidia.com/gpu": 1}, [])
    assert node.notes == ["a h100 has MIG on and no instance: it offers nothing"]


def test_attributes_of_a_profile_are_dots_in_resources_and_labels() -> None:
    node = predict([NodeGpu("a100-40", ("1g.5gb+me",))], "mixed", sliced("mig-1g.5gb.me", 2, rename=True))
    assert node.resources == {"nvidia.com/mig-1g.5gb.me.shared": 2}
    labels = told(node, "mig-1g.5gb.me")
    assert labels["product"] == "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb.me"
    assert (labels["engines.ofa"], labels["replicas"]) == ("1", "2")


@pytest.mark.parametrize("profile", [one.name for one in mig.profiles("rtx-pro-6000", plain=False)])
def test_a_profile_without_media_keeps_its_dash(profile: str) -> None:
    [resource] = predict([NodeGpu("rtx-pro-6000", (profile,))], "mixed").resources
    assert resource == "nvidia.com/mig-" + profile.replace("+", ".")
    assert len(resource) <= 63


def test_what_the_tables_do_not_have_is_listed_and_not_made_up() -> None:
    node = predict([NodeGpu("b300", ("1g.34gb",))], "mixed")
    assert "nvidia.com/mig-1g.34gb.memory" in node.unknown
    assert not set(node.unknown) & set(node.labels)


@pytest.mark.parametrize("strategy", ["none", "single"])
def test_mps_on_mig_is_refused(strategy: str) -> None:
    with pytest.raises(InputError, match="MPS on a node with MIG"):
        predict([NodeGpu("h100", SEVEN)], strategy, mps())
    with pytest.raises(InputError, match="MPS with MIG strategy mixed"):
        predict([NodeGpu("h100")], "mixed", mps())


@pytest.mark.parametrize(("gpu", "most"), [("h100", 48), ("v100", 16)])
def test_more_replicas_than_an_mps_server_takes_clients_are_not_offered(gpu: str, most: int) -> None:
    at_most = predict([NodeGpu(gpu)], sharing=mps(most))
    assert (list(at_most.resources.values()), at_most.problems) == ([most], [])
    more = predict([NodeGpu(gpu)], sharing=mps(most + 1))
    assert more.resources == {}
    (problem,) = more.problems
    assert problem.startswith(f"{most + 1} replicas of a GPU, and MPS takes {most} clients on {gpu}; the device plugin")
    assert predict([NodeGpu("h100"), NodeGpu(gpu)], sharing=mps(most + 1)).resources == {}
    assert not any("the node has none" in note for note in more.notes)


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match="unknown GPU 'h10'"):
        predict([NodeGpu("h10")])
    with pytest.raises(InputError, match=r"unknown MIG profile '1g\.11gb'"):
        predict([NodeGpu("h100", ("1g.11gb",))], "mixed")
    with pytest.raises(InputError, match="unknown MIG strategy 'both'"):
        predict([NodeGpu("h100")], "both")
    assert predict([]) == LabelledNode()


def test_a_resource_that_is_shared_and_not_there_is_noted() -> None:
    node = predict([NodeGpu("l40s")], sharing=sliced("mig-1g.10gb"))
    assert node.resources == {"nvidia.com/gpu": 1}
    assert told(node, "gpu")["replicas"] == "1"
    assert node.notes == ["nvidia.com/mig-1g.10gb is shared in the configuration, and the node has none"]


def test_several_models_on_a_node_are_noted() -> None:
    node = predict([NodeGpu("l4"), NodeGpu("t4")])
    assert node.resources == {"nvidia.com/gpu": 2}
    assert "several GPU models (l4, t4)" in node.notes[0]


def test_versions_follow_the_driver() -> None:
    labels = predict([NodeGpu("l4")], driver="580.105.08").labels
    found = {key.removeprefix("nvidia.com/cuda."): v for key, v in labels.items() if "cuda" in key and "full" in key}
    assert found == {"driver-version.full": "580.105.08", "runtime-version.full": "13.0"}
    assert labels["nvidia.com/cuda.driver.rev"] == "08"
    assert labels["nvidia.com/cuda.runtime.major"] == "13"
    with pytest.raises(InputError, match="is not a version"):
        predict([NodeGpu("l4")], driver="new")


def test_every_known_gpu_has_labels_that_kubernetes_takes() -> None:
    value = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
    for gpu in gpus.all():
        layouts = [None, *((one.name,) for one in mig.profiles(gpu.name, plain=False))]
        for layout in layouts:
            node = predict([NodeGpu(gpu.name, layout)], "mixed", sliced(), "570.26")
            for key, text in node.labels.items():
                name = key.partition("/")[2]
                assert len(name) <= 63, key
                assert not text or value.fullmatch(text), (key, text)


def test_a_product_that_is_too_long_for_a_label_is_noted() -> None:
    node = predict([NodeGpu("rtx-pro-6000", ("1g.24gb+me.all",))], "mixed", sliced("mig-1g.24gb.me.all"))
    assert "nvidia.com/mig-1g.24gb.me.all.product" not in node.labels
    assert "is longer than 63 characters" in node.notes[0]


def test_a_name_becomes_the_value_of_a_label() -> None:
    assert sanitised("NVIDIA  A100-SXM4 80GB (rev+a)") == "NVIDIA-A100-SXM4-80GB-reva"


@pytest.mark.parametrize(
    ("gpu", "replicas", "percent", "mib"), [("h100", 4, 25, 20_480), ("l4", 3, 33, 7_629), ("v100", 16, 6, 1_024)]
)
def test_what_each_client_of_mps_has_is_said(gpu: str, replicas: int, percent: int, mib: int) -> None:
    notes = predict([NodeGpu(gpu)], sharing=mps(replicas)).notes
    assert (
        f"MPS: each of {replicas} clients of a {gpu} has {percent} % of the threads and {mib:,} MiB of memory" in notes
    )
