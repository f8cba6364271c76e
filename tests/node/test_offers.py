"""What is offered of a node's cards, which of it a container should get, and what it is given then."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import pytest

from tonnage.node.allocate import AllocationError, Handing, answer
from tonnage.node.features import node_labels
from tonnage.node.offers import OfferedDevice, offer, preferred
from tonnage.node.simulated import SimulatedMachine
from tonnage.partitioning.device_plugin import Replicas, Replicated, Sharing

GPU = "nvidia.com/gpu"


def devices(machine: SimulatedMachine, resource: str, sharing: Sharing | None = None) -> Mapping[str, OfferedDevice]:
    found = offer(machine, "mixed", sharing or Sharing())
    return {one.id: one for one in found.resources[resource]}


def partitioned(cards: str, profile: str, starts: tuple[int, ...]) -> SimulatedMachine:
    machine = SimulatedMachine(cards)
    for one in machine.cards():
        machine.set_mode(one.index, True)
        for start in starts:
            machine.create(one.index, profile, start)
    return machine


@pytest.mark.parametrize("size", [2, 3])
def test_slices_for_one_container_come_from_different_gpus_while_there_are_any(size: int) -> None:
    known = devices(partitioned("3xh100", "3g.40gb", (0, 4)), "nvidia.com/mig-3g.40gb")
    for must in ([], [list(known)[3]]):
        chosen = preferred(known, list(known), must, size)
        assert len({known[one].card for one in chosen}) == size
        assert set(must) <= set(chosen)


def test_packed_takes_the_card_with_the_least_left_and_distributed_that_with_the_most() -> None:
    known = devices(partitioned("2xh100", "1g.10gb", (0, 1, 2)), "nvidia.com/mig-1g.10gb")
    free = [one for one in known if known[one].card == 1][:1] + [one for one in known if known[one].card == 0]
    assert known[preferred(known, free, [], 1)[0]].card == 0
    assert known[preferred(known, free, [], 1, packed=True)[0]].card == 1


@pytest.mark.parametrize(("instance", "size"), [("p3dn.24xlarge", 4), ("p4d.24xlarge", 2), ("g5.48xlarge", 3)])
def test_whole_cards_are_those_that_reach_each_other_fastest(instance: str, size: int) -> None:
    machine = SimulatedMachine(instance)
    links = machine.links()
    known = devices(machine, GPU)
    weight = {(link.a, link.b): 100 * link.nvlinks - (link.ancestor or 0) for link in links}
    chosen = sorted(known[one].card for one in preferred(known, list(known), [], size, links))
    best = max(sum(weight[pair] for pair in combinations(some, 2)) for some in combinations(range(8), size))
    assert sum(weight[pair] for pair in combinations(chosen, 2)) == best


def test_fewer_than_asked_for_and_unknown_ids_are_no_error() -> None:
    known = devices(SimulatedMachine("2xl4"), GPU)
    one, other = known
    assert preferred(known, [one, "GPU-x"], [], 5) == [one]
    assert preferred(known, [one, other], [one, other], 1) == [one]
    assert preferred(known, [], [], 1) == []


@pytest.mark.parametrize("cards", ["h100", "h200", "a30", "b200"])
def test_a_profile_has_one_name_in_resources_and_labels(cards: str) -> None:
    machine = SimulatedMachine(cards)
    machine.set_mode(0, True)
    machine.reset(0)
    largest = machine.profiles(0)[-1]
    for profile in machine.profiles(0):
        made = machine.create(0, profile.name, profile.starts[0])
        (resource,) = offer(machine, "mixed", Sharing()).resources
        assert node_labels(machine, "mixed").labels[f"{resource}.count"] == "1"
        machine.destroy(0, made.id)
    assert largest.resource.startswith("nvidia.com/mig-")


def test_a_device_is_named_once_however_many_replicas_of_it_a_container_has() -> None:
    sharing = Sharing(time_slicing=Replicas([Replicated("gpu", 4)]))
    known = devices(SimulatedMachine("2xl4"), GPU, sharing)
    uuids = list(dict.fromkeys(one.uuid for one in known.values()))
    nodes = {uuid: [f"/dev/nvidia{at}"] for at, uuid in enumerate(uuids)}
    how = Handing(("envvar", "volume-mounts", "cdi-annotations", "cdi-cri"), pass_device_specs=True)
    made = answer(GPU, known, list(known), how, nodes)
    assert made.envs["NVIDIA_VISIBLE_DEVICES"] == ",".join(uuids)
    assert [one.name.partition("=")[2] for one in made.cdi] == uuids
    (annotation,) = made.annotations.values()
    assert annotation == ",".join(one.name for one in made.cdi)
    assert [one.host_path for one in made.devices][-2:] == ["/dev/nvidia0", "/dev/nvidia1"]
    assert len(made.mounts) == 2


def test_ids_go_by_index_where_the_configuration_says_so() -> None:
    machine = partitioned("h100", "3g.40gb", (0, 4))
    known = devices(machine, "nvidia.com/mig-3g.40gb")
    nodes = {one.uuid: ["/dev/nvidia0"] for one in known.values()}
    made = answer("nvidia.com/mig-3g.40gb", known, list(known), Handing(by_index=True), nodes)
    assert made.envs == {"NVIDIA_VISIBLE_DEVICES": "0:0,0:1"}


def test_a_device_that_no_specification_has_is_refused_where_cdi_hands_it_over() -> None:
    known = devices(SimulatedMachine("l4"), GPU)
    with pytest.raises(AllocationError, match="the CDI specification has no device GPU-"):
        answer(GPU, known, list(known), Handing(("cdi-cri",)), {})
    assert answer(GPU, known, list(known), Handing(), {}).cdi == []


def test_a_strategy_that_does_not_hold_offers_nothing_and_says_why() -> None:
    machine = partitioned("h100", "3g.40gb", (4,))
    machine.create(0, "1g.10gb", 0)
    found = offer(machine, "single", Sharing())
    assert found.resources == {}
    assert "instances of several profiles" in found.problems[0]


@pytest.mark.parametrize(("cards", "most"), [("2xh100", 48), ("h100,v100", 16)])
def test_more_replicas_than_mps_takes_clients_offer_nothing_as_the_daemon_does_not_start(cards: str, most: int) -> None:
    def shared(replicas: int) -> Sharing:
        return Sharing(mps=Replicas((Replicated(GPU, replicas),)))

    machine = SimulatedMachine(cards)
    assert sum(len(some) for some in offer(machine, "none", shared(most)).resources.values()) == 2 * most
    found = offer(machine, "none", shared(most + 1))
    assert found.resources == node_labels(machine, sharing=shared(most + 1)).resources == {}
    assert f"MPS takes {most} clients" in found.problems[0]
