"""Requests for whose answers nobody waits: what is sent over which connections, and what each is told."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import pytest
from raw_server import Answer, Got, RawServer, answer, chunked, hang_up

from tonnage.kube import fence, multiplex
from tonnage.kube.credentials import Fixed
from tonnage.kube.http import HttpTransport, Rate
from tonnage.kube.kubeconfig import Access
from tonnage.kube.transport import Again, ApiError, ClientError, LostReply, Reply, Unreachable
from tonnage.kube.verbs import Client
from tonnage.objects.api import protobuf

LATER = b"HTTP/1.1 100 Continue\r\n\r\n"
Serve = Callable[..., tuple[RawServer, HttpTransport]]


class Told:
    """What became of requests, by name."""

    def __init__(self) -> None:
        self.found: dict[str, Reply | ClientError] = {}
        self._more = threading.Condition()

    def of(self, name: str) -> Callable[[Reply | ClientError], None]:
        def done(found: Reply | ClientError) -> None:
            with self._more:
                assert name not in self.found, "it is told once"
                self.found[name] = found
                self._more.notify_all()

        return done

    def wait(self, count: int) -> dict[str, Reply | ClientError]:
        with self._more:
            assert self._more.wait_for(lambda: len(self.found) >= count, 5), self.found
        return self.found


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def errors() -> list[str]:
    return []


@pytest.fixture
def serve(errors: list[str]) -> Iterator[Serve]:
    opened: list[tuple[RawServer, HttpTransport]] = []

    def start(*answers: Answer, rate: Rate | None = None) -> tuple[RawServer, HttpTransport]:
        server = RawServer(deque(answers)).__enter__()
        access = Access(server.url, "test", "default", "test", None, Fixed())
        opened.append((server, HttpTransport(access, rate=rate, on_error=errors.append)))
        return opened[-1]

    yield start
    for server, transport in opened:
        transport.close()
        server.__exit__()


def status(found: Reply | ClientError) -> int:
    assert isinstance(found, Reply), found
    return found.status


def test_many_requests_share_few_connections(serve: Serve, told: Told) -> None:
    server, transport = serve(answer(201, {"kind": "Status"}))
    for number in range(100):
        assert transport.submit("POST", f"/api/{number}", told.of(str(number)), lane="a", body=b"{}")
    assert {status(found) for found in told.wait(100).values()} == {201}
    assert sorted(int(got.target[5:]) for got in server.got) == list(range(100))
    assert server.connections <= multiplex.CONNECTIONS
    assert {got.body for got in server.got} == {b"{}"}


@pytest.mark.parametrize(
    ("raw", "body"),
    [
        (chunked(b"one", b"two"), b"onetwo"),
        (LATER + answer(200, b"after an interim answer"), b"after an interim answer"),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\nold", b"old"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
)
@pytest.mark.parametrize("step", [1, 7, 1000])
def test_answers_come_whole_however_they_are_cut_and_the_next_request_is_answered(
    serve: Serve, told: Told, raw: bytes, body: bytes, step: int
) -> None:
    def bit_by_bit(_got: Got, connection: socket.socket) -> bool:
        for at in range(0, len(raw), step):
            connection.sendall(raw[at : at + step])
        return b"HTTP/1.0" not in raw and b"close" not in raw

    server, transport = serve(bit_by_bit, answer(201))
    transport.submit("POST", "/first", told.of("first"), lane="a")
    first = told.wait(1)["first"]
    assert isinstance(first, Reply)
    assert (first.body, first.status) == (body, int(raw.removeprefix(LATER)[9:12]))
    transport.submit("POST", "/second", told.of("second"), lane="a")
    assert status(told.wait(2)["second"]) == 201
    assert len(server.got) == 2


def test_a_kept_connection_that_was_closed_meanwhile_is_replaced_unseen(
    serve: Serve, told: Told, errors: list[str]
) -> None:
    server, transport = serve(answer(201))
    for number in range(3):
        transport.submit("POST", f"/{number}", told.of(str(number)), lane="a")
        assert status(told.wait(number + 1)[str(number)]) == 201
        server.drop()
    assert errors == []


def _half(_got: Got, connection: socket.socket) -> bool:
    connection.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 50\r\n\r\n{")
    return False


@pytest.mark.parametrize("broken", [hang_up, _half, b"SSH-2.0-OpenSSH_9.2\r\n\r\n"])
def test_a_request_whose_reply_is_lost_is_not_sent_again(
    serve: Serve, told: Told, errors: list[str], broken: Answer
) -> None:
    server, transport = serve(broken, answer(201))
    transport.submit("POST", "/lost", told.of("lost"), lane="a")
    assert isinstance(told.wait(1)["lost"], LostReply)
    transport.submit("POST", "/next", told.of("next"), lane="a")
    assert status(told.wait(2)["next"]) == 201
    assert ([got.target for got in server.got], errors) == (["/lost", "/next"], ["lost"])


def test_a_request_without_an_answer_in_time_is_lost(serve: Serve, told: Told) -> None:
    def late(_got: Got, _connection: socket.socket) -> bool:
        time.sleep(3)
        return False

    _, transport = serve(late)
    transport.submit("POST", "/late", told.of("late"), lane="a", timeout_s=0.05)
    assert isinstance(told.wait(1)["late"], LostReply)


def test_without_a_server_all_that_wait_are_told_and_it_is_found_when_it_is_back(told: Told) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    transport = HttpTransport(Access(f"http://127.0.0.1:{port}", "test", "default", "test", None, Fixed()))
    for number in range(20):
        transport.submit("POST", "/", told.of(str(number)), lane="a")
    assert {type(found) for found in told.wait(20).values()} == {Unreachable}
    transport.close()
    transport.submit("POST", "/", told.of("closed"), lane="a")
    assert isinstance(told.wait(21)["closed"], Unreachable)


class Scripted:
    """Whether a lease is held, one answer for each time that it is asked for."""

    def __init__(self, *answers: bool) -> None:
        self.answers = deque(answers)

    def __call__(self) -> bool:
        return self.answers.popleft() if len(self.answers) > 1 else self.answers[0]


@pytest.mark.parametrize("held", [(True, True, False), (True, True, True, False)])
def test_what_must_not_be_done_any_more_is_not_sent(serve: Serve, told: Told, held: tuple[bool, ...]) -> None:
    """The lease is asked for before a connection is taken, and once more when only the bytes are left to be sent."""
    server, transport = serve(answer(201))
    with fence.only_while(Scripted(*held)) as fenced:
        transport.submit("POST", "/first", told.of("first"), lane="a")
        assert status(told.wait(1)["first"]) == 201
        transport.submit("POST", "/second", told.of("second"), lane="a")
        assert isinstance(told.wait(2)["second"], fence.Withheld)
    assert fenced.withheld
    transport.submit("POST", "/third", told.of("third"), lane="a")
    assert status(told.wait(3)["third"]) == 201
    assert [got.target for got in server.got] == ["/first", "/third"]


@pytest.mark.parametrize(
    ("raw", "again", "told_of"),
    [
        (answer(401), True, []),
        (answer(429, retry_after="1"), True, []),
        (answer(503, retry_after="2"), True, []),
        (answer(429), False, ["429"]),
        (answer(409, {"reason": "Conflict"}), False, ["409"]),
    ],
)
def test_what_the_server_did_not_do_is_to_be_asked_again_with_patience(
    serve: Serve, told: Told, errors: list[str], raw: bytes, again: bool, told_of: list[str]
) -> None:
    _, transport = serve(raw)
    transport.submit("POST", "/", told.of("it"), lane="a")
    assert isinstance(told.wait(1)["it"], Again) == again
    assert errors == told_of


def test_a_refusal_reaches_who_has_asked_with_its_reason(serve: Serve) -> None:
    _, transport = serve(answer(409, {"kind": "Status", "code": 409, "reason": "Conflict", "message": "bound"}))
    ended: SimpleQueue[ClientError | None] = SimpleQueue()
    assert Client(transport).submit_bind("p", "default", "u", "n", ended.put)
    error = ended.get(timeout=5)
    assert isinstance(error, ApiError)
    assert (error.code, error.reason) == (409, "Conflict")


def test_a_server_that_reads_no_protobuf_is_asked_in_json_from_then_on(serve: Serve) -> None:
    server, transport = serve(answer(415, {"kind": "Status", "reason": "UnsupportedMediaType"}), answer(201))
    client, ended = Client(transport), SimpleQueue[ClientError | None]()
    assert client.submit_bind("a", "default", "u", "n", ended.put)
    assert isinstance(ended.get(timeout=5), Again)
    for name in ("a", "b"):
        assert client.submit_bind(name, "default", "u", "n", ended.put)
        assert ended.get(timeout=5) is None
    sent = [(one.headers["content-type"], one.body[:4]) for one in server.got]
    assert sent == [(protobuf.CONTENT_TYPE, protobuf.MAGIC), *[("application/json", b'{"ap')] * 2]


def test_json_is_not_sent_again_to_a_server_that_refuses_it_too(serve: Serve) -> None:
    _, transport = serve(answer(415, {"kind": "Status", "reason": "UnsupportedMediaType"}))
    client, ended = Client(transport), SimpleQueue[ClientError | None]()
    found = []
    for _ in range(2):
        assert client.submit_bind("a", "default", "u", "n", ended.put)
        found.append(ended.get(timeout=5))
    assert [type(one) for one in found] == [Again, ApiError]


def test_what_may_not_go_yet_waits_while_others_go(serve: Serve, told: Told) -> None:
    server, transport = serve(answer(201))
    may = threading.Event()
    transport.submit("POST", "/waits", told.of("waits"), lane="a", may=may.is_set)
    transport.submit("POST", "/behind", told.of("behind"), lane="a")
    transport.submit("POST", "/other", told.of("other"), lane="b")
    assert status(told.wait(1)["other"]) == 201
    assert [got.target for got in server.got] == ["/other"]
    may.set()
    assert set(told.wait(3)) == {"waits", "behind", "other"}
    assert sorted(got.target for got in server.got) == ["/behind", "/other", "/waits"]


def test_what_is_in_vain_is_not_sent_and_holds_nobody_up(serve: Serve, told: Told) -> None:
    server, transport = serve(answer(201))

    def in_vain() -> bool:
        raise ClientError("in vain")

    transport.submit("POST", "/vain", told.of("vain"), lane="a", may=in_vain)
    transport.submit("POST", "/behind", told.of("behind"), lane="a")
    assert str(told.wait(2)["vain"]) == "in vain"
    assert [got.target for got in server.got] == ["/behind"]


def test_closing_tells_who_is_under_way_and_who_waits(serve: Serve, told: Told) -> None:
    asked = threading.Event()

    def silent(_got: Got, _connection: socket.socket) -> bool:
        asked.set()
        time.sleep(1)
        return False

    _, transport = serve(silent)
    transport.submit("POST", "/under-way", told.of("under way"), lane="a")
    assert asked.wait(5)
    transport.submit("POST", "/waits", told.of("waits"), lane="a", may=lambda: False)
    transport.close()
    found = told.wait(2)
    assert (type(found["under way"]), type(found["waits"])) == (LostReply, Unreachable)


def test_a_fault_of_one_who_is_told_is_seen_and_holds_up_nobody(
    serve: Serve, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(threading, "excepthook", lambda fault: seen.put(str(fault.exc_value)))
    _, transport = serve(answer(201))

    def fault(_found: object) -> None:
        raise ValueError("a fault")

    transport.submit("POST", "/", fault, lane="a")
    transport.submit("POST", "/", told.of("next"), lane="a")
    assert status(told.wait(1)["next"]) == 201
    assert seen.get(timeout=5) == "a fault"  # over another connection: either may be answered first
    assert seen.empty()


def test_where_requests_are_limited_they_are_made_one_by_one(serve: Serve, told: Told) -> None:
    server, transport = serve(answer(201), rate=Rate(10, 1))
    assert not transport.submit("POST", "/", told.of("it"), lane="a")
    assert (told.found, server.got) == ({}, [])
