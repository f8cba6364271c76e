"""The embedded API called in process: the port of a client without HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from tonnage.apiserver.api import Api
from tonnage.apiserver.request import ApiRequest
from tonnage.apiserver.watch import Watch
from tonnage.kube.transport import JSON, ApiError, Reply, Unreachable

_WAKE_S = 1.0


class InProcess:
    """A Transport. ``user_agent``: whose writes they are when a request names no field manager."""

    def __init__(self, api: Api, user_agent: str = "tonnage") -> None:
        self._api, self._user_agent = api, user_agent
        self._watches: set[Watch] = set()
        self._closed = False

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content_type: str = JSON,
        accept: str = JSON,
        timeout_s: float = 30.0,
    ) -> Reply:
        """One request and its answer. Raises Unreachable once it is closed."""
        answer = self._handle(ApiRequest(method, path, query or {}, body, content_type, accept, self._user_agent))
        if isinstance(answer, Watch):
            answer.close()
            raise ValueError(f"{path} with watch is a stream: use stream()")
        return answer

    def stream(self, path: str, *, query: Mapping[str, str], timeout_s: float) -> InProcessStream:
        """The lines of a watch. Entering raises ApiError for a status of 400 or more."""
        request = ApiRequest("GET", path, {**query, "watch": "true"}, user_agent=self._user_agent)
        return InProcessStream(lambda: self._handle(request), self._watches, timeout_s)

    def close(self) -> None:
        """End running streams; requests are refused from now on."""
        self._closed = True
        for watch in tuple(self._watches):
            watch.close()

    def _handle(self, request: ApiRequest) -> Reply | Watch:
        if self._closed:
            raise Unreachable("this client is closed")
        return self._api.handle(request)


class InProcessStream:
    """A watch that runs inside the ``with`` block; :meth:`close` ends it from any thread."""

    def __init__(self, begin: Callable[[], Reply | Watch], running: set[Watch], timeout_s: float) -> None:
        self._begin, self._running, self._timeout_s = begin, running, timeout_s
        self._watch: Watch | None = None

    def __enter__(self) -> Iterator[bytes]:
        answer = self._begin()
        if not isinstance(answer, Watch):
            raise ApiError.of(answer)
        self._watch = answer
        self._running.add(answer)
        return _lines(answer, time.monotonic() + self._timeout_s)

    def __exit__(self, *_: object) -> None:
        if self._watch is not None:
            self._watch.close()
            self._running.discard(self._watch)

    def close(self) -> None:
        """End it."""
        if self._watch is not None:
            self._watch.close()


def _lines(watch: Watch, deadline: float) -> Iterator[bytes]:
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return
        lines = watch.take(min(left, _WAKE_S))
        if lines is None:
            return
        yield from lines
