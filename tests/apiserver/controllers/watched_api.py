"""The embedded API as the managers' tests see it: requests are logged, and can be made to fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from random import Random

import msgspec

from tonnage.apiserver.api import Api
from tonnage.apiserver.inprocess import InProcess
from tonnage.kube.transport import JSON, Reply


class WatchedApi:
    """Implements Transport. ``log`` has the writes; ``fail`` may answer a request with a status of its own."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.api = Api(clock=clock, random=Random(1))
        self.store = self.api.store
        self.log: list[tuple[str, str]] = []
        self.fail: Callable[[str, str], int] | None = None
        self._inner = InProcess(self.api)

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
        if method != "GET":
            self.log.append((method, path))
        if self.fail is not None and (code := self.fail(method, path)):
            refusal = {"code": code, "reason": "InternalError", "message": "made to fail"}
            return Reply(code, msgspec.json.encode(refusal))
        return self._inner.request(
            method, path, query=query, body=body, content_type=content_type, accept=accept, timeout_s=timeout_s
        )

    def stream(self, path: str, *, query: Mapping[str, str], timeout_s: float) -> AbstractContextManager[object]:
        return self._inner.stream(path, query=query, timeout_s=timeout_s)

    def close(self) -> None:
        self._inner.close()
