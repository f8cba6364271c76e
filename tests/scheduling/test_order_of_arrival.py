"""Decisions follow from what there is, not from the order in which it was written down."""

from __future__ import annotations

import random

import pytest

from builders import fleet, node, pod
from tonnage.decisions import Bind
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet
from tonnage.scheduling import place


def cluster(seed: int, order: int) -> Fleet:
    """Whole GPUs and fractions, some of them tied to a model; the pods added in one of several orders."""
    rng = random.Random(seed)
    nodes = [
        node(f"n{i}", cpu=rng.choice((8, 16)), gpus=rng.choice((1, 2, 4)), labels={"m": rng.choice("abc")})
        for i in range(5)
    ]
    pods = []
    for i in range(24):
        wishes = {"nodeSelector": {"m": rng.choice("abc")}} if rng.random() < 0.5 else {}
        share = {"gpu-fraction": rng.choice(("0.3", "0.5", "0.7"))} if rng.random() < 0.6 else {}
        pods.append(
            pod(f"p{i:02d}", rng.choice((1, 2, 4)), 1, 0 if share else 1, created_ns=i, annotations=share, **wishes)
        )
    random.Random(order).shuffle(pods)
    return fleet(*nodes, pods=pods)


@pytest.mark.parametrize("policy", place.POLICIES)
def test_pods_that_were_added_in_another_order_are_placed_alike(policy: str) -> None:
    for seed in range(8):
        placed = [
            {
                one.pod.name: one.node.name
                for one in place.decide(Snapshot(0, cluster(seed, order)), place.Settings(policy))
                if isinstance(one, Bind)
            }
            for order in range(3)
        ]
        assert placed[0] == placed[1] == placed[2]
        assert placed[0]
