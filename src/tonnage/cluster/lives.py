"""What decisions know of the lives of a cluster's pods, kept current from what informers report."""

from __future__ import annotations

from tonnage.cluster.clock import Clock
from tonnage.fleet.snapshot import PodLife
from tonnage.objects import core


class Lives:
    """``lives``: of every pod that is bound or leaves; ``nominations``: the nodes on which room is made for pods, which
    are also nominated by decisions that no watch has shown yet. Both by namespace/name."""

    def __init__(self, clock: Clock, nominations: dict[str, str]) -> None:
        self.lives: dict[str, PodLife] = {}
        self.nominations = nominations
        self._clock = clock

    def pod(self, old: core.Pod | None, new: core.Pod | None) -> None:
        """A pod was added, changed or deleted."""
        one = new or old
        assert one is not None
        key = f"{one.namespace}/{one.name}"
        known = self.lives.pop(key, None)
        anew = old is None or new is None or old.metadata.uid != new.metadata.uid
        if new is None or new.status.phase in core.FINISHED:
            self.nominations.pop(key, None)
            return
        if anew:
            known = None
        taken_back = old is not None and old.status.nominated_node_name and not new.status.nominated_node_name
        bound = new.spec.node_name and (old is None or not old.spec.node_name)
        if anew or taken_back or bound:
            self.nominations.pop(key, None)
        if new.spec.node_name or new.metadata.deletion_timestamp:
            self.lives[key] = self._life(new, known or PodLife())
        if new.status.nominated_node_name and not new.spec.node_name:
            self.nominations[key] = new.status.nominated_node_name

    def _life(self, pod: core.Pod, known: PodLife) -> PodLife:
        """Times are those at which something was first seen to be so."""
        bound, ready = condition(pod, "PodScheduled"), condition(pod, "Ready")
        bound_ns, started_ns = known.bound_ns, known.started_ns
        if bound_ns is None and bound is not None and bound.status == "True":
            bound_ns = self._clock.of(bound.last_transition_time)
        serves = ready is not None and ready.status == "True"
        silent = not pod.status.conditions and not pod.status.phase  # as written by hand
        if started_ns is None and ready is not None and serves:
            started_ns = self._clock.of(ready.last_transition_time)
        leaving = pod.metadata.deletion_timestamp is not None
        return PodLife(started_ns, ready=serves or silent or not pod.spec.node_name, leaving=leaving, bound_ns=bound_ns)


def condition(pod: core.Pod, type_: str) -> core.PodCondition | None:
    """The pod's condition of this type."""
    return next((one for one in pod.status.conditions if one.type == type_), None)
