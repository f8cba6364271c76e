"""Pods that simulated controllers make and the API server refuses: an event says so, and they are made again later."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tonnage.hollow.strangers import Say
from tonnage.machines.admitting import TryAgain
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.objects import CreationBackoff, SimulatedPod


class RefusedPods:
    """``say`` is told of events. :meth:`add` may be called in any thread, :meth:`tell` in the owner's."""

    def __init__(self, cluster: SimulatedCluster, say: Say) -> None:
        self._cluster, self._say = cluster, say
        self._new: list[tuple[SimulatedPod, str]] = []
        self._tried: dict[tuple[str, str], CreationBackoff] = {}

    def add(self, pod: SimulatedPod, said: str) -> None:
        """The API server has just refused to make the pod."""
        self._new.append((pod, said))

    def tell(self, again: Callable[[SimulatedPod], None]) -> None:
        """Say what was refused, as controllers do; ``again`` is called when each is to be tried again."""
        refused, self._new = self._new, []
        for pod, said in refused:
            controller = pod.workload.controller
            if controller is not None:
                self._say(f"Training {controller.key}", "Warning", "FailedCreate", f"Error creating: {said}")
            known = self._tried.setdefault((pod.namespace, pod.name), CreationBackoff())
            if not known.waits:
                known.waits = True
                later = TryAgain(known, partial(_made_again, pod, again))
                self._cluster.queue.push(self._cluster.now_ns + known.next_ns(), later)


def _made_again(pod: SimulatedPod, again: Callable[[SimulatedPod], None], cluster: SimulatedCluster) -> None:
    if cluster.pods.get((pod.namespace, pod.name)) is pod:
        again(pod)
