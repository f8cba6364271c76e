"""Reallocations that follow one another, and that are on at one time: what each gives, and what comes back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec

from tonnage.control.reallocating import Move, Reallocator
from tonnage.control.replicas import MovedBounds
from tonnage.fleet.snapshot import Snapshot, WorkloadView
from tonnage.fleet.state import Fleet
from tonnage.objects import apps, autoscaling
from tonnage.objects.base import KubeObject
from tonnage.units import NS_PER_S


def _deployment(name: str, replicas: int) -> apps.Deployment:
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "vllm", **limits}]}}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template, "replicas": replicas}
    return msgspec.convert(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "llm"}, "spec": spec},
        apps.Deployment,
    )


def _hpa(name: str, low: int, high: int) -> autoscaling.HorizontalPodAutoscaler:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    spec = {"scaleTargetRef": target, "minReplicas": low, "maxReplicas": high}
    meta = {"name": f"{name}-hpa", "namespace": "llm"}
    body = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": spec}
    return msgspec.convert(body, autoscaling.HorizontalPodAutoscaler)


class _Run:
    """Deployments of pods with one GPU each, whose replicas are as reallocations leave them."""

    def __init__(self, replicas: dict[str, int], *moves: Move, more: tuple[KubeObject, ...] = ()) -> None:
        self.replicas = dict(replicas)
        self.moved: MovedBounds = {}
        self.notes: list[str] = []
        objects = [*(_deployment(name, asked) for name, asked in replicas.items()), *more]
        self._loop, self._second = Reallocator(objects, moves, self.moved), 0

    def at(self, second: int) -> dict[str, int]:
        """The replicas once all ticks up to this second have passed."""
        for now in range(self._second, second + 1):
            for one in self._loop.decide(self._world(now)):
                assert one.current == self.replicas[one.target.name]
                self.replicas[one.target.name] = one.replicas
        self._second = second + 1
        return dict(self.replicas)

    def _world(self, second: int) -> Any:
        views = {f"llm/{name}": WorkloadView("Deployment", "llm", name, n, ()) for name, n in self.replicas.items()}
        made = Snapshot(second * NS_PER_S, Fleet(), views)
        return SimpleNamespace(
            now=lambda: made.now_ns, snapshot=lambda: made, note=lambda _, reason, text: self.notes.append(text)
        )


def _move(at: int, source: str, target: str, gpus: int, until: int | None = None) -> Move:
    return Move(at * NS_PER_S, source, target, gpus, None if until is None else until * NS_PER_S)


def test_two_that_begin_at_once_both_take_from_their_donor() -> None:
    run = _Run({"a": 1, "b": 4, "c": 1}, _move(5, "b", "a", 1), _move(5, "b", "c", 2))
    assert run.at(5) == {"a": 2, "b": 1, "c": 3}


def test_the_same_again_at_the_same_time_counts_twice() -> None:
    assert _Run({"a": 1, "b": 4}, _move(5, "b", "a", 1), _move(5, "b", "a", 1)).at(5) == {"a": 3, "b": 2}


def test_what_is_given_back_can_be_given_to_another_in_the_same_second() -> None:
    moves = (_move(20, "b", "c", 2, until=30), _move(10, "b", "a", 2, until=20))
    run = _Run({"a": 1, "b": 2, "c": 1}, *moves)
    assert run.at(10) == {"a": 3, "b": 0, "c": 1}
    assert (run.at(20), run.notes) == ({"a": 1, "b": 0, "c": 3}, [])
    assert run.at(30) == {"a": 1, "b": 2, "c": 1}


def test_the_first_that_ends_leaves_the_second_what_it_has() -> None:
    run = _Run({"a": 1, "b": 4, "c": 1}, _move(1, "b", "a", 2, until=10), _move(5, "b", "c", 1, until=20))
    assert run.at(5) == {"a": 3, "b": 1, "c": 2}
    assert run.at(10) == {"a": 1, "b": 3, "c": 2}
    assert run.at(20) == {"a": 1, "b": 4, "c": 1}


def test_bounds_are_those_of_the_moves_that_are_on_and_in_the_end_their_own() -> None:
    hpas = (_hpa("a", 1, 4), _hpa("b", 1, 8))
    run = _Run({"a": 2, "b": 6}, _move(1, "b", "a", 3, until=10), _move(5, "b", "a", 1, until=20), more=hpas)
    run.at(1)
    assert run.moved == {"llm/a": (5, 5), "llm/b": (1, 3)}
    run.at(5)
    assert run.moved == {"llm/a": (6, 6), "llm/b": (1, 2)}
    run.at(10)  # as if the second alone had begun
    assert run.moved == {"llm/a": (3, 4), "llm/b": (1, 5)}
    run.at(20)
    assert run.moved == {}
