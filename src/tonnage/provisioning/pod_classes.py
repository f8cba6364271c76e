"""Pods that planning cannot tell apart, and how far each kind of them has been refused already."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from tonnage.decisions import Reason, Ref
from tonnage.fleet.asks import SHARED_GPU
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.load import Stage
from tonnage.provisioning.plans import PlanSettings
from tonnage.provisioning.pods import PendingPod, relaxations, uses_match_fields
from tonnage.provisioning.topology import Peers, PodRules, PodTopology


@dataclass(slots=True, eq=False)
class Attempt:
    """Pods of a class at one stage of relaxing.

    ``rules``: those about other pods that have a say at this stage. ``open``: planned NodeClaims (1) that may
    still take one, by number; ``full``: existing nodes (1) that will not any more.
    """

    stage: Stage
    peers: Peers
    rules: PodRules
    full: bytearray = field(default_factory=bytearray)
    open: bytearray = field(default_factory=bytearray)
    _barred: int = 0

    def still_open(self, claims: int) -> bytearray:
        """``open``, of this many planned NodeClaims, with what rules about nodes have been found to bar since."""
        open_, barred = self.open, self.rules.barred
        open_.extend(b"\1" * (claims - len(open_)))
        for number in itertools.islice(barred, self._barred, None):
            open_[number] = 0
        self._barred = len(barred)
        return open_


@dataclass(slots=True, eq=False)
class AlikePods:
    """Pods that planning cannot tell apart. ``seen``: how many pods had been placed when one was last refused;
    ``held_back``: which capacity reservation they wait for, if they do."""

    peers: Peers
    stages: list[Stage]
    refused: Reason | None = None
    attempts: list[Attempt] = field(default_factory=list)
    seen: int = -1
    held_back: str = ""
    waiting: list[Ref] = field(default_factory=list)

    def all_attempts(self, topology: PodTopology) -> Iterator[Attempt]:
        """One for each stage of relaxing. Its rules begin to count when it is first reached."""
        for number, stage in enumerate(self.stages):
            if number == len(self.attempts):
                self.attempts.append(Attempt(stage, self.peers, topology.rules(self.peers, stage.step)))
            yield self.attempts[number]


class PodClasses:
    """Sorts pods into classes. Pods of one template share their shape object, which is looked up first.

    Namespaces and labels tell pods apart only where some rule is about other pods.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        settings: PlanSettings,
        topology: PodTopology,
        pods: Iterable[PendingPod],
        *,
        relax_taints: bool,
    ) -> None:
        """``relax_taints``: the last thing to be given up is that taints with effect PreferNoSchedule bind."""
        self._catalogue, self._settings, self._topology = catalogue, settings, topology
        self._relax_taints = relax_taints
        self._encode = msgspec.json.Encoder(order="sorted").encode
        self._ruled = any(one.pod_anti_affinity for one in settings.bound) or any(
            one.shape.spread or one.shape.pod_affinity or one.shape.pod_anti_affinity for one in pods
        )
        self._content: dict[int, bytes] = {}
        self._classes: dict[tuple[bytes, bool, str, tuple[tuple[str, str], ...]], AlikePods] = {}
        self._stages_made = 0

    def of(self, pod: PendingPod) -> AlikePods:
        """The class of a pod, new where it is the first of its kind."""
        content = self._content.get(id(pod.shape))
        if content is None:
            content = self._content[id(pod.shape)] = self._encode(pod.shape)
        of_rules = (pod.ref.namespace, tuple(sorted(pod.labels.items()))) if self._ruled else ("", ())
        key = (content, pod.moved, *of_rules)
        if key not in self._classes:
            self._classes[key] = self._new(pod)
        return self._classes[key]

    def all(self) -> Iterable[AlikePods]:
        """In the order in which they were met."""
        return self._classes.values()

    def met(self) -> None:
        """All pods are known: what each class has to keep away from is too, and what it begins with is counted."""
        for one in self._classes.values():
            self._topology.met(one.peers)
            next(one.all_attempts(self._topology), None)

    def _new(self, pod: PendingPod) -> AlikePods:
        shape = pod.shape
        peers = self._topology.peers(pod.ref.namespace, pod.labels, shape)
        if uses_match_fields(shape):
            return AlikePods(peers, [], Reason("node affinity by matchFields is not supported by Karpenter"))
        if shape.ask.refused:
            return AlikePods(peers, [], Reason(shape.ask.refused))
        return AlikePods(peers, list(self._stages(pod)))

    def _stages(self, pod: PendingPod) -> Iterator[Stage]:
        shape, catalogue = pod.shape, self._catalogue
        amounts = {"pods": 1, **shape.requests}
        cut = {SHARED_GPU, *dict(shape.ask.profiles)}  # offered, if at all, by what a NodePool makes of its devices
        counted = {name: amount for name, amount in amounts.items() if name not in cut}
        requests, unknown = catalogue.amounts(counted), tuple(catalogue.unknown(counted))
        for step in relaxations(
            shape,
            preferences=self._settings.preferences,
            tolerate_prefer_no_schedule=self._relax_taints,
        ):
            self._stages_made += 1
            yield Stage(self._stages_made, step, amounts, requests, unknown, shape.ask, shape.host_ports, pod.moved)
