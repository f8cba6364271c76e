"""A small API behind the transport port, with a history, that does what a test tells it to do wrong."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tonnage.kube.transport import MERGE_PATCH, Again, ApiError, ClientError, Done, LostReply, Reply, Unreachable
from tonnage.objects.api import protobuf

Fault = Callable[[], object]
"""Run before a request is served: may answer it with a Reply, raise, or change the world and let it pass."""


def refusal(code: int, reason: str, message: str = "no", retry_after: int = 0) -> Reply:
    status = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    headers = {"retry-after": str(retry_after)} if retry_after else {}
    return Reply(code, json.dumps(status).encode(), headers)


class ScriptedApi:
    """Objects by path. Implements Transport."""

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.version = 100
        self.objects: dict[str, dict[str, Any]] = {}
        self.history: list[tuple[int, str, str, str]] = []  # version, collection, type, object as JSON
        self.oldest = 0
        self.faults: deque[Fault] = deque()
        self.watch_faults: deque[Fault] = deque()
        self.lines_instead: deque[list[bytes | Exception]] = deque()
        self.requests: list[tuple[str, str]] = []
        self.watches: list[dict[str, str]] = []
        self.lists: list[dict[str, str]] = []
        self.looks = 0  # lists of one object, for their version
        self.absent: set[str] = set()
        self.generation = 0  # raising it ends all watches
        self.closed = False
        self.bookmarks_every_s = 0.05

    # what a test does to it

    def put(self, collection: str, name: str, namespace: str = "", uid: str = "", **content: Any) -> int:
        """Make or change an object; its version."""
        with self.lock:
            path = _path(collection, namespace, name)
            old = self.objects.get(path)
            self.version += 1
            meta = {"name": name, "namespace": namespace, "resourceVersion": str(self.version)}
            meta["uid"] = uid or (old["metadata"]["uid"] if old else f"uid-{self.version}")
            self.objects[path] = {"metadata": meta, **content}
            self._note(collection, "MODIFIED" if old else "ADDED", self.objects[path])
            return self.version

    def remove(self, collection: str, name: str, namespace: str = "") -> int:
        with self.lock:
            gone = self.objects.pop(_path(collection, namespace, name))
            self.version += 1
            gone["metadata"]["resourceVersion"] = str(self.version)
            self._note(collection, "DELETED", gone)
            return self.version

    def compact(self) -> None:
        """Forget the history, and end the watches."""
        with self.lock:
            self.oldest = self.version
            self.history.clear()
        self.drop_watches()

    def drop_watches(self) -> None:
        with self.lock:
            self.generation += 1
            self.lock.notify_all()

    # Transport

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content_type: str = "",
        accept: str = "",
        timeout_s: float = 30.0,
    ) -> Reply:
        self.requests.append((method, path))
        if self.faults and isinstance(reply := self.faults.popleft()(), Reply):
            return reply
        with self.lock:
            return self._serve(method, path, dict(query or {}), json.loads(body) if body else {}, content_type)

    @contextmanager
    def stream(self, path: str, *, query: Mapping[str, str], timeout_s: float) -> Iterator[Iterator[bytes]]:
        self.watches.append(dict(query))
        if self.watch_faults and isinstance(reply := self.watch_faults.popleft()(), Reply):
            raise ApiError.of(reply)
        since = int(query["resourceVersion"])
        if since < self.oldest:
            raise ApiError(410, "Expired", "too old resource version")
        if self.lines_instead:
            yield self._spoken(self.lines_instead.popleft())
        else:
            yield self._events(path, since, min(float(query["timeoutSeconds"]), timeout_s))

    def close(self) -> None:
        with self.lock:
            self.closed = True
            self.lock.notify_all()

    def _serve(self, method: str, path: str, query: dict[str, str], body: dict[str, Any], content_type: str) -> Reply:
        if path in self.absent:
            return Reply(404, b"404 page not found\n")
        found = self.objects.get(path)
        if method == "GET" and found is None and not _is_object(path):
            return self._list(path, query)
        if method == "POST":
            name = body["metadata"]["name"]
            if f"{path}/{name}" in self.objects:
                return refusal(409, "AlreadyExists")
            return self._store(f"{path}/{name}", body, 201)
        if found is None:
            return refusal(404, "NotFound")
        if method == "GET":
            return Reply(200, json.dumps(found).encode())
        if method == "PUT":
            if body["metadata"].get("resourceVersion") not in (None, found["metadata"]["resourceVersion"]):
                return refusal(409, "Conflict")
            return self._store(path, body, 200)
        if method == "PATCH" and content_type == MERGE_PATCH:
            return self._store(path, {**found, **body}, 200)
        return refusal(405, "MethodNotAllowed")

    def _store(self, path: str, body: dict[str, Any], status: int) -> Reply:
        self.version += 1
        old = self.objects.get(path)
        meta = {"uid": old["metadata"]["uid"] if old else f"uid-{self.version}", **body["metadata"]}
        stored = {**body, "metadata": {**meta, "resourceVersion": str(self.version)}}
        self.objects[path] = json.loads(json.dumps(stored))
        self._note(path.rsplit("/", 1)[0], "MODIFIED" if old else "ADDED", self.objects[path])
        return Reply(status, json.dumps(stored).encode())

    def _list(self, collection: str, query: dict[str, str]) -> Reply:
        if query.get("limit") == "1":
            self.looks += 1
        else:
            self.lists.append(query)
        start, version = 0, self.version
        if query.get("continue"):
            version, start = (int(part) for part in query["continue"].split("-"))
            if version < self.oldest:
                return refusal(410, "Expired", "the continue token is too old")
        found = [o for path, o in sorted(self.objects.items()) if _in(path, collection)]
        size = int(query.get("limit", len(found) or 1))
        meta: dict[str, Any] = {"resourceVersion": str(version)}
        if start + size < len(found):
            meta["continue"] = f"{version}-{start + size}"
        return Reply(200, json.dumps({"metadata": meta, "items": found[start : start + size]}).encode())

    def _events(self, path: str, since: int, seconds: float) -> Iterator[bytes]:
        generation, end, at = self.generation, time.monotonic() + seconds, since
        bookmark = time.monotonic() + self.bookmarks_every_s
        while True:
            with self.lock:
                todo = [event for event in self.history if event[0] > at and _in(event[1] + "/x", path)]
                if not todo:
                    if self.closed or generation != self.generation or time.monotonic() > end:
                        return
                    self.lock.wait(0.02)
                version = self.version
            for number, _, kind, text in todo:
                at = number
                yield f'{{"type":"{kind}","object":{text}}}'.encode()
            if not todo and time.monotonic() > bookmark:
                bookmark = time.monotonic() + self.bookmarks_every_s
                yield event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version)}})

    def _spoken(self, lines: list[bytes | Exception]) -> Iterator[bytes]:
        """What a test says instead; the server has reached the versions in it."""
        for line in lines:
            if isinstance(line, Exception):
                raise line
            for version in re.findall(rb'"resourceVersion": "(\d+)"', line):
                self.version = max(self.version, int(version))
            yield line

    def _note(self, collection: str, kind: str, item: dict[str, Any]) -> None:
        typed = {"apiVersion": "v1", "kind": "Pod", **item}
        self.history.append((self.version, collection, kind, json.dumps(typed)))
        self.lock.notify_all()


class OverlappingApi(ScriptedApi):
    """The same, which makes requests in a thread of its own too. Implements Overlapping."""

    def __init__(self) -> None:
        super().__init__()
        self.submitted: list[str] = []
        self._thread = ThreadPoolExecutor(1, "overlapping")

    def submit(self, method: str, path: str, done: Done, *, lane: str, body: bytes, **_: Any) -> bool:
        def make() -> None:
            found: Reply | ClientError
            try:
                found = self.request(method, path, body=json.dumps(protobuf.decode(body)).encode())
            except ClientError as error:
                found = error
            again = isinstance(found, Reply) and (found.status == 401 or "retry-after" in found.headers)
            done(Again("later") if again else found)

        self.submitted.append(path)
        self._thread.submit(make)
        return True


def event(kind: str, item: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": item}).encode()


def lost() -> Reply | None:
    raise LostReply("the test lost it")


def unreachable() -> Reply | None:
    raise Unreachable("the test says so")


def _path(collection: str, namespace: str, name: str) -> str:
    root, _, plural = collection.rpartition("/")
    return f"{root}/namespaces/{namespace}/{plural}/{name}" if namespace else f"{collection}/{name}"


def _is_object(path: str) -> bool:
    parts = path.split("/")[3 if path.startswith("/api/") else 4 :]
    return len(parts) in ((2, 4) if parts[0] != "namespaces" else (4,))


def _in(path: str, collection: str) -> bool:
    """Whether an object lies in a collection, or in one namespace of it."""
    if path.rpartition("/")[0] == collection:
        return True
    root, _, plural = collection.rpartition("/")
    return path.startswith(f"{root}/namespaces/") and path.split("/")[-2] == plural
