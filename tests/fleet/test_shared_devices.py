"""Shares, memory, replicas and virtual devices: which device is taken, and what is then free."""

from __future__ import annotations

import numpy as np
import pytest

from builders import GPU, fleet, node, pod
from tonnage.fleet.asks import SHARED_GPU
from tonnage.fleet.devices import OPEN, Cut, How
from tonnage.fleet.fits import choices, fits
from tonnage.fleet.invariants import violations
from tonnage.fleet.outfit import offered
from tonnage.fleet.state import FREE_DEVICE, SHARED_DEVICE, Conflict, Fleet, FleetPod

MEMORY = {"nvidia.com/gpu.memory": "80000"}
REPLICAS = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}


def share(name: str, fraction: str, devices: int = 1) -> FleetPod:
    return pod(name, cpu=0, annotations={"gpu-fraction": fraction, "gpu-fraction-num-devices": str(devices)})


def memory(name: str, mib: int) -> FleetPod:
    return pod(name, cpu=0, annotations={"gpu-memory": str(mib)})


def virtual(name: str, gpus: int = 1, **amounts: int) -> FleetPod:
    return pod(name, cpu=0, gpus=gpus, resources={f"nvidia.com/{key}": str(n) for key, n in amounts.items()})


def bind(made: Fleet, spec: FleetPod, devices: tuple[int, ...] | None = None) -> tuple[int, ...]:
    found = made.bind(made.add_pod(spec), 0, devices)
    assert violations(made) == []
    return found


def free(made: Fleet, resource: str = GPU) -> int:
    return int(made.free[0, made.resource(resource)])


def test_a_share_takes_the_tightest_device_and_whole_devices_stay_whole() -> None:
    made = fleet(node("a", gpus=4, labels=MEMORY))
    assert [bind(made, share(f"p{i}", text)) for i, text in enumerate(("0.5", "0.6", "0.4", "0.3"))] == [
        (0,),
        (1,),
        (1,),
        (0,),
    ]
    assert made.cards.milli[0, :4].tolist() == [200, 0, 1000, 1000]
    assert made.cards.mib[0, :4].tolist() == [16000, 0, 80000, 80000]
    assert made.devices[0, :4].tolist() == [SHARED_DEVICE, SHARED_DEVICE, FREE_DEVICE, FREE_DEVICE]
    assert free(made) == 2
    assert bind(made, pod("whole", gpus=2)) == (2, 3)


def test_a_shared_device_is_free_again_when_the_last_share_is_gone() -> None:
    made = fleet(node("a", gpus=1, labels=MEMORY))
    bind(made, share("p", "0.5"))
    bind(made, share("q", "0.25"))
    made.unbind(0)
    assert (free(made), made.holders(0, 0)) == (0, [1])
    made.remove_pod(1)
    assert (free(made), made.devices[0, 0]) == (1, FREE_DEVICE)
    assert violations(made) == []


@pytest.mark.report(101)
def test_a_share_is_not_bound_to_a_device_that_is_full_or_whole() -> None:
    made = fleet(node("a", gpus=2, labels=MEMORY))
    bind(made, share("p", "0.7"))
    bind(made, pod("q", gpus=1))
    row = made.add_pod(share("r", "0.31"))
    for devices in (None, (0,), (1,), (2,), (0, 1)):
        with pytest.raises(Conflict, match="has no room for the pod's nvidia"):
            made.bind(row, 0, devices)
    assert violations(made) == []
    assert bind(made, share("s", "0.3"), (0,)) == (0,)


@pytest.mark.report(136)
def test_a_share_of_several_devices_is_on_different_ones() -> None:
    made = fleet(node("a", gpus=3, labels=MEMORY))
    bind(made, share("p", "0.5"))
    assert bind(made, share("q", "0.5", 2)) == (0, 1)
    with pytest.raises(Conflict):
        bind(made, share("r", "0.6", 2))


