"""A plain client of the Kubernetes API for tests: JSON in, JSON out. It shares no code with what is tested."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlencode, urlsplit

Json = dict[str, Any]
MERGE, STRATEGIC, JSON_PATCH, APPLY = (
    f"application/{kind}"
    for kind in ("merge-patch+json", "strategic-merge-patch+json", "json-patch+json", "apply-patch+yaml")
)
DELETE_NOW: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}


class ApiError(Exception):
    """The server said no. ``status``: HTTP code; ``reason``: of the Status object."""

    def __init__(self, status: int, body: bytes) -> None:
        try:
            said: Json = json.loads(body)
        except ValueError:
            said = {"message": body.decode(errors="replace")}
        self.status = status
        self.reason = str(said.get("reason", ""))
        super().__init__(f"{status} {self.reason}: {said.get('message', '')}")


class Api:
    """One user's access. Threads may share it: each has its own connection."""

    def __init__(self, server: str, ca: str, token: str) -> None:
        self._address = urlsplit(server).netloc
        self._context = ssl.create_default_context(cafile=ca)
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._local = threading.local()

    def call(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", **query: Any
    ) -> Json:
        """One request. Raises ApiError for a status of 400 or more, OSError when the server is not there."""
        status, data = self.raw(method, path, body, content_type=content_type, **query)
        if status >= 400:
            raise ApiError(status, data)
        answer: Json = json.loads(data)
        return answer

    def raw(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", **query: Any
    ) -> tuple[int, bytes]:
        """Status and body of one request. A connection that the server had closed is opened again, once."""
        target = f"{path}?{urlencode(query)}" if query else path
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers if data is None else {**self._headers, "Content-Type": content_type}
        kept = getattr(self._local, "connection", None)
        for connection in [*([kept] if kept else []), self._connect(30)]:
            try:
                connection.request(method, target, data, headers)
                response = connection.getresponse()
                answer = response.status, response.read()
            except (http.client.HTTPException, OSError) as error:
                connection.close()
                self._local.connection = None
                if connection is not kept:
                    raise OSError(f"{method} {target}: {error}") from error
                continue
            self._local.connection = connection
            return answer
        raise AssertionError("unreachable")

    def get(self, path: str, **query: Any) -> Json:
        return self.call("GET", path, **query)

    def items(self, path: str, **query: Any) -> list[Json]:
        """All objects of a list."""
        found: list[Json] = self.get(path, **query).get("items") or []
        return found

    def create(self, path: str, body: Json) -> Json:
        return self.call("POST", path, body)

    def patch(self, path: str, body: Any, content_type: str = MERGE, **query: Any) -> Json:
        return self.call("PATCH", path, body, content_type=content_type, **query)

    def delete(self, path: str, options: Json | None = None, **query: Any) -> Json:
        """Delete an object or, of a list's path, all; without ``options`` at once, grace period 0."""
        return self.call("DELETE", path, DELETE_NOW if options is None else options, **query)

    def each(self, work: Callable[[Any], object], things: Iterable[Any], threads: int = 8) -> None:
        """``work`` of every thing, several at a time; raises the first error."""
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(work, things):
                pass

    def watch(self, path: str, *, read_timeout_s: float = 600.0, **query: Any) -> Iterator[bytes]:
        """The lines of a watch, undecoded, until the server ends it. Raises ApiError when it is refused."""
        connection = self._connect(read_timeout_s)
        try:
            connection.request("GET", f"{path}?{urlencode({'watch': 1, **query})}", headers=self._headers)
            response = connection.getresponse()
            if response.status >= 400:
                raise ApiError(response.status, response.read())
            while line := response.readline():
                yield line
        finally:
            connection.close()

    def _connect(self, timeout_s: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._address, timeout=timeout_s, context=self._context)
