"""A watch: the changes of a resource as lines of JSON, one watch event each.

Source: kubernetes/kubernetes v1.36 staging/src/k8s.io/apiserver/pkg/storage/cacher (what a selector makes of a change,
bookmarks, the end of the initial state).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from tonnage.apiserver import render
from tonnage.apiserver.request import Form
from tonnage.apiserver.selectors import ObjectSelector
from tonnage.apiserver.status import StatusError
from tonnage.apiserver.store import ADDED, DELETED, MODIFIED, Store, Stored, StoreEvent
from tonnage.kube.resources import Resource

BOOKMARK_S = 10.0
"""Seconds of real time between bookmarks."""
TIMEOUT_S = 3600.0
_BATCH = 500
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """``since`` None: the present state first. ``bookmarks``: now and then how far it is. ``initial_end``: one when the
    present state is complete. Times in seconds of real time: ``timeout_s`` until the server ends it."""

    since: int | None = None
    bookmarks: bool = False
    initial_end: bool = False
    timeout_s: float = TIMEOUT_S
    bookmark_s: float = BOOKMARK_S


class Watch:
    """Read by one thread (or event loop); closed from any."""

    def __init__(
        self,
        store: Store,
        resource: Resource,
        selector: ObjectSelector,
        form: Form,
        options: WatchOptions,
        clock: Callable[[], float],
    ) -> None:
        self.resource, self.form = resource, form
        self._store, self._selector, self._options, self._clock = store, selector, options, clock
        self._notify: Callable[[], None] | None = None
        self._columns_sent = False
        self._prefix = f"{selector.namespace}/" if selector.namespace else ""
        self._first: list[bytes] = []
        self._ended = False
        now = time.monotonic()
        self._deadline = now + options.timeout_s
        self._next_bookmark = now + options.bookmark_s
        try:
            self._changes = store.subscribe(
                resource, options.since, namespace=selector.namespace, notify=self._notified
            )
        except StatusError as refusal:
            self._changes = store.subscribe(resource, store.version)
            self._fail(refusal)
            return
        self._initial = self._changes.initial
        self._marked = self._changes.version
        if options.initial_end and not self._initial:
            self._mark_initial_end()

    def on_change(self, notify: Callable[[], None]) -> None:
        """Call this, from any thread and under the store's lock, when :meth:`take` may have something. Set once."""
        self._notify = notify

    def take(self, wait_s: float = 0.0) -> list[bytes] | None:
        """The lines that are ready, after waiting up to ``wait_s`` seconds for one; None when the watch has ended."""
        lines, self._first = self._first, []
        if lines:
            return lines
        if self._ended or self._changes.closed:
            return None
        try:
            self._collect(lines, min(wait_s, self.patience()))
        except StatusError as refusal:
            self._fail(refusal)
            return self._first.copy()
        if not lines and time.monotonic() >= self._deadline:
            self.close()
            return [self._bookmark()] if self._options.bookmarks else None
        return lines

    def patience(self) -> float:
        """Seconds until this watch has something to say or do even if nothing changes."""
        until = min(self._deadline, self._next_bookmark) if self._options.bookmarks else self._deadline
        return max(0.0, until - time.monotonic())

    def close(self) -> None:
        """End it; a waiting :meth:`take` returns."""
        self._ended = True
        self._changes.close()

    def _notified(self) -> None:
        if self._notify is not None:
            self._notify()

    def _collect(self, lines: list[bytes], wait_s: float) -> None:
        change = self._changes.get(wait_s)
        while change is not None:
            line = self._line(change)
            if line is not None:
                lines.append(line)
            if self._initial:
                self._initial -= 1
                if not self._initial and self._options.initial_end:
                    self._mark_initial_end()
                    lines += self._first
                    self._first = []
            if len(lines) >= _BATCH:
                return
            change = self._changes.get(0)
        if self._options.bookmarks and time.monotonic() >= self._next_bookmark:
            self._next_bookmark = time.monotonic() + self._options.bookmark_s
            if self._reached() > self._marked:
                lines.append(self._bookmark())

    def _reached(self) -> int:
        """The version up to which everything was taken."""
        with self._store.lock:
            return self._store.version if not self._changes.pending() else self._marked

    def _bookmark(self) -> bytes:
        self._marked = self._reached()
        return _event(b"BOOKMARK", render.bookmark(self.resource, self._marked, self.form, False))

    def _mark_initial_end(self) -> None:
        self._first.append(_event(b"BOOKMARK", render.bookmark(self.resource, self._changes.version, self.form, True)))

    def _fail(self, refusal: StatusError) -> None:
        self._ended = True
        self._changes.close()
        self._first.append(_event(b"ERROR", _encode(refusal.body())))

    def _line(self, change: StoreEvent) -> bytes | None:
        """The event as this watch sees it; None when it does not."""
        now, old, selector = change.now, change.old, self._selector
        if self._prefix and not now.key.startswith(self._prefix):
            return None
        kind = change.type
        if selector:
            was = old is not None and selector.matches(old.object)
            now_matches = selector.matches(now.object)
            if kind == DELETED:
                if not was:
                    return None
            elif was and not now_matches:
                kind, now = DELETED, _at_version(old, change.version)
            elif not now_matches:
                return None
            else:
                kind = MODIFIED if was else ADDED
        return _event(kind.encode(), self._body(now))

    def _body(self, stored: Stored) -> bytes:
        if self.form.kind == "object":
            return stored.raw
        body = render.one(self.resource, stored, self.form, self._clock())
        if self.form.kind == "table":
            if self._columns_sent:
                return _encode({**msgspec.json.decode(body), "columnDefinitions": []})
            self._columns_sent = True
        return body


def _event(kind: bytes, body: bytes) -> bytes:
    return b'{"type":"' + kind + b'","object":' + body + b"}"


def _at_version(stored: Stored | None, version: int) -> Stored:
    """The last state that a selector matched, at the version at which it ceased to."""
    assert stored is not None
    obj = stored.fresh()
    obj["metadata"]["resourceVersion"] = str(version)
    return Stored(stored.key, version, _encode(obj), obj)
