"""What decisions know of the lives of a cluster's pods, kept current from what informers report."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from tonnage.fleet.snapshot import PodLife
from tonnage.kube.clock import Clock
from tonnage.live.annotations import SAVED_AT
from tonnage.objects import core


@dataclass(frozen=True, slots=True)
class _Told:
    """The timestamps of a pod that were read last, and what they mean: one that stays the same means the same."""

    uid: str
    started: str | None = None
    saved: str | None = None
    bound: str | None = None
    started_ns: int | None = None
    saved_ns: int = 0
    bound_ns: int | None = None


class Lives:
    """``lives``: of every pod that is bound or leaves; ``nominations``: the nodes on which room is made for pods, which
    are also nominated by decisions that no watch has shown yet. Both by namespace/name."""

    def __init__(self, clock: Clock, nominations: dict[str, str]) -> None:
        self.lives: dict[str, PodLife] = {}
        self.nominations = nominations
        self._clock = clock
        self._told: dict[str, _Told] = {}
        self._evicted: dict[str, str] = {}  # uids of pods whose eviction no watch has shown yet, by namespace/name

    def pod(self, old: core.Pod | None, new: core.Pod | None) -> None:
        """A pod was added, changed or deleted."""
        one = new or old
        assert one is not None
        key = f"{one.namespace}/{one.name}"
        self.lives.pop(key, None)
        if new is None or new.status.phase in core.FINISHED:
            self._told.pop(key, None)
            self._evicted.pop(key, None)
            self.nominations.pop(key, None)
            return
        if new.metadata.deletion_timestamp or new.metadata.uid != self._evicted.get(key):
            self._evicted.pop(key, None)
        self._nominate(key, old, new)
        told = self._told[key] = self._read(new, self._told.get(key))
        if new.spec.node_name or new.metadata.deletion_timestamp:
            self.lives[key] = _life(new, told, leaving=key in self._evicted)

    def assume_leaving(self, key: str, uid: str) -> None:
        """The pod is being evicted: it leaves before a watch shows that, and nobody else is evicted instead."""
        told = self._told.get(key)
        if key in self.lives and told is not None and uid in ("", told.uid):
            self._evicted[key] = told.uid
            self.lives[key] = replace(self.lives[key], leaving=True)

    def assume_staying(self, key: str, uid: str) -> None:
        """The pod was not evicted after all."""
        if self._evicted.get(key) == uid:
            del self._evicted[key]
            self.lives[key] = replace(self.lives[key], leaving=False)

    def _nominate(self, key: str, old: core.Pod | None, new: core.Pod) -> None:
        """A new nomination in the API counts, whoever wrote it; one that was decided here since stays."""
        anew = old is None or old.metadata.uid != new.metadata.uid
        before = "" if old is None or anew else old.status.nominated_node_name
        if anew or (new.spec.node_name and not old.spec.node_name):  # type: ignore[union-attr]
            self.nominations.pop(key, None)
        if new.status.nominated_node_name != before:
            self.nominations.pop(key, None)
            if new.status.nominated_node_name and not new.spec.node_name:
                self.nominations[key] = new.status.nominated_node_name

    def _read(self, pod: core.Pod, known: _Told | None) -> _Told:
        """What the pod's timestamps mean now."""
        if known is None or known.uid != pod.metadata.uid:
            known = _Told(pod.metadata.uid)
        started, saved, bound = (
            _started(pod),
            pod.metadata.annotations.get(SAVED_AT) or None,
            _since(pod, "PodScheduled"),
        )
        if started is None and not pod.status.container_statuses:
            started = known.started  # it works on, though it is not Ready
        if (started, saved, bound) == (known.started, known.saved, known.bound):
            return known
        started_ns = known.started_ns if started == known.started else self._time(started)
        saved_ns = known.saved_ns if saved == known.saved else self._time(saved) or 0
        bound_ns = known.bound_ns if bound == known.bound else self._time(bound)
        return _Told(pod.metadata.uid, started, saved, bound, started_ns, saved_ns, bound_ns)

    def _time(self, timestamp: str | None) -> int | None:
        """None for what is not a time."""
        if timestamp is not None:
            with suppress(ValueError):
                return self._clock.of(timestamp)
        return None


def _life(pod: core.Pod, told: _Told, *, leaving: bool) -> PodLife:
    ready = condition(pod, "Ready")
    silent = not pod.status.conditions and not pod.status.phase  # as written by hand
    return PodLife(
        told.started_ns,
        told.saved_ns,
        ready=(ready is not None and ready.status == "True") or silent or not pod.spec.node_name,
        leaving=leaving or pod.metadata.deletion_timestamp is not None,
        bound_ns=told.bound_ns,
    )


def _started(pod: core.Pod) -> str | None:
    """Since when the last of its containers that run does so; of a pod that does not say, since when it is Ready."""
    running = [one.state.running.started_at for one in pod.status.container_statuses if one.state.running is not None]
    known = [at for at in running if at is not None]
    if known or pod.status.container_statuses:
        return max(known, default=None)
    return _since(pod, "Ready")


def _since(pod: core.Pod, type_: str) -> str | None:
    """When the pod's condition of this type became true; empty where it is true and does not say since when."""
    found = condition(pod, type_)
    return (found.last_transition_time or "") if found is not None and found.status == "True" else None


def condition(pod: core.Pod, type_: str) -> core.PodCondition | None:
    """The pod's condition of this type."""
    return next((one for one in pod.status.conditions if one.type == type_), None)
