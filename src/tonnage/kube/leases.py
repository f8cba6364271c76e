"""Leader election by a Lease (coordination.k8s.io/v1), that stops to lead before another can begin.

The rules are those of client-go's leaderelection: a follower takes a lease that has not changed for its duration *as
seen on the follower's own monotonic clock*, so clocks need not agree; the leader renews it every two seconds.

What keeps two from leading at once: a renewal counts from the moment *before* it was sent, and only if its success is
known. Others can see it only later, and wait 15 s from there; :meth:`Elector.leading` is True for 10 s. It is computed
when asked, so a process that was stopped and wakes up sees False. The clock must go on while the machine sleeps
(:func:`awake_and_asleep`).

A lease whose version is lower than what was seen comes from a backup: whoever leads now may not stand in it. It is
waited for as for a lease that was seen for the first time.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from tonnage.kube.resources import LEASES
from tonnage.kube.transport import ApiError, ClientError
from tonnage.kube.verbs import Client, JsonObject

LEASE_S = 15.0
RENEW_DEADLINE_S = 10.0
RETRY_S = 2.0
"""Defaults of client-go, kube-scheduler and kube-controller-manager."""


def awake_and_asleep() -> float:
    """Seconds on a clock that never goes back, and goes on while the machine sleeps where the system has one."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def _nobody() -> None:
    """Waits for nothing."""


