"""The port to an API server: one request, or one stream of watch events. Everything above it is written once.

Three things implement it: HTTP to a real server (:mod:`tonnage.kube.http`), the embedded server called in
process (:mod:`tonnage.apiserver`), and a wrapper that injects faults (tests).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

from tonnage.objects.api import protobuf

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server answered. ``headers`` in lower case."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Transport(Protocol):
    """Safe to call from several threads."""

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
        """One request and its answer, whatever its status.

        Raises Unreachable when it is certain that the server did not get the request, and LostReply when it may have.
        """
        ...

    def stream(
        self, path: str, *, query: Mapping[str, str], timeout_s: float
    ) -> AbstractContextManager[Iterator[bytes]]:
        """The lines of a watch, each one JSON watch event; ends when the server ends it or after ``timeout_s`` seconds.

        Entering raises ApiError for a status of 400 or more, Unreachable without a connection; iterating raises
        Unreachable when the connection breaks. Leaving the context closes the connection, also from another thread's
        ``close``. The context manager may have a ``close()`` of its own that ends the iteration from any thread:
        informers call it to stop at once."""
        ...

    def close(self) -> None:
        """Close connections and end running streams."""
        ...


@runtime_checkable
class Overlapping(Protocol):
    """A transport that also makes requests for which nobody waits."""

    def submit(
        self,
        method: str,
        path: str,
        done: Done,
        *,
        lane: str,
        may: Callable[[], bool] = lambda: True,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content_type: str = JSON,
        accept: str = JSON,
        timeout_s: float = 30.0,
    ) -> bool:
        """As ``request``, but what comes of it is told to ``done``: the answer; what ``request`` would raise; or Again.
        Requests of one lane go out in their order. ``may``: whether it may be sent yet, asked until it may; a
        ClientError that it raises is what came of it. Both are called in any thread, and must not wait.

        False, and nothing is done, where ``request`` is to be used."""
        ...


class StatusCause(msgspec.Struct, frozen=True):
    """One thing that is wrong with a field."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """Which object, and how long to wait."""

    name: str = ""
    kind: str = ""
    retry_after_seconds: int = 0
    causes: list[StatusCause] = []


class Status(msgspec.Struct, frozen=True):
    """meta/v1 Status: how a server says no."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails = StatusDetails()


class ClientError(Exception):
    """Whatever keeps a call to the API from succeeding."""


class Unreachable(ClientError):
    """The server did not get the request."""


class LostReply(ClientError):
    """The server may have got the request and done it: nobody knows until the object is read again."""


class Again(ClientError):
    """The server did nothing, and is to be asked once more by ``request``: after a while, or with other credentials."""


class ApiError(ClientError):
    """The server said no. ``reason`` is Kubernetes' own word (NotFound, Conflict, AlreadyExists, Invalid, …)."""

    def __init__(self, code: int, reason: str, message: str, retry_after_s: float = 0.0) -> None:
        self.code, self.reason, self.message, self.retry_after_s = code, reason, message, retry_after_s
        super().__init__(f"{reason or code}: {message}")

    @classmethod
    def of(cls, reply: Reply) -> ApiError:
        """The error in an answer with a status of 400 or more."""
        try:
            if reply.body.startswith(protobuf.MAGIC):
                status = msgspec.convert(protobuf.decode(reply.body), Status)
            else:
                status = msgspec.json.decode(reply.body, type=Status)
        except (msgspec.DecodeError, protobuf.Malformed):
            status = Status(reply.status, "", reply.body[:200].decode(errors="replace"))
        after = reply.headers.get("retry-after", "")
        seconds = float(after) if after.isdigit() else float(status.details.retry_after_seconds)
        return cls(reply.status, status.reason, status.message or f"status {reply.status}", seconds)


Done: TypeAlias = Callable[[Reply | ClientError], None]
"""Told what came of a request."""
