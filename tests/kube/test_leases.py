"""Leader election: driven clocks, and a lease that only one can hold."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_api import ScriptedApi, lost, refusal, unreachable

from deep_seeds import examples
from tonnage.kube.leases import Elector, awake_and_asleep
from tonnage.kube.transport import LostReply, Reply, Unreachable
from tonnage.kube.verbs import Client

PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/tonnage"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def elector(api: ScriptedApi, clock: Clock, identity: str, skew_s: float = 0.0) -> Elector:
    return Elector(Client(api), "tonnage", "kube-system", identity, lambda: 1.7e9 + clock.now + skew_s, clock)


def spec(api: ScriptedApi) -> dict[str, Any]:
    found: dict[str, Any] = api.objects[PATH]["spec"]
    return found


@pytest.fixture
def api() -> ScriptedApi:
    return ScriptedApi()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_first_makes_the_lease_and_leads(api: ScriptedApi, clock: Clock) -> None:
    a = elector(api, clock, "a")
    assert not a.leading()
    assert a.step()
    assert spec(api) == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "2023-11-14T22:30:00.000000Z",
        "renewTime": "2023-11-14T22:30:00.000000Z",
        "leaseTransitions": 0,
    }
    assert (a.holder, a.problem) == ("a", "")
    assert a.valid_for_s() == 10.0


def test_whoever_waits_for_the_lead_is_woken_when_it_begins_and_not_by_renewals(api: ScriptedApi, clock: Clock) -> None:
    woken: list[bool] = []
    a = Elector(Client(api), "n", "ns", "a", lambda: 1.0, clock, begins=lambda: woken.append(a.leading()))
    assert a.step()
    assert a.step()
    assert woken == [True]
    clock.now += 60  # it has not led meanwhile
    assert a.step()
    assert woken == [True, True]


def test_a_second_waits_for_as_long_as_the_lease_does_not_change(api: ScriptedApi, clock: Clock) -> None:
    a, b = elector(api, clock, "a"), elector(api, clock, "b")
    assert a.step()
    for _ in range(20):  # renewed: b never gets it
        clock.now += 2
        assert a.step()
        assert not b.step()
    assert b.holder == "a"
    clock.now += 14.9
    assert not a.leading(), "a must stop before b may begin"
    assert not b.step()
    clock.now += 0.2
    assert b.step()
    assert spec(api)["leaseTransitions"] == 1
    assert spec(api)["acquireTime"] == spec(api)["renewTime"]
    assert not a.step()
    assert a.holder == "b"


def test_a_process_that_was_stopped_wakes_up_as_no_leader_before_it_has_stepped(api: ScriptedApi, clock: Clock) -> None:
    a = elector(api, clock, "a")
    assert a.step()
    clock.now += 3600
    assert not a.leading()
    assert a.valid_for_s() == 0
    assert a.step(), "nobody else took it meanwhile"
    assert spec(api)["leaseTransitions"] == 0


def test_a_leader_without_the_server_stops_at_its_deadline(api: ScriptedApi, clock: Clock) -> None:
    a = elector(api, clock, "a")
    assert a.step()
    for _ in range(4):
        clock.now += 2
        api.faults.append(unreachable)
        assert a.step()
    assert "unreachable" not in a.problem
    assert "the test says so" in a.problem
    clock.now += 2
    api.faults.append(unreachable)
    assert not a.step()


def test_a_lost_reply_does_not_count_as_a_renewal(api: ScriptedApi, clock: Clock) -> None:
    a = elector(api, clock, "a")
    assert a.step()
    clock.now += 9
    api.faults.append(lambda: None)
    api.faults[-1] = after_serving(api, lost)
    assert a.step()
    assert spec(api)["renewTime"].endswith(":09.000000Z"), "the server did renew it"
    clock.now += 1
    assert not a.leading()
    assert a.step(), "reads it, finds itself there, and renews"
    assert spec(api)["leaseTransitions"] == 0


def after_serving(api: ScriptedApi, then: Callable[[], Reply | None]) -> Callable[[], Reply | None]:
    """The next request takes effect, and then something else comes back."""

    def fault() -> Reply | None:
        serve = api._serve

        def once(*args: Any) -> Reply:
            api._serve = serve  # type: ignore[method-assign]
            serve(*args)
            then()
            raise AssertionError("a fault that does nothing")

        api._serve = once  # type: ignore[method-assign]
        return None

    return fault


def test_who_loses_the_race_follows(api: ScriptedApi, clock: Clock) -> None:
    a, b = elector(api, clock, "a"), elector(api, clock, "b")
    api.faults += [lambda: None, a.step]  # a makes it between b's look and b's try
    assert not b.step()
    assert a.leading()
    clock.now += 1
    assert not b.step()
    assert b.holder == "a"


def test_a_leader_whose_lease_another_has_taken_follows_at_once(api: ScriptedApi, clock: Clock) -> None:
    a = elector(api, clock, "a")
    assert a.step()
    api.objects[PATH]["spec"]["holderIdentity"] = "thief"
    api.objects[PATH]["metadata"]["resourceVersion"] = "999"
    clock.now += 1
    assert not a.step()
    assert a.holder == "thief"


def test_after_a_release_the_next_need_not_wait(api: ScriptedApi, clock: Clock) -> None:
    a, b = elector(api, clock, "a"), elector(api, clock, "b")
    assert a.step()
    assert not b.step()
    a.release()
    assert not a.leading()
    assert spec(api)["holderIdentity"] == ""
    clock.now += 0.1
    assert b.step()
    assert spec(api)["leaseTransitions"] == 1
    a.release()  # it is not a's any more
    assert spec(api)["holderIdentity"] == "b"


def test_it_stops_leading_before_the_release_is_sent(api: ScriptedApi, clock: Clock) -> None:
    a = elector(api, clock, "a")
    assert a.step()
    seen: list[bool] = []
    api.faults.append(lambda: seen.append(a.leading()))
    a.release()
    assert seen == [False]


def test_a_lease_that_vanishes_while_another_may_lead_is_not_made_anew_too_soon(api: ScriptedApi, clock: Clock) -> None:
    a, b = elector(api, clock, "a"), elector(api, clock, "b")
    assert a.step()
    assert not b.step()
    del api.objects[PATH]
    clock.now += 1
    assert not b.step()
    assert a.leading()
    clock.now += 14.1
    assert not a.leading()
    assert b.step()


def test_a_leader_makes_a_vanished_lease_anew(api: ScriptedApi, clock: Clock) -> None:
    a = elector(api, clock, "a")
    assert a.step()
    del api.objects[PATH]
    clock.now += 1
    assert a.step()
    assert spec(api)["holderIdentity"] == "a"


def put_back(api: ScriptedApi, lease: dict[str, Any]) -> None:
    """The lease of a backup, at the revision of the backup."""
    api.objects[PATH] = json.loads(json.dumps(lease))
    api.version = int(lease["metadata"]["resourceVersion"])


def test_whom_a_backup_names_as_the_leader_waits_for_who_leads_now(api: ScriptedApi, clock: Clock) -> None:
    a, b = elector(api, clock, "a"), elector(api, clock, "b")
    assert a.step()
    backup = api.objects[PATH]
    clock.now += 16
    assert not b.step()
    clock.now += 15.1
    assert b.step()
    assert not a.step(), "b leads, and a has seen it"
    put_back(api, backup)
    assert not a.step(), "b may not have noticed"
    assert b.leading()
    clock.now += 2
    assert not b.step(), "the lease is a's by now"
    assert not a.step()
    clock.now += 13.1
    assert a.step()
    assert not b.leading()


@pytest.mark.parametrize("holder", ["", "a"])
def test_a_leader_goes_on_with_a_lease_of_a_backup_that_is_its_own_or_free(
    api: ScriptedApi, clock: Clock, holder: str
) -> None:
    a = elector(api, clock, "a")
    assert a.step()
    backup = {**api.objects[PATH], "spec": {**spec(api), "holderIdentity": holder}}
    clock.now += 2
    assert a.step()
    put_back(api, backup)
    clock.now += 2
    assert a.step()
    assert spec(api)["holderIdentity"] == "a"
    clock.now += 9
    assert a.leading(), "its renewal counted"


@pytest.mark.parametrize(("away_s", "waits"), [(9.0, False), (12.0, False), (16.0, True)])
def test_a_leader_that_was_without_the_server_waits_only_if_another_may_have_led_meanwhile(
    api: ScriptedApi, clock: Clock, away_s: float, waits: bool
) -> None:
    a = elector(api, clock, "a")
    assert a.step()
    backup = api.objects[PATH]
    clock.now += 2
    assert a.step()
    put_back(api, backup)
    clock.now += away_s
    assert a.leading() == (away_s < 10)
    assert a.step() is not waits
    clock.now += 15.1
    assert a.step()


def test_who_has_given_the_lease_up_does_not_take_it_from_a_backup_at_once(api: ScriptedApi, clock: Clock) -> None:
    a, b = elector(api, clock, "a"), elector(api, clock, "b")
    assert a.step()
    backup = api.objects[PATH]
    clock.now += 2
    a.release()
    assert b.step()
    put_back(api, backup)
    assert not a.step()
    assert b.leading()


def test_what_others_wrote_into_the_lease_stays(api: ScriptedApi, clock: Clock) -> None:
    a = elector(api, clock, "a")
    assert a.step()
    api.objects[PATH]["metadata"] |= {"labels": {"team": "ml"}, "resourceVersion": "500"}
    api.objects[PATH]["spec"]["strategy"] = "OldestEmulationVersion"
    clock.now += 2
    assert a.step()
    assert api.objects[PATH]["metadata"]["labels"] == {"team": "ml"}
    assert spec(api)["strategy"] == "OldestEmulationVersion"


def test_a_refusal_is_a_problem_in_words(api: ScriptedApi, clock: Clock) -> None:
    a = elector(api, clock, "a")
    api.faults.append(lambda: refusal(403, "Forbidden", "cannot get leases"))
    assert not a.step()
    assert a.problem == "lease kube-system/tonnage: Forbidden: cannot get leases"


def test_deadlines_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ValueError, match="retry_s < renew_deadline_s < lease_s"):
        Elector(Client(ScriptedApi()), "n", "ns", "i", time.time, time.monotonic, lease_s=5, renew_deadline_s=5)


def test_the_default_clock_goes_on() -> None:
    first = awake_and_asleep()
    assert 0 <= awake_and_asleep() - first < 5


def test_in_threads_one_leads_and_the_other_takes_over_when_it_stops(api: ScriptedApi) -> None:
    def made(identity: str) -> Elector:
        return Elector(
            Client(api),
            "tonnage",
            "kube-system",
            identity,
            time.time,
            lease_s=1.0,
            renew_deadline_s=0.5,
            retry_s=0.02,
        )

    a, b = made("a"), made("b")
    a.start()
    _until(a.leading)
    b.start()
    a.stop()
    assert not a.leading()
    _until(b.leading)
    b.stop()
    assert spec(api)["holderIdentity"] == ""
    assert not [t for t in threading.enumerate() if t.name == "lease-tonnage"]


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Network:
    """Between one elector and the API: takes time before and after the server acts, in which others step, and loses
    requests and answers. Every moment at which something could be seen is checked."""

    def __init__(self, world: Electors) -> None:
        self.world = world

    def request(self, method: str, path: str, **rest: Any) -> Reply:
        world = self.world
        world.elapse()
        fate = world.rng.random()
        if fate < world.loss / 2:
            raise Unreachable("lost on the way there")
        reply = world.api.request(method, path, **rest)
        world.check()
        world.elapse()
        if fate < world.loss:
            raise LostReply("lost on the way back")
        return reply


class Electors:
    """Some electors, each with clocks of its own, over one API."""

    def __init__(self, seed: int, count: int, pauses: float, loss: float) -> None:
        self.rng = random.Random(seed)
        self.api = ScriptedApi()
        self.clock = Clock()
        self.pauses, self.loss = pauses, loss
        self.busy: set[int] = set()
        self.led: list[str] = []
        self.electors = [self.elector(i) for i in range(count)]

    def elector(self, number: int) -> Elector:
        offset, skew = self.rng.uniform(0, 1e6), self.rng.uniform(-1, 1)
        client = Client(Network(self))  # type: ignore[arg-type]
        return Elector(
            client,
            "tonnage",
            "kube-system",
            f"e{number}",
            lambda: 1.7e9 + self.clock.now + skew,
            lambda: self.clock.now + offset,
        )

    def check(self) -> None:
        leaders = [e.identity for e in self.electors if e.leading()]
        assert len(leaders) <= 1, f"{leaders} at {self.clock.now}"
        if leaders and (not self.led or self.led[-1] != leaders[0]):
            self.led += leaders

    def elapse(self) -> None:
        """Time goes by: mostly little, at times a pause of up to 40 s; others may do their steps within."""
        long = self.rng.random() < self.pauses
        left = self.rng.uniform(0, 40) if long else self.rng.uniform(0, 0.2)
        while left > 0:
            part = min(left, self.rng.uniform(0.01, 3))
            self.clock.now += part
            left -= part
            self.check()
            if len(self.busy) < 2 and self.rng.random() < 0.4:
                self.act()

    def act(self) -> None:
        idle = [i for i in range(len(self.electors)) if i not in self.busy]
        if not idle:
            return
        number = self.rng.choice(idle)
        self.busy.add(number)
        if self.rng.random() < 0.03:
            self.electors[number].release()
        else:
            self.electors[number].step()
        self.busy.discard(number)
        self.check()


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(2, 3),
    pauses=st.sampled_from([0.0, 0.02, 0.1, 0.3]),
    loss=st.sampled_from([0.0, 0.1, 0.4]),
)
def test_never_do_two_lead_at_once(seed: int, count: int, pauses: float, loss: float) -> None:
    world = Electors(seed, count, pauses, loss)
    for _ in range(40):
        world.elapse()
        world.act()


def test_the_random_worlds_do_change_leaders() -> None:
    """So that the property above is not true for want of a leader."""
    changes = 0
    for seed in range(20):
        world = Electors(seed, 3, 0.1, 0.1)
        for _ in range(40):
            world.elapse()
            world.act()
        changes += len(world.led)
    assert changes > 40


def test_a_lease_is_plain_json(api: ScriptedApi, clock: Clock) -> None:
    assert elector(api, clock, "a").step()
    sent: Mapping[str, Any] = json.loads(json.dumps(api.objects[PATH]))
    assert (sent["apiVersion"], sent["kind"]) == ("coordination.k8s.io/v1", "Lease")
