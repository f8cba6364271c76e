"""Bindings for whose answers no thread waits: the rules are those of threads that wait."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from tonnage.decisions import Applied, Bind, Outcome, Reason, Ref, Refused, Stale
from tonnage.kube.clock import WallClock
from tonnage.kube.fence import Withheld
from tonnage.kube.fence import of as fence_of
from tonnage.kube.transport import Again, ClientError, Done, LostReply, Reply
from tonnage.kube.verbs import Client
from tonnage.live import binding_calls
from tonnage.live.api_effects import ApiEffects
from tonnage.live.binding_calls import UNTOLD, BindingCall, BindingCalls, GangCalls, Left
from tonnage.live.effects import Ends, Observing
from tonnage.live.fencing import LOST, Fenced

NO_RIGHT = 'pods "p" is forbidden: User "t" cannot create resource "pods/binding" in API group "" in the namespace "d"'


class Waits:
    """Nothing is written of pods that wait, but of those in ``busy``."""

    def __init__(self) -> None:
        self.busy: set[str] = set()

    def settle(self, uid: str) -> None:
        self.busy.discard(uid)

    def settled(self, uid: str) -> bool:
        return uid not in self.busy


class InTurn(Observing):
    """An API server that answers one call after another in a thread of its own. ``answer``: what it says to a pod of
    that name, a call that finds out, or what it raises."""

    def __init__(self, answer: Callable[[str], Any] = lambda name: Applied()) -> None:
        self.answer = answer
        self.sent: list[str] = []
        self.waited: list[str] = []
        self._todo: deque[tuple[Bind, Callable[[], bool], Ends]] = deque()

    def bind(self, decision: Bind) -> Outcome:
        self.waited.append(decision.pod.name)
        return Applied()

    def submit_bind(self, decision: Bind, may: Callable[[], bool], done: Ends) -> bool:
        self._todo.append((decision, may, done))
        if len(self._todo) == 1:
            threading.Thread(target=self._run, daemon=True).start()
        return True

    def _run(self) -> None:
        time.sleep(0.02)  # the whole batch has been submitted
        while self._todo:
            decision, may, done = self._todo[0]
            try:
                while not may():
                    time.sleep(0.005)
            except ClientError as error:
                done(Stale(str(error)))
            else:
                self.sent.append(decision.pod.name)
                done(self.answer(decision.pod.name))
            self._todo.popleft()


def bind(name: str) -> Bind:
    return Bind(Ref("Pod", name, "d", uid=f"uid-{name}"), Ref("Node", "n"), Reason("best"))


def made(api: Observing, calls: list[BindingCall], waits: Waits | None = None) -> tuple[list[Any], BindingCalls]:
    """What became of the calls, by number, and who made them."""
    maker = BindingCalls(api, WallClock(), waits or Waits(), 4)  # type: ignore[arg-type]
    found = dict(maker.make(calls))
    assert len(found) == len(calls)
    return [found[number] for number in range(len(calls))], maker


def calls(*names: str, gang: GangCalls | None = None) -> list[BindingCall]:
    return [BindingCall(number, bind(name), (), gang) for number, name in enumerate(names)]


def test_each_call_has_the_answer_of_its_pod() -> None:
    api = InTurn(lambda name: Applied() if int(name) % 3 else Refused("no", "Forbidden"))
    found, maker = made(api, calls(*map(str, range(60))))
    assert [isinstance(one, Applied) for one in found] == [number % 3 != 0 for number in range(60)]
    assert api.sent == [str(number) for number in range(60)]
    assert [maker.told(f"uid-{number}") is not None for number in (1, 1, 3)] == [True, False, False]


def test_when_a_call_for_a_gang_has_failed_its_others_are_not_sent() -> None:
    api = InTurn(lambda name: Stale("gone") if name == "b" else Applied())
    found, _ = made(api, [*calls("a", "b", "c", "d", gang=GangCalls("g")), BindingCall(4, bind("alone"), (), None)])
    assert api.sent == ["a", "b", "alone"]
    assert [type(one) for one in found] == [Applied, Stale, Left, Left, Applied]
    assert found[2].changed == "gang g is bound all or nothing: gone"


def test_where_the_right_to_bind_is_missing_the_first_answer_is_that_of_all() -> None:
    api = InTurn(lambda name: Refused(NO_RIGHT, "Forbidden"))
    found, maker = made(api, calls("a", "b", "c"))
    assert api.sent == ["a"]
    assert {(type(one), one.code) for one in found} == {(Refused, "Forbidden")}
    assert maker.lacks_until_ns("d") is not None
    assert maker.lacks_until_ns("other") is None


def test_an_answer_that_was_lost_is_found_out_by_a_thread_that_waits() -> None:
    main = threading.current_thread()

    def find() -> Outcome:
        assert threading.current_thread() is not main
        return Applied()

    found, maker = made(InTurn(lambda name: find), calls("a"))
    assert found == [Applied()]
    assert maker.told("uid-a") is not None


def test_what_finding_out_raises_is_what_became_of_the_call() -> None:
    def find() -> Outcome:
        raise ValueError("a fault")

    found, _ = made(InTurn(lambda name: find if name == "a" else Applied()), calls("a", "b"))
    assert [str(one) if isinstance(one, ValueError) else one for one in found] == ["a fault", Applied()]


def test_a_pod_of_which_something_is_written_and_one_with_claims_are_waited_for() -> None:
    waits = Waits()
    waits.busy.add("uid-a")
    with_claim = BindingCall(1, bind("b"), ((Ref("PersistentVolumeClaim", "c", "d"), None),), None)

    class Claims(InTurn):
        def take_claim(self, claim: Ref, volume: Ref | None, node: str) -> Outcome:
            return Applied()

    api = Claims()
    found, _ = made(api, [*calls("a"), with_claim, BindingCall(2, bind("c"), (), None)], waits)
    assert found == [Applied()] * 3
    assert (sorted(api.waited), api.sent) == (["a", "b"], ["c"])


def test_bindings_whose_events_are_not_written_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is told of any: the places are used up, and then a few go each time that the wait was too long."""
    monkeypatch.setattr(binding_calls, "LONGEST_AWAIT_S", 0.3)
    api = InTurn()
    names = [str(number) for number in range(UNTOLD + 3)]
    begun = time.monotonic()
    found, maker = made(api, calls(*names))
    assert time.monotonic() - begun >= 0.3
    assert found == [Applied()] * len(names)
    places = [maker.told(f"uid-{name}") for name in names]
    assert [place is not None for place in places] == [True] * UNTOLD + [False] * 3


