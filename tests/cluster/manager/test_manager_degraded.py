"""A controller acts on what it looks at itself, and ``/readyz`` names whom a missing kind concerns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tonnage.cluster.fencing import LOST, Fenced
from tonnage.cluster.manager import Controller, Manager
from tonnage.decisions import Applied, Bind, Evict, Launch, Outcome, Reason, Ref, Return, Scale, Wait

POD, NODE = Ref("Pod", "p", "default", "u"), Ref("Node", "n", uid="v")
WHY = Reason("because")


@dataclass
class Informer:
    synced: bool


@dataclass
class Informers:
    lists: dict[str, Informer]
    wrong: dict[str, str] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()

    def named(self) -> dict[str, Informer]:
        return self.lists

    def problems(self) -> dict[str, str]:
        return self.wrong

    def absent(self) -> frozenset[str]:
        return self.missing


SCHEDULER = Controller("scheduler", (), needs=frozenset({"pods"}))
REPLICAS = Controller("replicas", (), needs=frozenset({"pods", "hpas"}), asks=frozenset({"scaledobjects"}))


def manager(informers: Informers) -> Manager:
    found = Manager(None, informers, (), (SCHEDULER, REPLICAS), None)  # type: ignore[arg-type]
    found.ready.set()
    return found


def test_a_controller_waits_for_the_kinds_it_looks_at_and_no_others() -> None:
    one = manager(Informers({"pods": Informer(True), "hpas": Informer(False), "scaledobjects": Informer(True)}))
    assert one.informed(SCHEDULER)
    assert not one.informed(REPLICAS)


@pytest.mark.parametrize(("missing", "informed"), [(frozenset(), False), (frozenset({"scaledobjects"}), True)])
def test_a_kind_that_the_server_does_not_know_is_waited_for_only_where_it_is_needed(
    missing: frozenset[str], informed: bool
) -> None:
    lists = {"pods": Informer(True), "hpas": Informer(True), "scaledobjects": Informer(False)}
    assert manager(Informers(lists, missing=missing)).informed(REPLICAS) is informed


def test_readyz_names_whom_a_problem_concerns_and_leaves_out_what_concerns_nobody() -> None:
    wrong = {"pods": "forbidden", "hpas": "forbidden", "scaledobjects": "unknown", "nodepools": "unknown"}
    one = manager(Informers({}, wrong, frozenset({"scaledobjects", "nodepools"})))
    assert one.degraded() == {"scheduler, replicas (pods)": "forbidden", "replicas (hpas)": "forbidden"}


class Recording:
    """Effects that remember which were called, and always apply."""

    makes_claims = True

    def __init__(self) -> None:
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*_: object) -> Outcome:
            self.called.append(name)
            return Applied()

        return call


CALLS: dict[str, tuple[str, tuple[object, ...]]] = {
    "bind": ("scheduler", (Bind(POD, NODE, WHY),)),
    "unschedulable": ("scheduler", (Wait(POD, WHY),)),
    "evict": ("scheduler", (Evict(POD, WHY),)),
    "scale": ("replicas", (Scale(Ref("Deployment", "d", "default"), 1, 2, WHY),)),
    "launch": ("nodes", (Launch(Ref("NodeClaim", "c"), "pool", "t", "z", "spot", 1, WHY), None)),
    "give_back": ("nodes", (Return(NODE, WHY),)),
    "keep": ("nodes", (NODE,)),
}


@pytest.mark.parametrize("method", CALLS)
def test_nothing_is_written_once_the_lease_is_lost_and_each_controller_has_its_own(method: str) -> None:
    owner, arguments = CALLS[method]
    inner = Recording()
    assert getattr(Fenced(inner, lambda name: name != owner), method)(*arguments) == LOST  # type: ignore[arg-type]
    assert inner.called == []
    assert getattr(Fenced(inner, lambda name: name == owner), method)(*arguments) == Applied()  # type: ignore[arg-type]
    assert inner.called == [method]
