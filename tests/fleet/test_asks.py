"""What a pod asks of devices, read from its annotations and resources."""

from __future__ import annotations

from typing import Any

import pytest

from builders import GPU, pod
from tonnage.fleet.asks import NOTHING, Ask, Kind, worth
from tonnage.fleet.state import Fleet

MIG = "nvidia.com/mig-1g.10gb"


def ask(gpus: int = 0, resources: dict[str, str] | None = None, **annotations: str) -> Ask:
    made = Fleet()
    written = {name.replace("_", "-"): value for name, value in annotations.items()}
    row = made.add_pod(pod("p", gpus=gpus, resources=resources, annotations=written))
    return made.classes.shapes[made.pod_class(row).shape].ask


def containers(*amounts: dict[str, str]) -> Ask:
    written = [{"name": f"c{i}", "resources": {"limits": one}} for i, one in enumerate(amounts)]
    made = Fleet()
    row = made.add_pod(pod("p", containers=written))
    return made.classes.shapes[made.pod_class(row).shape].ask


def test_a_pod_without_devices_asks_for_nothing() -> None:
    assert ask() == NOTHING
    assert ask(other="x") == NOTHING


def test_whole_devices_are_asked_for_by_resource() -> None:
    assert ask(gpus=2) == Ask(Kind.WHOLE, GPU, 2, 1000)
    assert ask(resources={"amd.com/gpu": "1"}) == Ask(Kind.WHOLE, "amd.com/gpu", 1, 1000)
    assert ask(resources={"aws.amazon.com/neuron": "1"}) == Ask(Kind.WHOLE, "aws.amazon.com/neuron", 1, 1000)
    assert ask(resources={"vpc.amazonaws.com/efa": "1"}) == NOTHING
    assert ask(gpus=2).gpu_milli == 2000


@pytest.mark.parametrize(
    ("written", "milli"), [("0.5", 500), ("0.81", 810), ("0.001", 1), ("0.3333", 334), (" .25 ", 250), ("1e-2", 10)]
)
def test_a_fraction_is_kept_in_thousandths_and_never_rounded_down(written: str, milli: int) -> None:
    assert ask(gpu_fraction=written) == Ask(Kind.SHARE, GPU, 1, milli)


def test_a_fraction_may_be_of_several_devices() -> None:
    found = ask(gpu_fraction="0.5", gpu_fraction_num_devices="3")
    assert (found.count, found.milli, found.gpu_milli) == (3, 500, 1500)


def test_memory_is_asked_for_in_mib() -> None:
    assert ask(gpu_memory="2000") == Ask(Kind.MEMORY, GPU, 1, mib=2000)


@pytest.mark.parametrize(
    ("asked", "milli"),
    [
        (ask(gpus=2), 2000),
        (ask(gpu_fraction="0.5", gpu_fraction_num_devices="3"), 1500),
        (ask(gpu_memory="20000"), 250),
        (ask(gpu_memory="90000"), 1000),
        (ask(resources={GPU: "2", "nvidia.com/gpumem-percentage": "30"}), 600),
        (ask(resources={"nvidia.com/gpucores": "50", "nvidia.com/gpumem": "8000"}), 500),
        (ask(resources={"nvidia.com/mig-3g.40gb": "2"}), 856),
        (ask(resources={"nvidia.com/mig-1g.6gb": "1", GPU: "1"}), 1250),
        (ask(), 0),
    ],
)
def test_what_an_ask_is_worth_is_the_same_on_every_node(asked: Ask, milli: int) -> None:
    assert worth(asked, 80000) == milli


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"gpu_fraction": "1"}, "gpu-fraction '1' is not a number between 0 and 1"),
    ({"gpu_fraction": "0"}, "gpu-fraction '0' is not a number between 0 and 1"),
    ({"gpu_fraction": "-0.5"}, "gpu-fraction '-0.5' is not a number between 0 and 1"),
    ({"gpu_fraction": "half"}, "gpu-fraction 'half' is not a number between 0 and 1"),
    ({"gpu_fraction": "nan"}, "gpu-fraction 'nan' is not a number between 0 and 1"),
    ({"gpu_fraction": ""}, "gpu-fraction '' is not a number between 0 and 1"),
    ({"gpu_fraction": "9" * 99}, f"gpu-fraction '{'9' * 40}…' is not a number between 0 and 1"),
    ({"gpu_fraction": "0.99999"}, "gpu-fraction '0.99999' is all of the device: request it whole"),
    ({"gpu_memory": "0"}, "gpu-memory '0' is not a whole number from 1 to 1073741824"),
    ({"gpu_memory": "1Gi"}, "gpu-memory '1Gi' is not a whole number from 1 to 1073741824"),
    ({"gpu_memory": "9", "gpu_fraction": "0.5"}, "gpu-fraction and gpu-memory exclude each other"),
    ({"gpu_fraction_num_devices": "2"}, "gpu-fraction-num-devices is of no use without gpu-fraction"),
    ({"gpu_fraction": "0.5", "gpu_fraction_num_devices": "0"}, "gpu-fraction-num-devices '0' is not a whole number"),
    ({"gpu_fraction": "0.5", "gpus": 1}, "a GPU fraction cannot be combined with a request for a whole GPU"),
    (
        {"gpu_memory": "5", "resources": {MIG: "1"}},
        "a GPU fraction cannot be combined with a request for MIG instances",
    ),
    ({"resources": {MIG: "1", "nvidia.com/gpumem": "5"}}, "GPU memory cannot be combined with MIG instances"),
    ({"gpus": 1, "resources": {"nvidia.com/gpucores": "101"}}, "nvidia.com/gpucores 101 is more than 100 per cent"),
    ({"resources": {"nvidia.com/gpumem-percentage": "150"}}, "nvidia.com/gpumem-percentage 150 is more than 100"),
]