class OneAnswer:
    """A transport that is told what became of the one request, and what is read after it."""

    def __init__(self, found: Reply | ClientError, node: str = "") -> None:
        self.found, self.node = found, node
        self.requests: list[str] = []

    def submit(self, method: str, path: str, done: Done, **_: object) -> bool:
        fence = fence_of(method)
        try:
            if fence is not None:
                fence.check()
        except Withheld as error:
            done(error)
        else:
            self.requests.append(f"{method} submitted")
            done(self.found)
        return True

    def request(self, method: str, path: str, **_: object) -> Reply:
        if (fence := fence_of(method)) is not None:
            fence.check()
        self.requests.append(method)
        body = f'{{"metadata": {{"uid": "uid-p"}}, "spec": {{"nodeName": "{self.node}"}}}}'
        return Reply(200 if method == "GET" else 201, body.encode())


def ended(transport: OneAnswer, leads: list[bool]) -> Outcome:
    found: list[Any] = []
    effects = Fenced(ApiEffects(Client(transport), WallClock()), lambda _: leads.pop(0))  # type: ignore[arg-type]
    assert effects.submit_bind(bind("p"), lambda: True, found.append)
    (one,) = found
    return one() if callable(one) else one  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("found", "node", "leads", "outcome", "requests"),
    [
        (Reply(201, b"{}"), "", [True], Applied(), ["POST submitted"]),
        (Reply(201, b"{}"), "", [False], LOST, []),
        (LostReply("lost"), "n", [True], Applied(), ["POST submitted", "GET"]),
        (LostReply("lost"), "", [True], Stale("Pod d/p: the response was lost, and it was not done"), ["POST submitted", "GET"]),
        (Again("429"), "", [True, True], Applied(), ["POST submitted", "POST"]),
        (Again("429"), "", [True, False], LOST, ["POST submitted"]),
        (Reply(404, b"{}"), "", [True], Stale("Pod d/p is gone"), ["POST submitted"]),
        (Reply(409, b'{"message": "bound"}'), "", [True], Stale("Pod d/p: bound"), ["POST submitted"]),
        (Reply(403, b'{"reason": "Forbidden", "message": "no"}'), "", [True], Refused("Pod d/p: no", "Forbidden"), ["POST submitted"]),
    ],
)  # fmt: skip
def test_a_binding_for_which_nobody_waits_ends_as_one_that_is_waited_for(
    found: Reply | ClientError, node: str, leads: list[bool], outcome: Outcome, requests: list[str]
) -> None:
    """Whether it holds the lease is asked for each request that may change something, and not for reading."""
    transport = OneAnswer(found, node)
    assert ended(transport, leads) == outcome
    assert (transport.requests, leads) == (requests, [])
