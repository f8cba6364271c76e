"""Pod classes: pods that no scheduler can tell apart share one class, so that work is done once a class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from tonnage.cuda_fit import pods as cuda_pods
from tonnage.cuda_fit.need import Need
from tonnage.fleet import asks
from tonnage.fleet.asks import NOTHING, Ask
from tonnage.fleet.claim_needs import UNKNOWN_CLAIMS, ClaimNeed
from tonnage.fleet.columns import Interned
from tonnage.fleet.disks import Disk, inline_disks
from tonnage.fleet.features import needed
from tonnage.fleet.ports import Port, host_ports
from tonnage.fleet.volumes import UNKNOWN, Reach, VolumeNeed
from tonnage.objects import core

_NONE: Mapping[str, str] = {}

TEMPLATES_KEPT = 4096
"""Pod specs that are recognised by identity. Workloads stamp all their pods from one."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What a pod asks of a node alone, whatever stands elsewhere. ``requests``: cpu in millicores, memory in bytes, all
    else in units, without what stands for parts of devices (``numbers``: of that, what some nodes count as any other
    resource); ``pods`` is 1. ``cuda``: what is certain of the CUDA that
    its images need. ``ask``: what it wants of devices. ``reach``: from which nodes its volumes can be reached.
    ``features``: what the node's kubelet has to declare."""

    id: int
    requests: dict[str, int]
    node_name: str
    node_selector: dict[str, str]
    node_affinity: core.NodeAffinity | None
    tolerations: list[core.Toleration]
    cuda: tuple[Need, ...] = ()
    ask: Ask = NOTHING
    reach: tuple[Reach, ...] = ()
    features: tuple[str, ...] = ()
    numbers: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class PodClass:
    """All that placement can see of a pod. ``identity``: number of its namespace and labels, by which others select.

    ``ports``: of its node that it takes; ``disks``: that it mounts there; ``alone``: claims that no other pod may use
    meanwhile; ``attaches``: (driver, volume) of those that count against what a node can attach; ``claims``: what its
    ResourceClaims ask, as :class:`~tonnage.fleet.claim_needs.ClaimNeed` has it."""

    id: int
    shape: int
    identity: int
    namespace: str
    labels: dict[str, str]
    spec: core.PodSpec
    requests: dict[str, int]
    ports: tuple[Port, ...] = ()
    alone: tuple[str, ...] = ()
    attaches: tuple[tuple[str, str], ...] = ()
    disks: tuple[Disk, ...] = ()
    claims: tuple[str, ...] = ()


class ClassTable:
    """Interns pod classes. Two pods are one class when namespace, labels, every placement field and the annotations
    that placement looks at are equal."""

    def __init__(self) -> None:
        self.rows: list[PodClass] = []
        self.shapes: list[Shape] = []
        self._classes: dict[bytes, int] = {}
        self._shapes: dict[bytes, int] = {}
        self._identities: Interned[bytes, None] = Interned()
        self._templates: dict[tuple[object, ...], tuple[core.PodSpec, int]] = {}
        self._encode = msgspec.json.Encoder(order="sorted").encode

    def intern(
        self,
        namespace: str,
        labels: dict[str, str],
        spec: core.PodSpec,
        annotations: Mapping[str, str] = _NONE,
        volumes: VolumeNeed = UNKNOWN,
        claims: ClaimNeed = UNKNOWN_CLAIMS,
    ) -> int:
        """The class id of such a pod. Pods stamped from one template object are recognised without encoding."""
        asked = asks.relevant(annotations)
        template = (id(spec), namespace, asked, claims.asks)
        plain = not (volumes.reach or volumes.alone or volumes.attaches)
        known = self._templates.get(template) if plain else None
        if known is not None and known[0] is spec and self.rows[known[1]].labels == labels:
            return known[1]
        shape = self._shape(spec, dict(asked), volumes.reach)
        affinity = spec.affinity
        others = (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else None
        ports, disks = host_ports(spec), inline_disks(spec)
        of_volumes = (volumes.alone, volumes.attaches, disks, claims.asks)
        rules = others, spec.topology_spread_constraints, ports, of_volumes
        key = self._encode((namespace, labels, shape, rules))
        class_id = self._classes.get(key)
        if class_id is None:
            class_id = self._classes[key] = len(self.rows)
            identity = self._identities.intern(self._encode((namespace, labels)), None)
            requests = self.shapes[shape].requests
            self.rows.append(PodClass(class_id, shape, identity, namespace, labels, spec, requests, ports, *of_volumes))
        if len(self._templates) >= TEMPLATES_KEPT:
            self._templates.clear()
        if plain:
            self._templates[template] = (spec, class_id)
        return class_id

    def _shape(self, spec: core.PodSpec, annotations: Mapping[str, str], reach: tuple[Reach, ...]) -> int:
        asked = core.pod_requests(spec)
        ask = asks.read(spec, asked, annotations)
        requests, numbers = {**asks.counted(ask, asked), "pods": 1}, tuple(asks.numbers(ask, asked).items())
        node_affinity = spec.affinity.node_affinity if spec.affinity else None
        cuda, features = cuda_pods.certain(spec), needed(spec)
        of_node = spec.node_name, spec.node_selector, node_affinity, spec.tolerations
        key = self._encode((requests, *of_node, cuda, ask, reach, features, numbers))
        known = self._shapes.get(key)
        if known is None:
            known = self._shapes[key] = len(self.shapes)
            self.shapes.append(Shape(known, requests, *of_node, cuda, ask, reach, features, numbers))
        return known