@pytest.mark.report(106)
def test_memory_is_worth_its_part_of_the_device_so_that_thirds_fill_it() -> None:
    made = fleet(node("a", gpus=1, labels=MEMORY))
    assert [bind(made, memory(f"p{i}", 80000 // 3)) for i in range(3)] == [(0,)] * 3
    assert (made.cards.milli[0, 0], made.cards.mib[0, 0]) == (1, 2)
    with pytest.raises(Conflict):
        bind(made, share("q", "0.001"))


def test_a_device_of_unknown_memory_gives_shares_and_no_memory() -> None:
    made = fleet(node("a", gpus=1))
    bind(made, share("p", "0.5"))
    with pytest.raises(Conflict):
        bind(made, memory("q", 1))


def test_memory_is_that_of_the_gpu_where_no_label_says_it() -> None:
    made = fleet(node("a", gpus=1, gpu="h100"))
    bind(made, memory("q", 20480))
    assert (made.cards.milli[0, 0], made.cards.mib[0, 0]) == (750, 61440)


def test_virtual_devices_count_compute_and_memory_apart() -> None:
    made = fleet(node("a", gpus=2, labels=MEMORY))
    bind(made, virtual("p", gpumem=70000, gpucores=10))
    bind(made, virtual("q", gpumem=5000, gpucores=90))
    assert (made.cards.milli[0, 0], made.cards.mib[0, 0], free(made)) == (0, 5000, 1)
    assert bind(made, virtual("without-cores", gpumem=1000)) == (1,), "no cores are left on the other"
    with pytest.raises(Conflict):
        bind(made, virtual("alone", gpumem=1, gpucores=100))


def test_a_split_device_has_so_many_sharers_and_counts_them() -> None:
    cuts = (Cut(How.SPLIT, GPU, 3, isolated=True),) * 2
    made = fleet(node("a", resources=offered(cuts, GPU), cuts=cuts, device_resource=GPU, labels=MEMORY))
    assert free(made) == 6
    assert [bind(made, virtual(f"p{i}", gpumem=1000)) for i in range(4)] == [(0,), (0,), (0,), (1,)]
    assert free(made) == 2
    with pytest.raises(Conflict):
        bind(made, pod("whole", gpus=1))
    made.unbind(3)
    assert bind(made, pod("other", gpus=1)) == (1,)
    assert free(made) == 0


def test_replicas_are_spread_over_devices_for_one_pod_and_packed_for_many() -> None:
    made = fleet(node("a", resources={GPU: 8}, device_resource=GPU, labels=REPLICAS | MEMORY))
    assert [bind(made, pod(f"p{i}", gpus=1)) for i in range(3)] == [(0,)] * 3
    assert bind(made, pod("two", gpus=2)) == (0, 1)
    assert bind(made, pod("three", gpus=3)) == (1,)
    assert (free(made), made.cards.mib[0, :2].tolist()) == (0, [80000, 80000]), "time-slicing limits no memory"


def test_replicas_of_mps_have_a_part_of_the_memory_and_one_goes_to_a_pod() -> None:
    labels = REPLICAS | MEMORY | {"nvidia.com/gpu.sharing-strategy": "mps"}
    made = fleet(node("a", resources={SHARED_GPU: 4}, device_resource=GPU, labels=labels))
    assert bind(made, pod("p", resources={SHARED_GPU: "1"})) == (0,)
    assert (made.cards.milli[0, 0], made.cards.mib[0, 0]) == (750, 60000)
    with pytest.raises(Conflict):
        bind(made, pod("q", resources={SHARED_GPU: "2"}))


def test_labels_that_come_later_say_how_devices_are_shared_and_pods_keep_what_there_is() -> None:
    made = fleet(node("a", resources={GPU: 8}, device_resource=GPU), bound={"a": [pod("p", gpus=1)]})
    with made.what_if():
        made.set_labels(0, REPLICAS)
        assert violations(made) == []
        assert (int((made.devices[0] != -2).sum()), made.pod(0).devices, len(made.pod(0).pieces)) == (2, (0,), 1)
        assert free(made) == 7
    assert (int((made.devices[0] != -2).sum()), made.pod(0).devices, made.pod(0).pieces) == (8, (0,), ())
    assert violations(made) == []


def test_a_device_in_use_is_not_taken_away_unless_it_is_seen_to_be_gone() -> None:
    made = fleet(node("a", gpus=2, labels=MEMORY))
    bind(made, share("p", "0.5", 2))
    less = made.allocatable_of(0) | {GPU: 1}
    with pytest.raises(Conflict, match="its pods hold more"):
        made.set_allocatable(0, less)
    made.set_allocatable(0, less, observed=True)
    assert (made.pod(0).devices, len(made.pod(0).pieces), free(made)) == ((0,), 1, 0)


def test_choices_are_one_for_each_outcome_tightest_first() -> None:
    made = fleet(node("a", gpus=4, labels=MEMORY))
    bind(made, share("p", "0.5"))
    row = made.add_pod(share("q", "0.25"))
    ask = made.classes.shapes[made.pod_class(row).shape].ask
    assert [(one.devices, one.after[0].milli) for one in choices(made, 0, ask)] == [((0,), 250), ((1,), 750)]


def test_fit_is_told_for_many_nodes_at_once() -> None:
    nodes = [node("a", gpus=1, labels=MEMORY), node("b", gpus=1), node("c"), node("d", gpus=4, labels=REPLICAS)]
    made = fleet(*nodes, bound={"b": [share("p", "0.6")]})
    rows = np.arange(4)
    shapes = {}
    for spec in (share("q", "0.5"), memory("m", 100), pod("w", gpus=1), pod("bad", annotations={"gpu-fraction": "2"})):
        shapes[spec.name] = made.classes.shapes[made.pod_class(made.add_pod(spec)).shape]
    assert fits(made, rows, shapes["q"]).tolist() == [True, False, False, False]
    assert fits(made, rows, shapes["m"]).tolist() == [True, False, False, False]
    assert fits(made, rows, shapes["w"]).tolist() == [True, False, False, True]
    assert not fits(made, rows, shapes["bad"]).any()


def test_devices_are_cut_anew_only_where_nothing_is_on_them() -> None:
    made = fleet(node("a", gpus=2, labels=MEMORY))
    bind(made, share("p", "0.5"))
    split = Cut(How.SPLIT, GPU, 3)
    with pytest.raises(Conflict, match="device 0 is in use"):
        made.set_cuts(0, (split, split))
    with pytest.raises(ValueError, match="2 devices, not 1"):
        made.set_cuts(0, (split,))
    with made.what_if():
        made.set_cuts(0, (OPEN, split))
        assert (free(made), violations(made)) == (3, [])
    assert (free(made), made.node(0).cuts) == (1, ())
