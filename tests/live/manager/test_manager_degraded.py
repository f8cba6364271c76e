"""A controller acts on what it looks at itself, and ``/readyz`` names whom a missing kind concerns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from kube.scripted_api import ScriptedApi
from tonnage.decisions import Applied, Bind, Evict, Launch, Outcome, Reason, Ref, Return, Scale, Wait
from tonnage.kube.clock import WallClock
from tonnage.kube.fence import of as fence_of
from tonnage.kube.leases import Elector
from tonnage.kube.restored import Restored
from tonnage.kube.transport import Reply
from tonnage.kube.verbs import Client
from tonnage.live.api_effects import ApiEffects
from tonnage.live.fencing import LOST, Fenced
from tonnage.live.manager import Controller, Manager

POD, NODE = Ref("Pod", "p", "default", "u"), Ref("Node", "n", uid="v")
WHY = Reason("because")


@dataclass
class Informer:
    synced: bool
    resource_version: int = 0


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


class Restorable:
    """A lease on an API that can be put back, and informers of it, looked at after each renewal."""

    def __init__(self, pods_at: int = 490) -> None:
        self.api = ScriptedApi()
        self.elector = Elector(Client(self.api), "tonnage", "kube-system", "a", lambda: 1.0, lambda: 1.0)
        self.lists = {"pods": Informer(True, pods_at), "nodes": Informer(True, 300), "hpas": Informer(True)}
        self.restored = Restored()
        self.api.version = 500
        self.renew()
        self.backup = dict(self.api.objects)

    def renew(self, times: int = 1) -> dict[str, str]:
        """What is said after this many renewals."""
        for _ in range(times):
            assert self.elector.step()
            led = Controller("scheduler", (), self.elector)
            self.restored.look([led], Informers(self.lists))  # type: ignore[arg-type]
        return self.restored.problem()

    def put_back(self, version: int) -> None:
        self.api.objects, self.api.version = dict(self.backup), version
        self.backup[next(iter(self.backup))]["metadata"]["resourceVersion"] = "5"


def test_it_is_said_when_etcd_went_back_and_the_lists_did_not() -> None:
    one = Restorable()
    assert one.renew(3) == {}
    one.put_back(310)
    assert one.renew(3) == {
        "etcd": "it was restored from a backup and is at revision 313, but pods are those of before: "
        "restart the API server, whose cache they come from"
    }
    one.lists["nodes"].resource_version = 400
    assert "nodes and 1 more are those of before" in one.renew(3)["etcd"]
    one.lists["pods"].resource_version = one.lists["nodes"].resource_version = 310  # read again
    assert one.renew(3) == {}


def test_after_a_restore_lists_may_be_ahead_of_the_last_renewal() -> None:
    one = Restorable()
    one.put_back(310)
    for informer in one.lists.values():
        informer.resource_version = 310
    assert one.renew(3) == {}
    for _ in range(5):
        one.api.version += 100  # others write, and that is seen before the lease is renewed
        one.lists["pods"].resource_version = one.api.version
        assert one.restored.problem() == {}
        assert one.renew() == {}


def test_lists_may_be_ahead_of_a_lease_that_never_went_back() -> None:
    """Leases may be kept in another etcd."""
    assert Restorable(pods_at=10**6).renew(5) == {}


def test_it_is_said_also_when_the_lease_was_not_renewed_between_backup_and_restore() -> None:
    """Its version is never lower than before; only the others are ahead of what it is written at."""
    one = Restorable()
    one.lists["pods"].resource_version = 700
    assert "at revision 504, but pods are those of before" in one.renew(3).get("etcd", "")


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


class Slow:
    """A transport that sends nothing before it has asked, at the last moment, whether it may."""

    sent = 0

    def request(self, method: str, path: str, **_: object) -> Reply:
        fence = fence_of(method)
        assert fence is not None
        fence.check()
        self.sent += 1
        return Reply(201, b"{}")


@pytest.mark.parametrize(("leads", "outcome"), [([True, True], Applied()), ([True, False], LOST), ([False], LOST)])
def test_a_lease_that_runs_out_between_the_decision_and_the_sending_keeps_it_back(
    leads: list[bool], outcome: Outcome
) -> None:
    transport, answers = Slow(), list(leads)
    effects = Fenced(ApiEffects(Client(transport), WallClock()), lambda _: answers.pop(0))  # type: ignore[arg-type]
    assert effects.bind(Bind(POD, NODE, WHY)) == outcome
    assert (transport.sent, answers) == (int(outcome == Applied()), [])