class Elector:
    """One candidate. ``identity`` must be unique among processes, restarts included.

    ``clock`` gives seconds since the epoch and is only written down; ``monotonic`` is what decides. ``begins`` is
    called, in the thread of :meth:`step`, when it has come to lead.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        namespace: str,
        identity: str,
        clock: Callable[[], float],
        monotonic: Callable[[], float] = awake_and_asleep,
        *,
        lease_s: float = LEASE_S,
        renew_deadline_s: float = RENEW_DEADLINE_S,
        retry_s: float = RETRY_S,
        begins: Callable[[], object] = _nobody,
    ) -> None:
        if not retry_s < renew_deadline_s < lease_s:
            raise ValueError("expected retry_s < renew_deadline_s < lease_s")
        self._client, self._name, self._namespace, self.identity = client, name, namespace, identity
        self._clock, self._monotonic = clock, monotonic
        self._lease_s, self._renew_deadline_s, self.retry_s = lease_s, renew_deadline_s, retry_s
        self._begins = begins
        self._leads_until = 0.0  # on the monotonic clock
        self._lease: JsonObject | None = None  # as read or written last
        self._seen_at = 0.0  # when it was first seen like that
        self._newest = 0  # its version as seen last, also when it is not held any more
        self._restored_at = -math.inf  # when that was last seen to be lower than before
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.went_back = False
        """Whether its version has ever been lower than before: etcd was restored from a backup."""
        self.problem = ""
        """Why the last step failed; empty when it did not."""

    def leading(self) -> bool:
        """Whether this may act as the leader at this moment. Ask again before every effect."""
        return self.valid_for_s() > 0

    def valid_for_s(self) -> float:
        """For how many seconds more it leads without another renewal; 0 for a follower. A bound for the time-out of
        a request that only the leader may send."""
        return max(0.0, self._leads_until - self._monotonic())

    @property
    def version(self) -> int:
        """The lease's version as seen or written last: about as far as the server's history has come."""
        return self._newest

    @property
    def holder(self) -> str:
        """The identity in the lease as last seen; empty when nobody holds it."""
        return str(_spec(self._lease).get("holderIdentity") or "") if self._lease else ""

    def step(self) -> bool:
        """Try once to take or renew the lease; whether it leads. Call it every ``retry_s``, from one thread."""
        try:
            self._try()
            self.problem = ""
        except Exception as error:  # whatever stands in the lease: a candidate that gave up would never lead again
            self.problem = f"lease {self._namespace}/{self._name}: {error}"
        return self.leading()

    def release(self) -> None:
        """Stop leading, then give the lease up so that another need not wait for it to run out."""
        held = self._lease is not None and self.holder == self.identity
        self._leads_until = 0.0
        if held and self._lease is not None:
            spec = {**_spec(self._lease), "holderIdentity": "", "leaseDurationSeconds": 1}
            spec |= {"renewTime": self._now(), "acquireTime": self._now()}
            try:
                self._write("PUT", {**self._lease, "spec": spec})
            except ClientError as error:
                self.problem = f"lease {self._namespace}/{self._name} not released: {error}"
            self._lease = None

    def start(self) -> None:
        """Step every ``retry_s`` in a thread until :meth:`stop`."""
        self._thread = threading.Thread(target=self.run, name=f"lease-{self._name}", daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Step until :meth:`stop`, then release. For a thread of one's own."""
        while not self._stopped.is_set():
            self.step()
            self._stopped.wait(self.retry_s)
        self.release()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop leading at once, and release the lease."""
        self._stopped.set()
        self._leads_until = 0.0
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _try(self) -> None:
        if self._lease is not None and self.leading():
            try:
                return self._renew(self._lease)
            except ApiError as error:
                if error.code not in (404, 409):
                    raise
                # Somebody wrote it, or our own write got through and its answer did not: look.
        lease = self._read()
        if lease is None:
            return None if self._another_may_lead() else self._create()
        holder = str(_spec(lease).get("holderIdentity") or "")
        if holder not in ("", self.identity):
            self._leads_until = 0.0
        if self._another_may_lead():
            return None
        return self._renew(lease)

    def _another_may_lead(self) -> bool:
        """Whether the lease as last seen is another's, and had not run out when it was last seen unchanged; or whether
        it is of a backup, and what was in it before had not run out."""
        if not self.leading() and self._monotonic() - self._restored_at < self._lease_s:
            return True
        if self._lease is None or self.holder in ("", self.identity):
            return False
        seconds = float(_spec(self._lease).get("leaseDurationSeconds") or self._lease_s)
        return self._monotonic() - self._seen_at < seconds

    def _read(self) -> JsonObject | None:
        try:
            found = self._call("GET", LEASES.path(self._namespace, self._name))
        except ApiError as error:
            if error.code == 404:
                self._leads_until = 0.0
                return None
            raise
        now = self._monotonic()
        held = self._lease is not None and self.holder == self.identity and now - self._seen_at < self._lease_s
        if int(_version(found)) < self._newest and not held:  # had it been held here, nobody could have it since
            self._restored_at = now
        if self._lease is None or _version(found) != _version(self._lease):
            self._seen_at = now
        self._note(int(_version(found)))
        self._lease = found
        return found

    def _create(self) -> None:
        begun, now = self._monotonic(), self._now()
        spec = {**self._mine(), "acquireTime": now, "renewTime": now, "leaseTransitions": 0}
        meta = {"name": self._name, "namespace": self._namespace}
        lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": meta, "spec": spec}
        self._won(self._write("POST", lease), begun)

    def _renew(self, lease: JsonObject) -> None:
        begun, now, spec = self._monotonic(), self._now(), _spec(lease)
        new = {**spec, **self._mine(), "renewTime": now}
        if spec.get("holderIdentity") != self.identity:
            new["acquireTime"] = now
            new["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
        try:
            written = self._write("PUT", {**lease, "spec": new})
        except ApiError as error:
            if error.code == 409 and spec.get("holderIdentity") != self.identity:
                return  # another was faster
            raise
        self._won(written, begun)

    def _won(self, lease: JsonObject, begun: float) -> None:
        self._lease, self._seen_at = lease, self._monotonic()
        if not self._stopped.is_set():
            led = self.leading()
            self._leads_until = begun + self._renew_deadline_s
            if not led:
                self._begins()

    def _mine(self) -> JsonObject:
        return {"holderIdentity": self.identity, "leaseDurationSeconds": math.ceil(self._lease_s)}

    def _write(self, method: str, lease: JsonObject) -> JsonObject:
        name = self._name if method == "PUT" else ""
        written = self._call(method, LEASES.path(self._namespace, name), lease)
        self._note(int(_version(written)))
        return written

    def _note(self, version: int) -> None:
        self.went_back = self.went_back or version < self._newest
        self._newest = version

    def _call(self, method: str, path: str, body: JsonObject | None = None) -> JsonObject:
        reply = self._client.call(method, path, body, timeout_s=self._renew_deadline_s / 2)
        found: JsonObject = msgspec.json.decode(reply.body)
        return found

    def _now(self) -> str:
        """MicroTime, as RFC 3339 with six digits."""
        return datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _version(lease: JsonObject) -> Any:
    """Any write counts as a sign of life, whatever time it was stamped with."""
    return lease["metadata"]["resourceVersion"]


def _spec(lease: JsonObject) -> dict[str, Any]:
    return lease.get("spec") or {}
