"""The heat map says who holds which part of a GPU."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from sharing_builders import MIG, SLICE, TIME_SLICED, cut_node, serving
from sim_builders import GPU, world

from tonnage.simulation.recorder import Recorder
from tonnage.units import NS_PER_S


def sampled(labels: Mapping[str, str], asks: str, *names: str, kind: str = "p5.4xlarge") -> list[tuple[str, float]]:
    """(owner, per cent) of the parts that are held of a GPU with such pods on it."""
    cluster = world()
    target = cut_node(cluster, labels, kind)
    for name in names:
        serving(cluster, target, name, asks={asks: "1"})
    recorder = Recorder(NS_PER_S)
    recorder.sample(cluster)
    ((_, _, _, way),) = recorder.heat[target.name, 0]
    return [(recorder.owners[owner], part) for owner, part in list(recorder.parts)[way]]


def test_each_owner_of_replicas_has_its_part_and_the_rest_is_free() -> None:
    held = sampled(TIME_SLICED, GPU, "chat", "search")
    assert sorted(held) == [("inference/chat", 25.0), ("inference/search", 25.0)]


def test_the_part_of_a_mig_instance_is_what_it_is_charged_as() -> None:
    ((owner, part),) = sampled(MIG, SLICE, "chat")
    assert owner == "inference/chat"
    assert part == pytest.approx(100 * (1 / 7 + 9984 / 81_920) / 2, abs=0.1)


def test_a_gpu_that_is_held_as_a_whole_has_no_parts() -> None:
    assert sampled({}, GPU, "chat") == []
