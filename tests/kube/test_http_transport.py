"""HTTP to an API server: what is sent, what is retried, and what an error may mean."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

import pytest
from raw_server import Answer, Got, RawServer, answer, chunked, hang_up

from tonnage.errors import InputError
from tonnage.kube import fence
from tonnage.kube.credentials import Credentials, Fixed
from tonnage.kube.http import HttpTransport, Rate, check_version
from tonnage.kube.http1 import Wire
from tonnage.kube.kubeconfig import Access
from tonnage.kube.transport import ApiError, LostReply, Unreachable
from tonnage.kube.verbs import Client

Serve = Callable[..., tuple[RawServer, HttpTransport]]


class Sleeper:
    """Notes pauses instead of waiting."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def __call__(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        return False


class Token:
    """Credentials that change when they are refused."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)

    def header(self) -> str:
        return self.tokens[0]

    def renew(self, refused: str) -> bool:
        if self.tokens[0] == refused and len(self.tokens) > 1:
            self.tokens.pop(0)
        return self.tokens[0] != refused


def access(url: str, credentials: Credentials | None = None, proxy: str = "") -> Access:
    return Access(url, "test", "default", "test", None, credentials or Fixed(), proxy=proxy)


@pytest.fixture
def sleeper() -> Sleeper:
    return Sleeper()


@pytest.fixture
def errors() -> list[str]:
    return []


@pytest.fixture
def serve(sleeper: Sleeper, errors: list[str]) -> Iterator[Serve]:
    opened: list[tuple[RawServer, HttpTransport]] = []

    def start(
        *answers: Answer, prefix: str = "", credentials: Credentials | None = None, rate: Rate | None = None
    ) -> tuple[RawServer, HttpTransport]:
        server = RawServer(deque(answers)).__enter__()
        transport = HttpTransport(
            access(server.url + prefix, credentials),
            rng=random.Random(1),
            rate=rate,
            on_error=errors.append,
            sleep=sleeper,
        )
        opened.append((server, transport))
        return server, transport

    yield start
    for server, transport in opened:
        transport.close()
        server.__exit__()


def test_a_request_carries_path_query_body_and_headers(serve: Serve) -> None:
    server, transport = serve(answer(201, {"kind": "Status"}), credentials=Token("Bearer t"))
    reply = transport.request(
        "POST", "/api/v1/pods", query={"fieldManager": "a b"}, body=b'{"x":1}', content_type="application/json"
    )
    assert (reply.status, reply.body) == (201, b'{"kind": "Status"}')
    [got] = server.got
    assert (got.method, got.target, got.body) == ("POST", "/api/v1/pods?fieldManager=a%20b", b'{"x":1}')
    assert got.headers == {
        "host": f"127.0.0.1:{server.port}",
        "user-agent": "tonnage/0.1.0",
        "accept": "application/json",
        "content-type": "application/json",
        "content-length": "7",
        "authorization": "Bearer t",
    }


def test_a_path_in_the_servers_address_comes_first(serve: Serve) -> None:
    server, transport = serve(answer(), prefix="/secret-token/")
    transport.request("GET", "/api/v1/pods")
    assert server.got[0].target == "/secret-token/api/v1/pods"


def test_a_name_cannot_smuggle_in_a_header(serve: Serve) -> None:
    server, transport = serve(answer())
    transport.request("GET", "/api/v1/pods/a b\r\nX: y?z")
    assert server.got[0].target == "/api/v1/pods/a%20b%0D%0AX%3A%20y%3Fz".replace("%3A", ":")
    assert "x" not in server.got[0].headers


def test_one_connection_serves_many_requests(serve: Serve) -> None:
    server, transport = serve(answer(200, {"n": 1}))
    for _ in range(20):
        transport.request("GET", "/version")
    assert (server.connections, len(server.got)) == (1, 20)


@pytest.mark.parametrize(
    ("raw", "body"),
    [
        (chunked(b'{"a":', b"1}"), b'{"a":1}'),
        (answer(200, b"x" * 3_000_000), b"x" * 3_000_000),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + answer(200, b"ok"), b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
    ids=["chunked", "long", "interim", "none"],
)
def test_bodies_come_whole_and_the_connection_goes_on(serve: Serve, raw: bytes, body: bytes) -> None:
    server, transport = serve(raw)
    for _ in range(2):
        assert transport.request("GET", "/version").body == body
    assert server.connections == 1


@pytest.mark.parametrize(
    "raw",
    [b"HTTP/1.0 200 OK\r\n\r\nrest", answer(200, b"rest", Connection="close")],
    ids=["HTTP/1.0", "Connection: close"],
)
def test_a_connection_that_the_server_ends_is_not_used_again(serve: Serve, raw: bytes) -> None:
    def once(_got: Got, connection: socket.socket) -> bool:
        connection.sendall(raw)
        return False

    server, transport = serve(once)
    for _ in range(3):
        assert transport.request("GET", "/version").body == b"rest"
    assert server.connections == 3


def test_32_requests_at_once_have_32_connections(serve: Serve) -> None:
    meet = threading.Barrier(32)

    def wait(_got: Got, connection: socket.socket) -> bool:
        meet.wait(5)
        connection.sendall(answer(200, b"ok"))
        return True

    server, transport = serve(wait)
    threads = [threading.Thread(target=transport.request, args=("GET", "/version")) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert (server.connections, len(server.got)) == (32, 32)


def test_a_kept_connection_that_was_closed_meanwhile_is_replaced_unseen(serve: Serve, errors: list[str]) -> None:
    server, transport = serve(answer(201))
    transport.request("POST", "/a", body=b"{}")
    server.drop()
    time.sleep(0.05)
    assert transport.request("POST", "/a", body=b"{}").status == 201
    assert (server.connections, errors) == (2, [])


def test_a_write_that_did_not_go_out_on_a_kept_connection_goes_out_on_a_new_one(
    monkeypatch: pytest.MonkeyPatch, serve: Serve, errors: list[str]
) -> None:
    def once(got: Got, connection: socket.socket) -> bool:
        connection.sendall(answer(201))
        if got.connection == 1:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False  # closed with RST: what is sent into it fails
        return True

    server, transport = serve(once)
    monkeypatch.setattr(Wire, "dead", lambda wire: False)  # as if it were closed just after the look
    transport.request("POST", "/a", body=b"{}")
    time.sleep(0.05)
    assert transport.request("POST", "/a", body=b"{}").status == 201
    assert (server.connections, len(server.got), errors) == (2, 2, [])


def test_a_write_whose_reply_is_lost_is_not_sent_again(serve: Serve, errors: list[str]) -> None:
    server, transport = serve(hang_up)
    with pytest.raises(LostReply, match="the connection ended before an answer came"):
        transport.request("POST", "/api/v1/pods", body=b"{}")
    assert (len(server.got), errors) == (1, ["lost"])


def test_a_write_whose_reply_breaks_off_is_lost(serve: Serve) -> None:
    def half(_got: Got, connection: socket.socket) -> bool:
        connection.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{")
        return False

    _, transport = serve(half)
    with pytest.raises(LostReply, match="within the answer"):
        transport.request("POST", "/api/v1/pods", body=b"{}")


def test_a_write_without_an_answer_in_time_is_lost(serve: Serve) -> None:
    def silent(_got: Got, _connection: socket.socket) -> bool:
        time.sleep(0.3)
        return False

    _, transport = serve(silent)
    with pytest.raises(LostReply, match="no answer in time"):
        transport.request("PATCH", "/api/v1/pods/x", body=b"{}", timeout_s=0.05)


def test_a_read_whose_reply_is_lost_is_sent_again_after_growing_pauses(
    serve: Serve, sleeper: Sleeper, errors: list[str]
) -> None:
    server, transport = serve(hang_up, hang_up, hang_up, answer(200, b"ok"))
    assert transport.request("GET", "/api/v1/pods").body == b"ok"
    assert len(server.got) == 4
    assert errors == ["lost"] * 3
    for pause, base in zip(sleeper.pauses, (0.1, 0.2, 0.4), strict=True):
        assert 0.5 * base <= pause < 1.5 * base


def test_a_read_is_given_up_after_five_tries(serve: Serve) -> None:
    server, transport = serve(hang_up)
    with pytest.raises(LostReply):
        transport.request("GET", "/api/v1/pods")
    assert len(server.got) == 5


def test_without_a_server_it_is_unreachable_for_certain(sleeper: Sleeper) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    transport = HttpTransport(access(f"http://127.0.0.1:{port}/token"), sleep=sleeper)
    with pytest.raises(Unreachable, match=f"^http://127.0.0.1:{port}: Connection refused$"):
        transport.request("POST", "/api/v1/pods", body=b"{}")
    assert sleeper.pauses == []
    with pytest.raises(Unreachable):
        transport.request("GET", "/api/v1/pods")
    assert len(sleeper.pauses) == 4


def test_another_protocol_is_said_to_be_one(serve: Serve) -> None:
    def ssh(_got: Got, connection: socket.socket) -> bool:
        connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
        return False

    _, transport = serve(ssh)
    with pytest.raises(LostReply, match=r"not an HTTP/1.1 server: it answers 'SSH-2.0-OpenSSH_9.6'"):
        transport.request("POST", "/", body=b"{}")


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_where_the_server_says_when_to_come_back_it_is_asked_again_then(
    serve: Serve, sleeper: Sleeper, errors: list[str], status: int, method: str
) -> None:
    server, transport = serve(answer(status, Retry_After="2"), answer(status, Retry_After="3"), answer(201))
    assert transport.request(method, "/api/v1/pods", body=b"{}" if method == "POST" else b"").status == 201
    assert sleeper.pauses == [2.0, 3.0]
    assert len(server.got) == 3
    assert errors == [str(status)] * 2


@pytest.mark.parametrize(
    ("method", "path", "raw"),
    [
        ("POST", "/api/v1/namespaces/a/pods/b/eviction", answer(429, Retry_After="1")),
        ("POST", "/api/v1/pods", answer(500, Retry_After="1")),
        ("POST", "/api/v1/pods", answer(504, Retry_After="1")),
        ("GET", "/api/v1/pods", answer(429)),
        ("GET", "/api/v1/pods", answer(404, Retry_After="1")),
        ("GET", "/api/v1/pods", answer(429, Retry_After="31")),
    ],
    ids=["eviction", "write 500", "write 504", "no time", "404", "too long"],
)
def test_other_answers_stand(serve: Serve, sleeper: Sleeper, method: str, path: str, raw: bytes) -> None:
    server, transport = serve(raw)
    assert transport.request(method, path).status == int(raw.split(b" ")[1])
    assert (len(server.got), sleeper.pauses) == (1, [])


def test_patience_ends_after_ten_tries(serve: Serve) -> None:
    server, transport = serve(answer(429, Retry_After="0"))
    assert transport.request("GET", "/api/v1/pods").status == 429
    assert len(server.got) == 11


def test_a_refused_token_is_renewed_and_the_request_sent_again(serve: Serve) -> None:
    server, transport = serve(answer(401), answer(201), credentials=Token("Bearer old", "Bearer new"))
    assert transport.request("POST", "/a", body=b"{}").status == 201
    assert [got.headers["authorization"] for got in server.got] == ["Bearer old", "Bearer new"]


def test_without_another_token_a_401_stands(serve: Serve) -> None:
    server, transport = serve(answer(401), credentials=Token("Bearer old"))
    assert transport.request("GET", "/a").status == 401
    assert len(server.got) == 1


def test_credentials_that_fail_later_are_an_error_of_the_request_not_of_the_program(serve: Serve) -> None:
    class Failing(Token):
        def renew(self, refused: str) -> bool:
            raise InputError.at("exec plugin failed")

    _, transport = serve(answer(401), credentials=Failing("Bearer old"))
    with pytest.raises(Unreachable, match="no credentials: exec plugin failed"):
        transport.request("POST", "/a", body=b"{}")


def test_a_rate_lets_a_burst_through_and_then_so_many_a_second(serve: Serve, sleeper: Sleeper) -> None:
    now = [0.0]
    _, transport = serve(answer(), rate=Rate(10.0, 3, lambda: now[0]))
    for _ in range(5):
        transport.request("GET", "/a")
    assert sleeper.pauses == pytest.approx([0.1, 0.2])
    now[0] = 10.0
    for _ in range(3):
        transport.request("GET", "/a")
    assert len(sleeper.pauses) == 2


def test_a_stream_gives_lines_however_they_are_cut(serve: Serve) -> None:
    server, transport = serve(chunked(b'{"a":1}\n', b'{"b"', b":2}\n{", b'"c":3}\n\n{"d":4}\n'))
    with transport.stream("/api/v1/pods", query={"watch": "true"}, timeout_s=5) as lines:
        assert list(lines) == [b'{"a":1}', b'{"b":2}', b'{"c":3}', b'{"d":4}']
    assert server.got[0].target == "/api/v1/pods?watch=true"


@pytest.mark.parametrize("rest", [b'{"b"', b""], ids=["within a line", "between lines"])
def test_a_stream_that_breaks_off_says_so(serve: Serve, rest: bytes) -> None:
    def broken(_got: Got, connection: socket.socket) -> bool:
        connection.sendall(chunked(b'{"a":1}\n', *([rest] if rest else []), end=False))
        return False

    _, transport = serve(broken)
    seen: list[bytes] = []
    with transport.stream("/a", query={}, timeout_s=5) as lines, pytest.raises(Unreachable):
        seen.extend(lines)
    with transport.stream("/a", query={}, timeout_s=5) as lines:
        assert next(lines) == b'{"a":1}'


def test_half_a_line_at_a_proper_end_is_an_error_too(serve: Serve) -> None:
    _, transport = serve(chunked(b'{"a":1}\n{"b"'))
    with transport.stream("/a", query={}, timeout_s=5) as lines:
        assert next(lines) == b'{"a":1}'
        with pytest.raises(Unreachable, match="within a line"):
            next(lines)


def silence(_got: Got, connection: socket.socket) -> bool:
    connection.sendall(chunked(b'{"a":1}\n', end=False))
    time.sleep(3)
    return False


def test_a_stream_ends_at_its_time_without_an_error(serve: Serve) -> None:
    _, transport = serve(silence)
    begun = time.monotonic()
    with transport.stream("/a", query={}, timeout_s=0.2) as lines:
        assert list(lines) == [b'{"a":1}']
    assert time.monotonic() - begun < 1.5


@pytest.mark.parametrize("closer", ["the stream", "the transport"])
def test_another_thread_ends_a_stream_that_waits(serve: Serve, closer: str) -> None:
    _, transport = serve(silence)
    stream = transport.stream("/a", query={}, timeout_s=60)
    with stream as lines:
        next(lines)
        threading.Timer(0.1, stream.close if closer == "the stream" else transport.close).start()
        begun = time.monotonic()
        assert list(lines) == []
        assert time.monotonic() - begun < 1


def test_another_thread_ends_a_request_that_waits(serve: Serve) -> None:
    _, transport = serve(silence)
    threading.Timer(0.1, transport.close).start()
    begun = time.monotonic()
    with pytest.raises(LostReply):
        transport.request("POST", "/a", body=b"{}")
    assert time.monotonic() - begun < 1
    with pytest.raises(Unreachable, match="closed"):
        transport.request("POST", "/a", body=b"{}")


def test_a_stream_that_is_refused_is_an_api_error(serve: Serve, errors: list[str]) -> None:
    _, transport = serve(answer(410, {"code": 410, "reason": "Expired", "message": "too old"}))
    with pytest.raises(ApiError) as caught, transport.stream("/a", query={}, timeout_s=5):
        raise AssertionError("it was let in")
    assert (caught.value.code, caught.value.reason, errors) == (410, "Expired", ["410"])


def test_a_stream_renews_a_refused_token(serve: Serve) -> None:
    server, transport = serve(answer(401), chunked(b"{}\n"), credentials=Token("Bearer old", "Bearer new"))
    with transport.stream("/a", query={}, timeout_s=5) as lines:
        assert list(lines) == [b"{}"]
    assert [got.headers["authorization"] for got in server.got] == ["Bearer old", "Bearer new"]


def test_a_proxy_is_asked_to_connect(sleeper: Sleeper) -> None:
    with RawServer(deque([b"HTTP/1.1 200 OK\r\n\r\n", answer(200, b"through")])) as proxy:
        behind = access("http://api.test:6443", proxy=f"http://user:pass@127.0.0.1:{proxy.port}")
        transport = HttpTransport(behind, sleep=sleeper)
        assert transport.request("GET", "/version").body == b"through"
        assert (proxy.got[0].method, proxy.got[0].target) == ("CONNECT", "api.test:6443")
        assert proxy.got[0].headers["proxy-authorization"] == "Basic dXNlcjpwYXNz"
        assert "proxy-authorization" not in proxy.got[1].headers
        transport.close()


def test_a_proxy_that_refuses_is_named(sleeper: Sleeper) -> None:
    with RawServer(deque([answer(407)])) as proxy:
        transport = HttpTransport(access("http://api.test", proxy=f"127.0.0.1:{proxy.port}"), sleep=sleeper)
        with pytest.raises(Unreachable, match=r"the proxy refuses to connect to api.test:80: status 407"):
            transport.request("POST", "/a")


def test_the_environments_proxy_is_used_but_not_for_this_machine(
    serve: Serve, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RawServer(deque([answer(502)])) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        _, local = serve(answer(200, b"direct"))
        assert local.request("GET", "/version").body == b"direct"
        with pytest.raises(Unreachable, match="status 502"):
            HttpTransport(access("http://api.test"), sleep=sleeper).request("POST", "/a")
        monkeypatch.setenv("no_proxy", "api.test")
        assert HttpTransport(access("http://api.test"), sleep=sleeper)._proxy is None


def test_a_proxy_of_another_kind_is_refused() -> None:
    with pytest.raises(InputError, match="socks5://h:1: not supported"):
        HttpTransport(access("http://api.test", proxy="socks5://h:1"))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (answer(200, {"gitVersion": "v1.30.9"}), r"too old: v1.30.9 \(expected v1.31 or newer\)"),
        (answer(200, {"major": "1"}), "does not say its version"),
        (answer(200, b"<html>"), "not a Kubernetes API server"),
        (answer(401, {"code": 401, "message": "Unauthorized"}), "does not accept the credentials.*log in again"),
    ],
    ids=["too old", "none", "not one", "401"],
)
def test_a_server_that_will_not_do_is_refused_in_one_line(serve: Serve, raw: bytes, message: str) -> None:
    _, transport = serve(raw)
    with pytest.raises(InputError, match=message) as caught:
        check_version(Client(transport), "prod")
    assert len(str(caught.value).splitlines()) == 1


def test_a_version_with_a_suffix_is_read(serve: Serve) -> None:
    _, transport = serve(answer(200, {"gitVersion": "v1.33.2-eks-1-33-11", "minor": "33+"}))
    assert check_version(Client(transport)) == (1, 33)


class Scripted:
    """Holds as long as it is told."""

    def __init__(self, *answers: bool) -> None:
        self.answers = deque(answers)

    def __call__(self) -> bool:
        return self.answers.popleft()


def test_what_must_not_be_done_any_more_is_not_sent_though_it_was_decided_on_and_connected(serve: Serve) -> None:
    """The lease runs out when a connection is there and all that is left is to send."""
    server, transport = serve(answer(201))
    client = Client(transport)
    with fence.only_while(Scripted(True, False)) as fenced:
        client.bind("first", "default", "u", "n")
        assert not fenced.withheld
        with pytest.raises(fence.Withheld):
            client.bind("second", "default", "u", "n")
    assert fenced.withheld
    client.bind("third", "default", "u", "n")
    assert [got.target.split("/")[6] for got in server.got] == ["first", "third"]


def test_a_server_that_says_later_gets_nothing_when_the_lease_has_run_out_meanwhile(
    serve: Serve, errors: list[str]
) -> None:
    server, transport = serve(answer(429, retry_after="1"), answer(201))
    with fence.only_while(Scripted(True, False)), pytest.raises(fence.Withheld):
        transport.request("POST", "/api/v1/pods", body=b"{}")
    assert (len(server.got), errors) == (1, ["429"])


def test_what_only_reads_is_sent_without_a_lease(serve: Serve) -> None:
    _, transport = serve(answer())
    with fence.only_while(Scripted()):
        assert transport.request("GET", "/version").status == 200


@pytest.mark.parametrize("still", [True, False])
def test_a_body_for_which_there_is_no_room_at_once_is_asked_for_again(serve: Serve, still: bool) -> None:
    """Until its last byte is out the server does nothing."""
    server, transport = serve(answer(201))
    asked: list[bool] = []

    def holds() -> bool:
        asked.append(still or not asked)
        return asked[-1]

    body = b"x" * (32 << 20)
    with fence.only_while(holds) as fenced:
        if still:
            assert transport.request("POST", "/api/v1/pods", body=body).status == 201
        else:
            with pytest.raises(fence.Withheld):
                transport.request("POST", "/api/v1/pods", body=body)
    assert (fenced.withheld, len(asked) > 1) == (not still, True)
    whole = [got for got in server.got if len(got.body) == len(body)]
    assert len(whole) == (1 if still else 0)