@pytest.mark.parametrize(("written", "why"), REFUSED, ids=[why[:40] for _, why in REFUSED])
def test_what_makes_no_sense_is_refused_with_the_reason(written: dict[str, Any], why: str) -> None:
    assert ask(**written).refused.startswith(why)


def test_memory_and_cores_of_a_virtual_device_are_counted_apart() -> None:
    found = ask(gpus=2, resources={"nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"})
    assert found == Ask(Kind.MEMORY, GPU, 2, 300, mib=3000, separate=True, plain=2)


def test_a_virtual_device_without_memory_has_all_of_it_and_one_device_is_meant_where_none_is_named() -> None:
    found = ask(resources={"nvidia.com/gpucores": "30"})
    assert found == Ask(Kind.MEMORY, GPU, 1, 300, percent=100, separate=True, plain=0)
    assert ask(resources={"nvidia.com/gpumem-percentage": "40"}).percent == 40


def test_memory_of_virtual_devices_is_that_of_each_and_not_the_sum_of_containers() -> None:
    found = containers({GPU: "1", "nvidia.com/gpumem": "3000"}, {GPU: "1", "nvidia.com/gpumem": "2000"}, {"cpu": "1"})
    assert (found.count, found.mib) == (2, 3000)


def test_containers_that_give_memory_in_two_units_are_refused() -> None:
    found = containers({GPU: "1", "nvidia.com/gpumem": "3000"}, {GPU: "1", "nvidia.com/gpumem-percentage": "20"})
    assert found.refused == "containers give memory in MiB and in per cent"


def test_instances_are_asked_for_by_profile() -> None:
    found = ask(gpus=1, resources={MIG: "2", "nvidia.com/mig-3g.40gb": "1"})
    assert found.kind is Kind.MIG
    assert (found.count, found.profiles) == (1, ((MIG, 2), ("nvidia.com/mig-3g.40gb", 1)))


def test_parts_of_devices_are_not_among_the_requests_that_nodes_count() -> None:
    made = Fleet()
    row = made.add_pod(pod("p", gpus=1, resources={"nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}))
    assert set(made.pod_class(row).requests) == {"cpu", "memory", "pods"}
    row = made.add_pod(pod("q", gpus=1, resources={MIG: "1"}))
    assert {GPU, MIG} <= set(made.pod_class(row).requests)


@pytest.mark.report(108)
def test_pods_of_one_template_are_told_apart_by_the_annotations_that_placement_looks_at_alone() -> None:
    made = Fleet()
    spec = pod("p").spec
    texts = [{"gpu-fraction": "0.5"}, {"gpu-fraction": "0.25"}, {}, {"gpu-fraction": "0.5", "note": "x"}, {"note": "y"}]
    rows = [made.add_pod(pod(f"p{i}", spec=spec, annotations=text)) for i, text in enumerate([*texts, *texts])]
    classes = [made.pod(row).class_id for row in rows]
    assert classes == [0, 1, 2, 0, 2] * 2
    made.forget_classes()
    assert [made.pod(row).class_id for row in rows] == classes
