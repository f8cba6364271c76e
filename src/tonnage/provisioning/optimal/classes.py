"""Pods that patterns cannot tell apart, and how far they are relaxed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from tonnage.decisions import Ref
from tonnage.fleet.asks import SHARED_GPU
from tonnage.fleet.geometry import least_parts
from tonnage.objects import core, selectors
from tonnage.provisioning import labels
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.load import Stage
from tonnage.provisioning.plans import Plan, PlanSettings
from tonnage.provisioning.pods import (
    ExistingNode,
    PendingPod,
    PodShape,
    RelaxationStep,
    relaxations,
    strict_requirements,
)
from tonnage.provisioning.requirements import Requirements
from tonnage.provisioning.template import ALL_EFFECTS

PARTS = "devices/compute", "devices/memory"
"""Thousandths of devices that are partitioned where they are asked for: what MIG instances take of one another's room,
which no resource counts."""
UNLIMITED = 1 << 40
"""Of these, on nodes with other devices."""


@dataclass(slots=True, eq=False)
class PackingClass:
    """Pods of one shape, of one gang if ``gang`` names one. ``stages``: what they may insist on, the first that a node
    meets; ``amounts``: what one takes of a node, by resource; ``moving``: whether they run, and would
    have to move; ``apart``: groups of pods (by number) of which a node takes one at most."""

    shape: PodShape
    gang: str
    amounts: dict[str, int]
    moving: bool = False
    apart: tuple[int, ...] = ()
    stages: tuple[Stage, ...] = ()
    pods: list[Ref] = field(default_factory=list)

    @property
    def parts(self) -> tuple[int, int]:
        """At least how much of devices one takes, in :data:`PARTS`."""
        ask = self.shape.ask
        pieces = [(least_parts().get(name, (0, 0)), count) for name, count in ask.profiles]
        whole = ask.gpu_milli if not ask.shares else 0
        return (
            whole + sum(count * compute for (compute, _), count in pieces),
            whole + sum(count * memory for (_, memory), count in pieces),
        )


def taken(of: PackingClass, name: str) -> int:
    """What one of the pods takes of a resource, or of :data:`PARTS`."""
    return of.parts[PARTS.index(name)] if name in PARTS else of.amounts.get(name, 0)


class Classes:
    """Sorts pods into classes."""

    def __init__(self, catalogue: Catalogue, settings: PlanSettings, *, relax_taints: bool) -> None:
        self._catalogue, self._settings, self._relax_taints = catalogue, settings, relax_taints
        self._encode = msgspec.json.Encoder(order="sorted").encode
        self._content: dict[int, tuple[PodShape, bytes]] = {}
        self._by_key: dict[tuple[bytes, str, bool, tuple[int, ...]], PackingClass] = {}
        self._of: dict[Ref, PackingClass] = {}
        self._stages = 0

    def add(
        self,
        pods: Iterable[PendingPod],
        gangs: Mapping[Ref, str],
        *,
        moving: bool = False,
        apart: Mapping[Ref, tuple[int, ...]] = {},
    ) -> None:
        """Pods in the order in which they are to be placed; ``gangs``: to which gang a pod belongs; ``moving``: whether
        they run; ``apart``: in which groups a pod is of which a node takes one at most."""
        for pod in pods:
            key = self._key(pod.shape), gangs.get(pod.ref, ""), moving, apart.get(pod.ref, ())
            if key not in self._by_key:
                amounts = {"pods": 1, **pod.shape.requests}
                self._by_key[key] = PackingClass(pod.shape, key[1], amounts, moving, key[3])
            self._by_key[key].pods.append(pod.ref)
            self._of[pod.ref] = self._by_key[key]

    def all(self) -> list[PackingClass]:
        """The classes, those with the largest pods first."""
        return sorted(self._by_key.values(), key=lambda one: (-one.amounts.get("cpu", 0), one.pods[0]))

    def of(self, pod: Ref) -> PackingClass | None:
        """The class of a pod; None for one that was not added."""
        return self._of.get(pod)

    def settle(self, base: Plan, nodes: Mapping[Ref, ExistingNode]) -> None:
        """Say for each class how far it is relaxed: as far as Karpenter's plan had to, and no further. Any of several
        required terms will do."""
        needed: Counter[int] = Counter()
        steps = {id(one): self._steps(one.shape) for one in self._by_key.values()}
        for claim in base.claims:
            for pod in claim.pods:
                self._need(needed, steps, pod, claim.requirements, claim.taints)
        own = {ref: Requirements.of_labels(node.labels) for ref, node in nodes.items()}
        for one in base.nominations:
            self._need(needed, steps, one.pod, own[one.node], nodes[one.node].taints)
        for of in self._by_key.values():
            listed = steps[id(of)]
            last = max(needed[id(of)], len(strict_requirements(of.shape)))
            of.stages = tuple(self._stage(of, step) for step in listed[:last])

    def _need(
        self,
        needed: Counter[int],
        steps: Mapping[int, Sequence[RelaxationStep]],
        pod: Ref,
        own: Requirements,
        taints: Sequence[core.Taint],
    ) -> None:
        of = self._of.get(pod)
        if of is None:
            return
        for number, step in enumerate(steps[id(of)], 1):
            if own.compatible(step.requirements, labels.well_known()) and (
                selectors.untolerated(taints, step.tolerations, ALL_EFFECTS) is None
            ):
                needed[id(of)] = max(needed[id(of)], number)
                return

    def _key(self, shape: PodShape) -> bytes:
        known = self._content.get(id(shape))
        if known is None:
            known = self._content[id(shape)] = shape, self._encode(shape)
        return known[1]

    def _steps(self, shape: PodShape) -> list[RelaxationStep]:
        preferences = self._settings.preferences
        return list(relaxations(shape, preferences=preferences, tolerate_prefer_no_schedule=self._relax_taints))

    def _stage(self, of: PackingClass, step: RelaxationStep) -> Stage:
        cut = {SHARED_GPU, *dict(of.shape.ask.profiles)}
        counted = {name: amount for name, amount in of.amounts.items() if name not in cut}
        self._stages += 1
        unknown = tuple(self._catalogue.unknown(counted))
        row, shape = self._catalogue.amounts(counted), of.shape
        return Stage(self._stages, step, of.amounts, row, unknown, shape.ask, shape.host_ports, of.moving)
