"""Bounds of replicas that have been moved are those that policies and autoscalers go by."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from scaling_builders import external, spec
from slo_builders import A, Cluster, target

from tonnage.control.replicas import Autoscalers, Planned, ReplicaPlanner
from tonnage.errors import InputError
from tonnage.scaling import policies, slo


def _silent(query: str, at_ns: int) -> Any:
    raise InputError.at("nobody answers")


def _world() -> Any:
    cluster = Cluster().pods(A, "kept-1")
    notes: list[Any] = []
    return SimpleNamespace(snapshot=lambda: cluster.snapshot(0), measure=_silent, note=lambda *said: notes.append(said))


def test_a_policy_is_told_the_moved_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[slo.Target] = []

    def policy(snapshot: Any, targets: Any, *_: Any) -> tuple[list[Any], dict[str, Any]]:
        told.extend(targets)
        return [], {}

    monkeypatch.setitem(policies.POLICIES, "told", policy)
    planned = [Planned("told", target(minimum=1, maximum=8), "received", "in_flight")]
    ReplicaPlanner("told", lambda snapshot: planned, moved={A: (3, 5)}).decide(_world())
    assert [(one.minimum, one.maximum) for one in told] == [(3, 5)]


def test_an_hpa_brings_its_workload_within_the_moved_bounds() -> None:
    hpa = spec(external(10), low=1, high=8)
    moved = {hpa.target.workload: (3, 5)}
    cluster = Cluster().pods(hpa.target.workload, "kept-1")
    world = SimpleNamespace(snapshot=lambda: cluster.snapshot(0), measure=_silent, note=lambda *_: None)
    (decision,) = Autoscalers([hpa], [], {}, moved=moved).sync(world)
    assert (decision.current, decision.replicas) == (1, 3)
