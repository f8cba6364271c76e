"""The check of the invariants notices each of them broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from builders import fleet, node, pod
from tonnage.fleet.invariants import violations
from tonnage.fleet.state import NO_DEVICE, Fleet


def two_pods_on_a_gpu_node() -> Fleet:
    return fleet(
        node("a", gpus=4, zone="z", taints=["x=y:NoSchedule"]),
        bound={"a": [pod("p", gpus=2), pod("q", gpus=1)]},
        pods=[pod("r")],
    )


def _overbook(made: Fleet) -> None:
    made.allocatable[0, 0] -= 7000
    made.free[0, 0] -= 7000


BREAKS: list[tuple[str, Callable[[Fleet], object], str]] = [
    ("free drifts", lambda f: f.free.__setitem__((0, 0), 1), "free resources differ from a rebuild"),
    ("overbooked", _overbook, "more allocated than allocatable: cpu"),
    ("gpu twice", lambda f: setattr(f.pod(1), "devices", (0,)), "device 0 is held twice"),
    ("gpu missing", lambda f: setattr(f.pod(1), "devices", ()), "holds 0 devices, requests 1"),
    ("device table", lambda f: f.devices.__setitem__((0, 3), 7), "device table differs"),
    ("device lost", lambda f: f.devices.__setitem__((0, 3), NO_DEVICE), "3 devices, 4 allocatable"),
    ("pod index", lambda f: f.pod_by_key.pop(("default", "r")), "the pod index differs"),
    ("pending", lambda f: f.pending.clear(), "the pending pods differ"),
    ("bound", lambda f: f.bound.clear(), "the pods of a class per node differ"),
    ("node index", lambda f: f.node_by_name.clear(), "the node index differs"),
    ("alive", lambda f: f.alive.fill(False), "the nodes that are alive differ"),
    ("schedulable", lambda f: f.schedulable.fill(True), "a row without a node is schedulable"),
    ("pods of a node", lambda f: f.node(0).pods.clear(), "its pods differ"),
    ("labels", lambda f: f.node(0).labels.pop("topology.kubernetes.io/zone"), "its label set is not its labels"),
    ("taints", lambda f: setattr(f.node(0), "taints", ()), "its taint set is not its taints"),
]


def test_a_fleet_that_was_changed_by_its_methods_has_no_violations() -> None:
    assert violations(two_pods_on_a_gpu_node()) == []


@pytest.mark.parametrize(("how", "says"), [(how, says) for _, how, says in BREAKS], ids=[name for name, _, _ in BREAKS])
def test_a_broken_invariant_is_reported(how: Callable[[Fleet], object], says: str) -> None:
    made = two_pods_on_a_gpu_node()
    how(made)
    assert any(says in text for text in violations(made))
